"""Writes the seeds of all fuzz targets but the tensor file readers' (make_seeds.py does those).

Needs only this tree. Called by scripts/fuzz corpus. Usage: seed_json.py CORPUS TREE
"""
import json
import struct
import sys
from pathlib import Path


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def small(document, cells):
    """A document with fewer cells, shorter series and fewer tensors: faster to mutate, same code covered."""
    document = json.loads(json.dumps(document))
    document["cells"] = document["cells"][:cells]
    return document


def results(tree):
    found = {}
    fixtures = tree / "tests/fixtures"
    for path in sorted(fixtures.glob("result_*.json")) + sorted((fixtures / "rounds").glob("*.json")):
        try:
            document = json.loads(path.read_text())
        except ValueError:
            continue
        if len(compact(document)) < 40000:
            found[path.stem] = document
    return found


def document_seeds(root, tree):
    documents = results(tree)
    for target in ("report", "diagnose", "advise", "promote", "resume"):
        for name, document in documents.items():
            write(root, target, name + ".json", compact(document))
    names = list(documents)
    for target in ("compare", "gate", "history"):
        for name in names:
            for other in names:
                text = compact(documents[name]) + "\n" + compact(documents[other])
                if len(text) < 60000:
                    write(root, target, f"{name}+{other}.json", text)
    for name in names:
        write(root, "compare", name + ".json", compact(documents[name]))


def network_seeds(root, tree):
    plans = [{"level": 1, "batch": 4}, {"level": 2, "to": "*=half", "recompute": "all"},
             {"level": 0, "to": "*:wgrad=fp32", "set": "keep_batchnorm_fp32=True", "freeze": True},
             {"level": 3, "set": "num_losses=2", "micro_batches": True, "recompute": "none"}]
    for i, path in enumerate(sorted((tree / "bench/nets").glob("*.json"))
                             + sorted((tree / "tests/golden").glob("t*.json"))):
        text = compact(json.loads(path.read_text()))
        if len(text) < 8000:
            write(root, "network", path.name, text + "\n" + compact(plans[i % len(plans)]))


COMMANDS = [
    "report a.json", "report a.json --format markdown --color always",
    "report a.json --csv o.csv --html o.html --junit o.xml",
    "report --format=junit a.json --plots plots", "report --help", "diagnose a.json --json -",
    "diagnose a.json --exit-zero --json o",
    "diagnose --run --steps 3 --levels O2",
    "advise a.json --level O2 --json - --flushed 0.001 --overflow 0.01",
    "advise a.json --scale 1024 --horizon 1e5 --out o.json", "compare a.json b.json --margin 5% --alpha 0.05",
    "compare a.json --trace --json -", "compare a.json --accuracy-margin 0.01 --json o",
    "gate a.json b.json --format github --tolerance time=3%,memory=0%",
    "gate a.json b.json --pinned c.json --drift-budget 1%",
    "gate a.json b.json --calibration c.json --junit o --markdown o --json -",
    "gate --base-exe x --rounds 4 -- --steps 3",
    "gate a.json b.json --lenient --ignore loss,memory --inconclusive pass --save-baseline o",
    "gate --selftest --effects 1,2 --rounds 12",
    "history a.json b.json c.json --guard 3%", "history a.json --json - --plots p",
    "inspect a.json --tensor w* --format fp16,e4m3",
    "scaler torch apex:window=3 --overflow 1000x0,3x1 --json -",
    "scaler graphcore-als --amax 100x0.5,2^-3 --elements 1e3 --rows 0",
    "scaler adaloss --layers a.json", "scaler deepspeed:init=65536,hysteresis=2 --help",
    "formats e4m3 fp16 e6m9 nvfp4 --json -",
    "list nets", "list", "list levels", "list scalers", "help", "help run", "help --man gate",
    "completion bash", "completion fish",
    "env", "env --json -",
]

RUNS = [
    "--levels O0,O2 --scales default,torch,deepspeed:init=65536,window=500 --half fp16,bf16",
    "--net mlp --set keep_batchnorm_fp32=True --to fc1=fp32,fc2:wgrad=half --accumulate half --batch 8 "
    "--steps 5",
    "--optimizer adam --lr 1e-3 --beta1 0.9 --beta2 0.99 --eps 1e-8 --weight-decay 0.1 --no-decay bias,norm",
    "--optimizer lars --trust-coefficient 0.01 --param-groups "
    "fc*:lr_factor=0.1,weight_decay=0;bias:lr_factor=2",
    "--schedule cosine:warmup=10 --steps 100 --clip-norm 1 --ema 0.999 --ema-format half "
    "--gradient-accumulation-steps 2",
    "--net resnet8 --recompute all --freeze-bn --memory-limit 512MiB --probes all --probe-every 3 "
    "--probe-budget 5%",
    "--fault fp16_sum --seed 3 --seeds 2 --min-loss-scale 1 --max-loss-scale 2^20 --scale-window 10 --device "
    "cpu --math tf32",
    "--threads 2 --cpu-path convert --rounds 2 --trace --shadow-every 5 --shadow decensor --no-floor "
    "--eval-limit 10 --cell-timeout 3",
    "--checkpoint-every 5 --checkpoint c-%c.safetensors --resume-from x --out o.json --json - --csv a "
    "--markdown b --html c --quiet",
    "--levels mindspore:O2,torch:autocast --optimizer-state half --init w.safetensors --init-map m "
    "--normalize unit --order shuffled",
]


def command_seeds(root, tree):
    documents = results(tree)
    tiny = compact(small(documents["result_tiny"], 2))
    for i, line in enumerate(COMMANDS):
        write(root, "commands", f"{i:02}", compact(line.split()) + (("\n" + tiny) * line.count(".json")))
    for i, line in enumerate(RUNS):
        write(root, "options", f"{i:02}", compact(line.split()))


def language_seeds(root):
    lists = {
        "scaler": ["dynamic", "128", "2^16", "torch:growth=2,backoff=0.5,interval=100",
                   "apex:window=100,min=1", "fairseq", "keras:initial=2**15",
                   "deepspeed:init=65536,window=500,hysteresis=2", "deepspeed-fused", "megatron:hysteresis=2",
                   "mindspore-cell", "adaloss",
                   "openseq2seq-backoff", "openseq2seq-logmax", "graphcore-als", "apex-hysteresis",
                   "apex-legacy", "0.5", "1e-3"],
        "pattern": ["\x000010", "\x021000x0,3x1", "\x031000x0,3x1,5x0,2x1", "\x04100x0.5,2^-3,3xinf",
                    "\x0a1e9x0.1", "\x0c50x0.01 nan 3x2"],
        "layers": ["conv1=fp32,*.conv2=half", "fc:wgrad=fp32", "cosine:warmup=10,final=1e-5",
                   "step:step_size=30,gamma=0.1", "bias,norm", "O2",
                   "one_cycle:pct_start=0.3", "fc*:lr_factor=0.1,weight_decay=0;bias:lr_factor=2",
                   "keep_batchnorm_fp32=True", "loss_scale=dynamic",
                   "polynomial:power=2", "cast_model_outputs=fp32", "num_losses=3", "enabled=False"],
        "layer_trace": ["# name mean std max mean std max fan-in\nfc2 0 0.1 0.5 0 0.2 1 64\nfc1 0 0.01 0.2 0 "
                        "0.1 1 128\n\nfc2 0 0.1 inf 0 0.2 1 64\n"],
        "init_map": ["conv1.* features.0.* transpose\nfc.weight classifier.weight permute=1,0\n- "
                     "num_batches_tracked\n# x\nconv1.weight c permute=2,3,1,0\n"],
    }
    for target, texts in lists.items():
        for i, text in enumerate(texts):
            write(root, target, f"{i:02}", text)


def parts(*blocks):
    return b"".join(struct.pack("<H", len(b)) + b for b in blocks)


def npy(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def file_seeds(root):
    labels = struct.pack(">II", 0x801, 3) + bytes([0, 2, 1])
    images = struct.pack(">IIII", 0x803, 3, 4, 4) + bytes(range(48))
    write(root, "idx", "plain", parts(labels, images, labels, images) + b"\0")
    write(root, "idx", "packed", parts(labels, images, labels, images) + b"\1")
    grey = npy("|u1", (6, 6), bytes(range(36)))
    write(root, "images", "grey", parts(grey, npy("|u1", (2, 6, 6, 1), bytes(range(72))), grey))
    write(root, "images", "many", parts(npy("|u1", (12, 6, 6), bytes(range(216)) * 2), grey, grey))
    x = npy("<f4", (4, 3), struct.pack("<12f", *range(12)))
    y = npy("<f4", (4, 2), struct.pack("<8f", *range(8)))
    ids = npy("<i8", (4,), struct.pack("<4q", 0, 1, 4, 2))
    tokens = npy("<i4", (4, 4), struct.pack("<16i", *range(16)))
    square = npy("<f8", (4, 2, 2), struct.pack("<16d", *range(16)))
    write(root, "arrays", "numbers", parts(x, y) + b"\0\0\0")
    write(root, "arrays", "tested", parts(x, y, x, y, b"\0"))
    write(root, "arrays", "classes", parts(square, ids, b"", b"", b"\1"))
    write(root, "arrays", "kinds", parts(tokens, ids, b"", b"", b"\3"))
    text = b"the cat sat on the mat, and the dog on the log. It was 1,024 years ago!\n" * 2
    write(root, "text", "empty", parts(b"", b"", b"", b""))
    write(root, "text", "both", parts(text, b"more of it, and more\n", text, text))
    for name in ("v1.npy", "big_endian_f8.npy"):
        if (root / "npy" / name).exists():
            data = (root / "npy" / name).read_bytes()
            for other in sorted((root / "npz").iterdir())[:3] + sorted((root / "safetensors").iterdir())[:2]:
                write(root, "inspect", name + "+" + other.name, parts(data, other.read_bytes()))


def checkpoint_seeds(root):
    """A safetensors file with the tensors of the small network of target_network.c."""
    tensors = {}
    for layer, shape in (("fc1.weight", [4, 3]), ("fc1.bias", [4]), ("fc2.weight", [2, 4]),
                         ("fc2.bias", [2])):
        for suffix, kind in (("", "F16"), (".master", "F32"), (".exp_avg", "F32"), (".exp_avg_sq", "F32")):
            tensors[layer + suffix] = (kind, shape)
    for name, metadata in (("weights", {"format": "pt"}),
                           ("state", {"format": "ampbench-checkpoint-1", "steps": "3", "taken": "3",
                                      "scale": "65536"})):
        header, at = {"__metadata__": metadata}, 0
        for tensor, (kind, shape) in tensors.items():
            if name == "weights" and "." in tensor.replace(".weight", "").replace(".bias", ""):
                continue
            size = (2 if kind == "F16" else 4) * eval("*".join(map(str, shape)))
            header[tensor] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = compact(header).encode()
        write(root, "checkpoint", name, struct.pack("<Q", len(text)) + text + bytes(at))


def write(root, target, name, content):
    (root / target).mkdir(parents=True, exist_ok=True)
    (root / target / name).write_bytes(content if isinstance(content, bytes)
                                       else content.encode("utf-8", "surrogatepass"))


def main():
    root, tree = Path(sys.argv[1]), Path(sys.argv[2])
    document_seeds(root, tree)
    network_seeds(root, tree)
    command_seeds(root, tree)
    language_seeds(root)
    file_seeds(root)
    checkpoint_seeds(root)


if __name__ == "__main__":
    main()
