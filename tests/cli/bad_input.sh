# Bad input ends with exit status 2 and one clear line on stderr, before anything is trained and with nothing
# on stdout.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

# bad "TEXT" ARGS...: options are added to those of a tiny run; the error must hold TEXT.
base=(--net mlp --data synthetic --steps 2 --rounds 1 --levels O0 --no-plots \
    --out "$work/results/result.json")
bad() {
    local text=$1
    shift
    refused "$text" "${base[@]}" "$@"
}

# refused "TEXT" ARGS...: the same with ARGS alone.
refused() {
    local text=$1
    shift
    run "$@"
    expect_rc 2 "$*"
    checks=$((checks + 1))
    [ -s "$work/out" ] && fail "$*: wrote to stdout: $(head -c 200 "$work/out")"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line on stderr: $(head -c 800 "$work/err")"
    grep -q '^ampbench: ' "$work/err" || fail "$*: the line does not say who speaks"
    expect_text "$work/err" "$text" "$*"
}

# ---- names -------------------------------------------------------------------------------------------------
bad "the first character is the letter O, not a digit: 'O0'" --levels 0
bad "letter O" --levels O1,02
bad "the first character is the capital letter O: 'O1'" --levels o1
bad "expected O0, O1, O2 or O3, found 'O4'" --levels O4
bad "duplicate level O1" --levels O1,O1
bad "empty item" --levels O0,
bad "unknown option '--leves'; did you mean '--levels'?" --leves O1
bad "did you mean '--batch'?" --bach 3
bad "expected an option, found 'lenet5'" lenet5
bad "--steps: expected N, found nothing" --steps
bad "--out: expected FILE, found nothing" --out ""
bad "--init: expected FILE, found nothing" --init=
bad "--quiet takes no value" --quiet=1
bad "did you mean 'lenet5'" --net lenet
bad "did you mean 'resnet8'" --net resnet9
bad "did you mean 'momentum'" --optimizer momentun
bad "did you mean 'cosine'" --schedule cosin
bad "did you mean 'warmup'" --schedule cosine:warmp=3
bad "leaves nothing of the total of 2 steps" --schedule linear:warmup=2
bad "no trained parameter of network mlp has such a name; did you mean 'fc1.weight'" --no-decay fc1.weigt
bad "expected PATTERN:KEY=VALUE" --param-groups fc1.weight
bad "expected lr_factor or weight_decay, found 'lr'" --param-groups 'fc*:lr=3'
bad "did you mean 'clip_before_unscale'" --fault clip_before_unscaling
bad "--ema: expected a number between 0 and 1, found '1'" --ema 1
bad "give --ema DECAY" --ema-format half
bad "nothing is clipped" --fault clip_before_unscale
bad "need --gradient-accumulation-steps of 2 or more" --fault accumulation_not_averaged
bad "--beta1: optimizer momentum has no such number; it has --lr, --weight-decay, --momentum" \
    --optimizer momentum --beta1 0.9
bad "did you mean 'shuffled'" --order shufled
bad "expected fp16 or bf16, found 'fp8'" --half fp8
bad "found 'ultra'" --cpu-path ultra
bad "unknown property 'keep_bn'" --set keep_bn=True
bad "did you mean 'master_weights'" --set master_weight=True --levels O2
bad "leave it None" --set master_weights=True --levels O1
bad "--levels O1" --set patch_torch_functions=True --levels O2
bad "--json: expected -" --json file.json
bad "--color: expected auto, always or never" --color red
refused "did you mean 'plan'" plam
refused "did you mean 'report'" reprot
refused "expected nets, data, levels" list nests
refused "did you mean '--levels'" plan --levls O1
refused "'x'" env x

# ---- numbers -----------------------------------------------------------------------------------------------
for scale in 0 -1 nan inf 1e39 -nan 1e-99; do bad "loss scale above 0" --scales "$scale"; done
bad "loss scale above 0" --scales default,0
bad "loss scale above 0" --levels O2 --set loss_scale=0
bad "expected default, dynamic, a number such as 128 or 2^7, or a loss scaler (fixed, " --scales big
bad "larger than the" --batch 100000
bad "--batch: expected an integer from 1" --batch 0
bad "--batch: expected an integer from 1" --batch many
bad "--threads: expected an integer from 1" --threads 0
bad "--seed: expected an integer" --seed -1
bad "--steps: expected an integer" --steps 1.5
bad "--lr: expected a number" --lr nan
bad "give one of them" --steps 3 --epochs 1
bad "is above --max-loss-scale" --min-loss-scale 64 --max-loss-scale 32

# ---- devices -----------------------------------------------------------------------------------------------
bad "--device cuda: " --device cuda
bad "--device cuda:1: " --device cuda:1
bad "expected auto, cpu, cuda or cuda:N, found 'tpu'" --device tpu

# ---- networks ----------------------------------------------------------------------------------------------
# net "TEXT" <<< '{json}'
net() {
    cat >"$work/net.json"
    bad "$1" --net "$work/net.json"
    expect_text "$work/err" "net.json" "network with: $1"
}
head='"format": "ampbench-net-1", "name": "n", "input": {"height": 28, "width": 28, "channels": 1}'
loss='{"name": "loss", "op": "cross_entropy"}'
net "net.json" <<<'{'
net "net.json" <<<'[]'
net "net.json" <<<'{"format": "ampbench-net-1"}'
net "self" <<<"{$head, \"ops\": [{\"name\": \"self\", \"op\": \"relu\", \"in\": \"self\"}, $loss]}"
net "later" <<<"{$head, \"ops\": [{\"name\": \"a\", \"op\": \"relu\", \"in\": \"later\"},
 {\"name\": \"later\", \"op\": \"flatten\"}, $loss]}"
net "conv2d" <<<"{$head, \"ops\": [{\"name\": \"a\", \"op\": \"conv2\"}, $loss]}"
net "out_features" <<<"{$head, \"ops\": [{\"name\": \"f\", \"op\": \"flatten\"},
 {\"name\": \"a\", \"op\": \"linear\"}, $loss]}"
net "'a'" \
    <<<"{$head, \"ops\": [{\"name\": \"a\", \"op\": \"conv2d\", \"out_channels\": 2, \"kernel_size\": 40},
 {\"name\": \"f\", \"op\": \"flatten\"}, $loss]}"
# shape mismatch: both shapes and the op
net "op 'both'" \
    <<<"{$head, \"ops\": [{\"name\": \"a\", \"op\": \"conv2d\", \"out_channels\": 2, \"kernel_size\": 3},
 {\"name\": \"b\", \"op\": \"conv2d\", \"in\": \"input\", \"out_channels\": 3, \"kernel_size\": 3},
 {\"name\": \"both\", \"op\": \"add\", \"in\": [\"a\", \"b\"]},
 {\"name\": \"f\", \"op\": \"flatten\"}, $loss]}"
expect_text "$work/err" "26, 26, 2]" "shape mismatch"
expect_text "$work/err" "26, 26, 3]" "shape mismatch"
expect_text "$work/err" "net.json:3" "shape mismatch: line"
bad "no-such.json" --net "$work/no-such.json"
bad "$work" --net "$work"

# ---- data --------------------------------------------------------------------------------------------------
good=$AMPBENCH_SOURCE/tests/golden/data
images=train-images-idx3-ubyte
labels=train-labels-idx1-ubyte
# idx NAME: a fresh copy of the good directory in $dir.
idx() {
    dir=$work/idx-$1
    mkdir "$dir" && cp "$good"/*-ubyte "$dir"
}
bad "$work/none" --data "$work/none"
bad "did you mean" --data sythetic
mkdir "$work/empty" && bad "$work/empty" --data "$work/empty"
idx missing && rm "$dir/$labels" && bad "$labels" --data "$dir"
idx truncated && head -c 1000 "$good/$images" >"$dir/$images" && bad "$images" --data "$dir"
idx header && head -c 7 "$good/$images" >"$dir/$images" && bad "$images" --data "$dir"
idx nothing && : >"$dir/$labels" && bad "$labels" --data "$dir"
idx magic && printf '\0\0\10\1' | dd of="$dir/$images" conv=notrunc status=none && bad "$images" --data "$dir"
idx longer && printf 'more' >>"$dir/$labels" && bad "$labels" --data "$dir"
idx counts && cp "$good/t10k-labels-idx1-ubyte" "$dir/$labels" && bad "$labels" --data "$dir"
idx gzip && gzip -c "$good/$images" | head -c 200 >"$dir/$images.gz" && rm "$dir/$images" &&
    bad "$images.gz" --data "$dir"
idx class && printf '\377' | dd of="$dir/$labels" bs=1 seek=20 conv=notrunc status=none &&
    bad "256 classes" --data "$dir"
idx batch && bad "larger than the" --data "$dir" --batch 10000

# ---- weights -----------------------------------------------------------------------------------------------
weights=$work/mlp.safetensors
run "${base[@]}" --no-floor --save-weights "$weights"
expect_rc 0 "saving weights"
[ -s "$weights" ] || fail "no weights were saved"
bad "no-such" --init "$work/no-such.safetensors"
bad "which is not given" --init-map "$work/names"
bad "--init-map $work/no-names: cannot be opened" --init "$weights" --init-map "$work/no-names"
printf 'fc1.* encoder.*\n' >"$work/names" &&
    bad "'encoder.weight' is missing" --init "$weights" --init-map "$work/names"
printf '# names\nfc9 x\n' >"$work/names" &&
    bad "names:2: nothing is called 'fc9'" --init "$weights" --init-map "$work/names"
printf 'fc1.weight fc1.weight turn\n' >"$work/names" &&
    bad "names:1: expected transpose or permute=AXES, found 'turn'" --init "$weights" --init-map "$work/names"
head -c 1000 "$weights" >"$work/short.safetensors" && bad "short.safetensors" --init "$work/short.safetensors"
head -c 3 "$weights" >"$work/stub.safetensors" && bad "stub.safetensors" --init "$work/stub.safetensors"
bad "tensors differ from those of network resnet8: 'stem.conv.weight' is missing" --net resnet8 \
    --init "$weights"
sed 's/"out_features": 128/"out_features": 96/' "$AMPBENCH_SOURCE/bench/nets/mlp.json" >"$work/narrow.json"
cmp -s "$work/narrow.json" "$AMPBENCH_SOURCE/bench/nets/mlp.json" &&
    fail "mlp.json has no layer of 128 to change"
bad "fc2.weight" --net "$work/narrow.json" --init "$weights"
expect_text "$work/err" "[96, " "--init: shape of the network"
expect_text "$work/err" "[128, " "--init: shape of the file"

# ---- output ------------------------------------------------------------------------------------------------
: >"$work/file"
mkdir "$work/folder"
bad "--out" --out "$work/file/below/result.json"
bad "--out" --out "$work/folder"
bad "--out" --out /proc/nowhere/result.json
bad "--csv" --csv "$work/file/table.csv"
bad "--markdown" --markdown "$work/folder"
bad "--save-weights" --no-floor --save-weights "$work/file/w.safetensors"
bad "--save-weights" --levels O0,O2 --save-weights "$work/file/%c.safetensors"
bad "--save-gradients: $work/file: cannot create the folder" --levels O0,O2 --no-floor \
    --save-gradients "$work/file/%c.safetensors"
bad "%c" --levels O0,O2 --save-weights "$work/w.safetensors"
# before training, not after: a run that would take minutes is refused at once
start=$SECONDS
bad "--csv" --net resnet20 --steps 100000 --csv /proc/nowhere/table.csv
[ $((SECONDS - start)) -le 20 ] || fail "an unwritable output was found only after training"

# ---- documents ---------------------------------------------------------------------------------------------
refused "no-such.json" report "$work/no-such.json"
printf '{' >"$work/broken.json"
refused "broken.json" report "$work/broken.json"
refused "report: expected a file or a name, found an empty word" report ""
refused "compare: expected a file or a name, found an empty word" compare "" "$work/broken.json"
bad "nothing-here.json" --resume --out "$work/nothing-here.json"

finish
