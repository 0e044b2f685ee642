# Where /proc is not mounted, as in a bare chroot, no worker starts: every cell says so, none stays pending.
# Needs root or user namespaces, to hide /proc.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
# without_proc ARGS...: run, in a name space whose /proc is empty
without_proc() {
    # shellcheck disable=SC2016 # the inner shell's arguments
    unshare $mapped -m sh -c 'mount -t tmpfs none /proc || exit 125; exec "$0" "$@"' "$AMPBENCH" "$@" \
        >out 2>err </dev/null
    rc=$?
}
mapped=""
[ "$(id -u)" = 0 ] || mapped=-r
without_proc --version
if [ "$rc" != 0 ]; then
    printf 'SKIPPED: cannot hide /proc: %s\n' "$(head -1 err)"
    exit 77
fi
without_proc --net mlp --data synthetic --steps 5 --levels O0,O2 --rounds 1 --no-floor --no-plots
expect_rc 1 "no /proc"
expect_text err "2 of 2 cells failed; mlp/O0/1/fp16/cpu/seed1: a worker: cannot run ampbench: /proc is not" \
    "no /proc"
expect_text out "failed: a worker: cannot run ampbench: /proc is not mounted (mount -t proc" "the table"
checks=$((checks + 1))
! grep -q '"pending"' ampbench-out/result.json || fail "a cell stayed pending"
[ "$(grep -c '"reason": "a worker: cannot run ampbench: /proc is not' ampbench-out/result.json)" = 2 ] ||
    fail "not every cell has the reason"
expect_text ampbench-out/result.json '"exit_status": 1' "the document"
finish
