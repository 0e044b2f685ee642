#!/usr/bin/env bash
# `ampbench advise`: a scale from a real run's record, confirmed by another run; an answer where there is
# none; bad input.
. "$(dirname "$0")/lib/cli.sh"

run run --net mlp --data synthetic --levels O0,O2 --lr 0.05 --steps 120 --probe-every 2 --rounds 1 \
    --threads 1 --no-floor --no-plots \
    --quiet --eval-limit 10 --out "$work/result.json"
expect_rc 0 "the run"
run advise "$work/result.json" --confirm --overflow 0.02 --json "$work/advice.json" \
    --out "$work/new/advise.json"
expect_rc 0 "advice with a receipt"
expect_text "$work/out" "advised: --scales" "the advice"
expect_text "$work/out" "confirmed by a run" "the receipt"
expect_text "$work/advice.json" '"overflow_agrees": true' "the receipt as JSON"
expect_text "$work/out" "peaks over threshold" "laws side by side"
expect_text "$work/out" "others' rules on the same gradients" "other tools' rules"
expect_text "$work/out" "a fixed scale lasts" "fixed or dynamic"
"$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/advice-2.schema.json" \
    "$work/advice.json" 2>"$work/why" ||
    fail "the advice does not follow its schema: $(cat "$work/why")"
[ -s "$work/new/advise.json" ] || fail "the confirming run left no result"
follows_schema "$work/new/advise.json" "the confirming run's result"

# Several levels in one go, each as it is alone; one without a scale fails the command, after all of them.
run run --net mlp --data synthetic --levels O0,O1,O3 --lr 0.05 --steps 60 --probe-every 2 --rounds 1 \
    --threads 1 --no-floor --no-plots --quiet --eval-limit 10 --out "$work/levels.json"
for level in O1 O3; do
    run advise "$work/levels.json" --level "$level" --overflow 0.02
    expect_rc 0 "advice for $level"
    cp "$work/out" "$work/$level.txt"
done
run advise "$work/levels.json" --level all --overflow 0.02 --json "$work/levels-advice.json"
expect_rc 0 "advice for all levels"
{ echo O1; cat "$work/O1.txt"; echo; echo O3; cat "$work/O3.txt"; } | cmp -s - "$work/out" ||
    fail "advice for all levels is not that for each"
[ "$(grep -c '"schema": *"ampbench-advice"' "$work/levels-advice.json")" = 2 ] ||
    fail "two pieces of advice as JSON"
run advise "$work/levels.json" --level O3,O1 --flushed 0.000001
expect_rc 4 "no scale works at two levels"
expect_text "$work/err" "advise: O3: no loss scale works" "the first level without a scale"
[ "$(grep -c 'no loss scale works' "$work/out")" = 2 ] || fail "both levels are advised"
run advise "$work/levels.json" --level O1, --overflow 0.02
expect_rc 2 "an empty level"
run advise "$work/levels.json" --level O1,O3 --confirm --out "$work/two.json"
expect_rc 2 "one file for two runs"

# Gradients that one scale cannot hold: the strict rule asks for every value of the softmax's gradient.
run advise "$work/result.json" --flushed 0.000001
expect_rc 4 "no scale works"
expect_text "$work/out" "no loss scale works for fp16: fc3.out.grad" "which tensor decides"
expect_text "$work/out" "remedy: --half bf16" "the remedy"

"$AMPBENCH" advise "$work/result.json" --flushed 0.000001 --json - >"$work/none.json" 2>/dev/null
"$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/advice-2.schema.json" \
    "$work/none.json" 2>"$work/why" ||
    fail "advice without a scale does not follow its schema: $(cat "$work/why")"

# Fewer than 16 columns of steps: a wider spread, and the advice says so; below 6 none. A default record has
# enough.
options="--net mlp --data synthetic --levels O0 --lr 0.05 --rounds 1 --threads 1 --no-floor --no-plots"
options="$options --quiet --eval-limit 10"
# shellcheck disable=SC2086 # a list of options
run run $options --steps 100 --probe-every 10 --out "$work/few.json"
run advise "$work/few.json" --json "$work/few-advice.json"
expect_rc 0 "advice from 10 columns"
expect_text "$work/out" "few steps: their spread may be larger" "advice from 10 columns"
expect_text "$work/few-advice.json" '"spread_widened"' "advice from 10 columns"
"$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/advice-2.schema.json" \
    "$work/few-advice.json" 2>"$work/why" ||
    fail "advice from 10 columns does not follow its schema: $(cat "$work/why")"
# shellcheck disable=SC2086
run run $options --steps 40 --probe-every 10 --out "$work/fewer.json"
run advise "$work/fewer.json"
expect_rc 2 "advice from 4 columns"
expect_text "$work/err" "expected gradients of 6 steps or more, found 4" "advice from 4 columns"
# shellcheck disable=SC2086
run run $options --steps 640 --out "$work/usual.json"
run advise "$work/usual.json"
expect_rc 0 "advice from a default record"

# A scale of one's own: what it flushes is predicted and found again.
run advise "$work/result.json" --scale 1 --confirm
expect_rc 0 "a receipt for a scale of one's own"
expect_text "$work/out" "predicted at 2^0" "which scale was predicted"

# Rows of weights have a say where they were recorded.
run run --net mlp --data synthetic --levels O0 --lr 0.05 --steps 40 --probes gradients,rows --probe-every 1 \
    --rounds 1 --threads 1 --no-floor --no-plots \
    --quiet --eval-limit 10 --out "$work/rows.json"
expect_rc 0 "a run that records rows"
follows_schema "$work/rows.json" "a result with rows"
run advise "$work/rows.json" --json "$work/rows-advice.json"
expect_rc 0 "advice from rows"
expect_text "$work/rows-advice.json" '"rows_recorded": true' "advice from rows"
run advise "$work/result.json"
expect_text "$work/out" "--probes default,rows" "how to record rows"

run advise "$work/result.json" --scale 0
expect_rc 2 "a scale of 0"
for horizon in soon 0 0.5 2.5 -3 2^54; do
    run advise "$work/result.json" --horizon "$horizon"
    expect_rc 2 "a horizon of $horizon"
    expect_text "$work/err" "a whole number of steps from 1 to 2^53" "a horizon of $horizon"
done
run advise "$work/result.json" --overflow 2
expect_rc 2 "a probability above 1"
run advise "$work/result.json" --frobnicate
expect_rc 2 "an unknown option"
run advise
expect_rc 2 "no document"
run run --net mlp --data synthetic --levels O2 --steps 20 --probe-budget 0 --rounds 1 --no-plots --quiet \
    --eval-limit 10 --out "$work/bare.json"
run advise "$work/bare.json"
expect_rc 2 "a record without gradients"
expect_text "$work/err" "run with --levels O0,O2" "what to run instead"
finish
