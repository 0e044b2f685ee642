# ampbench inspect: results on stdout and nowhere else, JSON alone with --json -, the same whatever the number
# of threads.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
corpus=$AMPBENCH_BUILD/tests/fuzz/corpus

# expect WHAT COMMAND...: the command must succeed.
expect() {
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || fail "$what"
}
lacks() { ! grep -q -- "$1" "$2"; }

files=("$corpus/safetensors/dtypes.safetensors" "$corpus/npz/deflated.npz" "$corpus/npy/big_endian.npy")
run inspect "${files[@]}"
expect_rc 0 "three good files"
expect "a clean run wrote to stderr: $(cat "$work/err")" [ ! -s "$work/err" ]
expect_text "$work/out" "11 tensors in 3 files" "count of tensors"
expect_text "$work/out" "65520 and more overflow" "limits of fp16"
expect_text "$work/out" "deflated.npz:layer.0/w" "names of tensors"
expect "colours in a file" lacks "$(printf '\033')" "$work/out"
cp "$work/out" "$work/table"

run inspect --json - "${files[@]}"
expect_rc 0 "--json -"
expect "--json - wrote to stderr" [ ! -s "$work/err" ]
expect "--json - wrote more than JSON" [ "$(head -c 1 "$work/out")$(tail -c 2 "$work/out")" = "{}" ]
cp "$work/out" "$work/one.json"
run inspect --threads 3 --json "$work/three.json" "${files[@]}"
expect "the number of threads changes the JSON" cmp "$work/one.json" "$work/three.json"
expect "the number of threads or --json FILE changes the table" cmp "$work/table" "$work/out"

# A tensor of its own: 1, -2.5 and 65504 in big-endian fp16; at scale 2 the last one overflows.
printf '\x93NUMPY\x01\x00\x76\x00' >"$work/half.npy"
printf "%-117s\n" "{'descr': '>f2', 'fortran_order': False, 'shape': (3,), }" >>"$work/half.npy"
printf '\x3c\x00\xc1\x00\x7b\xff' >>"$work/half.npy"
run inspect "$work/half.npy" --json - --format fp16
expect_rc 0 "a tensor of fp16"
expect_text "$work/out" '"name":"half"' "a .npy tensor is named after its file"
expect_text "$work/out" \
    '"dtype":"fp16","stored_as":">f2","shape":[3],"count":3,"zero":0,"nan":0,"inf":0,"nonzero_finite":3' \
    "counts"
expect_text "$work/out" '"min_abs":1,"max_abs":65504' "range"
expect_text "$work/out" '{"scale_log2":0,"flushed":0,"subnormal":0,"normal":3,"overflowed":0}' "scale 1"
expect_text "$work/out" '{"scale_log2":1,"flushed":0,"subnormal":0,"normal":2,"overflowed":1}' "scale 2"
expect_text "$work/out" '{"scale_log2":-24,"flushed":0,"subnormal":2,"normal":1,"overflowed":0}' "scale 2^-24"
expect_text "$work/out" '"k_lo":-24,"k_hi":0' "advice"

run inspect "$corpus/safetensors/none.safetensors"
expect_rc 0 "a file without tensors"
expect_text "$work/out" "no tensors in 1 file" "a file without tensors"
run inspect "$corpus/safetensors/none.safetensors" --json -
expect_rc 0 "a file without tensors, as JSON"
expect_text "$work/out" '"tensors":[' "a file without tensors, as JSON"

run inspect --help
expect_rc 0 "--help"
expect_text "$work/out" "--tensor GLOB" "--help on stdout"
expect "--help wrote to stderr" [ ! -s "$work/err" ]

NO_COLOR=1 run inspect --scale 2^14 "$work/half.npy"
expect "NO_COLOR is not honoured" lacks "$(printf '\033')" "$work/out"
run inspect --color always --scale 2^14 "$work/half.npy"
expect "--color always has no colour" grep -q "$(printf '\033')" "$work/out"

# Data and script are written with or without gnuplot; the picture only with it.
run inspect --plot "$work/plots" "$work/half.npy"
expect_rc 0 "--plot"
expect "--plot wrote no data" [ -s "$work/plots/inspect.dat" ]
expect "--plot wrote no script" [ -s "$work/plots/inspect.gp" ]
if command -v gnuplot >/dev/null; then
    expect "--plot drew no picture" [ "$(head -c 4 "$work/plots/inspect.png" | tail -c 3)" = "PNG" ]
fi
PATH=$work/nothing run inspect --plot "$work/undrawn" "$work/half.npy"
expect_rc 0 "--plot without gnuplot"
expect_text "$work/err" "gnuplot was not found" "--plot without gnuplot"
finish
