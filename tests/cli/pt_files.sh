# Files of torch.save wherever tensor files are taken.
. "$AMPBENCH_SOURCE/tests/cli/lib/cli.sh"
files=${AMPBENCH_BUILD:?}/tests/checkpoints/files

# inspect: the same counts as of the same tensors in another kind of file
for kind in npz pth; do
    run inspect "$files/tiny.$kind" --json -
    expect_rc 0 "inspect of a .$kind"
    sed 's/"file":"[^"]*",//; s/"stored_as":"[^"]*",//; s/,$//' "$work/out" |
        grep '^{"name"' | sort >"$work/$kind"
done
checks=$((checks + 1))
[ -s "$work/npz" ] && cmp -s "$work/npz" "$work/pth" || fail "inspect: counts of .pth differ from .npz"

run inspect "$files/views.pt"
expect_text "$work/out" 'counted once: bytes that 2 tensors share with another (tied.second, ...)' shared
run inspect "$files/views.pt" --tensor tied.second
expect_rc 0 "a tensor that shares its bytes"
run inspect "$files/training.pt"
expect_text "$work/out" 'not a tensor: argparse.Namespace (not executed)' "an object"

# a folder is one set of tensors
runs=$AMPBENCH_BUILD/tests/checkpoints/runs
run inspect "$runs/deepspeed"
expect_rc 0 "a folder"
expect_text "$work/out" "8 tensors in 2 files" "a folder"
mkdir "$work/none"
run inspect "$work/none"
expect_rc 2 "an empty folder"
expect_text "$work/err" "expected tensor files in the folder, found none" "an empty folder"

# nothing is executed
printf '\200\002cos\nsystem\nX\003\0\0\0id!\205R.' >"$work/evil.pt"
run inspect "$work/evil.pt"
expect_rc 2 "a pickle that names os.system"
expect_text "$work/err" "evil.pt: not a tensor: os.system (not executed)" "a pickle that names os.system"

# --init: the same weights give the same losses, from any kind of file
net=$AMPBENCH_SOURCE/tests/golden/tiny.json
train() {
    run run --net "$net" --data "$AMPBENCH_SOURCE/tests/golden/data" --levels O0 --steps 3 --rounds 1 \
        --no-floor --no-plots --quiet --init "$1" --out "$work/$2.json"
    expect_rc 0 "--init $1"
    digests "$work/$2.json" >"$work/$2.txt"
}
train "$files/tiny.npz" npz
train "$files/tiny.pth" pth
train "$files/tiny.ckpt" ckpt
checks=$((checks + 2))
[ -s "$work/npz.txt" ] && cmp -s "$work/npz.txt" "$work/pth.txt" || fail "--init: .pth gives other losses"
cmp -s "$work/npz.txt" "$work/ckpt.txt" || fail "--init: .ckpt gives other losses"

# a folder is one set of tensors: boxes of torch.distributed.checkpoint, shards, partitions of ZeRO
tar -xJf "$AMPBENCH_SOURCE/tests/golden/distributed.tar.xz" -C "$work"
mkdir "$work/shards" # --init takes a folder with an index
cp "$files/tiny.pth" "$work/shards/a.bin"
names=$("$AMPBENCH" inspect "$files/tiny.pth" --json - | grep -o '^{"name":"[^"]*"' | cut -d'"' -f4)
{
    printf '{"weight_map": {'
    for name in $names; do printf '"%s": "a.bin", ' "$name"; done
    printf '"fc1.bias": "a.bin"}}\n'
} | sed 's/"fc1.bias": "a.bin", //' >"$work/shards/model.bin.index.json"
train "$work/shards" shards
checks=$((checks + 1))
cmp -s "$work/npz.txt" "$work/shards.txt" || fail "--init: shards give other losses"
train "$work/tiny" dcp
checks=$((checks + 1))
cmp -s "$work/npz.txt" "$work/dcp.txt" || fail "--init: a distributed checkpoint gives other losses"
for set in dcp sharded sharded/model.safetensors.index.json zero2 zero3; do
    run inspect "$work/$set"
    expect_rc 0 "inspect $set"
    run diagnose "$work/${set%/*}"
    expect_rc 0 "diagnose $set"
done
run inspect "$work/zero3"
expect_text "$work/out" "module.inner.weight" "names of parameters in partitions of ZeRO"
rm "$work/dcp/__1_0.distcp"
run inspect "$work/dcp"
expect_rc 2 "a set with a file missing"
expect_text "$work/err" "__1_0.distcp: cannot open" "a set with a file missing"
finish
