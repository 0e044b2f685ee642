# Every ampbench command that README.md and the pages of docs/ show is run, so that no option, name or command
# of the text is out of date: as written, on results and files that short runs have made under the names that
# the pages use. What would take long is made short: trainings to 12 steps, those on default data to the
# network mlp, 65536 ranks to 64. Not run are
#   runs and fits: they are only planned (a run of each kind is made below and in other tests);
#   gate --base-ref and gate --selftest: they build commits, or measure times for half an hour (cli.gate_ref);
#   formats --prove: all 2^32 values (slow.test_prove_formats);
# the options of the last two are looked up in the command's help. The tutorial is run by cli.docs_tutorial.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

# commands FILE: lines of ```sh blocks that start with "ampbench" (or a path to it), continuation lines
# joined, comments cut.
commands() {
    awk '/^```/ { inside = !inside; shown = inside && /^```(sh|bash|console)?[ \t]*$/; next } shown' "$1" |
        sed -e ':a' -e '/\\$/N; s/\\\n/ /; ta' -e 's/^\$ //' -e 's/[[:space:]]#.*$//' |
        grep -E '^((\./)?[A-Za-z0-9_./-]*/)?ampbench([[:space:]]|$)' || true
}

# split LINE: its words into the array `arguments`, quotes honoured, nothing expanded; pipes and redirections
# are cut off.
split() {
    mapfile -t arguments < <(xargs -n 1 printf '%s\n' <<<"${1%%[|>;&]*}")
    arguments=("${arguments[@]:1}")
}

# understood FILE LINE
understood() {
    split "$2"
    case "${arguments[*]:-help}" in
    run* | fit* | -*) options_known "$1" "$2" ;;
    gate*--base-ref* | gate*--selftest* | *--prove*) command_known "$1" "$2" "${arguments[0]}" ;;
    diagnose*--run*--net*) works "$1" "$2" "$2 $brief" ;;
    diagnose*--run*) works "$1" "$2" "$2 --net mlp --data synthetic $brief" ;;
    ranks*8..65536*) works "$1" "$2" "${2/8..65536/8..64}" ;;
    promote*) works "$1" "$2" "$2 --data synthetic --steps 12" ;;
    profile*) works "$1" "$2" "$2 --data synthetic --steps 3" ;;
    report* | history* | diagnose* | advise* | inspect* | read* | ranks* | gate* | compare* | *--replay*)
        works "$1" "$2" "$2" ;;
    *)
        run "${arguments[@]}"
        expect_rc 0 "$1: $2"
        ;;
    esac
}

# works FILE LINE COMMAND: it is run in the folder of the reader's files, and does what it is asked. A
# diagnosis may find something, and a comparison of two seeds may not be enough.
works() {
    [ -z "${worked[${arguments[*]}]:-}" ] || return 0 # on another page
    worked[${arguments[*]}]=1
    rc=0
    (cd "$here" && bash -c "$3") >"$work/out" 2>"$work/err" </dev/null || rc=$?
    case "$rc ${arguments[0]}" in '4 diagnose' | '5 compare') rc=0 ;; esac
    expect_rc 0 "$1: $2"
}

# A run is not run: its options are checked by asking for the plan of the same options (files of the example
# are left out).
options_known() {
    local -a kept=()
    local word
    case ${arguments[0]} in run | fit) arguments=("${arguments[@]:1}") ;; esac
    while [ "${#arguments[@]}" -gt 0 ]; do
        word=${arguments[0]}
        arguments=("${arguments[@]:1}")
        case $word in
        --help | -h) kept=(--help) && break ;;
        --net | --init | --data)
            is_option "$1" "$2" "$word"
            case ${arguments[0]} in */* | *.*) ;; *) kept+=("$word" "${arguments[0]}") ;; esac \
                # not the user's files
            arguments=("${arguments[@]:1}")
            ;;
        --no-plots | --resume) is_option "$1" "$2" "$word" ;; # a plan writes nothing and refuses them
        --out | --label | --json | --csv | --markdown | --html | --save-weights | --save-gradients | \
            --checkpoint)
            is_option "$1" "$2" "$word"
            arguments=("${arguments[@]:1}")
            ;;
        --set) # several losses are those of the reader's network
            case ${arguments[0]} in num_losses=*) is_option "$1" "$2" "$word" ;; *) kept+=("$word" \
                "${arguments[0]}") ;; esac
            arguments=("${arguments[@]:1}")
            ;;
        *) kept+=("$word") ;;
        esac
    done
    run plan "${kept[@]}"
    expect_rc 0 "$1: $2"
}

# is_option FILE LINE OPTION
is_option() {
    checks=$((checks + 1))
    "$AMPBENCH" run --help | grep -q -- "^  $3 " || fail "$1: no option $3: $2"
}

# Commands that are not run: the command and each of its --options must be in its help.
command_known() {
    local word
    run "$3" --help
    expect_rc 0 "$1: $2"
    cp "$work/out" "$work/help"
    for word in "${arguments[@]:1}"; do
        [ "$word" = -- ] && break # what follows is a run's
        case $word in --*) expect_text "$work/help" "${word%%=*}" "$1: $2" ;; esac
    done
}

# trained OPTION...: a short run in the folder of the reader's files
trained() {
    (cd "$here" && ampbench --net mlp --data synthetic --steps 30 --rounds 1 --no-plots --quiet "$@") \
        >/dev/null 2>"$work/err" || fail "ampbench $*: $(cat "$work/err")"
}

# What the pages name.
files() {
    local built=${AMPBENCH_BUILD:?}/tests/checkpoints golden=$AMPBENCH_SOURCE/tests/golden sanitizers
    trained --levels O0,O1,O2 --seeds 2 --probe-every 5 --trace
    trained --levels O0,O2 --no-floor --save-gradients 'grads/%c.safetensors' --out run.json
    trained --levels O2 --no-floor --save-weights model.safetensors --out base.json
    trained --levels O2 --no-floor --out new.json
    cd "$here" || exit 1
    mkdir -p results checkpoints/step_100
    cp base.json before.json
    cp base.json release.json
    cp new.json after.json
    cp base.json new.json results
    cp "$(find grads -name '*O2*.safetensors' | head -n 1)" gradients.safetensors
    cp model.safetensors checkpoints/step_100
    cp "$built/runs/some_fp16.pt" pytorch_model.bin
    cp -r "$built/runs/trainer/checkpoint-2" checkpoint-500
    cp -r "$built/runs/trainer/checkpoint-4" checkpoint-1000
    tar xJf "$golden/logs.tar.xz"
    head -n 2 megatron.log >train.log.1
    gzip -c train.log.1 >train.log.2.gz
    mv megatron.log train.log
    mv events.tb events.out.tfevents.1700000000.host
    printf 'updates,train/ce,amp\n1,2.5,1024\n2,2.25,1024\n' >metrics.csv
    cp "$golden/colours.npz" my_data.npz
    cat >my_net.json <<'END'
{"format": "ampbench-net-1", "name": "mine", "input": {"height": 64, "width": 64, "channels": 3},
 "defaults": {"optimizer": "sgd", "lr": 0.01, "batch": 4, "epochs": 1},
 "ops": [{"name": "flatten", "op": "flatten"}, {"name": "fc", "op": "linear", "out_features": 10},
  {"name": "loss", "op": "cross_entropy"}]}
END
    # 300 batches of 32 images, all of class 0
    python3 - <<'END' || return 1
import gzip, itertools
images = bytes(itertools.islice(itertools.cycle(range(256)), 9600 * 784))
for name, header, values in ("train-images-idx3", 16, images), ("train-labels-idx1", 8, bytes(9600)):
    with gzip.open(name + "-ubyte.gz", "wb", 1) as file:
        file.write(bytes(header) + values)
END
    sanitizers=$(sed -n 's/^AMPBENCH_SANITIZE:[A-Z]*=//p' "$AMPBENCH_BUILD/CMakeCache.txt")
    "${CC:-cc}" ${sanitizers:+"-fsanitize=$sanitizers"} -I "$AMPBENCH_SOURCE/include" \
        "$AMPBENCH_SOURCE/examples/mlp_probe.c" -o mlp_probe "$AMPBENCH_BUILD/probes/lib/libampprobe.so.1" \
        -Wl,-rpath,"$AMPBENCH_BUILD/probes/lib" -lm &&
        ./mlp_probe . 16777216 run.ampprobe.json >/dev/null || return 1
    for name in prices padding finetune; do cp run.ampprobe.json "$name.ampprobe.json"; done
}

found=0
declare -A worked=()
here=$work/here
brief='--steps 12 --rounds 1 --no-floor --no-plots --quiet'
mkdir "$here" "$work/bin"
ln -s "$(realpath "$AMPBENCH")" "$work/bin/ampbench"
export PATH="$work/bin:$PATH"
(files) || fail "the reader's files"
cd "$work" || exit 1
for page in "$AMPBENCH_SOURCE"/README.md "$AMPBENCH_SOURCE"/docs/*.md; do
    case $page in */tutorial.md) continue ;; esac # cli.docs_tutorial
    [ -e "$page" ] || continue
    while IFS= read -r line; do
        found=$((found + 1))
        understood "$(basename "$page")" "$line"
    done < <(commands "$page")
done
if [ ! -e "$AMPBENCH_SOURCE/README.md" ]; then
    printf 'no README.md\n'
    exit 77
fi
[ "$found" -gt 0 ] || fail "README.md shows no ampbench command"
[ "${#worked[@]}" -ge 30 ] || fail "only ${#worked[@]} commands were run on files"
finish
