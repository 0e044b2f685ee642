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
restarts="8 restarts from step 0, 120 steps each: fp32 diverged in 0, fp16 in 8,"
expect_text "$work/out" "$restarts with weights rounded by chance in 8" "--twins"
run diagnose "$work/sick.json" --twins --json - --exit-zero
checks=$((checks + 1))
tr -d ' \t\n' <"$work/out" | grep -qF '"trouble":"range","start_step":0,"horizon_steps":120' ||
    fail "the JSON lacks the arms"

run diagnose "$work/sick.json" --twins --confirm --json "$work/diagnosis.json" --exit-zero
expect_rc 0 "everything at once"
follows_schema "$work/diagnosis.json" "the diagnosis" diagnosis

# what the run wrote is not written again, nor anything else; a document from somebody else names no file
mkdir users
run run "${small[@]}" --levels O0,O2 --scales default,16777216 --rounds 1 --no-plots --quiet \
    --csv users/a.csv --html users/a.html --markdown users/a.md --save-weights 'users/%c.npz' \
    --checkpoint 'users/%c.checkpoint' \
    --probe-every 10 --checkpoint-every 60 --out users/sick.json
expect_rc 0 "a run that writes all it can"
for file in users/*; do cp "$file" "$file.kept"; done
sha256sum users/* >before
mkdir folder
replays() { # WHAT COMMAND...
    local what=$1
    shift
    TMPDIR=$work/folder run "$@"
    checks=$((checks + 1))
    sha256sum users/* 2>&1 | cmp -s - before || fail "$what: the user's files are not what they were"
    checks=$((checks + 1))
    [ -z "$(ls -A folder)" ] || fail "$what: left $(ls -AR folder)"
}
replays "--confirm" diagnose users/sick.json --confirm
expect_text "$work/out" "confirmed: with --scales dynamic it is healthy" "--confirm"
expect_text "$work/err" "inputs that the record names are read: --net mlp, --data synthetic" "--confirm"
checks=$((checks + 1))
[ "$(grep -c "inputs that the record names" "$work/err")" = 1 ] || fail "the inputs are named more than once"
replays "--twins" diagnose users/sick.json --twins
expect_text "$work/out" "range: values leave the half format's range" "--twins"
replays "advise --confirm" advise users/sick.json --scale 1 --confirm
expect_text "$work/out" "predicted at 2^0" "advise --confirm"

sed 's|"--csv"|"--html"|; s|"users/a.csv"|"users/a.html.kept"|' users/sick.json >planted.json
replays "a planted command line" diagnose planted.json --confirm
expect_text "$work/out" "confirmed: with --scales dynamic" "a planted command line"
for planted in 'csv": "users/sick.json"' 'save_weights": "users/a.md"' 'checkpoint": "users/a.md"' \
    'out": "users/a.md"'; do
    sed "s|\"options\": {|&\"$planted, |" users/sick.json >planted.json
    for command in "diagnose planted.json --confirm" "diagnose planted.json --twins" \
        "advise planted.json --scale 1 --confirm"; do
        # shellcheck disable=SC2086
        replays "$command with $planted" $command
        expect_rc 2 "$command with $planted"
        expect_text "$work/err" "run.options.${planted%%\"*}: no option of a training" "$command"
    done
done
tr -d '\n' <users/sick.json | sed 's|"options": {[^}]*}, *||' >old.json
replays "an older document" diagnose old.json --confirm
expect_rc 2 "an older document"
expect_text "$work/err" "expected run.options" "an older document"
sed 's|"lr": 0.05,|"lr": 1e10,|' users/sick.json >planted.json
run diagnose planted.json --confirm
expect_rc 2 "a value that a user may not give"
expect_text "$work/err" "the recorded run: --lr: expected a number from 0" "a value that a user may not give"
# the goal is health, whatever the cause was: another one may be left, or too few steps to tell
few=(--net mlp --data synthetic --threads 1 --eval-limit 10 --no-floor --batch 32)
run diagnose --run --confirm "${few[@]}" --levels O0,O3 --half bf16 --lr 0.0005 --steps 300 --ema 0.9999 \
    --ema-format half --json "$work/diagnosis.json"
expect_text "$work/out" \
    "not confirmed: with --set master_weights=True it is still sick, of another cause: ema_in_half" \
    "another cause is left"
follows_schema "$work/diagnosis.json" "another cause is left" diagnosis
run diagnose --run --confirm "${few[@]}" --levels O0 --lr 1000 --steps 4 --json "$work/diagnosis.json"
expect_text "$work/out" "not decided: with --lr 0.01 --steps 8 it is undecided: O0 has not learned yet" \
    "too few steps"
follows_schema "$work/diagnosis.json" "too few steps" diagnosis

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
expect_text "$work/err" "--shadow: expected one of fp32, decensor, found 'fp64'" "an unknown reference"
run diagnose --levels O2
expect_rc 2 "run options without --run"
expect_text "$work/err" "options of a run need --run" "run options without --run"
run diagnose --run --net nonsense
expect_rc 2 "a run that cannot be"

finish
