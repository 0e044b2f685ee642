#!/usr/bin/env bash
# `ampbench diagnose --run --confirm`: trains, compares gradients with an fp32 twin's, says what is wrong, and
# tries the remedy.
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
small=(--net mlp --data synthetic --threads 1 --eval-limit 10 --no-floor --lr 0.05 --steps 120 --batch 32)

run diagnose --run --confirm "${small[@]}" --levels O0,O2 --scales default,16777216 --out "$work/sick.json"
expect_rc 4 "a sick cell"
expect_text "$work/out" "scale_too_high" "the verdict"
expect_text "$work/out" "finite without the loss scale (in double" "the origin"
expect_text "$work/out" "gradients of 5 steps beside fp32's" "shadow gradients"
expect_text "$work/out" "confirmed: with --scales dynamic it is healthy" "the remedy"
follows_schema "$work/sick.json" "the run"
follows_schema "$work/sick.confirm.json" "the confirming run"
checks=$((checks + 1))
grep -q '"shadow"' "$work/sick.json" || fail "no shadow gradients in the record"

# the same document as a file, and as JSON
run diagnose "$work/sick.json" --confirm --json - --exit-zero
expect_rc 0 "--exit-zero"
checks=$((checks + 1))
tr -d ' \t\n' <"$work/out" |
    grep -qF '"cause":"scale_too_high","tried":true,"options":"with--scalesdynamic","healthy":true' ||
    fail "the JSON lacks the confirmation: $(tail -c 600 "$work/out")"

# three arms from the last good state: a scale that is too high is no rounding and no bad rate
run diagnose "$work/sick.json" --twins
expect_rc 4 "--twins"
expect_text "$work/out" "range: values leave the half format's range" "--twins"
expect_text "$work/out" "8 restarts from step 0, 120 steps each: fp32 diverged in 0, fp16 in 8, with weights rounded by chance in 8" "--twins"
run diagnose "$work/sick.json" --twins --json - --exit-zero
checks=$((checks + 1))
tr -d ' \t\n' <"$work/out" | grep -qF '"trouble":"range","start_step":0,"horizon_steps":120' ||
    fail "the JSON lacks the arms"

run diagnose "$work/sick.json" --twins --confirm --json "$work/diagnosis.json" --exit-zero
expect_rc 0 "everything at once"
follows_schema "$work/diagnosis.json" "the diagnosis" diagnosis

# healthy cells have nothing to confirm; losses are those of a run without a twin
run diagnose --run --confirm "${small[@]}" --levels O0,O2
expect_rc 0 "healthy"
run run "${small[@]}" --levels O0,O2 --rounds 1 --no-plots --quiet --out "$work/plain.json"
digests "$work/plain.json" >"$work/plain"
digests "$work/ampbench-out/diagnose.json" >"$work/twin"
checks=$((checks + 1))
cmp -s "$work/plain" "$work/twin" || fail "a twin changed the losses"

# de-censoring instead of a twin
run run "${small[@]}" --levels O0,O2 --rounds 1 --no-plots --quiet --shadow-every 40 --shadow decensor \
    --out "$work/decensor.json"
expect_rc 0 "decensor"
follows_schema "$work/decensor.json" "decensor"
checks=$((checks + 1))
tr -d ' \t\n' <"$work/decensor.json" |
    grep -qF '"every":40,"reference":"decensor","octaves":10,"looks":3' || fail "no de-censored gradients"

run run "${small[@]}" --shadow-every 5 --shadow fp64
expect_rc 2 "an unknown reference"
expect_text "$work/err" "--shadow: expected fp32 or decensor, found 'fp64'" "an unknown reference"
run diagnose --levels O2
expect_rc 2 "run options without --run"
expect_text "$work/err" "options of a run need --run" "run options without --run"
run diagnose --run --net nonsense
expect_rc 2 "a run that cannot be"

finish
