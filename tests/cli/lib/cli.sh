# Sourced by the scripts of tests/cli: a folder to work in, a way to run the program, a count of what went
# wrong. The caller's environment says where things are: AMPBENCH the program, AMPBENCH_SOURCE the tree,
# AMPBENCH_BUILD the build.
# shellcheck shell=bash
set -u
: "${AMPBENCH:?AMPBENCH must name the program}" \
    "${AMPBENCH_SOURCE:?AMPBENCH_SOURCE must name the source tree}"
# CTest kills a test that exceeds its time with a signal that no trap sees; the next test removes its folder.
for left in "${TMPDIR:-/tmp}"/ampbench-cli.*.*; do
    owner=${left##*/ampbench-cli.}
    [ ! -O "$left" ] || kill -0 "${owner%%.*}" 2>/dev/null || rm -rf --one-file-system "$left"
done
work=$(mktemp -d "${TMPDIR:-/tmp}/ampbench-cli.$$.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset CI NO_COLOR CLICOLOR_FORCE OMP_NUM_THREADS OMP_WAIT_POLICY OMP_PROC_BIND GOMP_SPINCOUNT AMPBENCH_CPU_ISA
export TERM=dumb
failures=0
checks=0

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$*" >&2
}

# A misspelt check must not pass for one that held.
command_not_found_handle() {
    printf 'not a command: %s\n' "$1" >>"$work/misspelt"
    return 127
}

# run ARGS...: exit status in $rc, streams in $work/out and $work/err.
run() {
    "$AMPBENCH" "$@" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}

# expect_rc STATUS WHAT
expect_rc() {
    checks=$((checks + 1))
    [ "$rc" = "$1" ] || fail "$2: exit status $rc, expected $1; stderr: $(head -c 400 "$work/err")"
}

# expect_text FILE TEXT WHAT: FILE holds TEXT (fixed string).
expect_text() {
    checks=$((checks + 1))
    grep -qF -- "$2" "$1" || fail "$3: no \"$2\" in: $(head -c 600 "$1")"
}

# expect_no_text FILE TEXT WHAT: FILE does not hold TEXT.
expect_no_text() {
    checks=$((checks + 1))
    ! grep -qF -- "$2" "$1" || fail "$3: \"$2\" in: $(head -c 600 "$1")"
}

# digests FILE: "<cell> <loss digest>" of every cell of a result document, in order.
digests() {
    "$AMPBENCH" report "$1" --csv "$work/digests.csv" >/dev/null &&
        csv_columns "$work/digests.csv" id loss_digest
}

# csv_columns FILE NAME...: those columns of a simple CSV, separated by spaces.
csv_columns() {
    local file=$1
    shift
    tr -d '\r' <"$file" | awk -F, -v names="$*" '
        NR == 1 { n = split(names, want, " "); for (i = 1; i <= NF; i++) at[$i] = i; next }
        { line = ""; for (i = 1; i <= n; i++) line = line (i > 1 ? " " : "") $(at[want[i]]); print line }'
}

# follows_schema FILE WHAT [SCHEMA]: SCHEMA is result unless given
follows_schema() {
    checks=$((checks + 1))
    "${AMPBENCH_BUILD:?}/ampbench_schema_check" \
        "$AMPBENCH_SOURCE/reports/schema/${3:-result}"-[0-9].schema.json "$1" 2>"$work/schema" ||
        fail "$2: $(cat "$work/schema")"
}

# The last line of a script.
finish() {
    [ ! -e "$work/misspelt" ] || fail "$(cat "$work/misspelt")"
    if [ "$failures" -gt 0 ] || [ "$checks" -eq 0 ]; then
        printf '%d of %d checks failed\n' "$failures" "$checks" >&2
        exit 1
    fi
    printf '%d checks\n' "$checks"
}
