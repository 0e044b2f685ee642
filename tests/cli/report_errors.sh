# `ampbench report`: what is wrong is said in one line that names the file or option, with the exit status of
# its kind.
set -u
fail() { echo "FAIL: $*" >&2; exit 1; }
result="$AMPBENCH_SOURCE/tests/fixtures/result_tiny.json"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

# expect STATUS TEXT ARGUMENT...
expect() {
    local status=$1 text=$2
    shift 2
    "$AMPBENCH" report "$@" > stdout 2> stderr
    local found=$?
    [ $found = "$status" ] || fail "report $*: exit status $found instead of $status: $(cat stderr)"
    [ "$(wc -l < stderr)" = 1 ] || fail "report $*: not one line: $(cat stderr)"
    grep -qF -- "$text" stderr || fail "report $*: '$text' is not in: $(cat stderr)"
    [ -s stdout ] && [ "$status" != 0 ] && [ "${allow_output-}" = "" ] &&
        fail "report $*: output in spite of the error"
    return 0
}

expect 2 'expected a result document'
expect 2 'missing.json: cannot open' missing.json
expect 2 "did you mean '--format'" --formt csv "$result"
expect 2 'did you mean csv' --format cvs "$result"
expect 2 '--format expects a value' "$result" --format
expect 2 'auto, always or never' --color blue "$result"
expect 2 'expected one result document' "$result" "$result"

head -c 2000 "$result" > cut.json
expect 2 'cut.json: line' cut.json
echo '{"schema": "ampbench-result", "schema_version": "3.0.0"}' > newer.json
expect 6 'newer.json: schema_version: this program reads 1.x' newer.json
echo '{"schema": "perfherder", "schema_version": "1.0.0"}' > other.json
expect 6 'other.json: schema' other.json
sed 's/"steps_applied": 6,/"steps_applied": "six",/' "$result" > typo.json
expect 2 'cells[0].steps_applied: expected integer, found "six"' typo.json
sed 's/"steps_applied": 6,/"steps_applied": 5,/' "$result" > sum.json
expect 2 'cells[0]: steps_applied + steps_skipped is 5' sum.json

allow_output=1
expect 2 '--csv: no/such/file.csv: cannot write' --csv no/such/file.csv "$result"
expect 2 '--markdown: no/such/file.md: cannot write' --markdown no/such/file.md "$result"
# A page whose figures fail is not left half written, and an older one stays.
echo old > page.html
TMPDIR=$out/nowhere expect 2 '--html: ' --html page.html "$result"
[ "$(cat page.html)" = old ] || fail "--html: a page that failed replaced the old one"
TMPDIR=$out/nowhere expect 2 '--html: ' --html new.html "$result"
[ ! -e new.html ] || fail "--html: a page that failed was left"
