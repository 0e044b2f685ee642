# `ampbench scaler` and --scales with dialects: what people see, in table and JSON, and what they are told
# when they err.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

# refused "TEXT" ARGS...
refused() {
    local text=$1
    shift
    run "$@"
    expect_rc 2 "$*"
    checks=$((checks + 1))
    [ -s "$work/out" ] && fail "$*: wrote to stdout"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line on stderr: $(head -c 400 "$work/err")"
    expect_text "$work/err" "$text" "$*"
}

# json_is EXPRESSION ARGS...: a Python expression over the JSON (d), by any Python at hand.
json_is() {
    local expression=$1
    shift
    run "$@" --json -
    expect_rc 0 "$*"
    checks=$((checks + 1))
    command -v python3 >/dev/null || return 0
    python3 -c "import json, sys
d = json.load(open('$work/out'))
sys.exit(0 if ($expression) else str(d)[:600])" ||
        fail "$*: not $expression"
}

# ---- tables and JSON ---------------------------------------------------------------------------------------
run scaler --help
expect_rc 0 "help"
expect_text "$work/out" "openseq2seq-logmax" "help lists the dialects"
run scaler deepspeed --help
expect_text "$work/out" "hysteresis (delayed_shift)" "help of a dialect names the framework's word"
run scaler torch deepspeed --overflow 3x0,2x1,5x0,1x1
expect_rc 0 "side by side"
expect_text "$work/out" "2^16 skip      2^16 skip" "side by side"
json_is "d['dialect']=='torch' and d['config']['window']==4 and d['error'] is None
    and d['steps']==[[65536,False,3],[65536,True,1],[32768,True,1],[16384,False,4],[32768,False,1]]
    and d['final']=={'scale':32768,'growth_tracker':1}" \
    scaler torch:window=4 --overflow 0001100000
json_is "[t['dialect'] for t in d]==['apex','keras'] and d[0]['summary']['skipped']==14
    and d[0]['summary']['warm_up_skipped']==14" \
    scaler apex keras --overflow 14x1,1000x0
json_is "d['error']['name']=='at_floor' and d['error']['raises'] and d['error']['step']==3
    and d['summary']['steps']==4" \
    scaler deepspeed:init=4 --overflow 9x1
json_is "d['summary']['steps']==10**9 and d['error']['name']=='scale_inf' and d['final']['scale'] is None" \
    scaler megatron --overflow 1000000000x0
json_is "d['summary']['warm_up_skipped']==9 and d['final']['scale']==32768" scaler torch:init=2^24 \
    --amax 1000x1
printf '000\n1\n 5x0\n' >"$work/pattern"
json_is "d['summary']['steps']==9 and d['summary']['skipped']==1" scaler torch --overflow "@$work/pattern"
printf '%s\n' '# two layers' 'fc2 0 1e-7 1e-6 0 0.1 0.4 64' 'fc1 0 1e-7 1e-6 0 0.1 0.4 256' '' \
    'fc2 0 1 5 0 0.1 0.4 64' >"$work/layers"
json_is "[l[:3] for l in d['layers']]==[[0,'fc2',16],[0,'fc1',16],[1,'fc2',1]] and d['layers'][1][3]==256" \
    scaler adaloss --layers "$work/layers"
# names come from outside: JSON stays JSON, no escape is printed
printf 'a"\033[31m 0 1e-7 1e-6 0 0.1 0.4 64\n' >"$work/layers"
json_is "d['layers'][0][1]=='a\"?[31m'" scaler adaloss --layers "$work/layers"
run scaler adaloss --layers "$work/layers"
grep -qF 'a"\x1b[31m' "$work/out" || fail "a layer's name is printed as it is"
run scaler torch --overflow 01 --json "$work/file.json"
expect_rc 0 "JSON to a file"
expect_text "$work/file.json" '"dialect": "torch"' "JSON to a file"
run list scalers
expect_text "$work/out" "torch.amp.GradScaler" "list says where a dialect comes from"

# ---- bad input ---------------------------------------------------------------------------------------------
refused "unknown loss scaler 'deepseed'; nearest: deepspeed" scaler deepseed --overflow 01
refused "loss scaler torch has no key 'windw'; nearest: window" scaler torch:windw=3 --overflow 01
refused "init: expected a number above 0, found '-1'" scaler apex:init=-1 --overflow 01
refused "init: expected a number above 0, found 'nan'" scaler apex:init=nan --overflow 01
refused "found 'a' at position 4" scaler torch --overflow 010a1
refused "cannot open '$work/none'" scaler torch --overflow "@$work/none"
refused "expected --overflow PATTERN" scaler torch
refused "expected a dialect" scaler --overflow 01
refused "nearest: --overflow" scaler torch --overflw 01
refused "give each step's largest" scaler openseq2seq-logmax --overflow 01
refused "give --layers FILE" scaler adaloss --overflow 01
refused "--overflow has 2 steps, --amax 3" scaler torch --overflow 01 --amax 1,2,3
printf 'fc 1\n' >"$work/short"
refused "$work/short:1: expected a name and 7 numbers, found a name and 1" scaler adaloss \
    --layers "$work/short"

# ---- a run -------------------------------------------------------------------------------------------------
tiny=(--net mlp --data synthetic --steps 6 --rounds 1 --levels O2 --no-plots --no-floor --quiet --batch 8)
run "${tiny[@]}" --scales torch:window=2,init=256,deepspeed,dynamic --out "$work/r/result.json"
expect_rc 0 "dialects in a run"
expect_text "$work/r/result.json" '"mlp/O2/torch:init=256,window=2/fp16' "the cell's id names the dialect"
expect_text "$work/r/result.json" '"mlp/O2/deepspeed/fp16' "a second dialect"
expect_text "$work/r/result.json" '"mlp/O2/dynamic/fp16' "dynamic still means apex's"
follows_schema "$work/r/result.json" "dialects in a run"
refused "loss scaler torch has no max" "${tiny[@]}" --scales torch --max-loss-scale 4
run "${tiny[@]}" --scales openseq2seq-logmax,graphcore-als --out "$work/s/result.json"
expect_rc 0 "followers of gradient sizes train"
refused "graphcore-als, adaloss), found 'trch'; did you mean 'torch'" "${tiny[@]}" --scales trch
run "${tiny[@]}" --lr 2^-7 --scales 2^7,2**10:skip --out "$work/p/result.json"
expect_rc 0 "powers of two are numbers"
expect_text "$work/p/result.json" '"lr": 0.0078125' "2^-7 is a rate"
expect_text "$work/p/result.json" '"mlp/O2/128/' "2^7 is a fixed scale"
expect_text "$work/p/result.json" '"mlp/O2/1024:skip/' "2**10:skip is one that skips"
refused "expected a dialect before 'init=3'" "${tiny[@]}" --scales init=3
refused "--scales: loss scaler torch: growth: expected a number above 1" "${tiny[@]}" \
    --scales torch:growth=0.5

finish
