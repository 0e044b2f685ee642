# docs/frameworks.md: every option that it names exists and is accepted, and every command runs.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
cat >two.json <<'NET'
{"format": "ampbench-net-1", "name": "two", "input": {"height": 28, "width": 28, "channels": 1}, "ops": [
  {"name": "flat", "op": "flatten"}, {"name": "fc1", "op": "linear", "out_features": 10},
  {"name": "ce", "op": "cross_entropy"}, {"name": "size", "op": "square", "in": "fc1"},
  {"name": "small", "op": "mean"}], "losses": ["ce", {"op": "small", "weight": 0.01}]}
NET
page=$AMPBENCH_SOURCE/docs/frameworks.md
# The last column's code spans.
grep '^|' "$page" | awk -F'|' '{ print $3 }' | grep -oE '`(--|ampbench )[^`]*`' | tr -d '`' >spans
spans=0
while read -r span; do
    spans=$((spans + 1))
    net=lenet5
    case $span in
        ampbench*)
            # shellcheck disable=SC2086
            set -- $span
            shift
            run "$@"
            expect_rc 0 "$span"
            continue ;;
        *num_losses*) net=two.json ;;
        *math*tf32*)
            # shellcheck disable=SC2086
            run plan --net lenet5 $span
            expect_text err "only GPUs have TF32" "$span"
            continue ;;
    esac
    # shellcheck disable=SC2086
    run plan --net $net --device cpu --steps 20 $span
    expect_rc 0 "$span"
done <spans
checks=$((checks + 1))
[ "$spans" -ge 45 ] || fail "only $spans options in docs/frameworks.md"
run plan --net lenet5 --optimizer fusedadm:adam_w_mode=False
expect_rc 2 "a name that does not exist is refused"
finish
