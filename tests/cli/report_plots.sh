# `ampbench report --plots`: data and scripts always, pictures where gnuplot is, and the scripts work by hand.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
result="$AMPBENCH_SOURCE/tests/fixtures/result_lenet5.json"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

PATH=/nonexistent "$AMPBENCH" report "$result" --plots bare > /dev/null 2> errors ||
    fail "a missing gnuplot is no error"
grep -q 'gnuplot was not found' errors || fail "nothing said about the missing gnuplot"
for plot in frontier gradients loss scale cost flush; do
    [ -s bare/$plot.dat ] && [ -s bare/$plot.gp ] || fail "$plot has no data or no script"
    [ ! -e bare/$plot.png ] || fail "$plot.png without gnuplot"
done
if ! command -v gnuplot > /dev/null; then
    echo "gnuplot is not here: pictures are not tested"
    exit 0
fi
"$AMPBENCH" report "$result" --plots deep/er/drawn > /dev/null 2> errors
[ -s errors ] && fail "messages: $(cat errors)"
for plot in frontier gradients loss scale cost flush; do
    [ "$(head -c 4 deep/er/drawn/$plot.png | tail -c 3)" = PNG ] || fail "$plot.png is no picture"
    cmp bare/$plot.dat deep/er/drawn/$plot.dat || fail "$plot.dat depends on gnuplot"
    (cd bare && gnuplot -d -e "format='svg'" $plot.gp) || fail "$plot.gp cannot be run by hand"
    grep -q '<svg' bare/$plot.svg || fail "$plot.svg is no picture"
done
"$AMPBENCH" report "$AMPBENCH_SOURCE/tests/fixtures/result_hostile.json" --plots hostile > /dev/null
[ ! -e hostile/pwned ] && [ ! -e pwned ] && [ ! -e /tmp/pwned ] || fail "a string of the document was run"
