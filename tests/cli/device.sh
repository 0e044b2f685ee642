# --device and `ampbench env` on a machine where the GPU cannot be used: what is said, and the exit status.
# Skipped where it can.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
small=(run --data synthetic --levels O0 --no-floor --rounds 1 --steps 2 --no-plots --eval-limit 64 \
    --out "$work/r.json")

run env
expect_rc 0 "env"
auto=$(sed -n 's/^.*"auto":[[:space:]]*"\([^"]*\)".*$/\1/p' "$work/out")
why=$(sed -n 's/^.*"why_not_gpu":[[:space:]]*"\(.*\)",\{0,1\}$/\1/p' "$work/out")
if [ "${auto:-none}" != cpu ]; then
    [ -n "$auto" ] && { echo "skipped: this machine has a GPU that works ($auto)"; exit 77; }
    fail "env does not say what --device auto chooses: $(cat "$work/out")"
fi
[ -n "$why" ] || fail "env does not say why the GPU is not used"

# auto goes on with the CPU, and says why
run "${small[@]}" --device auto --verbose
expect_rc 0 "--device auto"
expect_text "$work/err" "the GPU is not used: " "--device auto"
expect_text "$work/err" "${why:0:30}" "--device auto gives the reason of env"

# cuda ends with one line
run "${small[@]}" --device cuda
expect_rc 2 "--device cuda"
expect_text "$work/err" "--device cuda: ${why:0:30}" "--device cuda"
[ "$(wc -l <"$work/err")" = 1 ] || fail "--device cuda: more than one line: $(cat "$work/err")"
run "${small[@]}" --device cuda:7
expect_rc 2 "--device cuda:7"
run "${small[@]}" --device gpu
expect_rc 2 "--device gpu"
expect_text "$work/err" "expected auto, cpu, cuda or cuda:N, found 'gpu'" "--device gpu"

# TF32 is a GPU's
run "${small[@]}" --math tf32
expect_rc 2 "--math tf32"
expect_text "$work/err" "--math tf32: only GPUs have TF32, this run is on cpu" "--math tf32"

# a folder without the plugin
export AMPBENCH_PLUGIN_DIR=$work
run "${small[@]}" --device cuda
expect_rc 2 "no plugin"
expect_text "$work/err" "there is no libampbench_cuda.so in AMPBENCH_PLUGIN_DIR" "no plugin"
run "${small[@]}" --device auto
expect_rc 0 "no plugin, --device auto"
unset AMPBENCH_PLUGIN_DIR

# the program itself links nothing of CUDA
if command -v readelf >/dev/null; then
    readelf -d "$AMPBENCH" | grep -qi 'NEEDED.*\(libcuda\|cublas\|cudnn\)' &&
        fail "the program links CUDA libraries"
fi
finish
