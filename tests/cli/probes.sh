# What --probes, --probe-every and --probe-budget put into the record, and that none of them moves a loss.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
small=(--net mlp --data synthetic --steps 30 --batch 16 --levels "O0,O2,O3" --rounds 1 --eval-limit 100 \
    --no-floor --no-plots --quiet)

# record NAME ARGS...: a run with ARGS into $work/NAME.json, its losses into $work/NAME.
record() {
    local name=$1
    shift
    run run "${small[@]}" --out "$work/$name.json" "$@"
    expect_rc 0 "$name"
    follows_schema "$work/$name.json" "$name"
    digests "$work/$name.json" >"$work/$name"
    checks=$((checks + 1))
    cmp -s "$work/$name" "$work/off" || fail "$name: the losses are not those of a run without probes"
}

# has, lacks NAME TEXT: whether the record of NAME holds TEXT, blanks apart.
has() {
    checks=$((checks + 1))
    tr -d ' \t\n' <"$work/$1.json" | grep -qF -- "$2" || fail "$1: no $2 in the record"
}
lacks() {
    checks=$((checks + 1))
    tr -d ' \t\n' <"$work/$1.json" | grep -qF -- "$2" && fail "$1: $2 is in the record"
}

run run "${small[@]}" --out "$work/off.json" --probe-budget 0
expect_rc 0 off
digests "$work/off.json" >"$work/off"
lacks off '"steps_probed"'
has off '"probes":[],"probe_every":0,"probe_budget":null'

record standard
has standard '"probe_every":10,"probe_budget":0.03'
has standard '"mode":"chosen","budget":0.03,"steps_total":30'
has standard '"costs":[{"probe":"gradients"'
has standard '"lost_updates":[{"name":"fc1.weight"'
has standard '"subnormals":{"values":'
lacks standard '"accumulator_audit"'

record all --probes all --probe-every 1
has all '"mode":"fixed","budget":null,"steps_total":30'
has all '"steps_probed":30'
for key in tensors unscaled_gradients activations weights optimizer_state lost_updates rounding_bias \
    accumulator_audit; do
    has all "\"$key\":[{"
done
has all '"nan_provenance":{"nan_losses":0'
has all '"adam_warning":{"applies":false'

record one --probes nan_provenance --probe-every 10
has one '"steps_probed":3'
has one '"tensors":[]'
lacks one '"lost_updates"'

small+=(--optimizer adam)
run run "${small[@]}" --out "$work/off.json" --probe-every 0
digests "$work/off.json" >"$work/off"
record adam --probes all --probe-every 1
has adam '"adam_warning":{"applies":true'
has adam '"name":"eps","value":1e-08,"stored":0,"lost":true'

# Within a budget, every cell is probed at the same steps, however fast it is.
run run --net mlp --data synthetic --steps 400 --batch 16 --levels "O0,O1,O2,O3" --half fp16,bf16 --rounds 1 \
    --eval-limit 100 --no-plots --quiet --out "$work/alike.json" --probe-budget 2%
expect_rc 0 alike
follows_schema "$work/alike.json" alike
checks=$((checks + 2))
counts=$(tr -d ' \t\n' <"$work/alike.json" | grep -o '"steps_probed":[0-9]*' | sort | uniq -c | wc -l)
[ "$counts" = 1 ] || fail "alike: cells were probed at different numbers of steps"
every=$(tr -d ' \t\n' <"$work/alike.json" | grep -o '"every":[0-9]*' | sort -u | wc -l)
[ "$every" = 1 ] || fail "alike: cells were probed at different intervals"

# a run that ends in NaN: the document is whole, and the losses do not tell that they were probed
small=(--net mlp --data synthetic --steps 20 --batch 16 --levels "O0,O3" --scales 1 --rounds 1 \
    --eval-limit 100 --no-floor --no-plots
    --quiet --optimizer sgd --lr 1e9)
run run "${small[@]}" --out "$work/off.json" --probe-every 0
digests "$work/off.json" >"$work/off"
record nan --probes all --probe-every 1
has nan '"first_loss":{"step":'
lacks nan '"nan_losses":0'

run list probes
expect_rc 0 "list probes"
for probe in gradients activations weights optimizer_state lost_updates subnormals rounding_bias \
    adam_warning accumulator_audit nan_provenance; do
    expect_text "$work/out" "  $probe " "list probes"
done

run run "${small[@]}" --probes gradient
expect_rc 2 "an unknown probe"
expect_text "$work/err" "did you mean 'gradients'?" "an unknown probe"

finish
