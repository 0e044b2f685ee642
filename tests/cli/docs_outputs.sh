# The outputs that pages of the documentation show are what the program prints, numbers apart: numbers depend
# on the machine's libraries. A changed page is noticed.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
mkdir -p "$work/tree/scripts"
cp -r "$AMPBENCH_SOURCE/scripts/doc-outputs" "$AMPBENCH_SOURCE/scripts/outputs" "$work/tree/scripts"
cp "$AMPBENCH_SOURCE/README.md" "$work/tree"
cp -r "$AMPBENCH_SOURCE/docs" "$work/tree"
program=$(realpath "$AMPBENCH")
check() {
    rc=0
    AMPBENCH=$program "$work/tree/scripts/doc-outputs" --check >"$work/out" 2>"$work/err" || rc=$?
}
check
expect_rc 0 "outputs in the documentation: $(head -c 1500 "$work/out")"
checks=$((checks + 1))
blocks=$(cat "$work"/tree/README.md "$work"/tree/docs/*.md "$work"/tree/docs/*/*.md |
    grep -c '^<!-- output: made by scripts/doc-outputs')
[ "$blocks" -ge 5 ] || fail "only $blocks outputs are made by scripts/doc-outputs"
rm -r "$work/tree/docs/ci" "$work/tree/docs/ranks.md"
: >"$work/tree/README.md"
sed -i 's/the loss scale is so high/the loss scale is too low/' "$work/tree/docs/diagnose.md"
check
expect_rc 1 "a changed output"
expect_text "$work/out" "docs/diagnose.md: out of date" "a changed output"
finish
