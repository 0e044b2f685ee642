#!/usr/bin/env bash
# Memory: a plan of any network needs next to none; a run whose tensors cannot fit is refused beforehand, by
# numbers; a run that fails for lack of memory ends with status 2 and the sizes.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1

# limited KIB ARGS...: run with an address space and data of so many KiB.
limited() {
    local kib=$1
    shift
    (
        ulimit -v "$kib" -d "$kib" || exit 99
        exec "$AMPBENCH" "$@"
    ) >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}

# net NAME WIDTH: a perceptron with hidden layers of WIDTH and 65536.
net() {
    cat >"$1.json" <<NET
{"format": "ampbench-net-1", "name": "$1", "input": {"height": 28, "width": 28, "channels": 1},
 "defaults": {"optimizer": "momentum", "lr": 0.1, "batch": 64, "epochs": 1},
 "ops": [{"name": "flatten", "op": "flatten"},
 {"name": "fc1", "op": "linear", "out_features": 65536}, {"name": "relu1", "op": "relu"},
 {"name": "fc2", "op": "linear", "out_features": $2}, {"name": "relu2", "op": "relu"},
 {"name": "head", "op": "linear", "out_features": 10}, {"name": "loss", "op": "cross_entropy"}]}
NET
}
net monster 16777216
net large 65536

for planned in gpt2_124m resnet50 monster.json "monster.json --batch 50000"; do
    # shellcheck disable=SC2086
    limited 196608 plan --net $planned --device cpu --threads 1
    expect_rc 0 "plan of $planned in 192 MiB"
    expect_text out "bytes by category" "plan of $planned"
done
limited 196608 plan --net monster.json --batch 50000 --level O0 --device cpu --threads 1
# ten biases take 64 bytes
weights=$((4 * (784 * 65536 + 65536 + 65536 * 16777216 + 16777216 + 10 * 16777216) + 64))
expect_text out "weights                $weights " "bytes beyond 2^40"

limited 196608 plan --net monster.json --batch 16777216 --device cpu --threads 1
expect_rc 2 "a tensor of more than 2^40 elements"
expect_text err "op 'fc2': expected an output of 1 to 2^40 elements, found [16777216, 16777216]" \
    "its op is named"

few=(--data synthetic --steps 1 --rounds 1 --levels O0 --no-floor --no-plots --quiet --device cpu --threads 1
    --out result.json)
limited 1048576 run --net large.json "${few[@]}"
expect_rc 2 "tensors that cannot fit"
expect_text err \
    "large/O0/1/fp16/cpu/seed1: the tensors of its plan need 49829.2 MiB (most: weights, 16583.0 MiB)" \
    "what is needed"
expect_text err "RLIMIT_" "the limit"
expect_text err "not even a batch of 1 fits" "what to change"
[ ! -e result.json ] || fail "a refused run wrote a document"
limited 524288 run --net lenet5 --batch 10000 "${few[@]}"
expect_rc 2 "a batch that cannot fit"
expect_text err "--batch " "a batch that fits"
limited 1048576 diagnose --run --net large.json "${few[@]}"
expect_rc 2 "diagnose --run"
expect_text err "the tensors of its plan need" "diagnose --run"
limited 1048576 fit --net large.json --level O0 --data synthetic --memory-limit 40GiB --device cpu
expect_rc 2 "fit above what is left"
expect_text err "--memory-limit: 40960.0 MiB are more than the" "fit"

limited 1048576 run --net large.json "${few[@]}" --no-memory-check
expect_rc 2 "memory that ran out"
expect_text err "1 of 1 cells ran out of memory; large/O0/1/fp16/cpu/seed1: " "which cell"
expect_text err "cannot allocate 17179869184 bytes on cpu" "the sizes"
expect_text err "its plan has " "the sizes of the plan"
run run --net mlp --batch 2 "${few[@]}"
expect_rc 0 "a run that fits"
finish
