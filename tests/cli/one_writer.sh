# One --out, one writer: others are refused before they write anything, readers never see half a document,
# links are not followed, and what killed processes left is removed.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
small=(--net mlp --data "$AMPBENCH_SOURCE/tests/golden/data" --levels O0,O2 --rounds 1 --batch 16
    --probe-every 0
    --eval-limit 10 --quiet)
cd "$work" || exit 1

# files FOLDER: all names in it, hidden ones too
files() { find "$1" -mindepth 1 -printf '%P\n' | sort | tr '\n' ' '; }

# ---- several runs into one place, and a reader all the time ------------------------------------------------
mkdir many
for i in 1 2 3 4; do
    (
        "$AMPBENCH" run "${small[@]}" --steps 20 --no-plots --out many/result.json \
            >/dev/null 2>"$i.err" </dev/null
        echo $? >"$i.rc"
    ) &
done
reads=0
while [ "$(cat ./*.rc 2>/dev/null | wc -l)" -lt 4 ]; do
    [ -e many/result.json ] || continue
    reads=$((reads + 1))
    "$AMPBENCH" report many/result.json >/dev/null 2>read.err </dev/null ||
        fail "read $reads: $(cat read.err)"
done
wait
checks=$((checks + 2))
[ "$reads" -gt 0 ] || fail "the reader never read"
[ "$(cat ./*.rc | sort -u | tr '\n' ' ')" = "0 2 " ] ||
    fail "exit statuses of the runs: $(cat ./*.rc | tr '\n' ' ')"
cat ./[1-4].err >all.txt
expect_text all.txt "ampbench: --out: many/result.json is being written by process " "a second run"
[ "$(files many)" = "result.json " ] || fail "several runs left: $(files many)"

# ---- beside a run that has not ended -----------------------------------------------------------------------
"$AMPBENCH" run "${small[@]}" --steps 40 --no-plots --out reference.json >/dev/null 2>&1
expected=$(digests reference.json)
"$AMPBENCH" run "${small[@]}" --steps 40 --seeds 2 --no-floor --no-plots \
    --out live/result.json >/dev/null 2>live.err \
    </dev/null &
live=$!
until [ -e live/result.json ]; do sleep 0.01; done
kill -STOP "$live"
before=$(cat live/result.json | cksum)
refused() {
    run "$@"
    expect_rc 2 "$*"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line: $(cat "$work/err")"
    expect_text "$work/err" "live/result.json is being written by process $live on $(uname -n) since 20" "$*"
    expect_text "$work/err" "ampbench run" "$*"
}
refused run --resume --no-plots --out live/result.json
refused run "${small[@]}" --steps 1 --no-plots --out live/result.json
sed 's|"id": "[0-9a-f]*"|"id": "another"|' reference.json >other.json
refused gate reference.json other.json --json live/result.json
refused report reference.json --csv live/result.json
run report live/result.json --html live/now.html
expect_rc 0 "a report of a run that has not ended"
checks=$((checks + 1))
[ "$(cat live/result.json | cksum)" = "$before" ] || fail "a refused command changed the document"
kill -CONT "$live"
wait "$live"
rc=$?
expect_rc 0 "the run that others tried to disturb: $(cat live.err)"
checks=$((checks + 1))
[ "$(files live)" = "now.html result.json " ] || fail "the run left: $(files live)"
[ "$(digests live/result.json | grep seed1$'\|'seed1' ' | head -n 2 | cut -d' ' -f2)" = \
    "$(head -n 2 <<<"$expected" | cut -d' ' -f2)" ] || fail "the losses of the disturbed run differ"

# ---- links, and what killed processes left -----------------------------------------------------------------
sleep 0 &
gone=$!
wait "$gone"
mkdir -p linked/plots
echo precious >victim
for name in plots/loss.gp plots/loss.dat plots/loss.png result.json result.csv result.json.tmp; do
    ln -s "$work/victim" "linked/$name"
done
for name in result.json plots/cost.gp checkpoint-x.safetensors; do : >"linked/$name.$gone-0123abcd.tmp"; done
run run "${small[@]}" --levels O0 --no-floor --steps 4 --checkpoint-every 2 --csv linked/result.csv \
    --out linked/result.json
expect_rc 0 "a run into a folder with links"
checks=$((checks + 3))
[ "$(cat victim)" = precious ] || fail "a link was followed"
[ ! -L linked/result.json ] && [ ! -L linked/result.csv ] && [ ! -L linked/plots/loss.gp ] ||
    fail "a link is still there"
[ -z "$(find linked -name "*.$gone-*")" ] || fail "left behind: $(find linked -name "*.$gone-*")"

# ---- what is no file ---------------------------------------------------------------------------------------
"$AMPBENCH" report reference.json --format junit --csv /dev/stdout >both </dev/null ||
    fail "--csv /dev/stdout"
"$AMPBENCH" report reference.json --csv alone.csv >/dev/null
"$AMPBENCH" report reference.json --format junit >alone.xml
checks=$((checks + 1))
cat alone.xml alone.csv | cmp -s - both || fail "--csv /dev/stdout with output in a file"
mkfifo pipe
cat pipe >piped &
run report reference.json --csv pipe
expect_rc 0 "--csv FIFO"
wait $!
checks=$((checks + 1))
cmp -s piped alone.csv || fail "a FIFO got something else"

# ---- what --out does not overwrite -------------------------------------------------------------------------
cp "$AMPBENCH_SOURCE/bench/nets/mlp.json" own_net.json
echo "notes of a week" >notes.txt
: >empty.json
run run "${small[@]}" --net own_net.json --steps 2 --no-plots --out own_net.json
expect_rc 2 "--out of --net"
expect_text err "ampbench: --out own_net.json: expected another file than --net reads" "--out of --net"
run run "${small[@]}" --net own_net.json --steps 2 --no-plots --out new.json --csv own_net.json
expect_rc 2 "--csv of --net"
expect_text err "ampbench: --csv own_net.json: expected another file than --net reads" "--csv of --net"
run run "${small[@]}" --steps 2 --no-plots --out notes.txt
expect_rc 2 "--out of a text"
expect_text err "expected no file or a document that ampbench wrote" "--out of a text"
checks=$((checks + 2))
cmp -s own_net.json "$AMPBENCH_SOURCE/bench/nets/mlp.json" || fail "--out changed the network's file"
[ "$(cat notes.txt)" = "notes of a week" ] || fail "--out changed a text"
for steps in 2 3; do
    run run "${small[@]}" --steps "$steps" --no-plots --out empty.json
    expect_rc 0 "--out of an empty file, then of its document"
done

finish
