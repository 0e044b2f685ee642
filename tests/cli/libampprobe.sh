# libampprobe as a user gets it: installed, found by pkg-config and by CMake; the example built against it,
# run and diagnosed, once healthy and once with a scale that overflows; and what other commands make of the
# records.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
data=/usr/share/datasets/fashion-mnist
if ! command -v cmake >/dev/null || ! command -v cc >/dev/null || [ ! -d "$data" ] ||
    [ ! -e "$AMPBENCH_BUILD/share.stamp" ]; then
    printf 'needs cmake, a C compiler, Fashion-MNIST and an installable build\n'
    exit 77
fi
cmake --install "$AMPBENCH_BUILD" --prefix "$work/root" >log 2>&1 || fail "install: $(tail -3 log)"
lib=$(dirname "$(find "$work/root" -name libampprobe.so)")

# Its symbols are those of the header, and it needs libc and libm only.
if command -v readelf >/dev/null && command -v nm >/dev/null; then
    readelf -d "$lib/libampprobe.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|ld-linux.*)\.so' >needed
    expect_empty() { checks=$((checks + 1)); [ ! -s "$1" ] || fail "$2: $(cat "$1")"; }
    expect_empty needed "libraries that libampprobe needs"
    nm -D --defined-only "$lib/libampprobe.so" | awk '$2 == "T" { print $3 }' |
        sed 's/@@AMPPROBE_1[.0-9]*$//' | sort >exported
    sed -n 's/.*AMPPROBE_API .*[ *]\(ampprobe_[a-z_]*\)(.*/\1/p' "$work/root/include/ampprobe.h" |
        sort >declared
    diff exported declared >differing
    expect_empty differing "exported and declared functions"
fi

# As the first comment of the example says.
cp "$AMPBENCH_SOURCE/examples/mlp_probe.c" .
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$lib/pkgconfig
    # shellcheck disable=SC2046 # words
    cc -O2 mlp_probe.c -o by_pkg_config $(pkg-config --cflags --libs ampprobe) -lm 2>log ||
        fail "pkg-config: $(tail -3 log)"
    LD_LIBRARY_PATH=$lib ./by_pkg_config "$data" 1024 healthy.json >log 2>&1 ||
        fail "the example: $(tail -3 log)"
fi
mkdir project && cp mlp_probe.c project
cat >project/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(ampprobe 0.1 REQUIRED)
add_executable(by_cmake mlp_probe.c)
target_link_libraries(by_cmake ampprobe::ampprobe m)
add_executable(by_cmake_static mlp_probe.c)
target_link_libraries(by_cmake_static ampprobe::static m)
END
cmake -S project -B built -DCMAKE_PREFIX_PATH="$work/root" -DCMAKE_BUILD_TYPE=Release >log 2>&1 &&
    cmake --build built >>log 2>&1 || fail "find_package: $(tail -3 log)"
./built/by_cmake_static "$data" 1024 healthy2.json >log 2>&1 || fail "the example, static: $(tail -3 log)"
./built/by_cmake "$data" 16777216 sick.json >log 2>&1 || fail "the example, shared: $(tail -3 log)"
[ -e healthy.json ] || cp healthy2.json healthy.json

for record in healthy sick; do follows_schema $record.json "the record of the $record run"; done
run diagnose healthy.json
expect_rc 0 "a healthy loop"
expect_text out "healthy" "a healthy loop"
run diagnose sick.json
expect_rc 4 "a loop whose scale overflows"
expect_text out "scale_too_high" "a loop whose scale overflows"
expect_text out "fc2.out.grad" "the gradient that overflows"
expect_no_text out "--levels O0" "what to do where there is no O0"
run diagnose sick.json --baseline healthy.json
expect_rc 4 "beside a run that trains"
expect_text out "above O0's" "the gap to the given baseline"
run diagnose sick.json --baseline "$AMPBENCH_SOURCE/tests/golden/none.json"
expect_rc 2 "a baseline that is not there"
run diagnose sick.json --confirm
expect_rc 2 "training again from a probe's record"
run report sick.json
expect_rc 0 "report"
expect_text out "300/300" "skipped steps in the table"
run report sick.json --html page.html
expect_rc 0 "report --html"
expect_text page.html "scale_too_high" "the page"
run advise healthy.json
expect_rc 0 "advise"
expect_text out "2^" "advice"
run history healthy.json healthy2.json
expect_rc 0 "history"
expect_text out "2 runs" "history"
run compare healthy.json healthy2.json
expect_rc 0 "compare"

# A loop that is killed: once it has written steps. Where it ended before we looked, it is run again.
killed=no
for _ in $(seq 20); do
    rm -f killed.json killed.json.steps
    ./built/by_cmake "$data" 1024 killed.json >/dev/null 2>&1 & pid=$!
    while [ "$(cat killed.json.steps 2>/dev/null | wc -c)" -lt 20000 ] && kill -0 $pid 2>/dev/null; do
        sleep 0.005
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ $? = 137 ] && killed=yes && break
done
checks=$((checks + 1))
[ $killed = yes ] || fail "the loop ended each time before it could be killed"
run report killed.json
expect_rc 0 "the record of a killed loop"
expect_text out "INCOMPLETE" "the record of a killed loop"
finish
