# --normalize MEAN/STD and --pad: recorded, part of what a cell trains, known to plan, refused where they
# do not fit.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
small=(--net lenet5 --data synthetic --levels O0 --rounds 1 --batch 16 --steps 2 --probe-every 0
    --eval-limit 10 --no-floor --no-plots --quiet)
cd "$work" || exit 1

# digest_of NAME OPTIONS...: runs into NAME.json; the digest of its losses
digest_of() {
    local name=$1
    shift
    run run "${small[@]}" "$@" --out "$name.json"
    expect_rc 0 "run $*"
    follows_schema "$name.json" "run $*"
    digest=$(digests "$name.json")
}
digest_of before --normalize 0.1307/0.3081 --pad 2:before
before=$digest
digest_of default --normalize 0.1307/0.3081
[ "$digest" = "$before" ] || fail "--pad 2:before is not the default border: $digest, $before"
digest_of after --normalize 0.1307/0.3081 --pad 2
[ "$digest" != "$before" ] || fail "--pad 2 trains as --pad 2:before"
checks=$((checks + 2))
expect_text after.json '"0.1307/0.3081"' "the recorded --normalize"
grep -q '"pad":[[:space:]]*"2"' after.json || fail "--pad is not in the document"
run run "${small[@]}" --pad 3 --out refused.json
expect_rc 2 "--pad 3"
expect_text err "--pad 3: images of 28x28 become 34x34, expected the net's input, 32x32" "--pad 3"
run plan --net lenet5 --levels O0 --normalize 0.1307/0.3081 --pad 2
expect_rc 0 "plan"
run plan --net lenet5 --levels O0 --normalize 0.1307
expect_text err "--normalize: expected none, unit or standard, or MEAN/STD" "plan with a mean alone"
run plan --net lenet5 --levels O0 --normalize 0.1307/0
expect_rc 2 "plan with a std of 0"
expect_text err "--normalize: expected none, unit or standard, or MEAN/STD" "plan with a std of 0"

finish
