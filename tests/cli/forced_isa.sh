# Other machines: every CPU level of our own kernels and of oneDNN can be forced, runs, is recorded, and finds
# the same losses up to rounding. What this CPU lacks is not raised to: the run then uses the best it has.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
data=$AMPBENCH_SOURCE/tests/golden/data

# losses NAME: a short run of a convolutional network into $work/NAME.csv.
losses() {
    run run --net resnet8 --data "$data" --batch 4 --steps 2 --levels O0,O1,O2,O3 --no-floor --rounds 1 \
        --threads 2 \
        --no-plots --quiet --out "$work/$1.json" --csv "$work/$1.csv"
    expect_rc 0 "$1"
}

# close NAME: final losses within 1e-5 (O0) or 1e-3 (half levels) of the unforced run's.
close() {
    checks=$((checks + 1))
    paste -d' ' <(csv_columns "$work/best.csv" level loss_final) <(csv_columns "$work/$1.csv" loss_final) |
        awk '
        { gap = $2 - $3; if (gap < 0) gap = -gap; if (!(gap <= ($1 == "O0" ? 1e-5 : 1e-3) * $2)) exit 1 }' ||
        fail "$1: losses $(csv_columns "$work/$1.csv" level loss_final |
            tr '\n' ' ') are not those of the unforced run"
}

losses best
[ "$(csv_columns "$work/best.csv" loss_final | grep -c '^[0-9]')" = 4 ] || fail "no final losses"
for level in plain avx2 avx512 avx512bitalg; do
    AMPBENCH_CPU_ISA=$level losses "own-$level"
    close "own-$level"
done
expect_text "$work/own-plain.json" '"AMPBENCH_CPU_ISA"' "the forced level is recorded"
grep -q '"isa": *"plain"' "$work/own-plain.json" || fail "a run forced to plain does not say so"
for level in SSE41 AVX2 AVX512_CORE; do
    ONEDNN_MAX_CPU_ISA=$level losses "onednn-$level"
    close "onednn-$level"
done
AMPBENCH_CPU_ISA=plain ONEDNN_MAX_CPU_ISA=SSE41 losses oldest
close oldest
AMPBENCH_CPU_ISA=avx1024 run run --net mlp --data "$data" --steps 1 --out "$work/none.json"
expect_text "$work/err" "avx1024" "an unknown level is named"

finish
