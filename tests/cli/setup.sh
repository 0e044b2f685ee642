# scripts/setup while another package manager is at work: it waits for the locks and says so. No package is
# touched: apt-get, dpkg-query and sleep are stand-ins that print what Debian 12's (apt 2.6.1) print.
# shellcheck shell=bash source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
mkdir bin
cat >bin/dpkg-query <<'FAKE'
#!/bin/sh
exit 1
FAKE
cat >bin/sleep <<'FAKE'
#!/bin/sh
echo "$1" >>slept
FAKE
# Fails as often as `held` says, and then as `broken` says.
cat >bin/apt-get <<'FAKE'
#!/bin/sh
echo "$*" >>calls
left=$(cat held)
if [ "$left" -gt 0 ]; then
    echo $((left - 1)) >held
    cat message
    exit 100
fi
[ ! -e broken ] || { echo "E: Unable to locate package cmake"; exit 100; }
echo "fine"
FAKE
cat >bin/sudo <<'FAKE'
#!/bin/sh
exec "$@"
FAKE
chmod +x bin/*

setup() { # TIMES
    rm -f calls slept
    touch slept
    echo "$1" >held
    PATH="$work/bin:$PATH" "$AMPBENCH_SOURCE/scripts/setup" >out 2>err
    rc=$?
}
calls() { grep -c -- "$1" calls; }
equal() { # FOUND EXPECTED WHAT
    checks=$((checks + 1))
    [ "$1" = "$2" ] || fail "$3: $1, expected $2"
}

: >message
setup 0
expect_rc 0 "nobody else"
expect_no_text err "waiting" "nobody else"
equal "$(wc -l <calls)" 3 "nobody else: calls of apt-get"
equal "$(calls "DPkg::Lock::Timeout=[0-9]")" 3 "calls that wait for dpkg's lock"

cat >message <<'SAID'
Reading package lists...
E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)
N: Be aware that removing the lock file is not a solution and may break your system.
E: Unable to lock directory /var/lib/apt/lists/
SAID
setup 3
expect_rc 0 "the lists' lock"
expect_text err "setup: another package manager holds /var/lib/apt/lists/lock: waiting for it" \
    "the lists' lock"
equal "$(calls " update")" 4 "the lists' lock: updates"
equal "$(wc -l <slept)" 3 "the lists' lock: pauses"
expect_no_text err "trying with the lists at hand" "the lists' lock"

cat >message <<'SAID'
Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (dpkg)...
E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?
SAID
setup 2
expect_rc 0 "dpkg's lock"
expect_text err "setup: another package manager holds /var/lib/dpkg/lock-frontend: waiting for it" \
    "dpkg's lock"

setup 100000
expect_rc 100 "a lock that is never given back"
expect_text err "has held /var/lib/dpkg/lock-frontend for 10 minutes: giving up" \
    "a lock that is never given back"

touch broken
setup 0
expect_rc 100 "another failure"
equal "$(calls "install")" 1 "another failure: not tried again"
expect_no_text err "waiting" "another failure"
finish
