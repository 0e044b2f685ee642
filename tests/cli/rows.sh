# Overrides as rows: a level with a property of its own beside the level, in every form of the result; what is
# said of steps while they run.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

keep=O3:keep_batchnorm_fp32=True
outputs=O2:cast_model_outputs=fp16
tiny=(--net resnet8 --data synthetic --steps 6 --rounds 1 --batch 8 --no-plots)
run "${tiny[@]}" --quiet --levels "O0,O2,O3,$keep,$outputs,O1:enabled=False,O2:loss_scale=128" \
    --set master_weights=None --out "$work/r/result.json"
expect_rc 0 "rows"
follows_schema "$work/r/result.json" "rows"
expect_text "$work/r/result.json" "\"label\": \"$keep\"" "the record"
cp "$work/out" "$work/r/table"
for label in "$keep" "$outputs" O1:enabled=False; do
    expect_text "$work/r/table" "$label" "the table"
done
[ "$(LC_ALL=C.UTF-8 wc -L <"$work/r/table")" -le 120 ] || fail "the table is wider than 120"
checks=$((checks + 1))
grep -qE '^O2 +128 ' "$work/r/table" ||
    fail "a level with a loss scale of its own is a row: $(cat "$work/r/table")"
run report "$work/r/result.json" --markdown "$work/r/result.md" --csv "$work/r/result.csv" \
    --html "$work/r/result.html"
expect_rc 0 "reports"
run report "$work/r/result.json" --format junit
cp "$work/out" "$work/r/junit.xml"
run report "$work/r/result.json" --format github
sed 's/%3A/:/g' "$work/out" >"$work/r/github"
expect_text "$work/r/github" "$outputs" "annotations"
tr -d '\\' <"$work/r/result.md" >"$work/r/plain.md"
for form in plain.md result.csv result.html junit.xml; do
    expect_text "$work/r/$form" "$keep" "$form"
    expect_text "$work/r/$form" "O1:enabled=False" "$form"
done
sed -n 5p "$work/r/result.csv" | grep -q ",$keep," || fail "the CSV's column label"
run diagnose "$work/r/result.json" --verbose
expect_text "$work/out" "resnet8/$keep/1/fp16/cpu/seed1" "diagnose"
sed -E '0,/"id"/s/("id": ?")[0-9a-f]{4}/\10000/' "$work/r/result.json" >"$work/r/again.json"
run gate "$work/r/result.json" "$work/r/again.json"
expect_text "$work/out" "$keep" "the gate"

# The override is another cell: its bits differ from the level's, and every digest is its own.
checks=$((checks + 1))
of() { csv_columns "$work/r/result.csv" loss_digest | sed -n "$1p"; }
[ "$(of 3,5 | sort -u | wc -l)" = 3 ] || fail "cells with other properties have the same bits: $(of 1,7)"
[ "$(of 2)" != "$(of 5)" ] || fail "cast_model_outputs changes nothing at O2"
[ "$(of 1)" = "$(of 6)" ] || fail "enabled=False has other bits than O0"

# One configuration, spelt twice, is one cell.
run "${tiny[@]}" --quiet --levels "O2,O2:keep_batchnorm_fp32=True,O2:verbosity=0" --no-floor \
    --out "$work/s/result.json"
expect_rc 0 "a property that the level has"
checks=$((checks + 1))
[ "$(digests "$work/s/result.json" | wc -l)" = 1 ] || fail "a level twice: $(digests "$work/s/result.json")"

# What apex prints, on stderr alone: cast_model_outputs=fp16 makes a scale of 2^16 overflow in the loss's own
# gradient, so the first step is skipped.
run "${tiny[@]}" --quiet --levels "O0,$outputs,verbosity=1" --no-floor --log-every 3 \
    --out "$work/v/result.json"
expect_rc 0 "verbosity and --log-every"
expect_no_text "$work/out" "Gradient overflow" "stdout"
expect_text "$work/err" "Selected optimization level O2:  FP16 training" "the level"
expect_text "$work/err" "keep_batchnorm_fp32    : True" "the property table"
expect_text "$work/err" "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0" \
    "a skip"
expect_text "$work/err" "epoch: 1 step: 3, loss is " "a line every N steps"
expect_text "$work/err" ", scale 32768, 1 skipped" "a line after a skip"
checks=$((checks + 1))
[ "$(grep -c '^epoch: ' "$work/err")" = 4 ] || fail "lines of steps: $(cat "$work/err")"
run "${tiny[@]}" --quiet --levels "$outputs" --no-floor --log-every 1 --out "$work/w/result.json"
expect_text "$work/err" "epoch: 1 step: 1, loss is 2.25, scale 65536" "the first step"
grep -qE '^epoch: 1 step: 1, .*scale 65536, 1 skipped, this step too: a gradient overflowed$' "$work/err" ||
    fail "a skipped step says so: $(cat "$work/err")"

run "${tiny[@]}" --quiet --levels O2 --scales 2^40 --no-floor --log-every 3 --out "$work/w/result.json"
expect_text "$work/err" ", scale 2^40" "a large scale is written as everywhere"

# Of every step: rate, norm of the gradients (the one that --clip-norm computes, by other code), accuracy on
# its own batch: that of the test set where that is the batch.
list() { tr -d ' \n\t' <"$1" | grep -o "\"$2\":\[[^]]*\]" | sed -n 1p; }
run --net mlp --data synthetic --steps 3 --rounds 1 --no-plots --no-floor --quiet --levels O0 \
    --schedule step:step_size=2,gamma=0.5 --lr 0.5 --out "$work/n/result.json"
expect_rc 0 "steps of a record"
follows_schema "$work/n/result.json" "steps of a record"
checks=$((checks + 1))
tr -d ' \n\t' <"$work/n/result.json" | grep -qF '"lr":[[0.5,2],[0.25,1]]' || fail "learning rates"
run --net mlp --data synthetic --steps 3 --rounds 1 --no-plots --no-floor --quiet --levels O0 \
    --clip-norm 1e30 --schedule step:step_size=2,gamma=0.5 --lr 0.5 --out "$work/m/result.json"
checks=$((checks + 1))
paste -d, <(list "$work/n/result.json" gradient_norm | tr -cd '0-9.,e-' | tr , '\n') \
    <(list "$work/m/result.json" gradient_norm | tr -cd '0-9.,e-' | tr , '\n') |
    awk -F, '{ n++; d = $1 / $2 - 1; if (d > 1e-6 || d < -1e-6) bad = 1 } END { exit !(n == 3 && !bad) }' ||
    fail "gradient norms: $(cat "$work/n/result.json" | tr -d ' \n\t' | grep -o '"gradient_norm[^]]*')"
mkdir -p "$work/idx"
{ printf '\0\0\10\3\0\0\0\20\0\0\0\34\0\0\0\34' && cat "$AMPBENCH_SOURCE"/LICENSE "$AMPBENCH_SOURCE"/*.md |
    head -c 12544; } >"$work/idx/train-images-idx3-ubyte"
printf '\0\0\10\1\0\0\0\20\3\1\2\3\4\5\6\7\0\1\2\3\0\1\2\3' >"$work/idx/train-labels-idx1-ubyte"
cp "$work/idx/train-images-idx3-ubyte" "$work/idx/t10k-images-idx3-ubyte"
cp "$work/idx/train-labels-idx1-ubyte" "$work/idx/t10k-labels-idx1-ubyte"
run --net mlp --data "$work/idx" --batch 16 --steps 1 --lr 1e-20 --rounds 1 --no-plots --no-floor --quiet \
    --levels O0,O3 --scales 1 --out "$work/i/result.json"
expect_rc 0 "a batch that is the test set"
run report "$work/i/result.json" --csv "$work/i.csv"
checks=$((checks + 1))
whole=$(csv_columns "$work/i.csv" test_accuracy | sed -n 1p)
[ "$(list "$work/i/result.json" train_accuracy)" = "\"train_accuracy\":[$whole]" ] ||
    fail "training accuracy: $(list "$work/i/result.json" train_accuracy)"

# Every skipped step has its layer and its margin, in text, JSON and page: an fp16 loss starts its gradient at
# the loss scale, 2^24 halved at every skip, and fp16's limit is 65520.
run "${tiny[@]}" --steps 24 --quiet --levels "O0,O2,$outputs" --scales apex:init=16777216 --no-floor \
    --out "$work/k/result.json"
expect_rc 0 "skips"
follows_schema "$work/k/result.json" "skips"
run diagnose "$work/k/result.json" --exit-zero --json "$work/k/diagnosis.json"
follows_schema "$work/k/diagnosis.json" "skips" diagnosis
run diagnose "$work/k/result.json" --exit-zero --verbose
for k in 0 1 2 3 4 5 6 7 8; do
    expect_text "$work/out" "step $k: loss backward, out.grad: 2^$((8 - k)).0 above what fp16 holds" \
        "margin of a skip"
done
checks=$((checks + 1))
skips=$("$AMPBENCH" report "$work/k/result.json" --format csv >"$work/k.csv" &&
    csv_columns "$work/k.csv" steps_skipped | awk '{ n += $1 } END { print n }')
[ "$(grep -cE '^      step [0-9]+: [a-z]' "$work/out")" = "$skips" ] ||
    fail "not every skip: $(cat "$work/out")"
expect_no_text "$work/out" "not looked at" "skips"
run report "$work/k/result.json" --html "$work/k/result.html"
[ "$(grep -c 'above what fp16 holds</td>' "$work/k/result.html")" = "$skips" ] || fail "the page's skips"

# Of a result document: what the probe counted in fp16, from values, is within the intervals from exponents.
run --net lenet5 --data synthetic --steps 20 --rounds 1 --no-plots --no-floor --quiet --levels O0 \
    --out "$work/x/result.json"
run inspect "$work/x/result.json" --format fp16,fp8_e4m3 --scale 2^4
expect_rc 0 "what-if of a document"
expect_text "$work/out" "lenet5/O0/1/fp16/cpu/seed1: recorded values times 16" "what-if of a document"
expect_text "$work/out" "fc3.weight.grad" "what-if of a document"
run inspect "$work/x/result.json" --format fp16 --json "$work/x/what.json"
expect_rc 0 "what-if as JSON"
for tensor in fc1.weight.grad conv1.out.grad fc3.out.grad; do
    counted=$(tr -d ' \n\t' <"$work/x/result.json" | grep -o "\"name\":\"$tensor\"[^}]*\"flushed\":[0-9]*" |
        sed -n 's/.*://; 1p')
    within=$(tr -d ' \n\t' <"$work/x/what.json" | grep -o "\"tensor\":\"$tensor\"[^]]*\]" |
        sed 's/.*\[//; s/\]//')
    checks=$((checks + 1))
    [ -n "$counted" ] && [ "$counted" -ge "${within%,*}" ] && [ "$counted" -le "${within#*,}" ] ||
        fail "$tensor: $counted flushed, $within from exponents"
done
run inspect "$work/x/result.json" --tensor nothing
expect_rc 2 "no such tensor"

run list levels --table
expect_rc 0 "the table of levels"
for level in O0 O1 O2 O3 torch:autocast mindspore:O2 deepspeed:fp16 megatron:fp16 keras:mixed_float16; do
    expect_text "$work/out" "$level " "the table of levels"
done
checks=$((checks + 1))
grep -qE '^O2 +half +False +True +True +dynamic +- +half' "$work/out" || fail "O2's row: $(cat "$work/out")"
grep -qE '^mindspore:O2 +half +False +True +None +mindspore-cell +mindspore +fp32, read' "$work/out" ||
    fail "mindspore:O2's row: $(cat "$work/out")"

refused() {
    run "${tiny[@]}" "${@:2}"
    expect_rc 2 "$*"
    expect_text "$work/err" "$1" "$*"
}
refused "expected a level before 'keep_batchnorm_fp32=True'" --levels keep_batchnorm_fp32=True
refused "--levels: duplicate level $keep" --levels "$keep,$keep"
refused "did you mean 'keep_batchnorm_fp32'" --levels O3:keep_batchnorm_fp3=True
refused "--levels verbosity=1: apex's lines are for apex's levels" --levels torch:autocast:verbosity=1
refused "--log-every: expected an integer from 1" --log-every 0

finish
