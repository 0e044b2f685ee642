#!/usr/bin/env bash
# Output that cannot be written, closed standard streams, limits of files and of memory: the program says what
# happened, and its exit status tells it from a result.
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
small=(run --device cpu --net mlp --data synthetic --levels O0,O2 --batch 32 --steps 20 --rounds 1 --threads 1
    --no-floor
    --eval-limit 10 --no-plots --quiet)
result=$work/result.json
run "${small[@]}" --out "$result"
expect_rc 0 "a run"
second=$work/second.json # the same of another run
sed -E '0,/"id"/s/("id": ?")[0-9a-f]{4}/\10000/' "$result" >"$second"

# limited COMMAND...: like run, with standard output as it is
limited() {
    "$@" 2>"$work/err"
    rc=$?
}

# ---- a full disk -------------------------------------------------------------------------------

if [ -c /dev/full ]; then
    while read -r words; do
        # shellcheck disable=SC2086 # a list of options
        limited "$AMPBENCH" $words >/dev/full
        expect_rc 2 "$words to a full disk"
        expect_text "$work/err" "cannot write standard output: No space left on device" \
            "$words to a full disk"
    done <<END
--version
help
help exit
list nets
formats
env
completion bash
plan --net mlp
scaler torch --overflow 100x0,3x1
report $result
diagnose $result
advise $result --help
compare $result $result
gate $result $second
history $result
inspect --help
run --help
END
    limited "$AMPBENCH" "${small[@]}" --out full.json >/dev/full
    expect_rc 2 "a run to a full disk"
    expect_text "$work/err" "cannot write standard output: No space left on device" "a run to a full disk"
    follows_schema full.json "the document of a run to a full disk"
fi

# ---- closed streams ----------------------------------------------------------------------------

limited "$AMPBENCH" "${small[@]}" --out closed.json >&-
expect_rc 0 "a run without standard output"
limited "$AMPBENCH" "${small[@]}" --out closed.json <&- >&-
expect_rc 0 "a run without standard input and output"
"$AMPBENCH" "${small[@]}" --out closed.json <&- >&- 2>&-
rc=$?
expect_rc 0 "a run without streams"
follows_schema closed.json "the document of a run without streams"

# ---- the size of files -------------------------------------------------------------------------

limited bash -c 'ulimit -f 1; exec "$@" >shelf' - "$AMPBENCH" help run
expect_rc 2 "a long text into a short file"
expect_text "$work/err" "cannot write standard output: File too large" "a long text into a short file"
limited bash -c 'ulimit -f 1500; exec "$@" >shelf' - "$AMPBENCH" run --net gpt --data synthetic_text \
    --levels O0 --steps 2 --batch 1 --rounds 1 --threads 1 --no-floor --eval-limit 1 --no-plots --quiet \
    --checkpoint-every 2 --out short.json
expect_rc 1 "a checkpoint that is too large"
expect_text "$work/err" "safetensors: cannot write: File too large" "a checkpoint that is too large"
limited bash -c 'ulimit -f 10; exec "$@" >shelf' - "$AMPBENCH" "${small[@]}" --out shared.json
expect_rc 2 "shared memory beyond the limit"
expect_text "$work/err" "File too large (shared memory counts as a file: ulimit -f)" "shared memory"

# ---- memory ------------------------------------------------------------------------------------

# Too little address space: refused, or every cell that failed says so. Sanitizers take more than any limit.
if bash -c 'ulimit -v 4000000; exec "$@"' - "$AMPBENCH" --version >/dev/null 2>&1; then
    refused=0
    for mib in 20 28 36 44 52 56 60 64 68 72 76 80 88 96; do
        rm -f narrow.json
        limited bash -c "ulimit -v $((mib * 1024)); exec \"\$@\" >shelf" - "$AMPBENCH" "${small[@]}" \
            --out narrow.json
        [ "$rc" != 2 ] || grep -q "limited to $mib.0 MiB (ulimit -v)" "$work/err" || rc="2, without the limit"
        [ "$rc" != 2 ] || refused=$((refused + 1))
        checks=$((checks + 1))
        case $rc in
        0 | 2) ;;
        127 | 139) # the loader ended: no command starts
            bash -c "ulimit -v $((mib * 1024)); exec \"\$@\"" - "$AMPBENCH" --version >/dev/null 2>&1 &&
                fail "in $mib MiB: exit status $rc, while --version ends well" ;;
        *) fail "in $mib MiB: exit status $rc: $(head -c 400 "$work/err")" ;;
        esac
    done
    checks=$((checks + 1))
    [ "$refused" -gt 0 ] || fail "no limit of memory was too small"
fi

finish
