# `ampbench gate`: every exit status, what a person reads, and that a verdict can be had again from the
# documents.
. "$AMPBENCH_SOURCE/tests/cli/lib/cli.sh"
cd "$work" || exit 1
tiny="--data synthetic --net mlp --steps 12 --batch 16 --threads 1"
train="$tiny --probe-every 4 --no-plots --quiet"

# train FILE OPTION...: a result document.
train() {
    local file=$1
    shift
    # shellcheck disable=SC2086
    run run $train --rounds 1 --out "$file" "$@"
}

# ---- two results -------------------------------------------------------------------------------------------
train base.json --levels O0,O2
train new.json --levels O0,O2
run gate base.json new.json --json verdict.json
expect_rc 0 "the same training twice"
expect_text out "PASS: new.json against base.json" "a pass"
expect_text out "times are advisory" "stored times"
follows_schema verdict.json "a verdict" gate
run gate base.json new.json --json -
head -c 1 out | grep -q '{' || fail "--json -: something before the document"
run gate base.json new.json --save-baseline saved.json
cmp -s saved.json new.json || fail "--save-baseline: not the new document"

train broken.json --levels O0,O2 --scales 16777216
run gate base.json broken.json --json verdict.json
expect_rc 4 "a fixed scale of 2^24 in fp16"
expect_text out "no certificate, its speed-up is void" "a fixed scale of 2^24 in fp16"
expect_text verdict.json '"ratio": null' "a fixed scale of 2^24 in fp16"
follows_schema verdict.json "a failed verdict" gate
sed 's/"id": "[0-9a-f]*"/"id": "another"/' broken.json >broken2.json
run gate broken.json broken2.json
expect_rc 4 "broken training is no baseline"
run gate base.json broken.json --exit-zero
expect_rc 0 "--exit-zero"

# What else differs is said first: a commit, a variable, a library, a kernel.
sed -e 's/"git_sha": "[^"]*"/"git_sha": "feedbeef"/' -e 's/"c_library": "[^"]*"/"c_library": "musl 9"/' \
    -e 's/"ONEDNN_MAX_CPU_ISA": [^,}]*/"ONEDNN_MAX_CPU_ISA": "AVX2"/' \
    -e 's/"forward": "[^"]*"/"forward": "another"/' broken.json >causes.json
run gate base.json causes.json --json causes-verdict.json --markdown causes.md
expect_rc 4 "probable causes"
head -8 out >first
expect_text first "probable causes: what differs besides the results" "probable causes"
expect_text first "generator.git_sha: feedbeef, was" "the commit"
expect_text first "environment.variables.ONEDNN_MAX_CPU_ISA: AVX2, was" "a variable"
expect_text first "environment.c_library: musl 9, was" "a library"
expect_text first "kernel of flatten forward: another, was" "a kernel"
expect_text causes.md "environment.c\\_library: musl 9" "Markdown"
follows_schema causes-verdict.json "probable causes" gate
run gate base.json broken.json
expect_text out "probable causes: none on record" "nothing else differs"

# ---- no baseline --------------------------------------------------------------------------------------
run gate nowhere.json new.json --json none.json --junit none.xml --markdown none.md
expect_rc 6 "no baseline"
expect_text out "no baseline: nothing compared" "no baseline"
expect_text err "nowhere.json does not exist: nothing compared (--no-baseline pass accepts that)" \
    "no baseline"
expect_text none.md "no baseline: nothing compared" "no baseline in Markdown"
follows_schema none.json "no baseline" gate
run gate nowhere.json new.json --no-baseline pass --save-baseline first.json
expect_rc 0 "--no-baseline pass"
expect_text out "no baseline: nothing compared" "--no-baseline pass"
cmp -s first.json new.json || fail "--save-baseline: not the first document"
run gate nowhere.json new.json --no-baseline maybe
expect_rc 2 "--no-baseline maybe"
cp new.json copy.json
run gate new.json copy.json
expect_rc 2 "a run beside itself"
expect_text err "new.json and copy.json are one run" "a run beside itself"

train five.json --levels O2 --scale-window 5
train six.json --levels O2 --scale-window 6
run gate five.json six.json
expect_rc 4 "a growth interval off by one"
expect_text out "the loss scale takes another way from step" "a growth interval off by one"

train batch.json --levels O0,O2 --batch 8
train seed.json --levels O0,O2 --lr 0.04 --optimizer nesterov
run gate base.json batch.json
expect_rc 6 "another batch size"
expect_text out "config.batch differs: base has 16, new has 8" "another batch size"
run gate base.json seed.json
expect_rc 6 "another optimizer"
expect_text out "config.optimizer" "another optimizer"
expect_text out "config.lr" "another learning rate"
sed 's/"cpu_model": "[^"]*"/"cpu_model": "another"/' new.json >machine.json
run gate base.json machine.json
expect_rc 6 "another machine"
expect_text out "environment.cpu_model differs" "another machine"
run gate base.json machine.json --ignore environment.cpu_model
expect_rc 0 "another machine, accepted"
sed 's/"schema_version": "1[^"]*"/"schema_version": "9.0.0"/' new.json >version.json
run gate base.json version.json
expect_rc 6 "another schema version"
train fewer.json --levels O0
run gate base.json fewer.json
expect_rc 6 "a missing cell"
expect_text out "missing: the base has this cell" "a missing cell"
run gate base.json fewer.json --lenient
expect_rc 0 "a missing cell, accepted"

# ---- for CI systems ----------------------------------------------------------------------------------------
run gate base.json broken.json --markdown summary.md --junit gate.xml --format github
expect_rc 4 "forms for CI"
expect_text out "::error title=ampbench gate" "annotations"
expect_text summary.md "## ampbench gate: FAIL" "Markdown"
expect_text summary.md "### Regressions" "Markdown"
expect_text summary.md "its speed\\-up is void" "Markdown, escaped"
expect_text gate.xml 'name="numerics"' "JUnit"
expect_text gate.xml "<failure" "JUnit"
run gate base.json new.json --format junit
expect_rc 0 "JUnit of a pass"
grep -q "<failure\|<error" out && fail "JUnit of a pass has failures"
run gate base.json new.json --format json
expect_text out '"verdict": "PASS"' "JSON"
run gate base.json new.json --format markdwon
expect_text err "did you mean 'markdown'" "a mistyped format"

# ---- bad input ---------------------------------------------------------------------------------------------
head -c 3000 new.json >cut.json
run gate base.json cut.json
expect_rc 2 "truncated JSON"
expect_text err "cut.json: line" "truncated JSON"
sed 's/"step_time_ns": \[[0-9]*,/"step_time_ns": [NaN,/' new.json >nan.json
run gate base.json nan.json
expect_rc 2 "a time that is nan"
sed 's/"step_time_ns": \[[0-9]*,/"step_time_ns": [null,/' new.json >null.json
run gate base.json null.json
expect_rc 2 "a missing time"
expect_text err "step_time_ns" "a missing time"
run gate base.json
expect_rc 2 "one document only"
run gate base.json new.json --tolerance time=lots
expect_rc 2 "a tolerance that is no number"
run gate base.json new.json --tolerence 1
expect_text err "did you mean '--tolerance'" "a mistyped option"
run gate base.json new.json --base-exe "$AMPBENCH"
expect_rc 2 "documents and a program"
run gate --base-exe "$AMPBENCH" -- --out x.json
expect_rc 2 "an option of a run that is the gate's own"
expect_text err "--out cannot be given after --" "an option of a run that is the gate's own"

# ---- two builds --------------------------------------------------------------------------------------------
# shellcheck disable=SC2086
run gate --base-exe "$AMPBENCH" --rounds 2 --out measured --quiet --json verdict.json -- $tiny --levels O0,O2
expect_rc 5 "two rounds"
expect_text out "2 rounds cannot reach alpha 0.05" "two rounds"
follows_schema verdict.json "a measured verdict" gate
follows_schema measured/base.json "the base's document"
follows_schema measured/new.json "the candidate's document"
expect_text measured/new.json clock_loop_ns "the clock beside a process"
run gate measured/base.json measured/new.json --json again.json
expect_rc 5 "the verdict from the documents"
grep -v '"name"' verdict.json >first.txt
grep -v '"name"' again.json >second.txt
cmp -s first.txt second.txt ||
    fail "the verdict from the documents is another one: $(diff first.txt second.txt | head -5)"
checks=$((checks + 1))
run gate measured/base.json measured/new.json --inconclusive pass
expect_rc 0 "--inconclusive pass"
run gate measured/base.json measured/new.json --inconclusive=fail
expect_rc 3 "--inconclusive=fail"

# shellcheck disable=SC2086
run gate --base-exe "$AMPBENCH" --pinned-exe "$AMPBENCH" --rounds 1 --out three --quiet \
    --json verdict.json -- $tiny --levels O0
expect_rc 5 "a pinned program"
expect_text verdict.json '"metric": "drift_step_time_ns"' "a pinned program"
follows_schema verdict.json "a verdict with a pinned program" gate

printf '#!/bin/sh\necho "the base says why" >&2\nexit 1\n' >crash
printf '#!/bin/sh\necho "about to die" >&2\nkill -SEGV $$\n' >die
chmod +x crash die
run gate --base-exe ./crash --out crashed --quiet
expect_rc 1 "a base that fails"
expect_text err "the base says why" "a base that fails"
run gate --base-exe ./die --out crashed --quiet
expect_rc 1 "a base that is killed"
expect_text err "signal 11" "a base that is killed"
expect_text err "about to die" "a base that is killed"
run gate --base-exe ./nowhere --out crashed --quiet
expect_rc 1 "a base that is not there"

# ---- a commit ----------------------------------------------------------------------------------------------
if command -v git >/dev/null && command -v cmake >/dev/null; then
    mkdir repository
    cat >repository/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.16)
project(stand_in NONE)
add_custom_target(ampbench COMMAND \${CMAKE_COMMAND} -E copy "$AMPBENCH" \${CMAKE_BINARY_DIR}/ampbench)
END
    (cd repository && git init -q . && git add . &&
        git -c user.name=t -c user.email=t@t commit -qm one) >/dev/null
    (cd repository && "$AMPBENCH" gate --base-ref HEAD --rounds 1 --out ../ref --quiet -- --data synthetic \
        --net mlp --steps 4 \
        --threads 1 --levels O0 --no-floor >../out 2>../err)
    rc=$?
    expect_rc 5 "a commit, measured for one round"
    expect_text out "1 round cannot reach alpha" "a commit, measured for one round"
    (cd repository && "$AMPBENCH" gate --base-ref nothing --out ../ref --quiet >../out 2>../err)
    rc=$?
    expect_rc 2 "a commit that is not there"
fi

# ---- the gate on itself ------------------------------------------------------------------------------------
run gate --base-exe "$AMPBENCH" --rounds 1001
expect_rc 2 "more rounds than one verdict can take"
expect_text err "from 1 to 1000" "more rounds than one verdict can take"
run gate --selftest --rounds 20001
expect_rc 2 "more rounds than a self-test has: 3600 is what docs/gate.md shows"
expect_text err "from 1 to 20000" "more rounds than a self-test has"
run gate --selftest --rounds 2 --effects 5,50 --out self --quiet -- --data synthetic --net mlp --steps 6 \
    --threads 1 --levels O0 --no-floor
expect_rc 0 "the self-test"
expect_text out "+50 %" "the self-test"
expect_text out "noise of identical builds" "the self-test"
follows_schema self/calibration.json "the self-test" gate-calibration
run gate measured/base.json measured/new.json --calibration self/calibration.json
expect_text out "this gate on such a machine: identical builds:" "a calibration is cited"
run gate base.json new.json --calibration base.json
expect_rc 2 "a calibration that is none"
run gate --selftest --quiet --out self -- --levels O0,O2 --data synthetic --net mlp --steps 4
expect_rc 2 "a self-test of two cells"

finish
