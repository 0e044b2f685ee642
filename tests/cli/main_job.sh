# The main job, small: the table is printed, every document follows the schema and reports to the same table,
# --json - prints nothing but JSON, and what goes wrong in a cell stays in the cell.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
small=(--net mlp --data synthetic --steps 12 --batch 16 --eval-limit 200 --probe-every 4)

# ---- the whole grid ----------------------------------------------------------------------------------------
result=$work/grid/result.json
run --levels O0,O1,O2,O3 --scales default,1,128.0,dynamic "${small[@]}" --rounds 2 --out "$result" \
    --csv "$work/grid.csv" --markdown "$work/grid.md"
expect_rc 0 "the grid"
cp "$work/out" "$work/table"
for text in "mlp on synthetic" "O0 " "O1 " "O2 " "O3 " "O0+ulp" "O0+rounding" "±ulp|rounding" dynamic " 128 "
do expect_text "$work/table" "$text" "the table"; done
expect_text "$work/err" "mlp/O2/dynamic/fp16/cpu/seed1" "progress names the cells"
expect_text "$work/err" "result in $result" "the run says where the result is"
# a build that is slower than a release says so beside its speeds
if grep -qE '"build_type":\s*"Debug"|-fsanitize=|"onednn_version":\s*null' "$result"; then
    expect_text "$work/table" ": a release build with oneDNN is faster" "the table of a slow build"
    if grep -q "samples/s" "$work/err"; then # a cell that is done at once prints no speed
        expect_text "$work/err" "samples/s (a " "progress of a slow build"
    fi
else
    expect_no_text "$work/table" "speeds of a" "the table of a release build"
    expect_no_text "$work/err" "samples/s (a " "progress of a release build"
fi
grep -q $'\r' "$work/err" && fail "progress is redrawn although stderr is no terminal"
follows_schema "$result" "the grid's document"
expect_text "$result" '"complete"' "the document"
run report "$result"
expect_rc 0 "report"
cmp -s "$work/out" "$work/table" || fail "the report differs from the table of the run"
# O1 to O3 with default, 1, 128, dynamic: default is one of the others, so 9 cells; O0; both floors twice
rows=$(csv_columns "$work/grid.csv" id status deterministic steps_total)
[ "$(wc -l <<<"$rows")" = 14 ] || fail "expected 14 cells, found: $rows"
[ "$(grep -c ' ok true 12$' <<<"$rows")" = 10 ] || fail "cells not ok, deterministic and whole: $rows"
for twin in ulp ulp2 rounding rounding2; do grep -q "^mlp/O0/1/fp16/cpu/seed1/$twin ok  12\$" <<<"$rows" ||
    fail "the $twin floor runs once: $rows"; done
# a floor's further draws are only losses
evaluated=$(csv_columns "$work/grid.csv" id test_accuracy test_loss)
for twin in ulp rounding; do
    grep -q "seed1/$twin [0-9.]* [0-9.]*\$" <<<"$evaluated" ||
        fail "the $twin floor has no accuracy: $evaluated"
    grep -q "seed1/${twin}2 *\$" <<<"$evaluated" || fail "a further draw was evaluated: $evaluated"
done
grep -q '^|.*O2' "$work/grid.md" || fail "no Markdown table"
[ -d "$work/grid/plots" ] || fail "no plots beside the result"
compgen -G "$work/grid/plots/*.gp" >/dev/null || fail "no gnuplot scripts kept"
if command -v gnuplot >/dev/null; then compgen -G "$work/grid/plots/*.png" >/dev/null ||
    fail "no pictures"; fi
run report "$result" --csv "$work/again.csv" --markdown "$work/again.md"
cmp -s "$work/grid.csv" "$work/again.csv" || fail "CSV of the report differs from that of the run"
cmp -s "$work/grid.md" "$work/again.md" || fail "Markdown of the report differs from that of the run"

# ---- JSON alone --------------------------------------------------------------------------------------------
run run --levels O0,O2 "${small[@]}" --rounds 1 --json - --no-plots --out "$work/json/result.json"
expect_rc 0 "--json -"
cp "$work/out" "$work/stdout.json"
follows_schema "$work/stdout.json" "stdout of --json -"
cmp -s "$work/stdout.json" "$work/json/result.json" || fail "--json - differs from --out"
[ -d "$work/json/plots" ] && fail "--no-plots made plots"
# quiet is silent, and changes no result
run --levels O0,O2 "${small[@]}" --rounds 1 --no-plots --quiet --out "$work/quiet/result.json"
expect_rc 0 "--quiet"
[ -s "$work/err" ] && fail "--quiet wrote to stderr: $(cat "$work/err")"
[ "$(digests "$work/json/result.json")" = "$(digests "$work/quiet/result.json")" ] ||
    fail "--quiet changed a loss"

# ---- other settings end well and are recorded --------------------------------------------------------------
# variant NAME ARGS...
variant() {
    local name=$1
    shift
    run "${small[@]}" --rounds 1 --no-plots --out "$work/$name/result.json" "$@"
    expect_rc 0 "$name"
    follows_schema "$work/$name/result.json" "$name"
    digests "$work/$name/result.json" >"$work/$name/digests"
}
variant bf16 --half fp16,bf16 --levels O0,O2 --no-floor
[ "$(wc -l <"$work/bf16/digests")" = 3 ] || fail "two formats at O2, and O0 once, are three cells"
variant shuffled --order shuffled --normalize unit --levels O1 --seed 7
variant adam --optimizer adam --lr 0.002 --weight-decay 0.01 --levels O3 --scales 1024
variant reference --cpu-path reference --levels O0,O3 --threads 1
variant accumulate --accumulate half --levels O2 --steps 2
expect_text "$work/accumulate/result.json" '"emulated"' "emulated arithmetic is recorded"
variant overridden --set master_weights=False --set loss_scale=64 --levels O2
variant dynamic --levels O2 --max-loss-scale 256 --min-loss-scale 2 --scale-window 3
variant directory --data "$AMPBENCH_SOURCE/tests/golden/data" --net lenet5 --levels O0,O2 --steps 3
variant nothing --steps 0 --levels O0,O2
variant saved --levels O0 --no-floor --save-weights "$work/w.safetensors"
variant initial --levels O0,O2 --init "$work/w.safetensors"
variant sevenths --levels O0 --no-floor --save-weights "$work/%c.safetensors"
[ -s "$work/mlp-O0-1-fp16-cpu-seed1.safetensors" ] || fail "%c did not become the cell's id"
cmp -s "$work/w.safetensors" "$work/mlp-O0-1-fp16-cpu-seed1.safetensors" ||
    fail "the same cell saved other weights"

# ---- a cell that fails -------------------------------------------------------------------------------------
run --net mlp --data synthetic --levels O0 --no-floor --rounds 1 --steps 100000000 --cell-timeout 1 \
    --no-plots \
    --out "$work/timeout/result.json"
expect_rc 1 "a cell that takes too long"
follows_schema "$work/timeout/result.json" "a failed cell"
expect_text "$work/timeout/result.json" "longer than --cell-timeout" "a failed cell says why"
expect_text "$work/err" "1 of 1 cells failed" "a failed cell"
run report "$work/timeout/result.json"
expect_rc 0 "report of a failed cell"

# ---- the other commands ------------------------------------------------------------------------------------
for command in help --help --version "run --help" "plan --help" "list --help" "env --help" "report --help" \
    list env formats \
    "plan --net lenet5 --level O1" "plan --net resnet8 --levels O0,O1,O2,O3 --verbose --batch 8" \
    "list nets levels"; do
    # shellcheck disable=SC2086 # words
    run $command
    expect_rc 0 "$command"
    [ -s "$work/out" ] || fail "$command printed nothing"
    [ -s "$work/err" ] && fail "$command wrote to stderr: $(head -c 200 "$work/err")"
done
run plan --net lenet5 --level O2 --data synthetic
for text in "keep_batchnorm_fp32=True" "bytes by category" "master_weights" "fp32 -> fp16"; do expect_text \
    "$work/out" "$text" plan; done

finish
