# --ranks nccl: processes with a GPU each train to the bits of simulated ranks on such a GPU, by shares and in
# one exchange; NCCL's own sum and average; what is missing is said in one line. Emulated: the CUDA sources on
# the CPU and a libnccl.so.2 that sends through pipes (tests/cuda_host). Skipped without them or mpirun.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers may forbid it
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK PMI_FD
emulated=$AMPBENCH_BUILD/emulated
library=""
for each in openmpi mpich; do
    command -v mpirun.$each >/dev/null && [ -e "$AMPBENCH_BUILD/libampbench_mpi_$each.so" ] && library=$each
done
if [ -z "$library" ] || [ ! -e "$emulated/libnccl.so.2" ] || [ ! -e "$emulated/libampbench_cuda.so" ]; then
    echo "SKIPPED: no mpirun, or no emulation of CUDA in this build"
    exit 77
fi
mkdir "$work/plugins" "$work/bare"
ln -s "$emulated/libampbench_cuda.so" "$AMPBENCH_BUILD/libampbench_mpi_$library.so" "$work/plugins"
export AMPBENCH_PLUGIN_DIR=$work/plugins TMPDIR=$work AMPBENCH_EMULATED=devices=3
export LD_LIBRARY_PATH=$emulated:${LD_LIBRARY_PATH:-}
cat >"$work/small.json" <<'END_OF_NET'
{"format": "ampbench-net-1", "name": "small", "text": "two small layers",
 "input": {"height": 28, "width": 28, "channels": 1},
 "ops": [
  {"name": "flat", "op": "flatten"}, {"name": "fc1", "op": "linear", "out_features": 6},
  {"name": "relu", "op": "relu"}, {"name": "fc2", "op": "linear", "out_features": 10},
  {"name": "loss", "op": "cross_entropy"}]}
END_OF_NET
common=(--net "$work/small.json" --levels O2 --data synthetic --batch 2 --steps 3 --rounds 1 --threads 1
    --no-floor --eval-limit 2 --probe-every 0 --quiet --no-plots)

# nccl RANKS ARGS...
nccl() {
    local ranks=$1
    shift
    timeout 250 "mpirun.$library" -n "$ranks" "$AMPBENCH" "${common[@]}" --ranks nccl \
        --out "$work/nccl.json" "$@" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
# same RANKS ARGS...: losses of processes and of simulated ranks on one device
same() {
    local ranks=$1
    shift
    run "${common[@]}" --device cuda --ranks "$ranks" --out "$work/simulated.json" "$@"
    expect_rc 0 "--ranks $ranks $*"
    nccl "$ranks" "$@"
    expect_rc 0 "nccl, $ranks ranks, $*"
    checks=$((checks + 1))
    [ "$(digests "$work/nccl.json")" = "$(digests "$work/simulated.json")" ] ||
        fail "$ranks ranks, $*: not the losses of simulated ranks: $(digests "$work/nccl.json")"
}
same 3 --bucket-mb 0.001 --reduce tree --reduce-dtype bf16 # by shares, several buckets
same 2 --levels O0,O2 --ddp torch-ddp                       # small gradients go to all
expect_text "$work/out" "2 ranks, processes of MPI, GPUs joined by NCCL" "the table says what the ranks were"
follows_schema "$work/nccl.json" "a record of ranks with GPUs"
expect_text "$work/nccl.json" "no GPU: emulated on the CPU" "the record says that no GPU was there"

# NCCL's own sum and average: the emulation adds two ranks as a ring does, so that the bits are the same; the
# average multiplies by 1/2 first, as --divide pre.
losses() { tr -d ' \n' <"$1" | grep -o '"loss_digest":"[0-9a-f]*"' | sort -u; }
run "${common[@]}" --device cuda --ranks 2 --reduce rank-order --reduce-dtype fp32 --divide pre \
    --out "$work/simulated.json"
for divide in pre avg; do
    nccl 2 --reduce nccl-allreduce --divide $divide
    expect_rc 0 "nccl-allreduce, $divide"
    checks=$((checks + 1))
    [ "$(losses "$work/nccl.json")" = "$(losses "$work/simulated.json")" ] ||
        fail "nccl-allreduce, $divide: not the losses of a sum in the order of the ranks"
done
expect_text "$work/nccl.json" '"allreduce"' "the library's sum in the record"

# refused TEXT RANKS ARGS...: one line, from whichever rank
refused() {
    local text=$1
    shift
    nccl "$@"
    checks=$((checks + 1))
    [ "$rc" != 0 ] || fail "$*: succeeded"
    expect_text "$work/err" "$text" "$*"
}
refused "nccl-allreduce: the library's sum is not simulated; give --ranks nccl" 2 --ranks 2 \
    --reduce nccl-allreduce
refused "each rank has a GPU of its own; expected --device cuda, found cpu" 2 --device cpu
refused "mpi-allreduce: the library's sum is not simulated; give --ranks mpi" 2 --reduce mpi-allreduce
refused "give --ranks nccl or --device cpu" 2 --ranks mpi --device cuda
AMPBENCH_EMULATED=devices=1 refused \
    "a GPU of its own: --device cuda:1: there is no GPU 1, the driver finds 1" 2
AMPBENCH_EMULATED_NCCL=old refused "NCCL 2.10 or later is needed, found 2804" 2
AMPBENCH_EMULATED_NCCL=fails refused "invalid argument (emulated)" 2
: >"$work/bare/libnccl.so.2"
LD_LIBRARY_PATH=$work/bare:$LD_LIBRARY_PATH refused "no NCCL library" 2
rm "$work/plugins/libampbench_cuda.so"
refused "there is no libampbench_cuda.so" 2
finish
