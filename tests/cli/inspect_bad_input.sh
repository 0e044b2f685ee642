# ampbench inspect: bad arguments and bad files give exit status 2, one line on stderr that names the culprit,
# no output.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
corpus=$AMPBENCH_BUILD/tests/fuzz/corpus
good=$corpus/npy/v1.npy

# refused "TEXT" ARGS...
refused() {
    local text=$1
    shift
    run inspect "$@"
    expect_rc 2 "inspect $*"
    [ -s "$work/out" ] && fail "inspect $*: wrote to stdout"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "inspect $*: not one line on stderr: $(head -c 800 "$work/err")"
    grep -q '^ampbench: ' "$work/err" || fail "inspect $*: the line does not say who speaks"
    expect_text "$work/err" "$text" "inspect $*"
}

refused "expected a file"
refused "did you mean '--tensor'" --tensr x "$good"
refused "expects a value" "$good" --scale
refused "--scale: expected" "$good" --scale 0
refused "--scale: expected" "$good" --scale -1
refused "--scale: expected" "$good" --scale nan
refused "--scale: expected" "$good" --scale 1e39
refused "--scale: expected" "$good" --scale 2^x
refused "--scale: expected" "$good" --scale 2^
refused "--ftz: expected" "$good" --ftz maybe
refused "--color: expected" "$good" --color blue
refused "--threads: expected" "$good" --threads 0
refused "--format" "$good" --format fp17
refused "--json" "$good" --json "$work/none/x.json"
refused "\"v2\" among 1" "$good" --tensor v2
refused "nearest: v1" "$good" --tensor v12
refused "cannot open" "$work/none.npy"
mkdir "$work/folder"
refused "expected tensor files in the folder, found none" "$work/folder"

printf 'PK\005\006\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >"$work/empty.npz"
refused "expected .npy members, found none" "$work/empty.npz"
head -c 100 "$good" >"$work/short.npy"
refused "short.npy" "$work/short.npy"
head -c 300 "$corpus/npz/stored.npz" >"$work/short.npz"
refused "truncated" "$work/short.npz"
cp "$corpus/npz/stored.npz" "$work/changed.npz"
printf '\377' | dd of="$work/changed.npz" bs=1 seek=200 conv=notrunc 2>/dev/null
refused "expected checksum" "$work/changed.npz"
refused 'member "x.npy"' "$work/changed.npz"
cp "$good" "$work/array.npz"
refused "expected npz, as the name ends in .npz, found npy" "$work/array.npz"
refused "object array" "$corpus/npy/object.npy"
refused "structured" "$corpus/npy/structured.npy"
refused "found only others" "$corpus/npy/int64.npy"
printf '\377\377\377\377\377\377\377\377{}' >"$work/length.safetensors"
refused "expected a header of 18446744073709551615 bytes" "$work/length.safetensors"
: >"$work/nothing"
refused "not a tensor file" "$work/nothing"
refused "device or a pipe" /dev/zero

# 100,000 levels of nesting in an unknown member
deep=$(printf '[%.0s' $(seq 100000))
header="{\"a\":{\"x\":$deep"
{ printf '\\x%02x' $((${#header} & 255)) $((${#header} >> 8 & 255)) $((${#header} >> 16 & 255)) 0 0 0 0 0; } \
    >"$work/length"
{ printf "$(cat "$work/length")"; printf '%s' "$header"; } >"$work/deep.safetensors"
refused "nested deeper than 64" "$work/deep.safetensors"

# one bad file among good ones: nothing is written, and what --json names stays as it was
echo before >"$work/old.json"
refused "short.npy" "$good" "$work/short.npy" --json "$work/old.json"
[ "$(cat "$work/old.json")" = before ] || fail "a failed run changed the file that --json names"
refused "short.npy" "$good" "$work/short.npy" --json "$work/new.json"
[ ! -e "$work/new.json" ] || fail "a failed run left an empty file behind"
finish
