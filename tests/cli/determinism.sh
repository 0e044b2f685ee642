# The same command gives the same losses, bit for bit: run after run, round after round, probed or not,
# whatever else is asked for. A loss digest covers every bit of every loss of a cell.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
data=$AMPBENCH_SOURCE/tests/golden/data

# losses NAME ARGS...: digests of a run with ARGS into $work/NAME.
losses() {
    local name=$1
    shift
    run run --rounds 1 --no-plots --quiet --out "$work/$name.json" "$@"
    expect_rc 0 "$name"
    digests "$work/$name.json" >"$work/$name"
}

# same A B, differ A B: what two runs found.
same() {
    checks=$((checks + 1))
    cmp -s "$work/$1" "$work/$2" || fail "$1 and $2 differ: $(paste -d' ' "$work/$1" "$work/$2")"
}
differ() {
    checks=$((checks + 1))
    cmp -s "$work/$1" "$work/$2" && fail "$1 and $2 are the same"
}

for net in mlp lenet5 resnet8; do
    # the floors' cells are O0 again from other weights: once is enough
    steps=6 floors=(--no-floor)
    [ "$net" = mlp ] && steps=40 floors=(--floor-draws 1)
    case=(--net "$net" --data "$data" --batch 8 --steps "$steps" --levels "O0,O1,O2,O3" --half fp16
        "${floors[@]}")
    for threads in 1 2; do
        losses "$net-$threads" "${case[@]}" --threads $threads
        losses "$net-$threads-again" "${case[@]}" --threads $threads --eval-limit 1 --verbose \
            --order sequential
        losses "$net-$threads-unprobed" "${case[@]}" --threads $threads --probe-every 0
        losses "$net-$threads-probed" "${case[@]}" --threads $threads --probe-every 1
        same "$net-$threads" "$net-$threads-again"
        same "$net-$threads" "$net-$threads-unprobed"
        same "$net-$threads" "$net-$threads-probed"
    done
    # our own kernels split work in blocks that do not depend on the number of threads
    losses "$net-3" "${case[@]}" --threads 3
    same "$net-1" "$net-2"
    same "$net-1" "$net-3"
    losses "$net-reference-1" "${case[@]}" --threads 1 --cpu-path reference --steps 2
    losses "$net-reference-2" "${case[@]}" --threads 2 --cpu-path reference --steps 2
    losses "$net-reference-3" "${case[@]}" --threads 3 --cpu-path reference --steps 2
    same "$net-reference-1" "$net-reference-2"
    same "$net-reference-1" "$net-reference-3"
done

# a cell's losses do not depend on the company it is run in
losses alone --net mlp --data "$data" --batch 8 --steps 40 --levels O2 --threads 1
grep '/O2/' "$work/mlp-1" >"$work/in-company"
same alone in-company

# rounds repeat the losses, and the document says so
run run --net mlp --data "$data" --batch 8 --steps 40 --threads 1 --rounds 3 --no-plots --quiet \
    --floor-draws 1 --out "$work/rounds.json"
expect_rc 0 rounds
digests "$work/rounds.json" >"$work/rounds"
same rounds mlp-1
run report "$work/rounds.json" --csv "$work/rounds.csv"
[ "$(csv_columns "$work/rounds.csv" deterministic | grep -c true)" = 4 ] ||
    fail "not every level was found deterministic"

# rounds that repeat the first steps only find those losses, and the document says how many there were
run run --net mlp --data "$data" --batch 8 --steps 40 --threads 1 --rounds 3 --timed-steps 7 --no-plots \
    --quiet --floor-draws 1 --out "$work/parts.json"
expect_rc 0 "rounds of 7 steps"
follows_schema "$work/parts.json" "rounds of 7 steps"
digests "$work/parts.json" >"$work/parts"
same parts mlp-1
expect_text "$work/out" "3 timing rounds, the later ones of 7 steps" "the table says how long they are"
run report "$work/parts.json" --csv "$work/parts.csv"
[ "$(csv_columns "$work/parts.csv" deterministic | grep -c true)" = 4 ] ||
    fail "not every level was found deterministic in rounds of 7 steps"
[ "$(grep -c '"losses_repeat": true' "$work/parts.json")" = 8 ] ||
    fail "expected 8 rounds of 7 steps that repeat losses"

# the option changes nothing of the training: a schedule over all 40 steps has the same first ones
run run --net mlp --data "$data" --batch 8 --steps 40 --threads 1 --rounds 2 --timed-steps 7 --no-plots \
    --quiet --no-floor --levels O0,O2 --schedule cosine:warmup=5 --out "$work/scheduled.json"
expect_rc 0 "a schedule"
[ "$(grep -c '"losses_repeat": true' "$work/scheduled.json")" = 2 ] ||
    fail "a schedule is not that of all steps"

# and the digest can tell: another seed, order or learning rate is another digest
losses seed --net mlp --data "$data" --batch 8 --steps 40 --threads 1 --seed 2
losses order --net mlp --data "$data" --batch 8 --steps 40 --threads 1 --order shuffled
losses rate --net mlp --data "$data" --batch 8 --steps 40 --threads 1 --lr 0.0500001
sed 's/seed2/seed1/' "$work/seed" >"$work/seed-renamed"
differ seed-renamed mlp-1
differ order mlp-1
differ rate mlp-1

# --flush-denormal holds in every thread: gradients clipped to the smallest normal numbers make averages that
# are zeros, and trained before
tiny=(--net mlp --data "$data" --batch 8 --steps 20 --levels O0,O2 --optimizer adam --eps 1e-37 \
    --clip-value 1.2e-38 --lr 1)
losses kept "${tiny[@]}" --threads 2
losses flushed-1 "${tiny[@]}" --threads 1 --flush-denormal
losses flushed-3 "${tiny[@]}" --threads 3 --flush-denormal
same flushed-1 flushed-3
differ kept flushed-1
run run "${tiny[@]}" --threads 2 --flush-denormal --rounds 1 --no-plots --quiet --out "$work/flushed.json"
expect_rc 0 flushed
follows_schema "$work/flushed.json" flushed
expect_text "$work/flushed.json" '"flush_denormal": true' flushed
expect_text "$work/flushed.json" '"denormals": "flushed"' flushed
run gate "$work/kept.json" "$work/flushed.json"
expect_rc 6 "kept beside flushed"
expect_text "$work/out" "subnormal numbers were zeros in one of them" "kept beside flushed"

finish
