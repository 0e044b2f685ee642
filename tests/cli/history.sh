# `ampbench history`: a folder of results becomes series; what is no result is passed over, unless it was
# named.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
mkdir -p runs/a/b
for day in 01 02 03 04; do
    sed -e "s/2026-01-02T03:04:05Z/2026-03-${day}T00:00:00Z/" -e "s/0123456789abcdef/00000000000000$day/" \
        "$AMPBENCH_SOURCE/tests/fixtures/result_tiny.json" >"runs/a/$day.json"
done
mv runs/a/04.json runs/a/b/result.json
echo '{"other": 1}' >runs/other.json
echo text >runs/notes.txt
ln -s / runs/loop

run history runs
expect_rc 0 "a folder"
expect_text out "4 runs" "a folder"
expect_text out "in all 4 runs" "a folder"
expect_text err "passed over runs/other.json" "a file that is no result"
cp out first
run history runs/a/b/result.json runs/a/01.json runs/a/03.json runs/a/02.json
expect_rc 0 "files in any order"
cmp -s first out || fail "the order of the files matters"

run history runs --json -
expect_rc 0 "JSON"
expect_text out '"schema": "ampbench-history"' "JSON"
follows_schema out "JSON" history
sed -e 's/"seed": 1,/"seed": 2,/' runs/a/01.json >seed.json
cmp -s runs/a/01.json seed.json && fail "the fixture has no seed to change"
run history runs/a/02.json seed.json
expect_text out "seed 2" "a run with another seed"
! grep -q "in all 2 runs" out || fail "a run with another seed is another series"
sed -e 's/"momentum": [0-9.]*,/"momentum": 0.5,/' runs/a/01.json >momentum.json
cmp -s runs/a/01.json momentum.json && fail "the fixture has no momentum to change"
run history runs/a/02.json momentum.json
! grep -q "in all 2 runs" out || fail "a setting that the heading does not show makes another series"
run history runs --plots drawn --guard=5%
expect_rc 0 "plots"
[ -s drawn/history.gp ] && [ -s drawn/history.dat ] || fail "no data or script"
! command -v gnuplot >/dev/null || [ -s drawn/history.png ] || fail "no picture"
[ ! -e drawn/gnuplot.log ] || fail "gnuplot: $(cat drawn/gnuplot.log)"
checks=$((checks + 3))

run history
expect_rc 2 "nothing"
run history runs --gard 3%
expect_rc 2 "an unknown option"
expect_text err "did you mean '--guard'?" "an unknown option"
run history runs --guard many
expect_rc 2 "a guard that is no share"
run history runs/other.json
expect_rc 2 "a named file that is no result"
run history nowhere
expect_rc 2 "a folder that is not there"
expect_text err "nowhere: cannot open" "a folder that is not there"
head -c 2000 runs/a/01.json >cut.json
run history cut.json
expect_rc 2 "a truncated result"
finish
