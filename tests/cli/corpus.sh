#!/usr/bin/env bash
# The fault corpus is sound, what is not is refused, and the program takes the networks that it expands to.
. "$(dirname "$0")/lib/cli.sh"
command -v python3 >"$work/python" || exit 77

mkdir -p "$work/tree/bench" "$work/tree/scripts"
cp "$AMPBENCH_SOURCE/scripts/corpus.py" "$AMPBENCH_SOURCE/scripts/corpus_facts.py" "$work/tree/scripts"
cp -r "$AMPBENCH_SOURCE/bench/nets" "$work/tree/bench"
mkdir -p "$work/tree/reports/diagnose/attribute" "$work/tree/reports/diagnose/thresholds"
cp "$AMPBENCH_SOURCE/reports/diagnose/attribute/verdicts.def" "$work/tree/reports/diagnose/attribute"
cp "$AMPBENCH_SOURCE/reports/diagnose/thresholds/thresholds.def" "$work/tree/reports/diagnose/thresholds"

# python SCRIPT ARGS...: as run, of the copy.
python() {
    python3 "$work/tree/scripts/$1.py" "${@:2}" >"$work/out" 2>"$work/err"
    rc=$?
}

fresh() {
    rm -rf "$work/tree/bench/corpus"
    cp -r "$AMPBENCH_SOURCE/bench/corpus" "$work/tree/bench"
}

# refused WHAT FILE LINE: a corpus with one more line in a file.
refused() {
    fresh
    printf '%s\n' "$3" >>"$work/tree/bench/corpus/$2"
    python corpus check
    expect_rc 1 "$1"
    expect_text "$work/err" "$1" "$1"
}

fresh
python corpus check
expect_rc 0 "the corpus"
refused "duplicate name 'lost_lenet_o3'" cases/healthy.jsonl '["lost_lenet_o3","text","own","O2","mlp",10]'
refused "no network 'nothing'" cases/healthy.jsonl '["other","text","own","O2","nothing",10]'
refused "no set '9'" cases/healthy.jsonl '["other","text","9","O2","mlp",10]'
refused "level" cases/healthy.jsonl '["other","text","own","O4","mlp",10]'
refused "has no layer 'nowhere'" cases/weight_overflow.jsonl \
    '["other","text","own","O2","char_lstm_24",10,null,"nowhere"]'
refused "unknown cause 'invented'" cases/invented.jsonl \
    '["name","text","set","level","net","steps","options","layer","cured"]'
refused "cases/healthy.jsonl" cases/healthy.jsonl '["other",'
refused "no case uses network 'other'" architectures.jsonl \
    '["other","text","28x28x1","sgd 0.1 8","out=linear(10);loss=cross_entropy"]'
refused "no architecture 'nothing'" variants.jsonl '["other","nothing"]'
refused "has no op 'nowhere'" variants.jsonl '["other","aft","-nowhere"]'
fresh
head -c 400000 /dev/zero >"$work/tree/bench/corpus/much"
python corpus check
expect_rc 1 "a corpus that is too large"

# A line that `pack` prints expands to the network it was made of.
fresh
python corpus expand all "$work/nets"
printf '["name","text","input","defaults","ops","extra"]\n' >"$work/packed"
for net in tcn hand_norm vit_small; do
    python corpus pack "$work/nets/$net.json"
    cat "$work/out" >>"$work/packed"
done
cp "$work/packed" "$work/tree/bench/corpus/architectures.jsonl"
printf '["name","architecture","changes","defaults","input","extra"]\n' \
    >"$work/tree/bench/corpus/variants.jsonl"
python corpus expand all "$work/again"
for net in tcn hand_norm vit_small; do
    cmp -s "$work/nets/$net.json" "$work/again/$net.json" || fail "$net is another network after packing"
done

# What a case expands to runs, and its recorded figures are there.
fresh
cd "$work" || exit 1
python corpus expand lost_conv_o3 nets
expect_text "$work/out" "ampbench run --net nets/conv_gn.json" "the command line"
for net in "$work/nets/"*.json; do
    run plan --net "$net" --level O2
    expect_rc 0 "the network $net"
done
python corpus show lost_conv_o4
expect_text "$work/err" "did you mean 'lost_conv_o3'?" "an unknown case"
python corpus_facts margins gap
expect_text "$work/out" "weight_update_lost" "margins"
python corpus_facts show lost_conv_o3
expect_text "$work/out" "lost_energy" "the figures of a case"

# A cell with overrides, which are in its name, is found and judged.
python3 "$AMPBENCH_SOURCE/scripts/confusion" --program "$AMPBENCH" --only bn_statistics_o2 >"$work/out" 2>&1
rc=$?
expect_rc 0 "the confusion of a case"
expect_text "$work/out" "right cause first                                  1 of 1" "the confusion of a case"

# Thresholds that are quantiles are what the figures give.
python corpus_facts quantiles
expect_rc 0 "the quantiles"
expect_text "$work/out" "gap_learned: the 0.995 quantile of" "the quantiles"
limits=$work/tree/reports/diagnose/thresholds/thresholds.def
sed -i 's/^\(AB_THRESHOLD(gap_learned, \)[0-9.e-]*/\10.02/' "$limits"
python corpus_facts quantiles
expect_rc 1 "a quantile that the corpus does not give"
expect_text "$work/err" "that the corpus gives: gap_learned" "a quantile that the corpus does not give"
sed -i '/^AB_THRESHOLD(accuracy_errors,/s/policy/quantile/' "$limits"
python corpus_facts quantiles
expect_text "$work/err" "thresholds.def has the quantiles ['accuracy_errors'," "a quantile without a figure"
finish
