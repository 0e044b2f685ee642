# scripts/gpu-check and gpu-bench on a machine without a GPU: they say so and end with 77, and build nothing.
# gpu-check with stand-ins for a build's programs: order, failures, resuming, time. The part without a GPU is
# skipped where there is a driver: there they are run by hand.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
script() { # NAME ARGS...
    "$AMPBENCH_SOURCE/scripts/$1" "${@:2}" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}

# ---- gpu-check on stand-ins: each program is a script that ends as told
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
build=$work/build
mkdir -p "$build/tests" "$build/emulated"
stand_in() { # FILE TEXT...
    printf '#!/bin/sh\necho "$(basename "$0") $1" >>%s\n%s\n' "$work/calls" "$2" >"$build/$1"
    chmod +x "$build/$1"
}
stand_in ampbench 'case $1 in
env) echo "\"auto\": \"cuda:0\"," ;;
run) while [ $# -gt 1 ]; do
        [ "$1" = --out ] && echo "{\"cells\": [{\"loss\": [1]}]}" >"$2"
        shift
    done ;;
esac'
stand_in tests/test_gpu_device 'exit 0'
stand_in tests/test_gpu_ops_activations 'echo "[  ERROR   ] --- gelu out[3] is 1"; exit 1'
stand_in tests/test_gpu_ops_pool 'exit 0'
checked=(gpu-check --emulated --build "$build" --out "$work/check")
script "${checked[@]}"
expect_rc 1 "gpu-check with a failure"
expect_text "$work/out" "To fix, in this order:" "gpu-check with a failure"
first="  1. test_gpu_ops_activations: status 1: [  ERROR   ] --- gelu out[3] is 1"
expect_text "$work/out" "$first" "the first thing to fix"
expect_text "$work/check/gpu-check.json" '"graphs-are-equal"' "gpu-check's JSON"
expect_text "$work/out" "skipped  compute-sanitizer (0 s): needs a GPU" "what a rehearsal cannot run"
[ "$(grep -v env "$work/calls" | head -n 1)" = "test_gpu_device " ] || fail "memory is not the first test"
# called again: what is done is not repeated, what failed is
: >"$work/calls"
stand_in tests/test_gpu_ops_activations 'exit 0'
script "${checked[@]}"
expect_rc 0 "gpu-check again"
[ "$(grep -v env "$work/calls")" = "test_gpu_ops_activations " ] || fail "again: $(cat "$work/calls")"
# no time: nothing is begun, status 3, and the next call goes on
script "${checked[@]}" --again --minutes 0
expect_rc 3 "gpu-check without time"
expect_text "$work/out" "LEFT OUT test_gpu_device" "gpu-check without time"
script "${checked[@]}"
expect_rc 0 "gpu-check goes on"
script "${checked[@]}" --minutes soon
expect_rc 2 "gpu-check --minutes soon"
expect_text "$work/err" "expected a number, found 'soon'" "gpu-check --minutes soon"

if command -v nvidia-smi >/dev/null 2>&1 || ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    echo "skipped: this machine has an NVIDIA driver"
    exit 77
fi

script gpu-check --out "$work/check"
expect_rc 77 "gpu-check"
expect_text "$work/out" "skipped: this machine has no NVIDIA driver" "gpu-check"
expect_text "$work/check/summary.txt" "skipped: " "gpu-check's summary"
script gpu-bench --build "$(dirname "$AMPBENCH")" --out "$work/bench"
expect_rc 77 "gpu-bench"
expect_text "$work/err" "gpu-bench: skipped: " "gpu-bench"
[ ! -e "$work/bench" ] || fail "gpu-bench left a folder"
for name in gpu-check gpu-bench; do
    script $name --nonsense
    expect_rc 2 "$name --nonsense"
    expect_text "$work/err" "unknown option '--nonsense'" "$name --nonsense"
    script $name --help
    expect_rc 0 "$name --help"
    expect_text "$work/out" "scripts/$name" "$name --help"
done
finish
