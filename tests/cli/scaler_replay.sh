# `ampbench scaler --replay`: other loss scalers on the gradients of a recorded run, against runs really made
# with them; the same of a log; what is refused.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

# refused "TEXT" ARGS...
refused() {
    local text=$1
    shift
    run "$@"
    expect_rc 2 "$*"
    checks=$((checks + 1))
    [ -s "$work/out" ] && fail "$*: wrote to stdout"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line on stderr: $(head -c 400 "$work/err")"
    expect_text "$work/err" "$text" "$*"
}

# number FILE KEY: the first such key's number.
number() {
    sed -n "s/^ *\"$2\": \([0-9.e+-]*\),*$/\1/p" "$1" | head -1
}

# ---- against runs really made -----------------------------------------------------------------------
train() { # SCALER NAME
    run --net mlp --data synthetic --steps 60 --batch 16 --rounds 1 --levels O2 --no-plots --no-floor \
        --quiet --probes gradients --probe-every 1 --scales "$1" --out "$work/$2.json"
    expect_rc 0 "training with $1"
}
train torch:window=12 recorded
follows_schema "$work/recorded.json" "a record with periods"
expect_text "$work/recorded.json" '"periods"' "exponents over time"

# The recorded scaler repeats its run.
run scaler --replay "$work/recorded.json" torch:window=12 --json "$work/own.json"
expect_rc 0 "replay of the recorded scaler"
follows_schema "$work/own.json" "scaler --replay --json" replay
expect_text "$work/out" "recorded" "the recorded run is shown"
expect_text "$work/out" "all" "exact for all steps"
checks=$((checks + 1))
[ "$(number "$work/own.json" skipped)" = "$(number "$work/recorded.json" steps_skipped)" ] ||
    fail "the recorded scaler skips $(number "$work/own.json" skipped) steps, really $(number \
        "$work/recorded.json" steps_skipped)"

# Others are predicted: 95 % of binomial counts around k of 60 lie within about 2 sqrt(k) + 2.
for scaler in torch:init=2^22,window=15 deepspeed:init=2^10,window=20 fixed-skip:init=2^6; do
    train "$scaler" trained
    run scaler --replay "$work/recorded.json" "$scaler" --json -
    predicted=$(sed -n '/"scalers"/,$p' "$work/out" >"$work/rows" && number "$work/rows" skipped)
    really=$(number "$work/trained.json" steps_skipped)
    checks=$((checks + 1))
    awk -v p="$predicted" -v r="$really" \
        'BEGIN { d = p - r; exit !(p != "" && d * d <= (2 * sqrt(r) + 2) ^ 2) }' ||
        fail "$scaler: predicted $predicted skips, really $really"
done

# ---- every dialect, grids, cells, plots --------------------------------------------------------------
run scaler --replay "$work/recorded.json"
expect_rc 0 "every dialect"
expect_text "$work/out" "openseq2seq-logmax" "dialects that follow sizes are replayed"
expect_no_text "$work/out" "adaloss" "a scale for each layer is not"
run scaler --replay "$work/recorded.json" torch deepspeed --grid window=10/100,init=2^8..2^10 \
    --plot "$work/plot" --json "$work/grid.json"
expect_rc 0 "a grid"
checks=$((checks + 1))
rows=$(grep -c '"scaler":' "$work/grid.json")
[ "$rows" = 12 ] || fail "a grid of 12 has $rows"
follows_schema "$work/grid.json" "a grid" replay
checks=$((checks + 1))
[ -s "$work/plot/replay.dat" ] || fail "no data of the plot"
refused "found 'O7'" scaler --replay "$work/recorded.json" --cell O7
refused "no dialect here has the key 'windw'" scaler --replay "$work/recorded.json" torch --grid windw=3
refused "expected no --overflow" scaler --replay "$work/recorded.json" torch --overflow 01
refused "are for --replay" scaler torch --overflow 01 --grid window=3
refused "a scale for each layer" scaler --replay "$work/recorded.json" adaloss

# ---- logs -------------------------------------------------------------------------------------------
tar -xJf "$AMPBENCH_SOURCE/tests/golden/logs.tar.xz" -C "$work"
run scaler --replay "$work/torch.jsonl" torch:window=20 --json "$work/log.json"
expect_rc 0 "replay of a log"
follows_schema "$work/log.json" "replay of a log" replay
expect_text "$work/out" "torch:window=20        9        0        all" "torch's own log is repeated"
run scaler --replay "$work/megatron.log" megatron:init=65536,window=20 torch
expect_text "$work/out" "megatron:init=65536,window=20        9        3        all" \
    "megatron-core's own log is repeated"
expect_text "$work/out" ".." "what a log does not tell is a range"
refused "counts no steps" scaler --replay "$work/deepspeed.log"
refused "tells no loss scale" scaler --replay "$work/trainer.log"
refused "follows the size of the gradients" scaler --replay "$work/torch.jsonl" openseq2seq-logmax
refused "a log has no cells" scaler --replay "$work/torch.jsonl" --cell x
refused "cannot open" scaler --replay "$work/absent"

finish
