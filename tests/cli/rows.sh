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
awk 'length($0) > 120 { exit 1 }' "$work/r/table" || fail "the table is wider than 120"
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
[ "$(csv_columns "$work/r/result.csv" label | sed -n 4p)" = "$keep" ] || fail "the CSV's column label"
run diagnose "$work/r/result.json"
expect_text "$work/out" "resnet8/$keep/1/fp16/cpu/seed1" "diagnose"
run gate "$work/r/result.json" "$work/r/result.json"
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
