# Text from outside never reaches a terminal or a log as it is: no control character, no command of a CI
# runner at the start of a line, and an error stays one line. The text is pushed in as the value of every
# option of every command, as the name of every kind of file, as names in networks and tensor files, as
# strings of documents, refs and environment.
# shellcheck source=lib/cli.sh shell=bash
. "$(dirname "$0")/lib/cli.sh"
export LC_ALL=C
source_tree=$(cd "$AMPBENCH_SOURCE" && pwd)
AMPBENCH=$(cd "$(dirname "$AMPBENCH")" && pwd)/$(basename "$AMPBENCH")
corpus=$(cd "$AMPBENCH_BUILD/tests/fuzz/corpus" && pwd)
mkdir "$work/here" && cd "$work/here" || exit 1

# A line break, a command of GitHub, CR, ESC, DEL, a C1 control, an override of direction, a byte that is not
# UTF-8.
evil=$'x\n::error file=a::b\r\e[31m\x7f\xc2\x85\xe2\x80\xae\xe2\x81\xa6##[error]y\n  ::set-output z\xff'
raw=$'[\\x01-\\x09\\x0b\\x0c\\x0e-\\x1f\\x7f\\xff]|\\x0d(?!$)|\\xc2[\\x80-\\x9f]'
raw+=$'|\\xe2\\x80[\\xaa-\\xae]|\\xe2\\x81[\\xa6-\\xa9]'
raw+=$'|^\\s*::(?!(error|warning|notice) title=)|##\\['

# try ARGS...: what it prints goes to a log that is judged at the end, as one; an error says who speaks.
log=$work/log
tried=()
try() {
    printf '\n== %d\n' "${#tried[@]}" >>"$log"
    tried+=("$(printf '%q ' "$@")")
    "$AMPBENCH" "$@" >>"$log" 2>err.txt </dev/null
    rc=$?
    checks=$((checks + 1))
    [ "$rc" -le 6 ] || fail "${tried[-1]}: exit status $rc"
    if [ "$rc" = 2 ]; then [[ $'\n'$(<err.txt) == *$'\n'"ampbench: "* ]] ||
        fail "${tried[-1]}: no error is named"; fi
    printf '%s\n' "$(<err.txt)" >>"$log"
}

# judge: nothing that was printed would be acted on by a terminal or a runner.
judge() {
    local line number=
    while IFS= read -r line; do
        case $line in
        '== '*) number=${line#== } ;;
        *) fail "${tried[$number]}: $(cat -v <<<"$line" | head -c 300)" ;;
        esac
    done < <(grep -aP -- "^== [0-9]+\$|$raw" "$log" | grep -av -B 1 -- '^== [0-9]*$' | grep -av '^--$')
}

# ---- words: options, values, names -------------------------------------------------------------------------
try "$evil"
try "--$evil"
options=0
commands=$("$AMPBENCH" help | sed -n '/^Commands/,/^Topics/s/^  \([a-z]*\) .*/\1/p')
tiny=(--net mlp --data synthetic --batch 4 --steps 1 --rounds 1 --levels O0 --threads 1 --no-plots)
while IFS=' ' read -r command option; do
    case $command:$option in
    run:--steps | run:--epochs) try "$command" "${tiny[@]}" "$option" "$evil" ;;
    run:*) try run "${tiny[@]}" --out result.json "$option" "$evil" ;;
    *) try "$command" "$option" "$evil" ;;
    esac
    options=$((options + 1))
done < <("$AMPBENCH" completion zsh | awk '
    /^        [a-z]+\) _arguments/ { command = $1; sub(/\)/, "", command) }
    /^            .\*--[a-z0-9-]+=\[/ {
        option = $1; sub(/^.\*/, "", option); sub(/=.*/, "", option)
        if (command == "run") run[option] = 1
        if (command == "run" || !(option in run)) print command, option
    }')
[ "$options" -ge 80 ] || fail "only $options options were found"
for command in $commands; do try "$command" "$evil"; done
for command in plan fit promote; do try "$command" --net "$evil"; done
try scaler torch --overflow "$evil"
try scaler "torch:$evil=1" --overflow s10
try list "$evil"
try help "$evil"
try completion "$evil"
AMPBENCH_DATA_DIR=$evil try run --net mlp --steps 1
AMPBENCH_CPU_ISA=$evil try env
AMPBENCH_PLUGIN_DIR=$evil try run "${tiny[@]}" --device cuda
TMPDIR=$evil try promote --level O1 "${tiny[@]:0:6}" --steps 1

# ---- names of files ----------------------------------------------------------------------------------------
fixtures=$source_tree/tests/fixtures
mkdir -p "$work/files/$evil" && cd "$work/files" || exit 1
sed 's/"name": *"mlp"/"name": "own"/' "$source_tree/bench/nets/mlp.json" >"$evil/$evil.json"
try plan --net "$evil/$evil.json" --data synthetic --verbose
try run "${tiny[@]}" --out "$evil/result.json" --net "$evil/$evil.json" --csv "$evil/x.csv" \
    --html "$evil/x.html"
[ -s "$evil/result.json" ] || fail "no run from a file with a strange name: $(cat -v err.txt)"
for format in table markdown csv html junit github; do
    try report "$evil/result.json" --format "$format" --color never
done
printf '{"a"\n' >"$evil/broken.json"
printf '{"schema": "x"}' >"$evil/other.json"
cp "$fixtures/result_tiny.json" "$evil/tiny.json"
for document in broken other tiny none; do
    for command in report diagnose advise compare history promote gate; do
        try "$command" "$evil/$document.json"
    done
    try gate "$evil/tiny.json" "$evil/$document.json"
    try gate "$evil/$document.json" "$evil/tiny.json" --format github
    try gate "$evil/tiny.json" "$evil/tiny.json" --calibration "$evil/$document.json"
    try plan --net "$evil/$document.json"
done
for file in "$corpus"/npy/v1.npy "$corpus"/npz/* "$corpus"/safetensors/*; do
    [ -s "$file" ] || continue
    cp "$file" "$evil/$evil.${file##*.}"
    head -c 90 "$file" >"$evil/cut.${file##*.}"
done
for file in "$evil/$evil".{npy,npz,safetensors} "$evil"/cut.{npy,npz,safetensors} "$evil/none.npy" "$evil"; do
    try inspect "$file"
    try inspect "$file" --json -
    try inspect "$file" --tensor "$evil"
    try run "${tiny[@]}" --out result.json --init "$file"
    try run "${tiny[@]}" --out result.json --resume-from "$file"
done
for source in bytes words arrays images; do
    try run "${tiny[@]}" --out result.json --data "$source:$evil"
    try run "${tiny[@]}" --out result.json --data "$source:$evil/broken.json"
done
try run "${tiny[@]}" --out result.json --data "$evil"
printf 'a b c d %s\n' "$evil" >"$evil/map"
try run "${tiny[@]}" --out result.json --init "$evil/$evil.npz" --init-map "$evil/map"
try scaler torch --overflow "@$evil/map"
try scaler adaloss --layers "@$evil/map"
try scaler adaloss --layers "$evil/map"

# ---- names in networks and tensor files --------------------------------------------------------------------
# A network's names are plain words; its description and a tensor's name may be any text.
texts=0
for text in 'x\n::error::y' '::error::y' '\u202e\u2066y' '##[error]y' '\u001b[31m' "=cmd|' /C calc'!A0" \
    'a|b' \
    '</td><script>alert(1)</script>' '{/:Bold a}_b' '\ufeff\u200b'; do
    awk -v text="${text//\\/\\\\}" '{ gsub(/"fc1"/, "\"" text "\""); print }' \
        "$source_tree/bench/nets/mlp.json" >net.json
    try plan --net net.json --data synthetic --verbose
    [ "$rc" = 2 ] || fail "an op may be called $text"
    awk -v text="${text//\\/\\\\}" '{ sub(/"Perceptron[^"]*"/, "\"" text "\""); print }' \
        "$source_tree/bench/nets/mlp.json" >net.json
    try plan --net net.json --data synthetic --verbose
    [ "$rc" != 0 ] || texts=$((texts + 1))
    header="{\"$text\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"
    # shellcheck disable=SC2059 # a byte
    printf "\\$(printf %o "${#header}")\\0\\0\\0\\0\\0\\0\\0" >named.safetensors
    printf '%s\0\0\200\077' "$header" >>named.safetensors
    try inspect named.safetensors
    [ "$rc" = 0 ] || fail "inspect: a tensor called $text: $(cat err.txt)"
    try inspect named.safetensors --json -
    try inspect named.safetensors --tensor none
    try run "${tiny[@]}" --out result.json --init named.safetensors
done
[ "$texts" -ge 4 ] || fail "only $texts networks with strange descriptions were read"

# ---- strings of documents ----------------------------------------------------------------------------------
# shellcheck disable=SC2016
planted='x\\n::error file=a::b\\r\\u001b[31m\\u007f\\u0085\\u202e\\u2066##[error]=cmd|a<b>\\"&'
keys='net|data|optimizer|reason|model|id|layer|name|text|cpu_model|compiler|flags'
keys=$keys'|version|git_sha|device|os|op|started_utc|level|status|scale_policy|half_format|schema'
keys=$keys'|comparability_key|settings|action|verdict|warnings|math_mode'
document=$fixtures/result_tiny.json
free='net|data|optimizer|reason|model|id|layer|name|text|cpu_model|compiler|flags|version|git_sha'
free=$free'|device|op|started_utc'
sed -E "s/\"($free)\": \"/&$planted/" "$document" >planted.json
for command in diagnose advise compare history report; do try "$command" planted.json; done
for format in text markdown github junit json; do try gate "$document" planted.json --format "$format"; done
try gate planted.json planted.json
for key in ${keys//|/ }; do
    sed -E "s/\"$key\": \"/&$planted/" "$document" >planted.json
    cmp -s planted.json "$document" && continue
    try report planted.json --color never
    try gate "$document" planted.json
done

# ---- refs --------------------------------------------------------------------------------------------------
git init -q repository && cd repository || exit 1
for ref in "$evil" "-$evil" '::error' $'HEAD\n::error'; do
    try gate --base-ref "$ref"
done
judge
finish
