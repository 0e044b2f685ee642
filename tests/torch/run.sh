#!/bin/bash
# Runs a test of the Python package. run.sh torch FILE: with a Python that has torch, AMPBENCH_TORCH_PYTHON or
# what scripts/torch-env made; run.sh plain FILE: with any Python 3.9 or newer (AMPBENCH_PYTHON). Else it
# skips (77). AMPBENCH_PRELOAD: the runtime of a sanitized library, loaded before Python (whose own
# allocations outlive it: no search for leaks).
set -eu
skip() { printf 'SKIPPED: %s\n' "$*"; exit 77; }
kind=$1
file=$2
case $kind in
torch)
    python=${AMPBENCH_TORCH_PYTHON:-$AMPBENCH_SOURCE/build/torch-env/bin/python}
    [ -x "$(command -v "$python")" ] ||
        skip "no Python with torch: set AMPBENCH_TORCH_PYTHON, or run scripts/torch-env"
    ;;
*)
    python=${AMPBENCH_PYTHON:-python3}
    [ -x "$(command -v "$python")" ] || skip "no $python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
        skip "$python is older than 3.9"
    ;;
esac
[ -z "${AMPPROBE_LIBRARY:-}" ] || [ -e "$AMPPROBE_LIBRARY" ] || unset AMPPROBE_LIBRARY
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 PYTHONWARNINGS=${PYTHONWARNINGS:-ignore}
status=0
preload=${AMPBENCH_PRELOAD:+LD_PRELOAD=$AMPBENCH_PRELOAD ASAN_OPTIONS=detect_leaks=0}
# shellcheck disable=SC2086 # no word or two
said=$(env $preload "$python" "$file" -v 2>&1) || status=$?
printf '%s\n' "$said"
ran=$(printf '%s\n' "$said" | sed -n 's/^Ran \([0-9]*\) tests* in.*/\1/p')
# unittest ends with 0 where all was skipped
case $said in *"OK (skipped=$ran)"*) skip "all $ran tests" ;; esac
exit "$status"
