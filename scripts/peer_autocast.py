#!/usr/bin/env python3
"""Records which op torch's autocast runs in which format, for tests/unit/bench/amp/test_levels.c.

  scripts/peer_autocast.py [--out tests/golden/autocast.json]        (torch 2.11, CPU)

torch runs small networks, given as ampbench's network files, op by op under torch.autocast("cpu") with
bfloat16 and float16. Recorded for each op: the format of its kernel's inputs, which a dispatch mode sees
below autocast, and the format of its result. No GPU is needed: for CUDA the rules are read from torch's own
lists in ATen/autocast_mode.h and the dispatcher's registrations for the key AutocastCUDA.
"""
import argparse, json, re
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

torch.manual_seed(0)
P = lambda *shape: torch.nn.Parameter(torch.full(shape, 0.75))



def recurrent(kind, x, a):
    more = {"nonlinearity": a["nonlinearity"]} if "nonlinearity" in a else {}
    return kind(x.shape[-1], a["hidden_size"], batch_first=True, **more)(x)[0]


# ---- ops as ampbench names them: (inputs, attributes) -> torch ---------------------------------------------

OPS = {
    "linear": lambda x, a: F.linear(x, P(a["out_features"], x.shape[-1]), P(a["out_features"])),
    "conv2d": lambda x, a: F.conv2d(x, P(a["out_channels"], x.shape[1], a["kernel_size"], a["kernel_size"]),
                                    P(a["out_channels"])),
    "batch_norm2d": lambda x, a: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]),
                                              P(x.shape[1]), P(x.shape[1]), True),
    "relu": lambda x, a: F.relu(x), "gelu": lambda x, a: F.gelu(x), "silu": lambda x, a: F.silu(x),
    "tanh": lambda x, a: torch.tanh(x),
    "sigmoid": lambda x, a: torch.sigmoid(x), "softmax": lambda x, a: F.softmax(x, -1),
    "log_softmax": lambda x, a: F.log_softmax(x, -1),
    "layer_norm": lambda x, a: F.layer_norm(x, x.shape[-1:], P(x.shape[-1]), P(x.shape[-1])),
    "rms_norm": lambda x, a: F.rms_norm(x, x.shape[-1:], P(x.shape[-1])),
    "max_pool2d": lambda x, a: F.max_pool2d(x, a["kernel_size"]),
    "avg_pool2d": lambda x, a: F.avg_pool2d(x, a["kernel_size"]),
    "global_avg_pool": lambda x, a: F.adaptive_avg_pool2d(x, 1), "flatten": lambda x, a: torch.flatten(x, 1),
    "neg": lambda x, a: torch.neg(x), "exp": lambda x, a: torch.exp(x), "log": lambda x, a: torch.log(x),
    "sqrt": lambda x, a: torch.sqrt(x),
    "rsqrt": lambda x, a: torch.rsqrt(x), "square": lambda x, a: torch.square(x),
    "abs": lambda x, a: torch.abs(x),
    "clamp": lambda x, a: torch.clamp(x, 0.1, 2.0), "dropout": lambda x, a: F.dropout(x, a["p"]),
    "sum": lambda x, a: x.sum(a["dim"], keepdim=True), "mean": lambda x, a: x.mean(a["dim"], keepdim=True),
    "max": lambda x, a: x.amax(a["dim"], keepdim=True),
    "transpose": lambda x, a: x.transpose(a["dim0"], a["dim1"]),
    "add": lambda x, a: x[0] + x[1], "sub": lambda x, a: x[0] - x[1], "mul": lambda x, a: x[0] * x[1],
    "div": lambda x, a: x[0] / x[1],
    "concat": lambda x, a: torch.cat(x, -1),
    "embedding": lambda x, a: F.embedding(x, P(a["num_embeddings"], a["embedding_dim"])),
    "positional_embedding": lambda x, a: x + P(*x.shape[-2:]),
    "select": lambda x, a: x.select(1, 0),
    "scaled_dot_product_attention": lambda x, a: F.scaled_dot_product_attention(*[
        t.unflatten(-1, (a["num_heads"], -1)).transpose(1, 2)
        for t in x.chunk(3, -1)], is_causal=True).transpose(1, 2).flatten(2),
    "group_norm": lambda x, a: F.group_norm(x, a["num_groups"], P(x.shape[1]), P(x.shape[1])),
    "upsample": lambda x, a: F.interpolate(x, scale_factor=2, mode="nearest"),
    "lstm": lambda x, a: recurrent(torch.nn.LSTM, x, a), "gru": lambda x, a: recurrent(torch.nn.GRU, x, a),
    "rnn": lambda x, a: recurrent(torch.nn.RNN, x, a),
    "cross_entropy": lambda x, a: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
}
VIEWS = ("_to_copy", "aten.t.", "view", "detach", "transpose", "expand", "unsqueeze", "slice", "split",
         "chunk", "alias", "clone",
         "empty_like", "bernoulli", "zeros", "ones", "rand", "uniform")
# the kernels of a recurrent op besides views and copies
PRODUCTS = ("aten.mm.", "aten.addmm.", "mkldnn_rnn_layer")


class Seen(TorchDispatchMode):
    """Formats of the floating-point inputs of an op's first kernel, or of its first matrix product."""

    def __init__(self, op):
        super().__init__()
        self.products = op in ("lstm", "gru", "rnn")

    def __enter__(self):
        self.formats = None
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def tensors(x):
            if isinstance(x, torch.Tensor):
                return [x] if x.is_floating_point() else []
            return [t for y in x for t in tensors(y)] if isinstance(x, (list, tuple)) else []

        if self.products:
            counts = any(v in str(func) for v in PRODUCTS)
        else:
            counts = not any(v in str(func) for v in VIEWS)
        if self.formats is None and counts:
            self.formats = [t.dtype for t in tensors(args)] or None
        return func(*args, **(kwargs or {}))


def name(dtype):
    return "fp32" if dtype == torch.float32 else "half"


def run(net, low):
    shape = net["input"]
    if "tokens" in shape:
        first = torch.randint(0, shape["vocabulary"], (4, shape["tokens"]))
    elif "channels" in shape:
        first = torch.rand(4, shape["channels"], shape["height"], shape["width"])
    else:
        first = torch.rand(4, *shape["shape"])
    values, out, last = {"input": first}, [], "input"
    with torch.autocast("cpu", dtype=low):
        for op in net["ops"]:
            given = op.get("in", last)
            several = isinstance(given, list)
            x = [values[g] for g in given] if several else values[given]
            with Seen(op["op"]) as seen:
                y = OPS[op["op"]](x, op)
            formats = seen.formats or [(x[0] if several else x).dtype]
            ran = name(torch.float32 if several and torch.float32 in formats else formats[0])
            if op["op"] == "rms_norm":  # a composite op: its conversion to fp32 is not autocast's
                ran = name(x.dtype)
            if op["op"] == "positional_embedding" and torch.float32 in formats:
                ran = "fp32"
            values[op["name"]], last = y, op["name"]
            ids = not several and not x.is_floating_point()
            out.append({"op": op["name"], "ran": None if ids else ran, "out": name(y.dtype)})
    return out


# ---- networks ----------------------------------------------------------------------------------------------

def net(input, *ops, **more):
    return {"format": "ampbench-net-1", "name": "case", "input": input, **more, "ops": list(ops) + [
        {"name": "logits", "op": "linear", "out_features": 3}, {"name": "loss", "op": "cross_entropy"}]}


def cases():
    vector = {"shape": [8]}
    low = {"name": "low", "op": "linear", "in": "input", "out_features": 8}
    attributes = {"dropout": {"p": 0.5}, "sum": {"dim": [1]}, "mean": {"dim": [1]}, "max": {"dim": [1]},
                  "clamp": {"min": 0.1, "max": 2}}
    for a in ("sum", "mean", "max"):
        attributes[a]["keepdim"] = True
    for op in ("relu gelu silu tanh sigmoid softmax log_softmax layer_norm rms_norm neg exp log sqrt rsqrt "
               "square abs clamp dropout sum mean "
               "max linear").split():
        extra = {"out_features": 5} if op == "linear" else attributes.get(op, {})
        yield net(vector, {"name": "x", "op": op, **extra})
        yield net(vector, low, {"name": "x", "op": op, **extra})
    for op in "add sub mul div concat".split():
        extra = {"dim": 1} if op == "concat" else {}
        yield net(vector, low, {"name": "x", "op": op, "in": ["low", "input"], **extra})
        yield net(vector, low, {"name": "x", "op": op, "in": ["input", "low"], **extra})
        yield net(vector, low, {"name": "x", "op": op, "in": ["low", "low"], **extra})
        yield net(vector, {"name": "x", "op": op, "in": ["input", "input"], **extra})
    image = {"height": 8, "width": 8, "channels": 2}
    yield net(image, {"name": "bn0", "op": "batch_norm2d"},
              {"name": "conv", "op": "conv2d", "out_channels": 4, "kernel_size": 3},
              {"name": "bn", "op": "batch_norm2d"}, {"name": "relu", "op": "relu"},
              {"name": "pool", "op": "max_pool2d", "kernel_size": 2},
              {"name": "gap", "op": "global_avg_pool"}, {"name": "flat", "op": "flatten"})
    yield net(image, {"name": "pool", "op": "avg_pool2d", "kernel_size": 2},
              {"name": "conv", "op": "conv2d", "out_channels": 4, "kernel_size": 2},
              {"name": "pool2", "op": "avg_pool2d", "kernel_size": 3}, {"name": "flat", "op": "flatten"})
    yield net(image, {"name": "gn0", "op": "group_norm", "num_groups": 2},
              {"name": "up0", "op": "upsample", "scale_factor": 2},
              {"name": "conv", "op": "conv2d", "out_channels": 4, "kernel_size": 3},
              {"name": "gn", "op": "group_norm", "num_groups": 2},
              {"name": "up", "op": "upsample", "scale_factor": 2}, {"name": "flat", "op": "flatten"})
    steps, first = {"shape": [6, 8]}, {"name": "first", "op": "select", "index": 0}
    for op, extra in (("lstm", {}), ("gru", {}), ("rnn", {"nonlinearity": "tanh"}),
                      ("rnn", {"nonlinearity": "relu"})):
        yield net(steps, {"name": "x", "op": op, "hidden_size": 8, **extra}, first)
        yield net(steps, low, {"name": "x", "op": op, "hidden_size": 8, **extra},
                  {"name": "more", "op": op, "hidden_size": 5, **extra}, first)
    yield net({"tokens": 6, "vocabulary": 11},
              {"name": "embed", "op": "embedding", "num_embeddings": 11, "embedding_dim": 8},
              {"name": "pos", "op": "positional_embedding"}, {"name": "ln1", "op": "layer_norm"},
              {"name": "qkv", "op": "linear", "out_features": 24},
              {"name": "attn", "op": "scaled_dot_product_attention", "num_heads": 2, "is_causal": True},
              {"name": "proj", "op": "linear", "out_features": 8},
              {"name": "res1", "op": "add", "in": ["pos", "proj"]},
              {"name": "ln2", "op": "layer_norm"}, {"name": "up", "op": "linear", "out_features": 16},
              {"name": "act", "op": "gelu"},
              {"name": "drop", "op": "dropout", "p": 0.1},
              {"name": "down", "op": "linear", "out_features": 8},
              {"name": "res2", "op": "add", "in": ["res1", "down"]},
              {"name": "first", "op": "select", "index": 0}, {"name": "norm", "op": "rms_norm"},
              targets={"kind": "classes"})


# ---- CUDA --------------------------------------------------------------------------------------------------

ATEN = {"batch_norm2d": "batch_norm", "global_avg_pool": "adaptive_avg_pool2d", "concat": "cat",
        "add": "add.Tensor", "sub": "sub.Tensor",
        "mul": "mul.Tensor", "div": "div.Tensor", "where": "where.self", "masked_fill": "masked_fill.Scalar",
        "softmax": "softmax.int",
        "log_softmax": "log_softmax.int", "flatten": "flatten.using_ints", "transpose": "transpose.int",
        "max": "amax", "select": "select.int",
        "bce_with_logits": "binary_cross_entropy_with_logits", "mse": "mse_loss",
        "upsample": "upsample_nearest2d", "scale": "mul.Tensor", "positional_embedding": "add.Tensor"}


def cuda_rules(ops):
    text = open(torch.__path__[0] + "/include/ATen/autocast_mode.h").read()
    lists = {}
    for rule, macro in (("low", "LOWER_PRECISION_FP"), ("fp32", "FP32"), ("fp32_out", "FP32_SET_OPT_DTYPE"),
                        ("promote", "PROMOTE")):
        start = text.index("#define AT_FORALL_" + macro + "(")
        for op in re.findall(r"_\(\s*(\w+)", text[start:text.index("\n\n", start)]):
            lists[op] = rule
    out = {}
    for op in ops:
        aten = ATEN.get(op, op)
        base = aten.split(".")[0]
        registered = torch._C._dispatch_has_kernel_for_dispatch_key("aten::" + aten, "AutocastCUDA")
        rule = lists.get(base, "follow")
        assert registered == (rule != "follow"), (op, registered, rule)
        out[op] = rule
    both_fp32 = lists["log_softmax"] == "fp32_out" and lists["nll_loss"] == "fp32"
    out["cross_entropy"] = "fp32" if both_fp32 else "?"
    # cuDNN's, behind torch.lstm and torch.rnn_*: a wrapper of autocast's own casts to the low format
    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::_cudnn_rnn", "AutocastCUDA")
    assert lists["lstm_cell"] == lists["gru_cell"] == lists["rnn_tanh_cell"] == "low"
    out["lstm"] = out["gru"] = out["rnn"] = "low"
    out["square"] = lists["pow"]  # torch.square calls pow
    return out


def has_lstm(net):
    """torch's autocast asks oneDNN for a float16 LSTM, which fails on CPUs without AMX-FP16."""
    return any(op["op"] == "lstm" for op in net["ops"])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default="tests/golden/autocast.json")
    a = ap.parse_args()
    torch.set_num_threads(1)
    nets = list(cases())
    plain = [o for o in OPS if o not in ("cross_entropy", "square", "lstm", "gru", "rnn")]
    plain += ["where", "masked_fill", "scale", "permute", "reshape", "mse", "bce_with_logits", "matmul"]
    doc = {"made_by": "scripts/peer_autocast.py", "torch": torch.__version__, "cuda_rules": cuda_rules(plain),
           "cases": [{"net": n, "bf16": run(n, torch.bfloat16),
                      "fp16": [] if has_lstm(n) else run(n, torch.float16)} for n in nets]}
    with open(a.out, "w") as f:
        f.write('{"made_by": "%s", "torch": "%s",\n "cuda_rules": %s,\n "cases": [\n'
                % (doc["made_by"], doc["torch"], json.dumps(doc["cuda_rules"])))
        f.write(",\n".join("  " + json.dumps(c) for c in doc["cases"]) + "\n]}\n")
    print(len(nets), "networks")


if __name__ == "__main__":
    main()
