# Cells that are not timed, of the noise floors and of further seeds, run side by side with a part of the
# threads each. That changes nothing but times and workspace, is recorded, and ends in every way as one cell
# after the other does.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
data=$AMPBENCH_SOURCE/tests/golden/data
case=(--net lenet5 --data "$data" --batch 8 --steps 24 --levels "O0,O2" --probe-every 6 --rounds 2 --no-plots)
floors=(seed1/ulp seed1/ulp2 seed1/rounding seed1/rounding2)

trained="id|loss|gradient_norm|train_accuracy|scale|test_accuracy|test_loss|nonzero|flushed|overflowed"
# found FILE: what the document says of what cells trained, without times, workspace and processes
found() {
    grep -E "^ {6,}\"($trained)\":" "$1"
}

# one_at_a_time FILE WHAT, side_by_side FILE THREADS BESIDE PROCESSES WHAT: as the document says
one_at_a_time() { expect_no_text "$1" '"beside":' "$2"; }
side_by_side() {
    checks=$((checks + 1))
    local found
    found=$(grep '"beside":' "$1" | sort | uniq -c | tr -s ' ')
    [ "$found" = " $4 \"beside\": $3," ] || fail "$5: expected $4 processes beside $3: $found"
    [ "$(grep -A 1 '"beside"' "$1" | grep -c "\"threads\": $2,\$")" = "$4" ] ||
        fail "$5: expected $2 threads: $(grep -A 1 '"beside"' "$1")"
}

# ---- as many as there are threads --------------------------------------------------------------------------
for threads in 1 2 3 4 9; do
    result=$work/$threads.json
    run run "${case[@]}" --threads "$threads" --out "$result"
    expect_rc 0 "$threads threads"
    follows_schema "$result" "$threads threads"
    found "$result" >"$work/found-$threads"
    checks=$((checks + 1))
    cmp -s "$work/found-1" "$work/found-$threads" ||
        fail "$threads threads: $(diff "$work/found-1" "$work/found-$threads" | head -c 600)"
done
[ "$(wc -l <"$work/found-1")" -gt 100 ] || fail "too little was compared: $(head -c 300 "$work/found-1")"
one_at_a_time "$work/1.json" "one thread"
side_by_side "$work/2.json" 1 1 4 "two threads"
side_by_side "$work/3.json" 1 2 4 "three threads"
side_by_side "$work/4.json" 1 3 4 "four threads"
side_by_side "$work/9.json" 2 3 4 "nine threads"

# the table times only what ran alone; the other cells are said not to be timed
run report "$work/2.json" --csv "$work/2.csv"
expect_text "$work/out" "O0+ulp 1, O0+rounding 1: not timed" "the table"
expect_no_text "$work/out" "void: it ran" "the table"
for column in step_time_ns samples_per_s peak_bytes ratio_samples_to_o0; do
    csv_columns "$work/2.csv" id "$column" >"$work/column"
    grep -q "/seed1 [0-9]" "$work/column" || fail "$column of a cell that ran alone: $(cat "$work/column")"
    for floor in "${floors[@]}"; do
        checks=$((checks + 1))
        grep -q "/$floor *\$" "$work/column" || fail "$column of a floor: $(cat "$work/column")"
    done
done
run report "$work/1.json"
expect_no_text "$work/out" "not timed" "the table of cells that ran one at a time"

# ---- seeds, and what keeps cells apart ---------------------------------------------------------------------
run run "${case[@]}" --threads 2 --no-floor --seeds 3 --rounds 1 --out "$work/seeds.json"
expect_rc 0 "seeds"
side_by_side "$work/seeds.json" 1 1 4 "seeds"
run run "${case[@]}" --threads 2 --log-every 8 --out "$work/lines.json"
expect_rc 0 "--log-every"
one_at_a_time "$work/lines.json" "--log-every"
run run "${case[@]}" --threads 2 --no-floor --seeds 2 --set O2:verbosity=1 --levels O2 --out "$work/apex.json"
expect_rc 0 "verbosity"
one_at_a_time "$work/apex.json" "apex's lines"
run run "${case[@]}" --threads 2 --floor-draws 1 --levels "O2,O0" --net mlp --half fp16,bf16 \
    --out "$work/half.json"
expect_rc 0 "two half formats"
side_by_side "$work/half.json" 1 1 2 "two half formats"

# ---- files of single cells ---------------------------------------------------------------------------------
run run "${case[@]}" --threads 2 --save-weights "$work/w2/%c.safetensors" --checkpoint-every 12 \
    --checkpoint "$work/w2/%c-at.safetensors" --out "$work/w2/result.json"
expect_rc 0 "files, side by side"
run run "${case[@]}" --threads 1 --save-weights "$work/w1/%c.safetensors" --checkpoint-every 12 \
    --checkpoint "$work/w1/%c-at.safetensors" --out "$work/w1/result.json"
expect_rc 0 "files, one at a time"
for file in "$work"/w1/*.safetensors; do
    checks=$((checks + 1))
    cmp -s "$file" "$work/w2/${file##*/}" || fail "side by side another ${file##*/} is written"
done
[ "$(find "$work/w2" -name '*.safetensors' | wc -l)" = 12 ] || fail "files: $(ls "$work/w2")"

# ---- a time limit, a killed worker, an interrupt -----------------------------------------------------------
long=(--net mlp --data synthetic --batch 16 --steps 100000000 --threads 2 --rounds 1 --no-plots --seeds 3
    --levels O0 --no-floor)
run run "${long[@]}" --cell-timeout 1 --out "$work/late.json"
expect_rc 1 "cells that take too long"
[ "$(grep -c '"reason": "longer than --cell-timeout' "$work/late.json")" = 3 ] ||
    fail "not every cell was ended"
expect_text "$work/err" "3 of 3 cells failed" "cells that take too long"

# workers_of PARENT: their process ids and cells
workers_of() {
    local pid
    for pid in $(cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent="$1" '$4 == parent { print $1 }'); do
        { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null |
            awk -v pid="$pid" '$2 == "worker" { print pid, $3 }'
    done
}
# wait_for_workers PARENT COUNT: until so many run
wait_for_workers() {
    local i
    for ((i = 0; i < 600; i++)); do
        workers_of "$1" >"$work/workers"
        [ "$(wc -l <"$work/workers")" = "$2" ] && return
        sleep 0.1
    done
    fail "expected $2 workers: $(cat "$work/workers")"
}
killing=("${long[@]}" --steps 2000 --out "$work/killed.json")
"$AMPBENCH" run "${killing[@]}" >"$work/out" 2>"$work/err" </dev/null &
parent=$!
wait_for_workers $parent 2
kill -9 "$(awk 'NR == 1 { print $1 }' "$work/workers")"
wait $parent
rc=$?
expect_rc 1 "a killed worker"
expect_text "$work/err" "1 of 3 cells failed" "a killed worker"
[ "$(grep -c '"status": "ok"' "$work/killed.json")" = 2 ] || fail "the cell beside it did not go on"
run run --resume --quiet --out "$work/killed.json" --no-plots
expect_rc 0 "--resume after a killed worker"
run run "${killing[@]}" --threads 1 --out "$work/whole.json"
[ "$(digests "$work/killed.json")" = "$(digests "$work/whole.json")" ] || fail "resumed to other losses"

"$AMPBENCH" run "${long[@]}" --cell-timeout 0 --steps 3000 --out "$work/stopped.json" >"$work/out" \
    2>"$work/err" </dev/null &
parent=$!
wait_for_workers $parent 2
kill -INT $parent
wait $parent
rc=$?
expect_rc 130 "an interrupt"
checks=$((checks + 1))
while read -r pid _; do kill -0 "$pid" 2>/dev/null && fail "worker $pid is left"; done <"$work/workers"
[ "$(grep -c '"status": "interrupted"' "$work/stopped.json")" = 2 ] || fail "not both cells were interrupted"
follows_schema "$work/stopped.json" "an interrupted run"
run run --resume --quiet --out "$work/stopped.json" --no-plots
expect_rc 0 "--resume after an interrupt"
expect_text "$work/stopped.json" '"complete": true' "the resumed run"

# ---- memory: cells that do not fit side by side run one after the other ------------------------------------
# sanitizers take more than any limit
if bash -c 'ulimit -v 300000; exec "$@"' - "$AMPBENCH" --version >/dev/null 2>&1; then
    run_limited() (
        ulimit -v 300000
        run "$@"
        exit "$rc"
    )
    run_limited run "${case[@]}" --threads 4 --levels O0 --out "$work/small.json"
    rc=$?
    expect_rc 0 "little memory"
    one_at_a_time "$work/small.json" "little memory"
fi
finish
