# --ranks mpi: the ranks of an MPI job train to the bits of simulated ranks, for every preset and order and on
# every MPI library that is here; a rank that dies ends the others with its number and reason and leaves a
# valid record; what is wrong is said in one line. Skipped without mpirun or plugin.
# AMPBENCH_MPI_ALL=1: every preset with 2, 3, 4, 7 and 8 ranks, 50 steps.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers may forbid it
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK PMI_FD
libraries=()
for library in openmpi mpich; do
    command -v mpirun.$library >/dev/null && [ -e "$AMPBENCH_BUILD/libampbench_mpi_$library.so" ] &&
        libraries+=("$library")
done

refused() {
    local text=$1
    shift
    run "$@"
    expect_rc 2 "$*"
    expect_text "$work/err" "$text" "$*"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line on stderr: $(head -c 800 "$work/err")"
}
refused "start it as: mpirun -n 4 ampbench --ranks mpi" --ranks mpi --out "$work/none.json"
refused "start it as: mpirun -n 4 ampbench --ranks nccl" --ranks nccl --out "$work/none.json"
refused "only \`ampbench run\` trains" plan --ranks mpi
refused "did you mean 'torch'" --ranks 2 --sync-bn torhc --out "$work/none.json"
refused "mlp has no batch norm" --ranks 2 --net mlp --sync-bn torch --out "$work/none.json"
refused "nothing is reduced; give --ranks N" --net resnet8 --sync-bn torch --out "$work/none.json"
refused "share one copy of the weights" --ranks 2 --check-ranks 3 --out "$work/none.json"
refused "with --ranks mpi only" --ranks 2 --fault flipped_bit_on_a_rank --out "$work/none.json"
refused "expected step, micro-batch, accumulated or step-in-wire, found 'epoch'" --ranks 2 \
    --gradient-accumulation-steps 2 --reduce-every epoch --out "$work/none.json"
refused "ranks accumulate nothing" --ranks 2 --reduce-every micro-batch --out "$work/none.json"
refused "give --reduce-every step" --ranks 2 --gradient-accumulation-steps 2 --ddp fsdp2 \
    --fault unscale_each_micro_batch --out "$work/none.json"
refused "give --ranks mpi" --ranks 2 --reduce mpi-allreduce --out "$work/none.json"
for how in mpi nccl; do
    PMI_RANK=0 AMPBENCH_PLUGIN_DIR=$work refused \
        "--ranks $how: the launcher is that of MPICH: there is no libampbench_mpi_mpich.so" \
        --ranks $how --out "$work/none.json"
done
: >"$work/libampbench_mpi_mpich.so"
PMI_RANK=0 AMPBENCH_PLUGIN_DIR=$work refused "no MPI library" --ranks mpi --out "$work/none.json"
if [ ${#libraries[@]} = 0 ]; then
    [ "$failures" = 0 ] || finish
    echo "SKIPPED: no mpirun, or no plugin for it"
    exit 77
fi

# What each rank runs before the program, as if it were on a machine of that number; empty: on this one.
apart=""
pairs='AMPBENCH_RANK_MACHINE=$(((${PMI_RANK:-0} + ${OMPI_COMM_WORLD_RANK:-0}) / 2)) exec "$@"'
each='AMPBENCH_RANK_MACHINE=$((${PMI_RANK:-0} + ${OMPI_COMM_WORLD_RANK:-0})) exec "$@"'
# mpi LIBRARY RANKS ARGS...
mpi() {
    local library=$1 ranks=$2
    shift 2
    timeout 120 "mpirun.$library" -n "$ranks" ${apart:+bash -c "$apart" apart} "$AMPBENCH" "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
steps=3
[ -z "${AMPBENCH_MPI_ALL:-}" ] || steps=50
common=(--levels O2 --net mlp --data synthetic --batch 4 --steps $steps --rounds 1 --threads 1 --no-floor
    --eval-limit 4 --bucket-mb 0.01 --quiet --no-plots)

# same LIBRARY RANKS ARGS...: losses of processes and of simulated ranks
same() {
    local library=$1 ranks=$2
    shift 2
    run "${common[@]}" "$@" --ranks "$ranks" --out "$work/simulated.json"
    expect_rc 0 "--ranks $ranks $*"
    mpi "$library" "$ranks" "${common[@]}" "$@" --ranks mpi --out "$work/mpi.json"
    expect_rc 0 "$library, $ranks ranks, $*"
    checks=$((checks + 1))
    [ "$(digests "$work/mpi.json")" = "$(digests "$work/simulated.json")" ] ||
        fail "$library, $ranks ranks, $*: not the losses of simulated ranks: $(digests "$work/mpi.json")"
}

first=${libraries[0]}
last=${libraries[${#libraries[@]} - 1]}
presets=$(sed -n 's/^AB_REDUCTION_PRESET([a-z0-9_]*, "\([^"]*\)".*/\1/p' \
    "$AMPBENCH_SOURCE/kernels/collective/presets.def")
if [ -n "${AMPBENCH_MPI_ALL:-}" ]; then
    for library in "${libraries[@]}"; do
        for preset in $presets; do
            for ranks in 2 3 4 7 8; do same "$library" "$ranks" --ddp "$preset"; done
        done
    done
else
    ranks=2
    for preset in $presets; do
        same "$first" $ranks --ddp "$preset"
        ranks=$((ranks % 3 + 2)) # 2, 4, 3, 2, ...
    done
fi
same "$last" 3 --reduce hierarchical:2 --reduce-dtype bf16 --divide post
same "$last" 4 --reduce tree --reduce-dtype fp16 --gradient-accumulation-steps 2
same "$first" 3 --levels O0 --gradient-accumulation-steps 2
# A reduction after every micro-batch, with and without masters, what accumulated reduced again or not.
same "$last" 3 --levels O0,O2 --gradient-accumulation-steps 3 --ddp torch-ddp-bf16
same "$first" 2 --levels O0,O2 --gradient-accumulation-steps 2 --ddp fsdp2 --last-rank-samples 2
same "$last" 2 --levels O3 --gradient-accumulation-steps 2 --reduce-every micro-batch
# Micro-batches summed in the wire format: FSDP2 that does not synchronise.
same "$first" 3 --levels O0,O2,O3 --gradient-accumulation-steps 3 --ddp fsdp2-fp16 --reduce-every step
same "$first" 7 --reduce exact --divide 8
# Ranks of one machine read each other's memory; to others MPI carries the bytes. Small gradients in one
# bucket go to all ranks at once, others by shares.
same "$first" 3 --bucket-mb 25 --ddp torch-ddp-bf16
same "$last" 4 --bucket-mb 25 --reduce tree --reduce-dtype fp16
for library in "${libraries[@]}"; do
    apart=$pairs
    same "$library" 3 --bucket-mb 25 --levels O0,O2
    same "$library" 3 --reduce tree --reduce-dtype bf16
    apart=$each
    same "$library" 3 --levels O0,O2
    apart=""
done
# A weight of two ops is sent when the earlier one has added to it.
cat >"$work/tied.json" <<'END'
{"format": "ampbench-net-1", "name": "tied", "text": "a weight that two layers share",
 "input": {"height": 28, "width": 28, "channels": 1},
 "ops": [
  {"name": "flat", "op": "flatten"}, {"name": "fc1", "op": "linear", "out_features": 96},
  {"name": "fc2", "op": "linear", "out_features": 96}, {"name": "relu2", "op": "relu"},
  {"name": "fc3", "op": "linear", "out_features": 96, "share": {"weight": "fc2.weight"}},
  {"name": "relu3", "op": "relu"}, {"name": "fc4", "op": "linear", "out_features": 10},
  {"name": "loss", "op": "cross_entropy"}]}
END
same "$last" 3 --net "$work/tied.json" --levels O0,O2
# Batch norms with the statistics of all ranks: processes exchange what simulated ranks merge.
cat >"$work/bn.json" <<'END'
{"format": "ampbench-net-1", "name": "bn", "text": "a perceptron with batch norms",
 "input": {"height": 28, "width": 28, "channels": 1},
 "ops": [
  {"name": "flat", "op": "flatten"},
  {"name": "fc1", "op": "linear", "out_features": 16}, {"name": "bn1", "op": "batch_norm1d"},
  {"name": "relu1", "op": "relu"}, {"name": "fc2", "op": "linear", "out_features": 16},
  {"name": "bn2", "op": "batch_norm1d"}, {"name": "fc3", "op": "linear", "out_features": 10},
  {"name": "loss", "op": "cross_entropy"}]}
END
for form in torch apex; do
    [ $form = torch ] || apart=$pairs
    same "$last" 3 --net "$work/bn.json" --sync-bn $form
    apart=""
    cp "$work/simulated.json" "$work/$form.json"
done
expect_text "$work/out" "batch norms" "the table says how batch norms are synchronised"
same "$last" 2 --levels O0,O2 --gradient-accumulation-steps 2 --reduce-dtype bf16 \
    --reduce-every step-in-wire --sync-bn torch --net "$work/bn.json"
expect_text "$work/out" "bf16 pre, micro-batches summed in that format" \
    "the table says where micro-batches are summed"
# Statistics are exchanged while buckets of gradients are on their way: fc3's and fc2's before those of bn1.
for ranks in 2 3 4; do
    same "$first" $ranks --net "$work/bn.json" --sync-bn torch --bucket-mb 0.0003 --levels O0,O2 --steps 8
    checks=$((checks + 1))
    tr -d ' \t\n' <"$work/mpi.json" | grep -o '"overlapped_bytes":[0-9]*' | tr ':' ' ' |
        awk -v least=$(((160 + 16 + 256) * 2 * 7)) '$2 >= least { seen++ } END { exit seen != 2 }' ||
        fail "$ranks ranks: no gradients of fc3 and fc2 were sent during the backward pass"
done
run "${common[@]}" --net "$work/bn.json" --ranks 3 --out "$work/local.json"
checks=$((checks + 1))
[ "$(digests "$work/torch.json")" != "$(digests "$work/local.json")" ] || fail "--sync-bn changes nothing"
same "$first" 3 --last-rank-samples 1
same "$last" 2 --reduce alltoall --reduce-dtype bf16 --levels O0
follows_schema "$work/mpi.json" "a record of MPI ranks"
expect_text "$work/out" "2 ranks, processes of MPI" "the table says what the ranks were"

# The library's own sum is in fp32, whatever its order: losses are close.
mpi "$first" 3 "${common[@]}" --ranks mpi --reduce mpi-allreduce --out "$work/sum.json"
expect_rc 0 "mpi-allreduce"
mpi "$first" 2 "${common[@]}" --ranks mpi --reduce mpi-allreduce --reduce-dtype bf16 --out "$work/none.json"
expect_rc 2 "mpi-allreduce in bf16"
expect_text "$work/err" "MPI has no sum of bf16" "mpi-allreduce in bf16"

# Every rank's own weights are compared: a bit that flips on the last of three ranks is named.
parted=(--levels O0,O2 --steps 8 --ranks mpi --check-ranks 2)
mpi "$last" 3 "${common[@]}" "${parted[@]}" --fault flipped_bit_on_a_rank --out "$work/parted.json"
expect_rc 0 "a flipped bit"
expect_text "$work/out" "after 4 steps rank 2 had other weights than most: fc3.bias" "a flipped bit's table"
follows_schema "$work/parted.json" "a record of ranks that parted"
run diagnose "$work/parted.json"
expect_rc 4 "diagnose, a flipped bit"
expect_text "$work/out" "ranks_out_of_step (training, first, shown) in fc3" "diagnose, a flipped bit"
expect_text "$work/out" "after 4 steps fc3.bias of rank 2 is not, bit by bit, that of most ranks (1 of 3" \
    "diagnose, a flipped bit"
mpi "$first" 3 "${common[@]}" "${parted[@]}" --out "$work/whole.json"
expect_rc 0 "ranks that stay the same"
run diagnose "$work/whole.json"
expect_no_text "$work/out" "ranks_out_of_step" "ranks that stay the same"
checks=$((checks + 1))
sound=$(tr -d ' \t\n' <"$work/whole.json" | grep -o '"replicas":{"every":2,"checks":4,"ranks":3}' | wc -l)
[ "$sound" = 2 ] || fail "not four checks a cell without a difference"

# Time and bytes of the reduction: of 3 ranks each sends two thirds of the gradient to be summed and as much
# of means (235146 fp32 values of O0, 7 steps after the first); gaps between tensors are less than 1 %.
checks=$((checks + 1))
sent=$(tr -d ' \t\n' <"$work/whole.json" | grep -o '"op":"[a-z_]*","time_ns":[0-9]*,"bytes_sent":[0-9]*')
tr '":,' '   ' <<<"$sent" |
    awk -v whole=$((235146 * 4 * 2 / 3 * 7)) '($2 == "reduce_scatter" || $2 == "all_gather") && seen++ < 2 {
        bad += $6 < whole * 0.99 || $6 > whole * 1.01 }
        END { exit seen != 4 || bad }' || fail "not the bytes of a reduction: $sent"
# All gradients but those of the first layer, which end the backward pass, are sent while it goes on: 34186 of
# fc3 and fc2 at O0, with gaps up to the next 64 bytes.
checks=$((checks + 1))
sent=$(tr -d ' \t\n' <"$work/whole.json" | grep -o '"overlapped_bytes":[0-9]*' | head -n 1)
[ "$sent" = "\"overlapped_bytes\":$(((32768 + 128 + 1280 + 16) * 4 * 7))" ] ||
    fail "not the gradients that are complete before the backward pass ends: $sent"
mpi "$last" 2 "${common[@]}" --ranks mpi --profile --out "$work/profile.json"
expect_text "$work/out" "efficiency against one rank" "the table of ranks that are processes"
expect_text "$work/profile.json" '"reduction"' "the profile of ranks that are processes"
mpi "$last" 1 "${common[@]}" --ranks mpi --out "$work/one.json"
run --levels O2 --net mlp --data synthetic --batch 4 --steps $steps --rounds 1 --threads 1 --no-floor \
    --eval-limit 4 --quiet --no-plots --out "$work/alone.json"
checks=$((checks + 1))
[ "$(digests "$work/one.json")" = "$(digests "$work/alone.json")" ] ||
    fail "one rank is not a run without ranks"

# A small gradient in one bucket goes whole to both others; no means come back.
mpi "$first" 3 "${common[@]}" --levels O0 --bucket-mb 25 --steps 8 --ranks mpi --out "$work/small.json"
checks=$((checks + 1))
tr -d ' \t\n' <"$work/small.json" | grep -o '"op":"[a-z_]*","time_ns":[0-9]*,"bytes_sent":[0-9]*' |
    tr '":,' '   ' | awk -v whole=$((235146 * 4 * 2 * 7)) '$2 == "reduce_scatter" {
        right += $6 >= whole && $6 < whole * 1.01 } $2 == "all_gather" { right += $6 == 0 }
        END { exit right != 2 }' || fail "not one exchange of a small gradient"

# Ranks that were started with other options.
timeout 120 "mpirun.$first" -n 1 "$AMPBENCH" "${common[@]}" --ranks mpi --out "$work/none.json" : \
    -n 1 "$AMPBENCH" "${common[@]}" --ranks mpi --lr 0.5 >"$work/out" 2>"$work/err" </dev/null
rc=$?
expect_rc 2 "other options"
expect_text "$work/err" "rank 1 was given other options than rank 0" "other options"

# workers_of RANK RANKS: its processes at this moment
workers_of() {
    grep -lz "^AMPBENCH_RANK_LINK=[0-9]* [0-9]* $1 $2$" /proc/[0-9]*/environ 2>/dev/null |
        xargs -r grep -lzx "MARK=$work" 2>/dev/null | cut -d / -f 3
}
# dies LIBRARY ARGS...: every worker of rank 2 of 3 is killed, whatever it is for, until the job ends: the
# first ones live for moments only, and one that has ended by itself before the signal comes proves nothing
dies() {
    local library=$1 job
    shift
    MARK=$work mpi "$library" 3 "${common[@]}" --steps 100000 --ranks mpi --out "$work/died.json" "$@" &
    job=$!
    while kill -0 "$job" 2>/dev/null; do
        workers_of 2 3 | xargs -r kill -9 2>/dev/null
        sleep 0.1
    done
    wait
    checks=$((checks + 1))
    grep -q "ampbench: rank 2: killed by signal 9 .*; finish with: ampbench run --resume" "$work/err" ||
        fail "a rank died, $*: $(head -c 800 "$work/err")"
    follows_schema "$work/died.json" "the record of a run whose rank died, $*"
    expect_text "$work/died.json" "rank 2: killed by signal 9" "the record of a run whose rank died, $*"
    rm "$work/died.json"
}
dies "$first"                   # while the cost of probes is measured
dies "$last" --probe-budget 0   # in the first round

# A job whose rank is killed for real goes on: the losses are those of a run that nothing disturbed, and what
# was done is kept. The worker of O2 on rank 2 is killed; O0, which is first, is done.
resumed=(--levels O0,O2 --steps 1000 --probe-every 0)
run "${common[@]}" "${resumed[@]}" --ranks 3 --out "$work/undisturbed.json"
# strikes LIBRARY: whether the kill came before the worker had ended by itself
strikes() {
    local library=$1 job worker
    rm -f "$work/died.json"*
    MARK=$work mpi "$library" 3 "${common[@]}" "${resumed[@]}" --ranks mpi --out "$work/died.json" &
    job=$!
    while kill -0 "$job" 2>/dev/null; do
        for worker in $(workers_of 2 3); do
            { tr '\0' ' ' <"/proc/$worker/cmdline"; } 2>/dev/null | grep -q " worker .*/O2/" &&
                kill -9 "$worker" 2>/dev/null
        done
        sleep 0.01
    done
    wait "$job"
    grep -q "rank 2: killed by signal 9" "$work/err"
}
for library in "${libraries[@]}"; do
    for _ in 1 2 3 4 5; do strikes "$library" && break; done
    checks=$((checks + 1))
    grep -q "rank 2: killed by signal 9" "$work/err" || fail "$library: no worker was struck"
    kept=$(grep -o '"max_rss_bytes": *[0-9]*' "$work/died.json" | head -n 1)
    mpi "$library" 3 run --resume --quiet --no-plots --out "$work/died.json"
    expect_rc 0 "$library: a run with ranks that goes on after a death"
    follows_schema "$work/died.json" "a run with ranks that went on"
    checks=$((checks + 2))
    [ "$(digests "$work/died.json")" = "$(digests "$work/undisturbed.json")" ] ||
        fail "$library: other losses after a death: $(digests "$work/died.json")"
    [ -n "$kept" ] && grep -qF "$kept" "$work/died.json" ||
        fail "$library: a cell that was done was run again"
done
finish
