# ampbench read: logs of many shapes to the same numbers, on stdout alone; what is no log is refused in one
# line with what was looked for and the nearest lines.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

line=' iteration %8d/    100 | consumed samples: %12d | lm loss: 2.5E+00 | loss scale: %s | grad norm: 1.5 |'
for step in 1 2 3 4; do
    # shellcheck disable=SC2059
    printf "$line number of skipped iterations:   %d |\n" "$step" "$((step * 8))" "$((131072 / step)).0" \
        "$((step % 2))"
done >"$work/run.log"
run read "$work/run.log"
expect_rc 0 "a Megatron log"
expect_text "$work/out" "megatron in 4; 4 points" "lines recognised"
expect_text "$work/out" "loss scale  first 131072, last 32768, least 32768, largest 131072" "scales"
expect_text "$work/out" "skipped     2 steps" "skips"
cp "$work/out" "$work/plain"

# The same log gzipped, with carriage returns, colours, and rotated.
sed "s#$work/run.log: #LOG #;s/, [0-9]* bytes//" "$work/plain" >"$work/wanted"
same_as_plain() {
    run read "${@:2}"
    expect_rc 0 "$1"
    sed "s#^$work[^:]*: #LOG #;s/, [0-9]* bytes//" "$work/out" | cmp -s - "$work/wanted" ||
        fail "$1: other numbers: $(cat "$work/out")"
    checks=$((checks + 1))
}
gzip -c "$work/run.log" >"$work/run2.gz"
same_as_plain "gzipped" "$work/run2.gz"
sed 's/$/\r/' "$work/run.log" >"$work/crlf.log"
same_as_plain "CRLF" "$work/crlf.log"
sed "s/lm loss/$(printf '\033[1;32m')lm loss$(printf '\033[0m')/" "$work/run.log" >"$work/colour.log"
same_as_plain "colours" "$work/colour.log"
head -n 2 "$work/run.log" | gzip >"$work/r.log.1.gz"
tail -n +3 "$work/run.log" >"$work/r.log"
run read "$work/r.log" "$work/r.log.1.gz" --json -
expect_rc 0 "rotated"
expect_text "$work/out" '"step": [1, 2, 3, 4]' "rotated files are read from the oldest"
[ ! -s "$work/err" ] || fail "a clean run wrote to stderr: $(cat "$work/err")"

# JSON Lines and CSV: the same points.
printf '{"step": 1, "loss": 2.5, "scale": 64.0}\n{"step": 2, "loss": NaN, "scale": 32.0}\n' >"$work/a.jsonl"
printf 'updates,ce,amp\n1,2.5,64.0\n2,nan,32.0\n' >"$work/a.csv"
run read "$work/a.jsonl" --json "$work/a.json"
expect_rc 0 "JSON Lines"
grep -A 99 '"totals"' "$work/a.json" | grep -vE "line\"" >"$work/a.points"
run read "$work/a.csv" --columns step=updates,loss=ce,scale=amp --json "$work/b.json"
expect_rc 0 "CSV with the user's columns"
grep -A 99 '"totals"' "$work/b.json" | grep -vE "line\"" >"$work/b.points"
cmp -s "$work/a.points" "$work/b.points" ||
    fail "CSV and JSON Lines differ: $(diff "$work/a.points" "$work/b.points")"
checks=$((checks + 1))
expect_text "$work/a.json" '"loss": [2.5, "nan"]' "a loss that is NaN"

# refused "TEXT" ARGS...
refused() {
    local text=$1
    shift
    run read "$@"
    expect_rc 2 "read $*"
    [ ! -s "$work/out" ] || fail "read $*: wrote to stdout"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "read $*: not one line on stderr: $(head -c 800 "$work/err")"
    expect_text "$work/err" "$text" "read $*"
}
printf 'epoch one was fine\nlosses went down\n\033]0;title\007\n' >"$work/none.log"
refused "nearest lines: line 2: \"losses went down\"" "$work/none.log"
refused "apex, deepspeed" "$work/none.log"
: >"$work/empty.log"
refused "found none of the lines" "$work/empty.log"
refused "cannot open" "$work/missing.log"
refused "found a directory" "$work"
refused "expected a log file"
refused "--columns: unknown field 'los'; nearest: loss" "$work/a.csv" --columns los=ce
refused "--columns: expected FIELD=NAME" "$work/a.csv" --columns loss
refused "did you mean '--columns'" "$work/a.csv" --colums loss=ce
gzip -c "$work/run.log" | head -c 100 >"$work/short.gz"
run read "$work/short.gz"
[ "$rc" = 0 ] || [ "$rc" = 2 ] || fail "a gzip file cut in the middle: exit status $rc"
head -c 40000 /dev/urandom | gzip >"$work/noise.gz"
refused "expected a training log" "$work/noise.gz"

run read --help
expect_rc 0 "--help"
expect_text "$work/out" "Gradient overflow.  Skipping step" "an example of every line"
finish
