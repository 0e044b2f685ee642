# Other frameworks' levels and layers with formats of their own, as people ask for them.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

refused() {
    local text=$1
    shift
    run "$@"
    expect_rc 2 "$*"
    checks=$((checks + 1))
    [ -s "$work/out" ] && fail "$*: wrote to stdout"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line on stderr: $(head -c 400 "$work/err")"
    expect_text "$work/err" "$text" "$*"
}

run list levels
expect_text "$work/out" "torch.amp.autocast, CUDA's lists" "a level says where it comes from"
run list ops
expect_text "$work/out" "refused at O1 with half inputs" "every class of an op has its words"
levels=O0,torch:autocast,torch:autocast-cpu,torch:half,mindspore:O0,mindspore:O2,mindspore:O3,mindspore:auto
levels=$levels,deepspeed:fp16,megatron:fp16,keras:mixed_float16
tiny=(--data synthetic --steps 3 --rounds 1 --batch 8 --no-plots --no-floor --quiet)
run "${tiny[@]}" --net resnet8 --levels "$levels" --out "$work/r/result.json"
expect_rc 0 "every level trains"
follows_schema "$work/r/result.json" "every level"
expect_text "$work/r/result.json" '"eval_limit": 24' "a short run evaluates as many samples as it trains on"
expect_text "$work/out" "acc.: accuracy on 24 samples of the test set" "a short run says what it evaluated"
expect_text "$work/r/result.json" '"level": "keras:mixed_float16"' "every level is recorded"

run plan --net resnet8 --level O3 --to 'stem.conv=fp32,stage2=half'
expect_rc 0 "a layer of its own format"
expect_text "$work/out" "stem.conv        fp32 -> fp32" "a layer of its own format"
run "${tiny[@]}" --net resnet8 --levels O0,O2,O3 --to 'stage1.*.conv1=half,fc=fp32' \
    --out "$work/t/result.json"
expect_rc 0 "islands train"
expect_text "$work/t/result.json" '"to": "stage1.*.conv1=half,fc=fp32"' "overrides are recorded"
follows_schema "$work/t/result.json" "islands"
run plan --net lenet5 --level O2 --set enabled=False
expect_rc 0 "enabled=False"
expect_text "$work/out" "casts a step: 0 of activations, 0 of weights" "enabled=False casts nothing"

run "${tiny[@]}" --net resnet8 --levels O0,O3 --freeze-bn --out "$work/f/result.json"
expect_rc 0 "frozen batch norms train"
run "${tiny[@]}" --net resnet8 --levels O2 --freeze-bn --out "$work/g/result.json"
expect_rc 0 "fp32 batch norms of a half model train frozen"
run "${tiny[@]}" --net resnet8 --levels O2,O3 --half bf16 --set batch_norm_statistics=half \
    --out "$work/b/result.json"
expect_rc 0 "batch-norm statistics in half"
follows_schema "$work/b/result.json" "batch-norm statistics in half"
expect_text "$work/b/result.json" '"batch_norm_statistics": "bf16"' "the format of statistics is recorded"

cat >"$work/two.json" <<'EOF'
{"format": "ampbench-net-1", "name": "two", "input": {"height": 28, "width": 28, "channels": 1},
 "ops": [{"name": "flat", "op": "flatten"}, {"name": "fc1", "op": "linear", "out_features": 24},
  {"name": "act", "op": "relu"},
  {"name": "fc", "op": "linear", "out_features": 10}, {"name": "ce", "op": "cross_entropy", "in": "fc"},
  {"name": "squares", "op": "square", "in": "act"}, {"name": "penalty", "op": "mean"}],
 "losses": ["ce", {"op": "penalty", "weight": 1e7}]}
EOF
run "${tiny[@]}" --net "$work/two.json" --levels O0,O1,O2 --lr 1e-9 --set num_losses=2 \
    --out "$work/n/result.json"
expect_rc 0 "a scaler for each loss"
follows_schema "$work/n/result.json" "a scaler for each loss"
expect_text "$work/out" \
    "O2:num_losses=2 dynamic: loss scales: ce 65536 to 65536 (0 overflows); penalty 65536 to" "the table"
expect_text "$work/out" "penalty 65536 to 16384 (3 overflows)" "the table"
run "${tiny[@]}" --net lenet5 --levels O0,O2,O3 --scales adaloss --out "$work/a/result.json"
expect_rc 0 "a scale for each layer"
follows_schema "$work/a/result.json" "a scale for each layer"
expect_text "$work/out" "O3 adaloss: layer scales: conv1 " "the table"
refused "so that scaler would never be used" "${tiny[@]}" --net lenet5 --set num_losses=2
refused "a scaler per loss is apex's; torch:autocast divides" "${tiny[@]}" --net lenet5 \
    --levels torch:autocast --set num_losses=2
refused "divides gradients after its update" "${tiny[@]}" --net "$work/two.json" --levels O2 \
    --scales deepspeed --set num_losses=2
refused "not where losses have scales of their own" "${tiny[@]}" --net "$work/two.json" --levels O2 \
    --set num_losses=2 --shadow-every 1
refused "its range is that of fp16" "${tiny[@]}" --net lenet5 --levels O2 --half bf16 --scales adaloss
refused "cannot be summed" "${tiny[@]}" --net lenet5 --levels O2 --scales adaloss \
    --gradient-accumulation-steps 2
refused "network lenet5 has no batch norms" "${tiny[@]}" --net lenet5 --levels O2 \
    --set batch_norm_statistics=half
refused "--freeze-bn: network lenet5 has no batch norms" "${tiny[@]}" --net lenet5 --freeze-bn
refused "did you mean 'conv1'?" "${tiny[@]}" --net lenet5 --to conv7=fp32
refused "no layer of lenet5 matches 'block.*.attn'" "${tiny[@]}" --net lenet5 --to 'block.*.attn=fp32'
refused "expected fp32, half or fp16" "${tiny[@]}" --net lenet5 --to conv1=int8
refused "did you mean 'torch:autocast'?" "${tiny[@]}" --net lenet5 --levels torch:autocst
refused "at torch:autocast the weights are fp32 already" "${tiny[@]}" --net lenet5 --levels torch:autocast \
    --set master_weights=True
refused "may override only cast_model_type" "${tiny[@]}" --net lenet5 --levels mindspore:O2 \
    --set master_weights=True

finish
