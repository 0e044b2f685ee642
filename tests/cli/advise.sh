#!/usr/bin/env bash
# `ampbench advise`: a scale from a real run's record, confirmed by another run; an answer where there is none; bad input.
. "$(dirname "$0")/lib/cli.sh"

run run --net mlp --data synthetic --levels O0,O2 --lr 0.05 --steps 120 --probe-every 2 --rounds 1 --threads 1 --no-floor --no-plots \
    --quiet --eval-limit 10 --out "$work/result.json"
expect_rc 0 "the run"
run advise "$work/result.json" --confirm --overflow 0.02 --json "$work/advice.json"
expect_rc 0 "advice with a receipt"
expect_text "$work/out" "advised: --scales" "the advice"
expect_text "$work/out" "confirmed by a run" "the receipt"
expect_text "$work/advice.json" '"overflow_agrees": true' "the receipt as JSON"
[ -s "$work/advise.json" ] || fail "the confirming run left no result"
follows_schema "$work/advise.json" "the confirming run's result"

# Gradients that one scale cannot hold: the strict rule asks for every value of the softmax's gradient.
run advise "$work/result.json" --flushed 0.000001
expect_rc 4 "no scale works"
expect_text "$work/out" "no loss scale works for fp16: fc3.out.grad" "which tensor decides"
expect_text "$work/out" "remedy: --half bf16" "the remedy"

run advise "$work/result.json" --overflow 2
expect_rc 2 "a probability above 1"
run advise "$work/result.json" --frobnicate
expect_rc 2 "an unknown option"
run advise
expect_rc 2 "no document"
run run --net mlp --data synthetic --levels O2 --steps 20 --probe-budget 0 --rounds 1 --no-plots --quiet --eval-limit 10 --out "$work/bare.json"
run advise "$work/bare.json"
expect_rc 2 "a record without gradients"
expect_text "$work/err" "run with --levels O0,O2" "what to run instead"
finish
