# The GitLab example as written, in a clean Debian root: it clones, builds the packages, installs one and
# trains; then the packages themselves: lintian is content, they install, run and leave nothing behind. Needs
# root and debootstrap, takes minutes; the mirror is AMPBENCH_DEBIAN_MIRROR.
# shellcheck source=../cli/lib/cli.sh
. "$(dirname "$0")/../cli/lib/cli.sh"
root=$work/root
mirror=${AMPBENCH_DEBIAN_MIRROR:-http://deb.debian.org/debian}
skip() { printf 'SKIPPED: %s\n' "$*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root, for chroot"
for tool in debootstrap chroot git dpkg-deb; do
    command -v $tool >/dev/null || skip "needs $tool"
done
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/log" 2>&1 ||
    skip "debootstrap made no root: $(tail -1 "$work/log")"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null
mount -t proc proc "$root/proc" 2>/dev/null && trap 'umount "$root/proc"; rm -rf "$work"' EXIT

# inside NAME: runs standard input in the root, as a runner does.
inside() {
    rc=0
    cat >"$root/steps.sh"
    chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive AMPBENCH_REPOSITORY=file:///src AMPBENCH_VERSION=main \
        OPTIONS="$options" CI_RUNNER_ID=1 bash -e -c 'cd /job && . /steps.sh' >"$work/$1.log" 2>&1 \
        </dev/null || rc=$?
    checks=$((checks + 1))
    [ "$rc" = 0 ] || fail "$1: exit status $rc: $(tail -5 "$work/$1.log")"
}

# The tree as it is, as a repository with a branch main; the user's own has a network only.
mkdir -p "$root/src" "$root/job"
(cd "$AMPBENCH_SOURCE" && git ls-files -z | tar -c --null -T - 2>/dev/null) | tar -x -C "$root/src"
git -C "$root/src" init -q -b main
git -C "$root/src" add -A
git -C "$root/src" -c user.name=test -c user.email=test@localhost commit -q -m "as it is"
cp "$AMPBENCH_SOURCE/bench/nets/mlp.json" "$root/job/net.json"

example=$AMPBENCH_SOURCE/docs/ci/gitlab-ci.yml
options=$(sed -n 's/^ *OPTIONS: //p' "$example")
# lines KEY: the items of a list of the job.
lines() {
    awk -v key="  $1:" '$0 == key { on = 1; next } on && !/^    - / { on = 0 }
        on { sub(/^    - /, ""); print }' "$example" | sed "s/^'\(.*\)'$/\1/"
}
lines before_script >"$work/before"
lines script >"$work/script"
grep -q scripts/package "$work/before" || fail "the example builds no package"
inside before <"$work/before"
inside first <"$work/script"
expect_text "$work/first.log" "no baseline: nothing compared" "the first run"
inside second <"$work/script"
for file in baseline.json new/report.html new/junit.xml new/gate.xml; do
    checks=$((checks + 1))
    [ -s "$root/job/$file" ] || fail "the example left no $file"
done

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
finish
