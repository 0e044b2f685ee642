# The CI examples: valid YAML, and their shell lines do what they say: green at first and again, red when the
# scale breaks training.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
folder=$AMPBENCH_SOURCE/docs/ci
mkdir bin
ln -s "$AMPBENCH" bin/ampbench
export PATH="$work/bin:$PATH"
for file in github-actions.yml gitlab-ci.yml; do
    checks=$((checks + 1))
    if grep -qP '\t| +$' "$folder/$file"; then fail "$file: tabs or spaces at the end of a line"; fi
    # A repository is named by a variable, and the job says so where it is not set; there is no made-up one.
    if grep -qE 'example\.(org|com)|https?://' "$folder/$file"; then fail "$file: names a repository"; fi
    expect_text "$folder/$file" '${AMPBENCH_REPOSITORY:?set this' "$file"
    if python3 -c 'import yaml' 2>/dev/null; then
        python3 -c 'import sys, yaml; assert isinstance(yaml.safe_load(open(sys.argv[1])), dict)' \
            "$folder/$file" || fail "$file is no YAML"
    fi
done

# steps FILE: the shell lines of every step but the one that installs. A block is one script; a list item one
# line.
github() {
    awk '/^ +run: \|$/ { on = 1; match($0, /^ +/); depth = RLENGTH; next }
         on { match($0, /^ */); if (RLENGTH <= depth && NF) on = 0 }
         on { sub(/^ {10}/, ""); print }' "$folder/github-actions.yml"
}
gitlab() {
    awk '/^  script:$/ { on = 1; next } on && !/^    - / { on = 0 } on { sub(/^    - /, ""); print }' \
        "$folder/gitlab-ci.yml" |
        sed "s/^'\(.*\)'$/\1/"
}
options() { sed -n 's/^ *OPTIONS: //p' "$folder/$1"; }

# Without the address of ampbench the lines that install say so, and do nothing else.
awk '/^ +run: >-$/ { on = 1; next } on && /^ +- / { on = 0 } on { print }' "$folder/github-actions.yml" |
    tr '\n' ' ' >install-github.sh
awk '/^  before_script:$/ { on = 1; next } on && !/^    - / { on = 0 } on { sub(/^    - /, ""); print }' \
    "$folder/gitlab-ci.yml" >install-gitlab.sh
for name in github gitlab; do
    checks=$((checks + 1))
    grep -q scripts/package install-$name.sh || fail "$name: nothing is installed"
    bash -n install-$name.sh || fail "$name: the lines that install are no shell"
done
# only up to the first command that would change something
for line in "$(sed 's/ && .*//' install-github.sh)" "$(grep 'echo ' install-gitlab.sh)"; do
    checks=$((checks + 1))
    ! env -u AMPBENCH_REPOSITORY bash -c "$line" >log 2>&1 || fail "no address, and went on: $line"
    expect_text log "AMPBENCH_REPOSITORY: set this variable" "no address"
done

# job NAME STATUS WHAT: runs a job in its folder as the runner does.
job() {
    rc=0
    (cd "$1" && OPTIONS=$wanted GITHUB_STEP_SUMMARY=$work/$1/summary GITHUB_OUTPUT=$work/$1/output bash \
        -e "$work/$1.sh" >log 2>&1) || rc=$?
    checks=$((checks + 1))
    [ "$rc" = "$2" ] || fail "$1, $3: exit status $rc, expected $2: $(tail -5 "$1/log")"
}

for name in github gitlab; do
    file=github-actions.yml
    [ $name = github ] || file=gitlab-ci.yml
    $name >"$name.sh"
    [ "$(grep -c ampbench "$name.sh")" -ge 3 ] || fail "$name: no commands found"
    mkdir $name
    cp "$AMPBENCH_SOURCE/bench/nets/mlp.json" $name/net.json
    wanted=$(options $file)
    [ -n "$wanted" ] || fail "$name: no OPTIONS"
    job $name 0 "without a baseline"
    expect_text $name/log "no baseline: nothing compared" "$name, without a baseline"
    [ -s $name/baseline.json ] && [ -s $name/new/report.html ] && [ -s $name/new/junit.xml ] ||
        fail "$name: files are missing"
    job $name 0 "with a baseline"
    wanted="$wanted --scales 16777216"
    job $name 4 "with a broken scale"
    [ -s $name/new/report.html ] || fail "$name: a red gate took the page away"
done
expect_text github/summary "| level | loss scale |" "the job summary"
expect_text github/summary "losses are not finite" "the job summary of a red gate"
expect_text github/log "::warning title=ampbench" "annotations of a run"
expect_text github/log "::error title=ampbench gate" "annotations of the gate"
expect_text gitlab/new/gate.xml "<failure" "the gate as a test"
expect_text github/output "cpu=" "the cache's key"
finish
