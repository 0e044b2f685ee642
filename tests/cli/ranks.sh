# ampbench ranks: a half ring over many ranks loses what is known, a tree does not; JSON agrees with its
# schema and does not depend on the number of threads; bad input is refused in one line.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

# expect WHAT COMMAND...: COMMAND succeeds.
expect() {
    local what=$1
    checks=$((checks + 1))
    shift
    "$@" || fail "$what"
}

# header FILE COUNT: that of an .npy of COUNT fp32 numbers
header() {
    printf '\x93NUMPY\x01\x00\x76\x00' >"$1"
    printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2,), }" >>"$1"
}
# Four micro-batches of 256 values each: 1.0, 1.5, 2.0 or 2.5 in an order that differs between them.
words=('\x00\x00\x80\x3f' '\x00\x00\xc0\x3f' '\x00\x00\x00\x40' '\x00\x00\x20\x40')
for k in 0 1 2 3; do
    header "$work/g$k.npy" 256
    text=""
    for i in $(seq 256); do text+=${words[(i + k + i / 7) % 4]}; done
    printf '%b' "$text" >>"$work/g$k.npy"
done
files=("$work/g0.npy" "$work/g1.npy" "$work/g2.npy" "$work/g3.npy")

run ranks "${files[@]}" --ranks 4,4096 --reduce ring,tree,exact --reduce-dtype bf16 --json "$work/all.json"
expect_rc 0 "ranks"
expect_text "$work/out" "gradients of 4 micro-batches: 1 tensor, 256 elements" "says what was read"
expect_text "$work/out" "beyond 4 ranks micro-batches repeat" "says what is extrapolated"
expect_text "$work/out" "exact bf16 pre           stays below it up to 4096 ranks" "judges the reductions"
expect "4096 ranks of a bf16 ring lose more than half of the sum, 4 ranks and a tree nearly nothing" \
    awk '$3 == "bf16" && $4 == "pre" && NF > 8 {
             lost = -$6; seen++
             bad += ($1 == 4096 && $2 == "ring") ? lost < 50 : lost > 1 || lost < -1 }
         END { exit seen != 6 || bad }' "$work/out"
follows_schema "$work/all.json" "ranks --json" ranks

run ranks "${files[@]}" --ranks 4,4096 --reduce ring,tree,exact --reduce-dtype bf16 --threads 3 \
    --json "$work/three.json"
expect "results depend on the number of threads" cmp "$work/all.json" "$work/three.json"
run ranks "${files[@]}" --ranks 8 --preset fsdp2 --json -
expect_rc 0 "ranks --json -"
follows_schema "$work/out" "ranks --json -" ranks
run ranks "${files[@]}" --ranks 64 --reduce ring --reduce-dtype fp16 --divide post --scale 2^10
expect_text "$work/out" "100" "2.5 times 1024 times 64 is beyond fp16 before the division"

# refused "TEXT" ARGS...
refused() {
    local text=$1
    shift
    run ranks "$@"
    expect_rc 2 "ranks $*"
    [ -s "$work/out" ] && fail "ranks $*: wrote to stdout"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "ranks $*: not one line on stderr: $(head -c 800 "$work/err")"
    expect_text "$work/err" "$text" "ranks $*"
}
header "$work/short.npy" 2
printf '\0\0\0\0\0\0\0\0' >>"$work/short.npy"
refused "at least 2 files" "$work/g0.npy"
refused "expected a range of powers of 2 such as 8..65536, found '6..48'" "${files[@]}" --ranks 6..48
refused "expected a number from 1 to" "${files[@]}" --ranks 8..2^40
run ranks "${files[@]}" --ranks 8,64
cp "$work/out" "$work/listed"
run ranks "${files[@]}" --ranks 2^3..2^6:3
expect_rc 0 "a range of every third power"
cmp -s "$work/out" "$work/listed" || fail "2^3..2^6:3 is not 8,64"
refused "expected shape [256]" "$work/g0.npy" "$work/short.npy"
refused "cannot open" "$work/g0.npy" "$work/none.npy"
refused "nearest: ring" "${files[@]}" --reduce rign
refused "hierarchical:8" "${files[@]}" --reduce hierarchical
refused "expected rising numbers" "${files[@]}" --ranks 8,4
refused "expected whole numbers" "${files[@]}" --ranks 1.5
refused "expected a number from 1" "${files[@]}" --ranks 0
refused "fp32, fp16, bf16 or as-is" "${files[@]}" --reduce-dtype fp8_e4m3
refused "expected pre, post, sqrt, avg or a factor" "${files[@]}" --divide half
refused "nearest: torch-ddp" "${files[@]}" --preset torch-dpd
refused "give it alone" "${files[@]}" --preset fsdp1 --divide pre
refused "did you mean '--ranks'" "${files[@]}" --rnaks 8

# Training: a sum of fp16 gradients that overflows before it is divided, and its healthy twin.
training=(--net mlp --data synthetic --levels O0,O2 --scales 4096 --ranks 64 --batch 2 --steps 20 --rounds 1
    --no-floor --eval-limit 16 --threads 1 --quiet --no-plots)
run "${training[@]}" --divide post --out "$work/post.json"
expect_rc 0 "ranks that divide after the sum"
follows_schema "$work/post.json" "a record of ranks"
run diagnose "$work/post.json"
expect_text "$work/out" "allreduce_overflow (precision, first, shown)" "ranks that divide after the sum"
run "${training[@]}" --divide sqrt --out "$work/sqrt.json"
run diagnose "$work/sqrt.json"
expect_rc 0 "ranks that divide before and after the sum"
expect_no_text "$work/out" "allreduce" "ranks that divide before and after the sum"

# A run's own gradients: 16 batches at the final weights, named by the record.
saving=(--net mlp --data synthetic --levels O0,O2 --scales 1024 --batch 8 --steps 3 --rounds 1 --no-floor
    --eval-limit 8 --threads 1 --quiet --no-plots)
run "${saving[@]}" --save-gradients "$work/own/of/%c.safetensors" --out "$work/own.json"
expect_rc 0 "--save-gradients"
follows_schema "$work/own.json" "a record with saved gradients"
expect "not 16 files a cell" [ "$(find "$work/own/of" -name 'mlp-O2-*.[01][0-9].safetensors' | wc -l)" = 16 ]
run "${saving[@]}" --out "$work/plain.json"
expect "saving gradients changes a loss" [ "$(digests "$work/own.json")" = "$(digests "$work/plain.json")" ]
run ranks "$work/own.json" --cell '*/O2/*' --ranks 8..65536 --preset apex-ddp,fsdp2 --elements 4096 \
    --json "$work/of-record.json"
expect_rc 0 "ranks RECORD"
expect_text "$work/out" "gradients of 16 micro-batches: 6 tensors" "ranks RECORD says what it read"
expect "the fp16 gradients of O2 are not reduced as they are: fp16 rounds by 2^-11, fp32 by 2^-24" \
    awk '$2 == "ring" && $3 == "as-is" && $1 == 8 { seen++; bad += !($5 > 1e-5 && $5 < 1e-2) }
         END { exit seen != 2 || bad }' "$work/out"
run ranks "$work"/own/of/mlp-O2-*.safetensors --ranks 8..65536 --preset apex-ddp,fsdp2 --elements 4096 \
    --json "$work/of-files.json"
expect "ranks RECORD is not ranks of its files" cmp "$work/of-record.json" "$work/of-files.json"
refused "2 cells have gradients; choose one" "$work/own.json"
refused "no cell of --cell */O3/* has gradients" "$work/own.json" --cell '*/O3/*'
refused "run it with --save-gradients FILE" "$work/plain.json"
refused "expected one RESULT.json" "${files[@]}" --cell x
run --save-gradients "$work/x.safetensors" --levels O0 --ranks 2 --out "$work/none.json"
expect_rc 2 "--save-gradients of ranks"
expect_text "$work/err" "gradients of single batches" "--save-gradients of ranks"

# Ranks with unequal batches: weighted by their samples they are sound, with the same weight they are named.
uneven=(--net mlp --data synthetic --levels O0 --ranks 3 --batch 8 --steps 20 --rounds 1 --no-floor
    --eval-limit 8 --threads 1 --quiet --no-plots)
run "${uneven[@]}" --last-rank-samples 2 --fault ranks_weighted_alike --out "$work/alike.json"
expect_rc 0 "ranks of unequal samples with the same weight"
follows_schema "$work/alike.json" "a record of ranks of unequal samples"
run diagnose "$work/alike.json"
expect_text "$work/out" "ranks_weighted_alike (training, first, shown)" "ranks with the same weight"
expect_text "$work/out" "counts 4 times" "ranks with the same weight"
run "${uneven[@]}" --last-rank-samples 2 --out "$work/weighted.json"
run diagnose "$work/weighted.json"
expect_no_text "$work/out" "ranks_weighted_alike" "ranks weighted by their samples"
expect "the weights change nothing" [ "$(digests "$work/alike.json")" != "$(digests "$work/weighted.json")" ]
run "${uneven[@]}" --last-rank-samples 9 --out "$work/none.json"
expect_rc 2 "more samples than a batch has"
expect_text "$work/err" "at most the 8 samples of --batch, found 9" "more samples than a batch has"
finish
