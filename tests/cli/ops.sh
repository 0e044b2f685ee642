# `ampbench help OP`: docs/ops.md is what the program prints, and every example trains at the levels of its
# table.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
run list ops --reference
expect_rc 0 "list ops --reference"
checks=$((checks + 1))
cmp -s out "$AMPBENCH_SOURCE/docs/ops.md" ||
    fail "docs/ops.md is out of date: write what \`ampbench list ops --reference\` prints into it"
cp out page
"$AMPBENCH" list ops | awk '{ print $1 }' >ops
examples=0
while read -r op; do
    checks=$((checks + 1))
    grep -qx "## $op" page || fail "docs/ops.md: no section $op"
    "$AMPBENCH" help "$op" >text 2>err || fail "help $op: $(head -c 300 err)"
    sed -n '/^    {"format"/,/^$/s/^    //p' text >"$op.json"
    [ -s "$op.json" ] || fail "help $op: no example"
    levels=O0,O1,O2,O3
    grep -q "^    refused .*O1" text && levels=O0,O2,O3
    "$AMPBENCH" run --net "$op.json" --levels $levels --steps 2 --batch 4 --rounds 1 --no-floor --no-plots \
        --probe-every 0 --eval-limit 4 --threads 1 --quiet --out "$op.out.json" >log 2>err ||
        fail "the example of $op does not train: $(head -c 300 err)"
    grep -qE '"final_loss": *(null|"nan)' "$op.out.json" && fail "the example of $op: its loss is not finite"
    examples=$((examples + 1))
done <ops
checks=$((checks + 1))
[ "$examples" -ge 58 ] || fail "$examples examples"
run help convd2
expect_rc 2 "a misspelt op"
expect_text err "did you mean 'conv2d'?" "a misspelt op"
run help
for op in $(cat ops); do
    checks=$((checks + 1))
    grep -qw "$op" out || fail "help does not list $op"
done
finish
