# What makes packages: CMake names what is missing with the packages that have it, workflow presets, citation.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
command -v cmake >/dev/null || { printf 'no cmake\n'; exit 77; }

# configure NAME OPTION...: what configuring the tree in a folder of its own says.
configure() {
    folder=$1
    shift
    rc=0
    cmake -S "$AMPBENCH_SOURCE" -B "$work/$folder" -DAMPBENCH_CUDA=OFF -DAMPBENCH_MPI=OFF "$@" >log 2>&1 ||
        rc=$?
    tr -s ' \n' ' ' <log >said # CMake wraps its messages
    checks=$((checks + 1))
}
configure missing -DAMPBENCH_TESTS=ON -DAMPBENCH_ONEDNN=ON -DCMAKE_DISABLE_FIND_PACKAGE_CJSON=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON -DCMAKE_DISABLE_FIND_PACKAGE_DNNL=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_CMOCKA=ON
[ "$rc" != 0 ] || fail "cmake went on without what it needs"
expect_text said "not found: CJSON ZLIB DNNL CMOCKA" "everything that is missing is said at once"
expect_text said "apt-get install libcjson-dev zlib1g-dev libdnnl-dev libcmocka-dev " "with its packages"
configure optional -DAMPBENCH_TESTS=AUTO -DCMAKE_DISABLE_FIND_PACKAGE_DNNL=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_CMOCKA=ON
for package in libdnnl-dev libcmocka-dev; do
    expect_text said "package $package" "what is lost without an optional package"
done
# scripts/setup installs what CMake names.
for package in libcjson-dev zlib1g-dev libdnnl-dev libcmocka-dev libdeflate-dev gnuplot-nox; do
    grep -q "\b$package\b" "$AMPBENCH_SOURCE/scripts/setup" || fail "scripts/setup does not install $package"
    grep -q "\b$package\b" "$AMPBENCH_SOURCE"/cmake/Requirements.cmake \
        "$AMPBENCH_SOURCE"/bench/CMakeLists.txt ||
        fail "CMake does not name $package"
done

if (cd "$AMPBENCH_SOURCE" && cmake --workflow --list-presets >"$work/presets" 2>&1); then # CMake 3.25
    for name in release debug asan package; do expect_text presets "\"$name\"" "workflow presets"; done
fi

citation=$AMPBENCH_SOURCE/CITATION.cff
version=$(sed -n 's/^project(ampbench VERSION \([0-9.]*\).*/\1/p' "$AMPBENCH_SOURCE/CMakeLists.txt")
expect_text "$citation" "cff-version: 1.2.0" "citation"
expect_text "$citation" "version: $version" "citation"
expect_text "$citation" "license: Apache-2.0" "citation"
if python3 -c 'import yaml' 2>/dev/null; then
    python3 -c '
import sys, yaml
cff = yaml.safe_load(open(sys.argv[1]))
assert {"cff-version", "message", "title", "authors"} <= set(cff) and cff["authors"]' "$citation" ||
        fail "CITATION.cff lacks a key that its schema requires"
fi
finish
