# Texts that are longer than anybody expected: taken whole or refused by name, never cut without a word. A
# cell is told from another by its configuration, not by its name.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
base=(--net mlp --data synthetic --steps 2 --batch 8 --rounds 1 --levels O2 --no-floor --no-plots --quiet \
    --eval-limit 1)

# repeated TEXT COUNT
repeated() { printf "%.0s$1" $(seq "$2"); }

# refused "TEXT" ARGS...: before anything is trained, in one line.
refused() {
    local text=$1
    shift
    run "$@"
    expect_rc 2 "${text}: $(printf '%.60s ' "$@")"
    checks=$((checks + 1))
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$text: not one line on stderr: $(head -c 800 "$work/err")"
    expect_text "$work/err" "$text" "$text"
}

# ---- loss scales: behind byte 160, 300 and 3,000 the last key still counts ---------------------------------
for count in 9 20 220; do
    scale="deepspeed:init=1024$(repeated ,delayed_shift=2 "$count"),loss_scale_window=2000"
    run run "${base[@]}" --scales "$scale" --out "$work/scale/result.json"
    expect_rc 0 "a scale text of ${#scale} bytes"
    expect_text "$work/scale/result.json" '"scale_policy": "deepspeed:init=1024,window=2000,hysteresis=2"' \
        "${#scale} bytes"
done
refused "item too long: expected at most 63 characters" run "${base[@]}" \
    --scales "torch:init=$(repeated 1 300)" --out "$work/no/result.json"
refused "..." run "${base[@]}" --scales "$(repeated x 3000)" --out "$work/no/result.json"

# ---- cells that differ behind byte 160 alone, and cells that differ in their spelling alone ----------------
same="deepspeed:init=1024$(repeated ,delayed_shift=2 12),raise_error_at_min_scale"
run run "${base[@]}" --scales "$same=True,$same=False,torch,torch:init=65536" --out "$work/two/result.json"
expect_rc 0 "cells that differ late"
follows_schema "$work/two/result.json" "cells that differ late"
checks=$((checks + 1))
[ "$(grep -c '"config_digest"' "$work/two/result.json")" = 3 ] ||
    fail "expected three cells: $(grep '"id"' "$work/two/result.json")"
expect_text "$work/two/result.json" 'raises=True/fp16/cpu/seed1"' "cells that differ late"
expect_text "$work/two/result.json" 'raises=False/fp16/cpu/seed1"' "cells that differ late"

# Another spelling of a configuration is the same cell to the gate and to --resume.
run run "${base[@]}" --scales torch --out "$work/base.json"
expect_rc 0 "one spelling"
run run "${base[@]}" --scales torch:init=65536 --out "$work/new.json"
expect_rc 0 "another spelling"
run gate "$work/base.json" "$work/new.json"
expect_no_text "$work/out" "missing: the base has this cell" "two spellings of a configuration"
expect_no_text "$work/out" "new: the base has no such cell" "two spellings of a configuration"

# A document without digests is read as before; one with a digest twice is not.
sed '/"config_digest"/d' "$work/two/result.json" >"$work/old.json"
run report "$work/old.json"
expect_rc 0 "a document without digests"
run gate "$work/old.json" "$work/two/result.json"
expect_no_text "$work/out" "no such cell" "a document without digests"
sed 's/"config_digest":.*/"config_digest": "0123456789abcdef",/' "$work/two/result.json" >"$work/twice.json"
run report "$work/twice.json"
expect_rc 2 "a digest twice"
expect_text "$work/err" 'two cells have the config_digest "0123456789abcdef"' "a digest twice"

# ---- layers: --to goes whole into checkpoints --------------------------------------------------------------
layers=$(repeated fc1=fp32, 30)
run run "${base[@]}" --to "${layers}fc2:dgrad=fp32" --checkpoint-every 2 --out "$work/to/result.json"
expect_rc 0 "a --to of ${#layers} bytes and more"
run run "${base[@]}" --steps 4 --to "${layers}fc3:dgrad=fp32" \
    --resume-from "$work/to/checkpoint-%c.safetensors" --out "$work/to2/result.json"
checks=$((checks + 1))
[ "$rc" != 0 ] || fail "a checkpoint of other layers was taken"
expect_text "$work/err" "fc2:dgrad=fp32 there and ..." "a checkpoint of other layers"
expect_text "$work/err" "fc3:dgrad=fp32 here" "a checkpoint of other layers"
refused "expected LAYER=FORMAT of at most" plan --net mlp --levels O2 --to "$(repeated x 3000)=fp32"

# ---- paths -------------------------------------------------------------------------------------------------
long=$(repeated /abcdefghi 500)
refused "--out: expected a path of less than 4096 bytes" run "${base[@]}" --out "$work$long/result.json"
refused "--checkpoint: expected a path of less than 4096 bytes" run "${base[@]}" --checkpoint-every 1 \
    --checkpoint "$work$long/%c.st" --out "$work/no/result.json"
refused "--save-weights: expected a path of less than 4096 bytes" run "${base[@]}" \
    --save-weights "$work$long/%c.st" --out "$work/no/result.json"
refused "--resume-from: expected a path of less than 4096 bytes" run "${base[@]}" \
    --resume-from "$work$long/%c.st" --out "$work/no/result.json"
refused "/abcdefghi" run "${base[@]}" --net "$work$long/net.json" --out "$work/no/result.json"
refused "/abcdefghi" run "${base[@]}" --data "$work$long" --out "$work/no/result.json"
# 600 bytes: more than any fixed text, less than a path may have
deep="$work$(repeated /abcdefghijklmnopqrs 30)"
mkdir -p "$deep"
cp "$AMPBENCH_SOURCE/tests/golden/tiny.json" "$deep/net.json"
run run "${base[@]}" --net "$deep/net.json" --data "$AMPBENCH_SOURCE/tests/golden/data" \
    --out "$deep/result.json"
expect_rc 0 "paths of ${#deep} bytes"
expect_text "$deep/result.json" "$deep/net.json" "paths of ${#deep} bytes"
cp -r "$AMPBENCH_SOURCE/tests/golden/data" "$deep/data"
run run "${base[@]}" --net "$deep/net.json" --data "$deep/data" --out "$work/deep.json"
expect_rc 0 "a data path of ${#deep} bytes"
expect_text "$work/deep.json" "\"origin\": \"$deep/data\"" "a data path of ${#deep} bytes"

# ---- option values and documents from somebody else --------------------------------------------------------
refused "..." run "${base[@]}" --optimizer "$(repeated y 3000)" --out "$work/no/result.json"
refused "..." run "${base[@]}" --set "$(repeated z 3000)=1" --out "$work/no/result.json"
word=$(repeated w 3000)
sed -e "s|\"reason\": null|\"reason\": \"$word\"|; s|/torch/|/$word/|" \
    -e "s|\"scale_policy\": \"[^\"]*\"|\"scale_policy\": \"$word\"|" \
    "$work/two/result.json" >"$work/foreign.json"
for form in table markdown github; do
    run report "$work/foreign.json" --format "$form"
    checks=$((checks + 1))
    [ "$rc" = 0 ] || [ "$rc" = 2 ] ||
        fail "a foreign document as $form: exit status $rc: $(head -c 300 "$work/err")"
done
run report "$work/foreign.json" --csv "$work/foreign.csv"
expect_rc 0 "a foreign document as CSV"
expect_text "$work/foreign.csv" "$word" "a CSV holds whole texts"
run diagnose "$work/foreign.json" --exit-zero
expect_rc 0 "diagnosing a foreign document"
expect_text "$work/out" "w..." "a long name is marked as cut"
finish
