# `ampbench report`: the same table in three forms, on stdout and into files, in colour only when wanted.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
result="$AMPBENCH_SOURCE/tests/fixtures/result_lenet5.json"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

"$AMPBENCH" report "$result" > table 2> errors
[ -s errors ] && fail "messages: $(cat errors)"
grep -q '^O3 .* void ' table || fail "no void ratio in the table"
grep -q 'floor ±' table || fail "no noise floor in the table"
"$AMPBENCH" report "$result" > again
cmp table again || fail "two reports of one document differ"

"$AMPBENCH" report --format csv "$result" > csv
"$AMPBENCH" report --format=markdown "$result" > markdown
"$AMPBENCH" report "$result" --csv file.csv --markdown file.md > with_files
cmp csv file.csv || fail "--csv and --format csv differ"
cmp markdown file.md || fail "--markdown and --format markdown differ"
cmp table with_files || fail "--csv changed what goes to stdout"
[ "$(grep -c $'\r$' csv)" = 8 ] || fail "the CSV does not have eight lines that end in CRLF"

"$AMPBENCH" report --format html "$result" > html 2> errors
"$AMPBENCH" report "$result" --html page.html --junit junit.xml > with_files 2>> errors
cmp html page.html || fail "--html and --format html differ"
cmp table with_files || fail "--html changed what goes to stdout"
if command -v xmllint > /dev/null; then
    xmllint --noout page.html junit.xml || fail "the page or the tests are not well-formed"
fi
"$AMPBENCH" report --format github "$result" | grep -q '^::warning title=ampbench%3A lenet5/O3' ||
    fail "no annotation"
mkdir elsewhere
(cd elsewhere && TMPDIR=/tmp "$AMPBENCH" report "$result" --html page.html > /dev/null 2>&1)
cmp html elsewhere/page.html || fail "the page depends on the folder"

escapes() { grep -q $'\033' "$1"; }
escapes table && fail "colour in a pipe"
"$AMPBENCH" report "$result" --color always > colored
escapes colored || fail "no colour with --color always"
CLICOLOR_FORCE=1 "$AMPBENCH" report "$result" > colored
escapes colored || fail "no colour with CLICOLOR_FORCE"
NO_COLOR=1 CLICOLOR_FORCE=1 "$AMPBENCH" report "$result" > plain
escapes plain && fail "colour in spite of NO_COLOR"
CLICOLOR_FORCE=1 "$AMPBENCH" report "$result" --color never > plain
escapes plain && fail "colour in spite of --color never"
for kind in broken hostile tiny; do
    "$AMPBENCH" report "$AMPBENCH_SOURCE/tests/fixtures/result_$kind.json" > /dev/null || fail "$kind"
done
"$AMPBENCH" report --help | grep -q -- '--plots DIR' || fail "no help"
