# `ampbench diagnose` of what frameworks saved.
. "$AMPBENCH_SOURCE/tests/cli/lib/cli.sh"
runs=${AMPBENCH_BUILD:?}/tests/checkpoints/runs

# sick PATH... CAUSE: that cause comes first
sick() {
    local cause=${*: -1}
    run diagnose "${@:1:$#-1}" --json "$work/diagnosis.json"
    expect_rc 4 "$*"
    expect_text "$work/out" "  $cause (" "$*"
    follows_schema "$work/diagnosis.json" "$*" diagnosis
}
healthy() {
    run diagnose "$@"
    expect_rc 0 "$*"
    expect_text "$work/out" ": healthy" "$*"
}
healthy "$runs/healthy.pt"
healthy "$runs/trainer/checkpoint-4"
healthy "$runs/trainer/checkpoint-2" "$runs/trainer/checkpoint-4"
healthy "$runs/some_bf16.pt"
expect_text "$work/out" "the next step loses 75 of 225 updates" "lost updates of a healthy run"
healthy "$runs/megatron"
sick "$runs/lost_bf16.pt" weight_update_lost
expect_text "$work/out" "pytorch checkpoint, 1 file: 225 weights in bf16, 0 beyond fp16" "the survey"
expect_text "$work/out" 'torch.autocast("cuda")' "a device that a checkpoint does not name"
ranks=$AMPBENCH_BUILD/tests/distributed/mcore/ranks
healthy "$ranks"
expect_text "$work/out" "megatron checkpoint, 4 files: 2656 weights in bf16" "ranks of Megatron"
sick "$runs/lightning.ckpt" weight_update_lost
sick "$runs/trainer_bf16/checkpoint-4" weight_update_lost
sick "$runs/zero_fp16.pt" optimizer_state_underflow
sick "$runs/accelerate" scale_at_floor
sick "$runs/deepspeed" scale_at_floor
expect_text "$work/out" "8 of 9 steps skipped" "skipped steps"
sick "$runs/apex.pt" scale_at_floor
sick "$runs/trainer_bf16/checkpoint-2" "$runs/trainer_bf16/checkpoint-4" weights_stand_still
expect_text "$work/out" "0 % of 225 trained weights differ after 2 steps" "what moved"

# bad input: one line, exit 2
run diagnose "$runs/healthy.pt" "$AMPBENCH_SOURCE/tests/fixtures/result_tiny.json"
expect_rc 2 "inputs of two kinds"
run diagnose "$runs/healthy.pt" "$runs/healthy.pt" "$runs/healthy.pt"
expect_rc 2 "three checkpoints"
expect_text "$work/err" "expected one checkpoint, or two of one run, found 3" "three checkpoints"
run diagnose "$runs/healthy.pt" --twins
expect_rc 2 "--twins of a checkpoint"
mkdir "$work/empty"
run diagnose "$work/empty"
expect_rc 2 "an empty folder"
finish
