# make install and cpack: the program, a manual page for every command, completions; a Debian package with the
# same files.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
if ! command -v cmake >/dev/null || [ ! -e "$AMPBENCH_BUILD/share.stamp" ]; then
    printf 'the pages are not built here\n'
    exit 77
fi
# complete LIST: LIST, paths from the prefix on, holds everything a user needs.
complete() {
    local command
    for file in bin/ampbench share/man/man1/ampbench.1 share/bash-completion/completions/ampbench \
        share/zsh/vendor-completions/_ampbench share/fish/vendor_completions.d/ampbench.fish \
        share/doc/ampbench/README.md share/doc/ampbench/LICENSE \
        share/doc/ampbench/copyright; do
        expect_text "$1" "$file" "$1"
    done
    for command in $("$AMPBENCH" help |
        awk '/^Commands/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'); do
        expect_text "$1" "share/man/man1/ampbench-$command.1" "$1"
    done
}
cmake --install "$AMPBENCH_BUILD" --prefix "$work/root" >log 2>&1 || fail "install: $(tail -3 log)"
(cd root && find . -type f) >installed
complete installed
AMPBENCH=$work/root/bin/ampbench
run --version
expect_rc 0 "the installed program"
expect_text out "ampbench " "the installed program"
expect_text out "License: Apache-2.0" "the installed program"
for file in LICENSE copyright; do
    expect_text "root/share/doc/ampbench/$file" "2026 the ampbench authors" "$file"
done
expect_text root/share/doc/ampbench/LICENSE "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" \
    "LICENSE"
expect_text root/share/doc/ampbench/copyright "License: Apache-2.0" "copyright"

if command -v cpack >/dev/null && command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
    cpack --config "$AMPBENCH_BUILD/CPackConfig.cmake" -B "$work/pack" >log 2>&1 ||
        fail "cpack: $(tail -3 log)"
    dpkg-deb -c pack/*.deb >packed || fail "no package"
    complete packed
    dpkg-deb -f pack/*.deb Depends >depends
    expect_text depends "libc6" "dependencies"
    expect_text depends "libcjson1" "dependencies"
fi
finish
