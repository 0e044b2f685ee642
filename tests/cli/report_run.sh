# What a run writes follows the schema, and `ampbench report` prints the table that the run printed.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

run() { "$AMPBENCH" --data synthetic --net mlp --steps 8 --rounds 2 --probe-every 2 --threads 1 \
    --quiet "$@"; }

run --levels O0,O2,O3 --scales default,128 --half fp16,bf16 --out full.json --csv run.csv --markdown run.md \
    > run.txt
run --levels O2 --no-floor --no-plots --probe-every 0 --rounds 1 --optimizer adam --out bare.json > /dev/null
run --levels O3 --scales 1e38 --no-plots --out overflow.json > /dev/null || true

"$AMPBENCH" report full.json --csv report.csv --markdown report.md > report.txt
cmp run.txt report.txt || fail "the report's table is not the run's"
cmp run.csv report.csv || fail "the report's CSV is not the run's"
cmp run.md report.md || fail "the report's Markdown is not the run's"
for file in full bare overflow; do
    "$AMPBENCH" report $file.json --plots plots_$file > /dev/null || fail "$file.json cannot be reported"
    "$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/result-1.schema.json" \
        $file.json ||
        fail "$file.json does not follow the schema"
done
