#!/usr/bin/env bash
# `ampbench promote`: planted layers that break in half precision come back as the set that must stay fp32,
# and no others; bad input. A planted layer's weights are so large that its output, which a layer norm takes
# back, is beyond fp16.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1

# net NAME...: five linear layers, each before a layer norm; those named are planted.
net() {
    local i init separator=''
    printf '{"format": "ampbench-net-1", "name": "planted",\n'
    printf ' "input": {"height": 28, "width": 28, "channels": 1},\n'
    printf ' "defaults": {"optimizer": "momentum", "lr": 0.02, "batch": 32, "epochs": 1},\n'
    printf ' "ops": [{"name": "flatten", "op": "flatten"},\n'
    for i in 1 2 3 4 5; do
        init=''
        case " $* " in *" fc$i "*) init=', "init": {"weight": {"kind": "normal", "std": 30000}}' ;; esac
        printf '%s{"name": "fc%d", "op": "linear", "out_features": 16%s},\n' "$separator" "$i" "$init"
        printf ' {"name": "ln%d", "op": "layer_norm", "normalized_shape": 16},\n' "$i"
        printf ' {"name": "relu%d", "op": "relu"}' "$i"
        separator=$',\n'
    done
    printf ',\n {"name": "head", "op": "linear", "out_features": 10},\n'
    printf ' {"name": "loss", "op": "cross_entropy"}]}\n'
}
search=(promote --net planted.json --data synthetic --level O1 --steps 8 --seeds 2 --threads 1 --quiet)

# found SET TEXT: promote prints just this set.
found() {
    # shellcheck disable=SC2086
    net $1 >planted.json
    run "${search[@]}" --json outcome.json
    expect_rc 0 "planted: ${1:-none}"
    expect_text out "$2" "planted: ${1:-none}"
    expect_text out "fresh seeds: " "fresh seeds"
    checks=$((checks + 1))
    grep -q "infinities remain" out && fail "planted: ${1:-none}: $(grep remain out)"
    "$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/promote-1.schema.json" \
        outcome.json 2>why ||
        fail "the outcome does not follow its schema: $(cat why)"
}
found "" "no layer has to stay fp32"
found "fc4" "paste: --to 'fc4=fp32'"
found "fc2 fc5" "2 of 6 layers in fp32 will do"
for layer in fc2 fc5; do expect_text out "$layer=fp32" "which layers"; done
found "fc1 fc3 fc4" "3 of 6 layers in fp32 will do"
for layer in fc1 fc3 fc4; do expect_text out "$layer=fp32" "which layers"; done

run "${search[@]}" --max-runs 2
expect_rc 5 "not enough trainings"
run "${search[@]}" --json - --max-runs 2
expect_rc 5 "not enough trainings, as JSON"
cp out outcome.json
"$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/promote-1.schema.json" outcome.json \
    2>why || fail "no set: $(cat why)"

for bad in "--level O9" "--level O0" "--seeds 1" "--seeds many" "--max-runs 0" "--band -1" "--to fc1=fp32" \
    "--levels O1,O2" "--scales 1,2" \
    "--frobnicate" "--json" "--net nowhere.json"; do
    # shellcheck disable=SC2086
    run "${search[@]}" $bad
    expect_rc 2 "bad input: $bad"
    [ "$(wc -l <err)" -eq 1 ] || fail "bad input: $bad: not one line: $(cat err)"
done

# Behind a clamp an infinity is 1: training is as good, and it is said.
cat >planted.json <<'NET'
{"format": "ampbench-net-1", "name": "planted", "input": {"height": 28, "width": 28, "channels": 1},
 "defaults": {"optimizer": "momentum", "lr": 0.02, "batch": 32, "epochs": 1}, "ops": [
  {"name": "flatten", "op": "flatten"}, {"name": "big", "op": "linear", "out_features": 16,
   "init": {"weight": {"kind": "normal", "std": 5000}}},
  {"name": "one", "op": "clamp", "min": -1, "max": 1},
  {"name": "head", "op": "linear", "out_features": 10}, {"name": "loss", "op": "cross_entropy"}]}
NET
run "${search[@]}" --band 0.05 --json outcome.json
expect_rc 0 "an infinity that does not hurt"
expect_text out "no layer has to stay fp32" "an infinity that does not hurt"
expect_text out "infinities remain, and did not hurt these trainings, in: big" "an infinity behind a clamp"
checks=$((checks + 1))
"$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/promote-1.schema.json" \
    outcome.json 2>why || fail "infinite_in: $(cat why)"
finish
