# --checkpoint-every and --resume-from as a user runs them: an interrupted training goes on with the bits of
# one that was not, at every level; mistakes of resuming can be made on purpose; what does not fit is refused
# by name.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
options=(--net tests/golden/tiny.json --data tests/golden/data --levels O0,O1,O2,O3 --scales dynamic \
    --scale-window 7 --rounds 1
    --batch 8 --gradient-accumulation-steps 2 --order shuffled --optimizer adamw \
        --schedule cosine:total=20,warmup=3
    --clip-norm 1 --no-plots --quiet --probe-budget 0)
cd "$AMPBENCH_SOURCE" || exit 1

# train FOLDER ARGS...
train() {
    local folder=$1
    shift
    run run "${options[@]}" --out "$work/$folder/result.json" "$@"
    expect_rc 0 "$folder"
    follows_schema "$work/$folder/result.json" "$folder"
}

train whole --steps 20 --checkpoint-every 20
train first --steps 11 --checkpoint-every 11
train second --steps 20 --checkpoint-every 20 --resume-from "$work/first/checkpoint-%c.safetensors"
files=0
for file in "$work"/whole/checkpoint-*.safetensors; do
    files=$((files + 1))
    checks=$((checks + 1))
    cmp -s "$file" "$work/second/$(basename "$file")" || fail "resumed: $(basename "$file") differs"
done
[ "$files" = 8 ] || fail "expected eight checkpoints, found $files"
expect_text "$work/second/result.json" '"first_step": 11' "the document of a resumed run"

# A mistake on purpose is said aloud and shows.
run run "${options[@]}" --out "$work/wrong/result.json" --steps 20 --checkpoint-every 20 --levels O2 \
    --no-floor \
    --resume-from "$work/first/checkpoint-%c.safetensors" --fault resume_without_optimizer
expect_rc 0 "a mistake on purpose"
expect_text "$work/err" \
    "warning: --fault resume_without_optimizer: a resumed run starts with empty optimizer state" \
    "a mistake on purpose"
o2=$(basename "$work"/whole/checkpoint-*-O2-*.safetensors)
cmp -s "$work/wrong/$o2" "$work/whole/$o2" && fail "a resume without optimizer state ends like one with it"

# What a resumed cell does not hold as it was saved is seen in its bits, not in the option.
run diagnose "$work/wrong/result.json" --exit-zero --verbose
expect_rc 0 "diagnosing a mistake of resuming"
expect_text "$work/out" "known problem lost_on_resume" "a resume without optimizer state"
expect_text "$work/out" "(first taken: 11 saved, 0 used)" "a resume without optimizer state"
run diagnose "$work/second/result.json" --exit-zero
expect_rc 0 "diagnosing a sound resume"
expect_no_text "$work/out" "lost_on_resume" "a sound resume"

# ---- what does not fit -------------------------------------------------------------------------------------
refused() {
    local text=$1
    shift
    run run "${options[@]}" --out "$work/refused/result.json" --steps 20 --levels O2 --no-floor "$@"
    expect_rc 2 "$*"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line on stderr: $(head -c 800 "$work/err")"
    expect_text "$work/err" "$text" "$*"
}
refused "No such file" --resume-from "$work/first/none-%c.safetensors"
refused "has done 11 steps, and --steps asks for 5 in all" \
    --resume-from "$work/first/checkpoint-%c.safetensors" --steps 5
refused "level is O2 there and O1 here" --resume-from "$work/first/$o2" --levels O1
refused "tensors differ from those of network mlp" --resume-from "$work/first/$o2" --net mlp
refused "2 cells would go on from the same file" --resume-from "$work/first/$o2" --levels O1,O2
refused "2 cells would write the same file" --levels O1,O2 --checkpoint-every 3 \
    --checkpoint "$work/x.safetensors"
refused "say how often with --checkpoint-every" --checkpoint "$work/x.safetensors"
refused "would overwrite the files" --resume-from "$work/first/$o2" --checkpoint-every 3 \
    --checkpoint "$work/first/$o2"
refused "mistakes of resuming need --resume-from" --fault resume_without_scaler
finish
