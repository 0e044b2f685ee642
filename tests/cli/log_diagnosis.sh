# ampbench diagnose LOG: every cause that a log shows is named with its line, healthy logs are not sick, and
# logs of the real frameworks (tests/golden/logs.tar.xz) say what these frameworks did.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

# megatron STEP SCALE LOSS SKIPPED RATE: a line of Megatron-LM; LOSS may be empty.
megatron() {
    printf ' iteration %8d/    1000 | consumed samples: %12d |' "$1" "$(($1 * 8))"
    printf ' learning rate: %sE-05 |' "$5"
    [ -z "$3" ] || printf ' lm loss: %s |' "$3"
    printf ' loss scale: %s.0 | grad norm: 1.0 | number of skipped iterations: %3d |' "$2" "$4"
    printf ' number of nan iterations: %3d |\n' "$([ -n "$3" ] && echo 0 || echo 1)"
}

# sick LOG CAUSE TEXT: the first cause is CAUSE, the text holds TEXT.
sick() {
    run diagnose "$work/$1"
    expect_rc 4 "$1"
    expect_text "$work/out" "  $2 (" "$1"
    expect_text "$work/out" "$3" "$1"
    checks=$((checks + 1))
    [ "$(grep -c '(.*, first, shown)' "$work/out")" = 1 ] ||
        fail "$1: more than one first cause: $(cat "$work/out")"
}

# healthy LOG
healthy() {
    run diagnose "$work/$1"
    expect_rc 0 "$1"
    expect_text "$work/out" ": healthy" "$1"
}

scale=65536
for i in $(seq 60); do
    scale=$(awk "BEGIN{print $scale/2}")
    printf 'Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to %s\n' "$scale"
done >"$work/endless.log"
sick endless.log skips_without_end "the log ends in 60 skipped steps"
head -n 20 "$work/endless.log" >"$work/search.log"
healthy search.log

for i in $(seq 400); do # 2^15 is found in line 1, 2^16 after 100 steps; then it falls every 20 steps
    scale=$((i < 101 ? 32768 : i < 120 ? 65536 : 65536 >> (i / 20 - 5)))
    megatron "$i" "$scale" 2.5 "$((i == 1 || (i > 119 && i % 20 == 0)))" 1
done >"$work/falling.log"
sick falling.log skips_beyond_scaler "after the scale first rose 15 steps were skipped"
head -n 160 "$work/falling.log" >"$work/few.log" # three skips may be chance
healthy few.log

for pair in "8 4" "4 2" "2 1" "1 1" "1 1" "1 1" "1 1"; do
    printf '[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: %s, reducing to %s\n' \
        "${pair% *}" "${pair#* }"
done >"$work/floor.log"
sick floor.log skips_without_end "it is at its floor"

for i in $(seq 60); do
    printf 'step %d, loss 2.5, scale %s\n' "$i" "$(awk "BEGIN{printf \"%.0f\", 65536*2^$i}")"
done \
    >"$work/infinity.log"
sick infinity.log scale_to_infinity "2^76 without an overflow"
head -n 12 "$work/infinity.log" >"$work/rising.log"
healthy rising.log

for i in $(seq 9); do
    printf "{'loss': 1.5, 'grad_norm': 1.0, 'epoch': 0.%d}\n" "$i"
done >"$work/trainer.log"
healthy trainer.log
printf "{'loss': 0.0, 'grad_norm': nan, 'epoch': 1.0}\n" >>"$work/trainer.log"
sick trainer.log nan_hidden_by_log "the first is line 10"

{
    for i in $(seq 30); do megatron "$i" "$((i < 3 ? 65536 : 16384))" 2.5 "$((i < 3))" 1; done
    for i in $(seq 20 40); do megatron "$i" "$((i < 22 ? 65536 : 16384))" 2.5 "$((i < 22))" 1; done
} >"$work/resume.log"
sick resume.log scaler_missing_or_not_saved "in line 31, the scale jumped from 16384 to 65536"
{
    for i in $(seq 30); do megatron "$i" "$((i < 3 ? 65536 : 16384))" 2.5 "$((i < 3))" 1; done
    for i in $(seq 20 40); do megatron "$i" 16384 2.5 0 1; done
} >"$work/resumed.log"
healthy resumed.log

for i in $(seq 30); do
    megatron "$i" "$((i < 5 ? 65536 : 32768))" 2.5 "$((i < 5))" "$i"
done >"$work/rate.log"
sick rate.log schedule_ahead "first in line 2"
for i in $(seq 30); do
    megatron "$i" "$((i < 5 ? 65536 : 32768))" 2.5 "$((i < 5))" "$((i < 5 ? 1 : i))"
done \
    >"$work/waits.log"
healthy waits.log
for i in $(seq 30); do
    megatron "$i" 32768 "$([ "$i" -lt 25 ] && echo 2.5)" 0 1
done >"$work/nan.log"
sick nan.log losses_nonfinite_in_log "6 losses are NaN or inf, the first in line 25"

# ---- logs of the real frameworks ----------------------------------------------------------------------
tar -xJf "$AMPBENCH_SOURCE/tests/golden/logs.tar.xz" -C "$work"
healthy torch.jsonl
run diagnose "$work/torch.jsonl" --verbose
expect_text "$work/out" "is expected to skip about" "skips beside the scaler's own"
healthy megatron.log
healthy deepspeed.log
run read "$work/deepspeed.log"
expect_text "$work/out" "; deepspeed in " "lines of deepspeed's own logger"
run read "$work/torch.jsonl"
expect_text "$work/out" "  scaler      torch:" "the scaler of torch's log"
expect_text "$work/out" "window=20" "the window of torch's log"
expect_no_text "$work/out" "  scaler      deepspeed" "the scaler of torch's log"
run read "$work/megatron.log" --json -
expect_text "$work/out" '"dialect": "megatron"' "the scaler of megatron-core's log"
expect_text "$work/out" 'window=20' "the window of megatron-core's log"
expect_no_text "$work/out" '"dialect": "torch"' "the scaler of megatron-core's log"
for name in trainer_state.json trainer.log; do
    cp "$work/$name" "$work/hf.log"
    sick hf.log nan_hidden_by_log "6 lines have a loss of 0"
done
run read "$work/events.tb" --json "$work/events.json"
expect_rc 0 "an event file"
expect_text "$work/out" "loss scale  first 65536, last 32768" "scalars of an event file"
expect_text "$work/out" "histograms  2" "histograms of an event file"
healthy events.tb

# ---- how high the scale may be ------------------------------------------------------------------------
run advise "$work/torch.jsonl" --scale 2^12 --json "$work/advice.json"
expect_rc 0 "advise LOG"
follows_schema "$work/advice.json" "advise LOG --json" log-advice
expect_text "$work/out" "200 steps, 9 overflows; from the loss scales alone" "advise LOG"
expect_text "$work/out" "how low a scale may be is not in a log" "what a log does not tell"
run advise "$work/rising.log"
expect_rc 0 "advise on a log without an overflow"
expect_text "$work/out" "no step overflowed" "advise on a log without an overflow"
for option in "--level O2" --confirm "--out $work/x.json" "--flushed 0.1" "--horizon 5"; do
    # shellcheck disable=SC2086
    run advise "$work/torch.jsonl" $option
    expect_rc 2 "advise LOG $option"
    expect_text "$work/err" "${option%% *}: expected the record of a run" "advise LOG $option"
done
run advise "$work/deepspeed.log"
expect_rc 2 "advise on a log that counts no steps"
expect_text "$work/err" "counts no steps" "advise on a log that counts no steps"

# ---- what diagnose cannot do with it ------------------------------------------------------------------
run diagnose "$work/events.tb" "$work/torch.jsonl"
expect_rc 0 "two files of one log"
printf 'nothing here\n' >"$work/none.log"
run diagnose "$work/none.log"
expect_rc 2 "no log"
expect_text "$work/err" "nearest lines: line 1" "no log"
run diagnose "$work/nan.log" --confirm
expect_rc 2 "--confirm"
expect_text "$work/err" "needs a result of" "--confirm"
run diagnose "$work/nan.log" --json -
expect_rc 4 "--json"
expect_text "$work/out" '"pointer": "/log/facts/nonfinite_losses"' "where the evidence is"
finish
