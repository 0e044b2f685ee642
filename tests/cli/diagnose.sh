#!/usr/bin/env bash
# `ampbench diagnose`: planted faults get their verdict, healthy look-alikes none, from the default record.
# Every cell is trained.
. "$(dirname "$0")/lib/cli.sh"

train() { # name, options
    local name=$1
    shift
    "$AMPBENCH" run --net mlp --data synthetic --rounds 1 --threads 1 --quiet --no-plots --eval-limit 10 \
        --no-floor \
        --out "$work/$name.json" "$@" >/dev/null 2>"$work/err" ||
        fail "$name: the run ended with $?: $(cat "$work/err")"
}

# diagnosis NAME: "cell sick first-verdict layer" of every cell
diagnosis() {
    "$AMPBENCH" diagnose "$work/$1.json" --json - --exit-zero | tr -d '\n' | sed 's/"cell":/\n&/g' |
        sed -n '/^"cell":/!d
            s/^"cell": *"\([^"]*\)", *"sick": *\([a-z]*\).*"verdicts": *\[ *{ */\1 \2 /
            s/"id": *"\([^"]*\)", *"family": *"[^"]*", *"layer": *"*\([^",]*\).*/\1 \2/p'
}

# expect NAME CELL-PATTERN VERDICT [LAYER]
expect() {
    local found
    checks=$((checks + 1))
    found=$(diagnosis "$1" | grep "$2")
    [ "$(printf '%s\n' "$found" | awk '{print $3}')" = "$3" ] || fail "$1: expected $3 for $2, found: $found"
    [ $# -lt 4 ] || [ "$(printf '%s\n' "$found" | awk '{print $4}')" = "$4" ] ||
        fail "$1: expected layer $4, found: $found"
}

train scales --levels O0,O2 --scales default,0.000030517578125,16777216 --lr 0.05 --steps 200
expect scales O2/dynamic healthy
expect scales O2/3.05 gradient_underflow
expect scales O2/16777216 scale_too_high fc3
expect scales O0/1/ healthy

train o3 --levels O0,O2,O3 --lr 0.0005 --steps 500
expect o3 O3 weight_update_lost
expect o3 O2 healthy

train window --levels O0,O2 --scales dynamic --scale-window 2 --lr 0.05 --steps 200
expect window O2 scaler_window_too_short

# A few skips while a scaler finds its scale, then one a window, are what a scaler is for.
train warmup --levels O0,O2 --scales apex:init=16777216 --scale-window 100 --lr 0.05 --steps 200
expect warmup O2 healthy

# Nor is the search for a first scale that is far too high, in a short run that it makes late.
train search --levels O0,O2 --scales megatron,torch:init=1073741824 --steps 40 --eval-limit 1000
expect search O2/megatron healthy
expect search O2/torch healthy

# What O3 learned, of what O0 did: most updates are lost.
train little --levels O0,O3 --steps 400 --lr 0.0005 --optimizer sgd
expect little O3 weight_update_lost

train rate --levels O0,O2 --lr 50 --steps 100
expect rate O0 learning_rate_too_high
expect rate O2 learning_rate_too_high

train adam --levels O0,O3 --optimizer adam --lr 0.001 --steps 100
expect adam O3 optimizer_state_underflow

train clip --levels O0,O2 --scales 65536 --clip-norm 1 --fault clip_before_unscale --lr 0.05 --steps 200
expect clip O2 clip_before_unscale

# Found in the numbers: the first overflow of a forward pass that loses no loss, data, labels; and a run that
# is too short.
train norm --net "$AMPBENCH_SOURCE/tests/fixtures/hand_norm.json" --levels O0,O2 --steps 100
expect norm O2 norm_statistics_in_half squares
train labels --levels O0,O2 --lr 0.05 --steps 100 --fault shuffled_labels
expect labels O2 label_corruption
train data --levels O0,O2 --lr 0.05 --steps 100 --fault nan_inputs
expect data O0 nonfinite_data
# A NaN of the backward pass of O0, in a step that no probe was to look at: the product before it has no bias,
# so only a large weight's gradient shows it. The op is named, not the weight that is bad a step later.
cat >"$work/root.net.json" <<'END'
{"format": "ampbench-net-1", "name": "root", "text": "a root at 0, where a unit is dropped",
 "input": {"height": 28, "width": 28, "channels": 1},
 "defaults": {"optimizer": "sgd", "lr": 0.05, "batch": 64},
 "ops": [{"name": "flatten", "op": "flatten"},
  {"name": "fc1", "op": "linear", "out_features": 256, "bias": false}, {"name": "squares", "op": "square"},
  {"name": "drop", "op": "dropout", "p": 2e-05}, {"name": "both", "op": "mul", "in": ["squares", "drop"]},
  {"name": "root", "op": "sqrt"}, {"name": "fc2", "op": "linear", "out_features": 10},
  {"name": "loss", "op": "cross_entropy"}]}
END
train root --net "$work/root.net.json" --levels O0 --steps 20 --seed 4
expect root O0 math_singularity root
train short --levels O0,O2 --lr 0.0005 --steps 20
expect short O2 undecided

# Nobody unscales: MindSpore's fixed scale without drop_overflow_update.
train left --levels O0,O2 --scales mindspore-fixed:drop_overflow_update=False --steps 20
expect left O2 gradients_left_scaled

# Batch norms that run in half are named of a sick cell: infinite running variances.
cat >"$work/norms.net.json" <<'END'
{"format": "ampbench-net-1", "name": "norms", "text": "a batch norm of large numbers",
 "input": {"height": 28, "width": 28, "channels": 1},
 "defaults": {"optimizer": "sgd", "lr": 0.05, "batch": 64},
 "ops": [{"name": "conv1", "op": "conv2d", "out_channels": 8, "kernel_size": 3, "stride": 2},
  {"name": "big", "op": "scale", "factor": 2000}, {"name": "bn", "op": "batch_norm2d"},
  {"name": "relu", "op": "relu"},
  {"name": "flatten", "op": "flatten"}, {"name": "fc", "op": "linear", "out_features": 10},
  {"name": "loss", "op": "cross_entropy"}]}
END
train norms --net "$work/norms.net.json" --levels O0,O3 --steps 60 --eval-limit 500
expect norms O3 batch_norm_statistics_in_half bn
run diagnose "$work/norms.json" --exit-zero
expect_text "$work/out" "known problem batch_norm_types" "batch norms in half"

# The document of every diagnosis is what its schema says.
for name in scales norm labels data short warmup; do
    "$AMPBENCH" diagnose "$work/$name.json" --json "$work/diagnosis.json" --exit-zero >/dev/null
    follows_schema "$work/diagnosis.json" "the diagnosis of $name" diagnosis
done

# The facts beside the verdict: each with its place, as text and as JSON.
run diagnose "$work/scales.json" --facts --json "$work/diagnosis.json" --exit-zero
expect_text "$work/out" "of a tensor's energy (underflow_energy 0.1), step 0  [/cells/" "a fact"
follows_schema "$work/diagnosis.json" "facts" diagnosis

# A remedy is given as options too, and makes the run well.
"$AMPBENCH" diagnose "$work/norm.json" --json - --exit-zero | tr -d '\n' |
    sed -n 's/.*"remedy_options": *\["--to", *"\([^"]*\)"\].*/\1/p' >"$work/remedy"
train cured --net "$AMPBENCH_SOURCE/tests/fixtures/hand_norm.json" --levels O0,O2 --steps 100 \
    --to "$(cat "$work/remedy")"
expect cured O2 healthy

# Cells that are not sick have a line each; what is true of several is said once; --verbose says all.
train brief --levels O0,O1,O2 --steps 20 --lr 0.0003 --probe-every 4
run diagnose "$work/brief.json"
expect_rc 0 "cells of a run that learns nothing"
lines=$(grep -c "^mlp/.*: undecided: O0 itself has not learned yet; loss: " "$work/out")
[ "$lines" = 3 ] || fail "brief: expected a line a cell, found: $(cat "$work/out")"
count=$(grep -c "cannot tell more: O0 has not learned yet" "$work/out")
[ "$count" = 1 ] || fail "brief: the reason is said $count times, not once"
run diagnose "$work/brief.json" --verbose
expect_rc 0 "--verbose"
count=$(grep -c "cannot tell more: O0 has not learned yet" "$work/out")
[ "$count" = 3 ] || fail "--verbose: the reason is said $count times, not of each of three cells"

# A record without the probes that would tell: what is missing is said, nothing is guessed.
train bare --net "$AMPBENCH_SOURCE/tests/fixtures/hand_norm.json" --levels O0,O2 --steps 60 --probe-every 0
expect bare O2 unknown
run diagnose "$work/bare.json"
expect_text "$work/out" "cannot tell" "what is missing"

# The exit status, bad input.
run diagnose "$work/scales.json"
expect_rc 4 "a sick cell"
expect_text "$work/out" "remedy: --scales" "the remedy"
run diagnose "$work/warmup.json"
expect_rc 0 "healthy cells"
run diagnose "$work/scales.json" --exit-zero
expect_rc 0 "--exit-zero"

# Other thresholds: which of them a verdict depends on.
run diagnose --thresholds
expect_text "$work/out" "short_window               20           policy    clean steps:" \
    "the list of thresholds"
run diagnose "$work/window.json" --threshold short_window=1
expect_text "$work/out" "unknown: no rule" "a window that is not short"
run diagnose "$work/window.json" --jitter 0.95 --json "$work/jitter.json"
expect_text "$work/out" "fp16/cpu/seed1: with short_window 1: unknown" "a threshold that matters"
follows_schema "$work/jitter.json" "the jitter" diagnosis
run diagnose "$work/warmup.json" --jitter 0.01
expect_text "$work/out" "one at a time: 0 change what is said first" "a verdict far from every threshold"
run diagnose "$work/window.json" --threshold short=1
expect_text "$work/err" "no threshold is called 'short'" "an unknown threshold"
run diagnose "$work/window.json" --threshold short_window=few
expect_text "$work/err" "expected a number after 'short_window=', found 'few'" "no number"
run diagnose "$work/window.json" --threshold short_window=1 --confirm
expect_text "$work/err" "--threshold does not go with --confirm or --twins" "thresholds of --confirm"
run diagnose "$work/window.json" --jitter 2
expect_text "$work/err" "--jitter expects a share between 0 and 1, found '2'" "a jitter of 200 %"
expect_rc 2 "a jitter of 200 %"

run diagnose
expect_rc 2 "no document"
run diagnose "$work/nothing.json"
expect_rc 2 "a missing document"
head -c 3000 "$work/scales.json" >"$work/cut.json"
run diagnose "$work/cut.json"
expect_rc 2 "a truncated document"
run diagnose "$AMPBENCH_SOURCE/tests/fixtures/result_hostile.json" --exit-zero
expect_rc 0 "a hostile document"
if grep -q "$(printf '\033')" "$work/out"; then fail "a terminal escape reached the output"; fi
finish
