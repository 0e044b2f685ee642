# The examples for CI as written, each in a clean root: they clone, build the packages, install one, train
# twice and gate. GitLab's in Debian 12, GitHub's in Ubuntu 24.04 (Debian 12 where Ubuntu's keys are not
# installed). Then the packages themselves: lintian is content, they install, run and leave nothing behind.
# Needs root and debootstrap, takes minutes; the mirrors are AMPBENCH_DEBIAN_MIRROR and
# AMPBENCH_UBUNTU_MIRROR, and AMPBENCH_UBUNTU_KEYS is the file of Ubuntu's keys.
. "$(dirname "$0")/../cli/lib/cli.sh"
mirror=${AMPBENCH_DEBIAN_MIRROR:-http://deb.debian.org/debian}
ubuntu=${AMPBENCH_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
keys=${AMPBENCH_UBUNTU_KEYS:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
skip() { printf 'SKIPPED: %s\n' "$*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root, for chroot"
for tool in debootstrap chroot git dpkg-deb; do
    command -v $tool >/dev/null || skip "needs $tool"
done
scripts=/usr/share/debootstrap/scripts
roots=""
# shellcheck disable=SC2317 # called by the trap
unmount() { for at in $roots; do umount "$at/proc"; done; rm -rf "$work"; }
trap unmount EXIT

# new_root NAME SUITE MIRROR SCRIPT OPTIONS...: a root in $work/NAME, made by debootstrap, that holds this
# tree as the repository /src with a branch main, and /job with a network, as the user's own repository.
new_root() {
    root=$work/$1
    debootstrap --variant=minbase "${@:5}" "$2" "$root" "$3" "$4" >"$work/log" 2>&1 ||
        skip "debootstrap made no root: $(tail -1 "$work/log")"
    cp /etc/resolv.conf "$root/etc/" 2>/dev/null
    mount -t proc proc "$root/proc" || skip "cannot mount /proc in a root" # workers need it
    roots="$roots $root"
    mkdir -p "$root/src" "$root/job" "$root/runner"
    (cd "$AMPBENCH_SOURCE" && git ls-files -z | tar -c --null -T - 2>/dev/null) | tar -x -C "$root/src"
    git -C "$root/src" init -q -b main
    git -C "$root/src" add -A
    git -C "$root/src" -c user.name=test -c user.email=test@localhost commit -q -m "as it is"
    cp "$AMPBENCH_SOURCE/bench/nets/mlp.json" "$root/job/net.json"
}

# inside NAME: runs standard input in the root, as a runner does.
inside() {
    rc=0
    cat >"$root/steps.sh"
    chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive AMPBENCH_REPOSITORY=file:///src AMPBENCH_VERSION=main \
        OPTIONS="$options" CI_RUNNER_ID=1 RUNNER_TEMP=/runner GITHUB_OUTPUT=/runner/output \
        GITHUB_STEP_SUMMARY=/runner/summary bash -e -c 'cd /job && . /steps.sh' >"$work/$1.log" 2>&1 \
        </dev/null || rc=$?
    checks=$((checks + 1))
    [ "$rc" = 0 ] || fail "$1: exit status $rc: $(tail -5 "$work/$1.log")"
}

# left NAME FILES...: the example left these in its folder
left() {
    for file in "${@:2}"; do
        checks=$((checks + 1))
        [ -s "$root/job/$file" ] || fail "$1: the example left no $file"
    done
}

# ---- GitLab ----
example=$AMPBENCH_SOURCE/docs/ci/gitlab-ci.yml
options=$(sed -n 's/^ *OPTIONS: //p' "$example")
# lines KEY: the items of a list of the job.
lines() {
    awk -v key="  $1:" '$0 == key { on = 1; next } on && !/^    - / { on = 0 }
        on { sub(/^    - /, ""); print }' "$example" | sed "s/^'\(.*\)'$/\1/"
}
new_root gitlab bookworm "$mirror" $scripts/sid
lines before_script >"$work/before"
lines script >"$work/script"
grep -q scripts/package "$work/before" || fail "the example builds no package"
inside gitlab-before <"$work/before"
inside gitlab-first <"$work/script"
expect_text "$work/gitlab-first.log" "no baseline: nothing compared" "GitLab's first run"
inside gitlab-second <"$work/script"
left GitLab baseline.json new/report.html new/junit.xml new/gate.xml

packages=$root/opt/ampbench/build/package
if command -v lintian >/dev/null; then
    for package in "$packages"/*.deb; do
        lintian --allow-root --fail-on error,warning "$package" >"$work/lintian" 2>&1 ||
            fail "lintian: $(tail -5 "$work/lintian")"
        checks=$((checks + 1))
    done
else
    printf 'no lintian: the packages were not checked by it\n'
fi

inside others <<'END'
apt-get install -y -q --no-install-recommends /opt/ampbench/build/package/*.deb python3
gcc -o loop /usr/share/doc/libampprobe-dev/examples/mlp_probe.c -lampprobe -lm
ldd loop | grep libampprobe.so.1
./loop 2>said && exit 1 # it wants a data set
grep -q "^usage: mlp_probe" said
python3 -c 'import ampprobe; print(ampprobe.version())'
dpkg -L ampbench | grep man1/ampbench.1
apt-get purge -y -q ampbench libampprobe1 libampprobe-dev python3-ampprobe
END
left=$(cd "$root" && find usr etc var/lib/dpkg/info -name '*ampbench*' -o -name '*ampprobe*')
[ -z "$left" ] || fail "files are left: $left"

# ---- GitHub ----
example=$AMPBENCH_SOURCE/docs/ci/github-actions.yml
options=$(sed -n 's/^ *OPTIONS: //p' "$example")
# step NAME: the shell lines of a step; a folded block is one line.
step() {
    awk -v name="- name: $1" '
        /^      - / { on = index($0, name) > 0; inside = 0; next }
        on && /^        run: / { inside = 1; join = />-$/; next }
        inside && !/^          / { inside = 0 }
        inside { sub(/^ {10}/, ""); printf "%s%s", $0, join ? " " : "\n" }
        END { if (join) print "" }' "$example"
}
if [ -e "$keys" ]; then
    new_root github noble "$ubuntu" $scripts/gutsy --components=main,universe --keyring="$keys"
else
    printf 'no %s: the GitHub example runs in a Debian root\n' "$keys"
    new_root github bookworm "$mirror" $scripts/sid
fi
inside runner <<<"apt-get update -q && apt-get install -y -q sudo git ca-certificates" # a runner has these
for name in Install Train Gate; do
    step $name >"$work/$name"
    [ -s "$work/$name" ] || fail "the GitHub example has no step $name"
done
grep -q scripts/package "$work/Install" || fail "the GitHub example builds no package"
inside github-install <"$work/Install"
inside github-train <"$work/Train"
inside github-gate <"$work/Gate"
expect_text "$work/github-gate.log" "no baseline: nothing compared" "GitHub's first run"
inside github-train <"$work/Train"
inside github-gate <"$work/Gate"
expect_text "$work/github-gate.log" "PASS" "GitHub's second run"
left GitHub baseline.json new/report.html new/junit.xml new/gate.json
expect_text "$root/runner/summary" "| level | loss scale |" "the job summary"
expect_text "$root/runner/output" "cpu=" "the cache's key"
finish
