#!/usr/bin/env bash
# `ampbench promote --roles`: a layer whose output alone overflows, one whose weights' gradient alone is
# flushed, and one whose input's gradient alone is, come back as that role and no other; and a search that is
# interrupted leaves no files.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1

# fc2 is planted: its output, which a layer norm takes back, is beyond fp16; its weights are not.
cat >overflow.json <<'NET'
{"format": "ampbench-net-1", "name": "overflow", "input": {"height": 28, "width": 28, "channels": 1},
 "defaults": {"optimizer": "momentum", "lr": 0.02, "batch": 32, "epochs": 1},
 "ops": [{"name": "flatten", "op": "flatten"},
 {"name": "fc1", "op": "linear", "out_features": 16},
 {"name": "ln1", "op": "layer_norm", "normalized_shape": 16}, {"name": "relu1", "op": "relu"},
 {"name": "fc2", "op": "linear", "out_features": 16, "init": {"weight": {"kind": "normal", "std": 12000}}},
 {"name": "ln2", "op": "layer_norm", "normalized_shape": 16}, {"name": "relu2", "op": "relu"},
 {"name": "head", "op": "linear", "out_features": 10}, {"name": "loss", "op": "cross_entropy"}]}
NET
# fc1 is planted: what comes in and what comes back are fp16 numbers, their products are not.
cat >underflow.json <<'NET'
{"format": "ampbench-net-1", "name": "underflow", "input": {"height": 28, "width": 28, "channels": 1},
 "defaults": {"optimizer": "adam", "lr": 0.003, "batch": 32, "epochs": 1},
 "ops": [{"name": "flatten", "op": "flatten"},
 {"name": "less", "op": "scale", "factor": 1e-4},
 {"name": "fc1", "op": "linear", "out_features": 16, "bias": false,
 "init": {"weight": {"kind": "normal", "std": 100}}},
 {"name": "back", "op": "scale", "factor": 5e-4}, {"name": "fc2", "op": "linear", "out_features": 16},
 {"name": "relu", "op": "relu"},
 {"name": "head", "op": "linear", "out_features": 10}, {"name": "loss", "op": "cross_entropy"}]}
NET
# fc2 is planted: its small weights return gradients below fp16's numbers, which the scale before it, in fp32
# like the norm, makes large again. Only fc1 learns, and it has no other gradient.
cat >returned.json <<'NET'
{"format": "ampbench-net-1", "name": "returned", "input": {"height": 28, "width": 28, "channels": 1},
 "defaults": {"optimizer": "adam", "lr": 0.01, "batch": 256, "epochs": 1},
 "ops": [{"name": "flatten", "op": "flatten"},
 {"name": "fc1", "op": "linear", "out_features": 8},
 {"name": "ln", "op": "layer_norm", "normalized_shape": 8},
 {"name": "more", "op": "scale", "factor": 20000},
 {"name": "fc2", "op": "linear", "out_features": 16, "bias": false,
 "init": {"weight": {"kind": "normal", "std": 4e-6}}},
 {"name": "relu", "op": "relu"}, {"name": "head", "op": "linear", "out_features": 10},
 {"name": "loss", "op": "cross_entropy"}]}
NET
# what=SEARCH: the words of a search in that network
search() { printf '%s ' promote --roles --net "$1.json" --data synthetic --level O1 --scales 1 --seeds 2 \
    --threads 1 --quiet "${@:2}"; }

# found NET TO OPTIONS...
found() {
    # shellcheck disable=SC2046
    run $(search "$1" "${@:3}") --json outcome.json
    expect_rc 0 "$1"
    expect_text out "paste: --to '$2=fp32'" "$1"
    expect_text out "roles, and 0 whole" "$1"
    expect_text out "minimal: without any one of them it will not do" "$1"
    expect_text outcome.json "\"to\": \"$2=fp32\"" "$1, JSON"
    expect_text outcome.json "\"layers\": [\"${2%:*}\"]" "$1, JSON"
    follows_schema outcome.json "$1" promote
    checks=$((checks + 1))
    [ "$(grep -om1 '"name": "[a-z0-9]*:[a-z]*"' outcome.json)" = "\"name\": \"$2\"" ] ||
        fail "$1: $2 does not rank first of the roles"
}
found overflow fc2:forward --steps 8
found underflow fc1:wgrad --steps 40 --param-groups fc1.weight:lr_factor=1e6
found returned fc2:dgrad --steps 40 --param-groups 'fc2*:lr_factor=0;head*:lr_factor=0;ln*:lr_factor=0'

# What is printed can be pasted, and the document says so.
run --net underflow.json --data synthetic --levels O1 --scales 1 --steps 3 --threads 1 --no-floor --no-plots \
    --quiet --rounds 1 \
    --to fc1:wgrad=fp32 --out result.json
expect_rc 0 "the option that was found"
expect_text result.json '"to": "fc1:wgrad=fp32"' "the record"
run plan --net underflow.json --data synthetic --level O1 --to 'fc1:wgrad=fp32,fc2:dgrad=fp32'
expect_text out "weight gradient fp32" "the plan"
expect_text out "input gradient fp32" "the plan"

for bad in fc1:grad=fp32 back:wgrad=fp32 fc1:dgrad=fp32 fc1:wgrad=fp8 fc9:wgrad=fp32 loss:forward=half; do
    run --net underflow.json --data synthetic --levels O1 --to "$bad"
    expect_rc 2 "bad input: $bad"
    [ "$(wc -l <err)" -eq 1 ] || fail "bad input: $bad: not one line: $(cat err)"
done

# interrupted SIGNAL: one that stops a search in the middle of a training.
interrupted() {
    local folder=$work/$1 waited=0
    mkdir -p "$folder"
    # shellcheck disable=SC2046
    TMPDIR=$folder "$AMPBENCH" $(search overflow --steps 100000) >out 2>err </dev/null &
    while [ -z "$(ls "$folder"/*/result.json 2>/dev/null)" ] && [ "$waited" -lt 300 ]; do
        sleep 0.05
        waited=$((waited + 1))
    done
    [ "$waited" -lt 300 ] || fail "$1: no training began"
    kill -s "$1" $!
    wait $!
    rc=$?
    expect_rc 130 "stopped by SIG$1"
    expect_text err "promote: interrupted" "stopped by SIG$1"
    [ -z "$(ls -A "$folder")" ] || fail "SIG$1 left $(find "$folder")"
}
set -m # so that background jobs do not ignore SIGINT
interrupted TERM
interrupted INT
finish
