# Whatever is killed at whatever instant, the document is whole and --resume ends with the losses of an
# undisturbed run.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
KILLS=${AMPBENCH_KILLS:-20} # more for a soak
options=(--net mlp --data "$AMPBENCH_SOURCE/tests/golden/data" --levels "O0,O2" --rounds 2 --steps 60 \
    --batch 16 --floor-draws 1 --probe-every 20
    --no-plots --quiet)
RANDOM=2026

# ---- an undisturbed run ------------------------------------------------------------------------------------
reference=$work/reference/result.json
start=$(date +%s%N)
run run "${options[@]}" --out "$reference"
expect_rc 0 "the undisturbed run"
span_ms=$((($(date +%s%N) - start) / 1000000))
expected=$(digests "$reference")
[ "$(wc -l <<<"$expected")" = 4 ] || fail "expected four cells, found: $expected"

# ---- helpers -----------------------------------------------------------------------------------------------
child_of() { # the worker of process $1, if it has one
    awk -v parent="$1" '$4 == parent { print $1; exit }' /proc/[0-9]*/stat 2>/dev/null
}

sleep_ms() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

is_running() { # not a zombie
    local state
    state=$(awk '/^State:/ {print $2}' "/proc/$1/status" 2>/dev/null)
    [ -n "$state" ] && [ "$state" != Z ]
}

# is_whole FILE WHAT: the document, if there is one, parses, follows the schema and reports.
is_whole() {
    [ -e "$1" ] || return 0
    follows_schema "$1" "$2"
    run report "$1" --csv "$work/whole.csv"
    expect_rc 0 "report after $2"
}

complete() { # true or false as the document says
    csv_columns "$work/whole.csv" run_complete | head -n 1
}

# ends_like_undisturbed FILE WHAT: resumes until nothing is left and compares.
ends_like_undisturbed() {
    run run --resume --quiet --no-plots --out "$1"
    expect_rc 0 "the last resume of $2"
    is_whole "$1" "$2"
    [ "$(complete)" = true ] || fail "$2: resumed and not complete"
    checks=$((checks + 1))
    [ "$(digests "$1")" = "$expected" ] || fail "$2: losses differ from the undisturbed run: $(digests "$1")"
}

# ---- kill -9 -----------------------------------------------------------------------------------------------
kills=0
orphans=0
finished=0
struck=0
round=0
while [ "$kills" -lt "$KILLS" ] && [ "$round" -lt 200 ]; do
    round=$((round + 1))
    result=$work/kill/$finished/result.json
    if [ -e "$result" ]; then
        "$AMPBENCH" run --resume --quiet --no-plots --out "$result" >"$work/out" 2>"$work/err" </dev/null &
    else
        "$AMPBENCH" run "${options[@]}" --out "$result" >"$work/out" 2>"$work/err" </dev/null &
    fi
    parent=$!
    sleep_ms $((RANDOM % (span_ms * 3 / 4 + 1)))
    child=$(child_of "$parent")
    if [ $((round % 2)) = 0 ] && [ -n "$child" ]; then
        kill -9 "$child" 2>/dev/null && kills=$((kills + 1)) && struck=$((struck + 1))
        wait "$parent" 2>/dev/null
        status=$?
        # the cell fails (or was over already); the others go on; resuming makes it good
        [ "$status" = 1 ] || [ "$status" = 0 ] || fail "the run ended with $status after a worker was killed"
    elif kill -9 "$parent" 2>/dev/null; then
        kills=$((kills + 1))
        wait "$parent" 2>/dev/null
        if [ -n "$child" ]; then
            for _ in 1 2 3 4 5 6 7 8 9 10; do
                is_running "$child" || break
                sleep 0.1
            done
            is_running "$child" && orphans=$((orphans + 1)) && kill -9 "$child"
        fi
    else
        wait "$parent" 2>/dev/null # it was faster than the kill
    fi
    is_whole "$result" "kill $kills"
    if [ -e "$result" ] && [ "$(complete)" = true ]; then
        ends_like_undisturbed "$result" "run $finished"
        finished=$((finished + 1))
    fi
done
checks=$((checks + 3))
[ "$kills" = "$KILLS" ] || fail "only $kills of $KILLS kills struck"
[ "$struck" -gt $((KILLS / 10)) ] || fail "only $struck of the kills struck a worker"
[ "$orphans" = 0 ] || fail "$orphans workers outlived their parent by a second"
[ -e "$work/kill/$finished/result.json" ] &&
    ends_like_undisturbed "$work/kill/$finished/result.json" "the last run"

# ---- a worker that is killed is a cell that failed, with its reason ----------------------------------------
result=$work/failed/result.json
"$AMPBENCH" run "${options[@]}" --steps 3000 --rounds 1 --out "$result" >"$work/out" 2>"$work/err" \
    </dev/null &
parent=$!
child=
for _ in $(seq 100); do
    child=$(child_of "$parent")
    [ -n "$child" ] && [ -e "$result" ] && break
    sleep 0.02
done
sleep 0.3
kill -9 "$child"
wait "$parent"
rc=$?
expect_rc 1 "a run whose worker was killed"
expect_text "$result" "killed by signal 9" "a killed worker"
is_whole "$result" "a killed worker"
[ "$(csv_columns "$work/whole.csv" run_complete | sort -u)" = true ] || fail "the other cells did not go on"

# ---- Ctrl-C ------------------------------------------------------------------------------------------------
# interrupt SIGNAL TARGET: TARGET is parent, or group as a terminal does it.
interrupt() {
    local result=$work/interrupt-$1-$2/result.json
    setsid "$AMPBENCH" run "${options[@]}" --steps 3000 --out "$result" >"$work/out" 2>"$work/err" \
        </dev/null &
    local parent=$!
    for _ in $(seq 100); do
        [ -e "$result" ] && [ -n "$(child_of "$parent")" ] && break
        sleep 0.02
    done
    sleep 0.2
    if [ "$2" = group ]; then kill "-$1" -- "-$parent"; else kill "-$1" "$parent"; fi
    wait "$parent"
    rc=$?
    expect_rc 130 "SIG$1 to the $2"
    expect_text "$work/err" "interrupted; finish with: ampbench run --resume --out $result" "SIG$1 to the $2"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "SIG$1 to the $2: more than a line: $(cat "$work/err")"
    is_whole "$result" "SIG$1 to the $2"
    [ "$(complete)" = false ] || fail "SIG$1 to the $2: the document claims to be complete"
}
interrupt INT parent
interrupt INT group
interrupt TERM parent

# ---- what a resume refuses ---------------------------------------------------------------------------------
result=$work/interrupt-INT-parent/result.json
run run --resume --out "$result" --levels O1
expect_rc 2 "--resume with other levels"
expect_text "$work/err" "--resume: --levels is O1 here and O0,O2 in" "--resume with other levels"
run run --resume --out "$result" --seed 5
expect_rc 2 "--resume with another seed"
sed -E 's/("comparability_key": *")[0-9a-f]+/\10123456789abcdef/' "$result" >"$work/elsewhere.json"
cmp -s "$result" "$work/elsewhere.json" && fail "no comparability_key to change"
run run --resume --out "$work/elsewhere.json"
expect_rc 6 "--resume of another machine's document"
expect_text "$work/err" "another machine or by another build" "--resume of another machine's document"
head -c 500 "$result" >"$work/cut.json"
run run --resume --out "$work/cut.json"
expect_rc 2 "--resume of half a document"

finish
