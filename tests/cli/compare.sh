# `ampbench compare`: seeds and equivalence; traces and the first divergence.
. "$AMPBENCH_SOURCE/tests/cli/lib/cli.sh"
cd "$work" || exit 1
base="--data synthetic --net mlp --batch 16 --threads 1 --no-plots --quiet --rounds 1"

# train FILE OPTION...
train() {
    local file=$1
    shift
    # shellcheck disable=SC2086
    run run $base --out "$file" "$@"
}

# ---- seeds -------------------------------------------------------------------------------------------------
train seeds.json --steps 40 --levels O0,O2 --seeds 5 --eval-limit 0
expect_rc 0 "five seeds"
follows_schema seeds.json "five seeds"
for seed in 1 2 3 4 5; do
    expect_text seeds.json "mlp/O2/dynamic/fp16/cpu/seed$seed\"" "a cell for seed $seed"
done
train two.json --steps 40 --levels O2,O0 --seeds 2 --no-floor
digests seeds.json | grep 'seed2 ' | sort >first.txt
digests two.json | grep 'seed2 ' | sort >second.txt
cmp -s first.txt second.txt || fail "a seed is another one among five: $(cat first.txt second.txt)"
[ "$(digests seeds.json | cut -d' ' -f2 | sort -u | wc -l)" = 14 ] || fail "two cells gave the same losses"
checks=$((checks + 2))
run compare seeds.json
expect_rc 0 "equivalence"
expect_text out "mlp/O2/dynamic/fp16/cpu" "equivalence"
expect_text out "over 5 seeds the final loss changes by" "equivalence"
expect_text out "margin" "equivalence"
expect_text out "the power to find equivalence is" "equivalence"
run compare seeds.json --json equivalence.json
follows_schema equivalence.json "equivalence" equivalence
run compare seeds.json --margin 1e-9
expect_text out "cannot tell" "a margin that no 5 seeds can show"
train three.json --steps 40 --levels O0,O2 --no-floor
run compare three.json
expect_text out "1 seed says nothing about others" "one seed"
run compare seeds.json seeds.json --json -
expect_text out '"verdict": "equivalent"' "a result against itself"
train resumed.json --steps 40 --levels O0,O2 --seeds 2
run run $base --resume --out resumed.json --seeds 3
expect_rc 2 "resuming with other seeds"

# ---- traces ------------------------------------------------------------------------------------------------
train a.json --steps 4 --levels O0,O2,O3 --trace --probes trace
follows_schema a.json "a traced run"
train b.json --steps 4 --levels O0,O2,O3 --trace --probes trace --no-floor
run compare a.json b.json --trace
expect_rc 0 "the same run twice"
[ "$(grep -c 'identical: all' out)" = 3 ] || fail "the same run twice: $(cat out)"
run compare a.json --trace --json levels.json
follows_schema levels.json "levels against O0" divergence
expect_rc 0 "levels against O0"
[ "$(grep -c 'only rounding' out)" = 2 ] || fail "sound levels diverge: $(cat out)"
train untraced.json --steps 4 --levels O0,O2,O3 --no-floor --probe-every 2
digests b.json >first.txt
digests untraced.json >second.txt
cmp -s first.txt second.txt || fail "tracing changed a loss"

train lr.json --steps 4 --levels O0 --trace --probes trace --lr 0.06
run compare a.json lr.json --trace --json lr-trace.json
follows_schema lr-trace.json "another learning rate" divergence
expect_text out "diverged at step 1 in fc1" "another learning rate shows after the first update"
train seed.json --steps 4 --levels O0 --trace --probes trace --normalize unit
run compare a.json seed.json --trace
expect_text out "diverged at step 0 in flatten.in (forward of flatten)" "other inputs show in the input"
train large.json --steps 4 --levels O2 --scales 16777216 --trace --probes trace --no-floor
run compare a.json large.json --trace
expect_text out "finite in one and not in the other" "a scale that overflows"
train path.json --steps 4 --levels O0 --trace --probes trace --cpu-path reference --no-floor
run compare a.json path.json --trace
expect_text out "only rounding" "another order of sums"
run compare a.json untraced.json --trace
expect_rc 2 "no trace"
expect_text err "ampbench run --trace" "no trace"

# ---- bad input ---------------------------------------------------------------------------------------------
run compare
expect_rc 2 "no result"
run compare seeds.json --margin much
expect_rc 2 "a margin that is no number"
run compare seeds.json --trase
expect_text err "did you mean '--trace'" "a mistyped option"
train only.json --steps 4 --levels O0 --no-floor
run compare only.json
expect_rc 6 "nothing beside O0"
run run --seeds 0
expect_rc 2 "no seeds"

finish
