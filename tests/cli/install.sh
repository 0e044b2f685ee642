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
    # Of this generator CPack does not build everything first: make looks at every object, minutes under load.
    cpack --config "$AMPBENCH_BUILD/CPackConfig.cmake" -D CPACK_CMAKE_GENERATOR=Ninja -B "$work/pack" \
        >log 2>&1 ||
        fail "cpack: $(tail -3 log)"
    dpkg-deb -c pack/ampbench_*.deb >packed || fail "no package"
    complete packed
    dpkg-deb -f pack/ampbench_*.deb Depends >depends
    expect_text depends "libc6" "dependencies"
    expect_text depends "libcjson1" "dependencies"
    dpkg-deb -f pack/ampbench_*.deb Description >said
    expect_text said "benchmark and numerical diagnosis" "description"

    # The library and what is compiled against it are packages of their own.
    expect_no_text packed lib/libampprobe "the program's package"
    dpkg-deb -c pack/libampprobe1_*.deb >packed || fail "no package of the library"
    expect_text packed "libampprobe.so.1 -> libampprobe.so." "the library's package"
    expect_no_text packed include/ "the library's package"
    dpkg-deb -c pack/libampprobe-dev_*.deb >packed || fail "no package to compile against"
    for file in include/ampprobe.h libampprobe.a libampprobe.so pkgconfig/ampprobe.pc \
        ampprobe-config.cmake; do
        expect_text packed "$file" "the package to compile against"
    done
    for package in pack/*.deb; do # Debian has a trigger instead
        dpkg-deb -e "$package" control
        ! grep -qs ldconfig control/postinst control/postrm || fail "$package calls ldconfig"
        rm -r control
    done

    # The Python package's, which needs the library of the other one; neither has a file of the other.
    expect_no_text packed dist-packages "the program's package"
    dpkg-deb -c pack/python3-ampprobe_*_all.deb >packed || fail "no Python package"
    expect_text packed "lib/python3/dist-packages/ampprobe/__init__.py" "the Python package"
    for file in "$AMPBENCH_SOURCE"/python/ampprobe/*.py "$AMPBENCH_SOURCE"/python/ampprobe/*/*.py; do
        expect_text packed "dist-packages/${file#"$AMPBENCH_SOURCE/python/"}" "the Python package"
    done
    expect_no_text packed bin/ "the Python package"
    expect_no_text packed __pycache__ "the Python package"
    dpkg-deb -f pack/python3-ampprobe_*.deb >said
    version=$(dpkg-deb -f pack/ampbench_*.deb Version)
    expect_text said "Depends: libampprobe1 (= $version), python3 (>= 3.9)" "the Python package"
    expect_text said "Architecture: all" "the Python package"
fi

# Both installed by dpkg, in a folder, and Python as a user would start it; then removed.
# dpkg ARGS...: here is no libc6 and no python3, and nothing of the system's is touched.
dpkg_here() {
    PATH=$work/stubs:$PATH dpkg --root="$work/system" --force-not-root --force-script-chrootless \
        --force-depends "$@" >log 2>&1 || fail "dpkg $1: $(tail -3 log)"
}
python=${AMPBENCH_PYTHON:-python3}
if [ -d pack ] && command -v dpkg >/dev/null && [ "$(id -u)" = 0 ] &&
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    mkdir -p system/var/lib/dpkg/info system/var/lib/dpkg/updates stubs
    touch system/var/lib/dpkg/status system/var/lib/dpkg/available
    printf '#!/bin/sh\n' >stubs/ldconfig
    chmod +x stubs/ldconfig
    dpkg_here -i pack/*.deb
    env -u AMPPROBE_LIBRARY LD_LIBRARY_PATH="$work/system/usr/lib" PYTHONDONTWRITEBYTECODE=1 \
        PYTHONPATH="$work/system/usr/lib/python3/dist-packages" "$python" -c '
import ampprobe
import ctypes
from importlib.metadata import version
class Array:
    dtype, shape, nbytes, values = "float32", (2,), 8, (ctypes.c_float * 2)(1, 2)
    data_ptr = staticmethod(lambda: ctypes.addressof(Array.values))
    numel = staticmethod(lambda: 2)
with ampprobe.loop({"w": Array()}, out="packaged.json") as probe:
    probe.step({"w": Array()}, loss=1.0)
print(ampprobe.__file__, ampprobe.version() == version("ampprobe") == ampprobe.__version__)' >said 2>&1 ||
        fail "the installed Python package: $(tail -3 said)"
    expect_text said "$work/system/usr/lib/python3/dist-packages/ampprobe/__init__.py True" "import"
    run report packaged.json
    expect_rc 0 "a record of the installed Python package"
    dpkg_here -r python3-ampprobe
    [ ! -e system/usr/lib/python3 ] || fail "files are left: $(find system/usr/lib/python3)"
fi
finish
