# scripts/gpu-check and gpu-bench on a machine without a GPU: they say so and end with 77, and build nothing.
# Skipped where there is a driver: there they are run by hand.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
if command -v nvidia-smi >/dev/null 2>&1 || ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    echo "skipped: this machine has an NVIDIA driver"
    exit 77
fi

script() { # NAME ARGS...
    "$AMPBENCH_SOURCE/scripts/$1" "${@:2}" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
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
