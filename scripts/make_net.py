#!/usr/bin/env python3
"""Writes network files of any size; made the transformers of bench/nets.

    make_net.py gpt --layers 12 --heads 12 --width 768 --tokens 1024 --vocabulary 50257 > my_gpt.json
    make_net.py vit --image 224 --channels 3 --patch 16 --classes 1000 > vit.json
    make_net.py --all          writes the built-in ones again (bench/nets/*.json)

Needs Python 3 and nothing else. Trains nothing: ampbench --net my_gpt.json does.
"""
import argparse
import json
import os
import sys

NETS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench", "nets")


def op(name, kind, **keys):
    return {"name": name, "op": kind, **{k: v for k, v in keys.items() if v is not None}}


def document(name, text, given, defaults, init, ops, targets=None):
    head = {"format": "ampbench-net-1", "name": name, "text": text, "input": given}
    if targets:
        head["targets"] = targets
    return {**head, "defaults": defaults, **({"init": init} if init else {}), "ops": ops}


def dump(net):
    """One key or op a line."""
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in net.items() if k not in ("ops", "losses")]
    ops = ",\n".join("    " + json.dumps(o) for o in net["ops"])
    lines.append(f'  "ops": [\n{ops}\n  ]')
    if "losses" in net:
        lines.append(f'  "losses": {json.dumps(net["losses"])}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


# ---- transformers ------------------------------------------------------------------------------------------

NORMAL = {"weight": {"kind": "normal", "std": 0.02}, "bias": {"kind": "zeros"}}


def drop(name, p):
    return [op(name, "dropout", p=p)] if p else []


def written_out(name, width, heads, causal, p):
    """Attention in single ops, so that logits and probabilities are probed, and rounded by half ops."""
    ops = [op(f"{name}.heads", "reshape", shape=[0, 0, 3, heads, width // heads])]
    for i, (part, order) in enumerate((("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))):
        ops += [op(f"{name}.{part}.part", "select", **{"in": f"{name}.heads"}, dim=2, index=i),
                op(f"{name}.{part}", "permute", dims=order)]
    ops += [op(f"{name}.scores", "matmul", **{"in": [f"{name}.q", f"{name}.k"]}),
            op(f"{name}.logits", "scale", factor=round((width // heads)**-0.5, 9))]
    if causal:
        ops.append(op(f"{name}.masked", "masked_fill", causal=True))
    ops += [op(f"{name}.probabilities", "softmax"), *drop(f"{name}.probabilities.drop", p)]
    return ops + [op(f"{name}.mixed", "matmul", **{"in": [ops[-1]["name"], f"{name}.v"]}),
                  op(f"{name}.side", "permute", dims=[0, 2, 1, 3]),
                  op(f"{name}.sdpa", "reshape", shape=[0, 0, width])]


def attention(name, o, causal, source, init=None):
    """From `source` to name.proj (and a dropout)."""
    if o.decomposed:
        ops = written_out(name, o.width, o.heads, causal, o.dropout)
    else:
        ops = [op(f"{name}.sdpa", "scaled_dot_product_attention", num_heads=o.heads, is_causal=causal or None,
                  dropout_p=o.dropout or None)]
    return [op(f"{name}.qkv", "linear", **{"in": source}, out_features=3 * o.width), *ops,
            op(f"{name}.proj", "linear", out_features=o.width, init=init), *drop(f"{name}.drop", o.dropout)]


def mlp(name, width, hidden, p, source, approximate=None, init=None):
    return [op(f"{name}.fc1", "linear", **{"in": source}, out_features=hidden),
            op(f"{name}.gelu", "gelu", approximate=approximate),
            op(f"{name}.fc2", "linear", out_features=width, init=init),
            *drop(f"{name}.drop", p)]


def pre_norm_block(name, before, o, causal, eps, approximate=None, residual_init=None):
    ops = [op(f"{name}.norm1", "layer_norm", **{"in": before}, eps=eps)]
    ops += attention(f"{name}.attn", o, causal, f"{name}.norm1", residual_init)
    ops += [op(f"{name}.add1", "add", **{"in": [before, ops[-1]["name"]]}),
            op(f"{name}.norm2", "layer_norm", eps=eps)]
    ops += mlp(f"{name}.mlp", o.width, 4 * o.width, o.dropout, f"{name}.norm2", approximate, residual_init)
    return ops + [op(f"{name}.add2", "add", **{"in": [f"{name}.add1", ops[-1]["name"]]})]


def post_norm_block(name, before, o, eps):
    ops = attention(f"{name}.attn", o, False, before)
    ops += [op(f"{name}.add1", "add", **{"in": [before, ops[-1]["name"]]}),
            op(f"{name}.norm1", "layer_norm", eps=eps)]
    ops += mlp(f"{name}.mlp", o.width, 4 * o.width, o.dropout, f"{name}.norm1")
    return ops + [op(f"{name}.add2", "add", **{"in": [f"{name}.norm1", ops[-1]["name"]]}),
                  op(f"{name}.norm2", "layer_norm", eps=eps)]


def gpt(o):
    """GPT-2 (Radford et al. 2019): pre-norm, tanh-gelu, residual projections scaled by 1/sqrt(2 layers)."""
    small = {"weight": {"kind": "normal", "std": round(0.02 / (2 * o.layers)**0.5, 8)}}
    ops = [op("wte", "embedding", num_embeddings=o.vocabulary, embedding_dim=o.width),
           op("wpe", "positional_embedding", num_embeddings=o.tokens), *drop("drop", o.dropout)]
    for i in range(o.layers):
        ops += pre_norm_block(f"h{i}", ops[-1]["name"], o, True, None, "tanh", small)
    ops += [op("ln_f", "layer_norm"), op("lm_head", "linear", out_features=o.vocabulary, bias=False,
                                         share={"weight": "wte.weight"} if o.tied else None),
            op("loss", "cross_entropy")]
    return document(o.name or "gpt",
                    o.text or f"GPT-2 of {o.layers} layers, {o.width} wide, {o.tokens} tokens",
                    {"tokens": o.tokens, "vocabulary": o.vocabulary},
                    {"optimizer": "adamw", "lr": o.lr, "batch": o.batch}, NORMAL, ops, {"kind": "tokens"})


def vit(o):
    """A vision transformer (Dosovitskiy et al. 2021) with a class token, as timm's vit_*: pre-norm, gelu."""
    ops = [op("patch", "conv2d", out_channels=o.width, kernel_size=o.patch, stride=o.patch),
           op("tokens", "reshape", shape=[0, -1, o.width]),
           op("pos", "positional_embedding", class_token=True),
           *drop("drop", o.dropout)]
    for i in range(o.layers):
        ops += pre_norm_block(f"block{i}", ops[-1]["name"], o, False, 1e-6)
    ops += [op("norm", "layer_norm", eps=1e-6), op("class", "select", dim=1, index=0),
            op("head", "linear", out_features=o.classes), op("loss", "cross_entropy")]
    return document(o.name or "vit",
                    o.text or f"vision transformer of {o.layers} layers, {o.width} wide, patch {o.patch}",
                    {"height": o.image, "width": o.image, "channels": o.channels},
                    {"optimizer": "adamw", "lr": o.lr, "batch": o.batch}, NORMAL, ops)


def classifier(o):
    """BERT (Devlin et al. 2019) with its pooler and a head; weighted cross entropy."""
    ops = [op("word", "embedding", num_embeddings=o.vocabulary, embedding_dim=o.width),
           op("position", "positional_embedding", num_embeddings=o.tokens),
           op("norm", "layer_norm", eps=1e-12),
           *drop("drop", o.dropout)]
    for i in range(o.layers):
        ops += post_norm_block(f"layer{i}", ops[-1]["name"], o, 1e-12)
    ops += [op("first", "select", dim=1, index=0), op("pooler", "linear", out_features=o.width),
            op("pooled", "tanh"),
            *drop("pooler.drop", o.dropout), op("classifier", "linear", out_features=o.classes),
            op("loss", "cross_entropy", weight=[round(1 + 0.25 * (i % 4), 2) for i in range(o.classes)])]
    return document(o.name or "transformer_classifier",
                    o.text or f"BERT of {o.layers} layers, {o.width} wide, with a classifier and weighted "
                              "cross entropy",
                    {"tokens": o.tokens, "vocabulary": o.vocabulary},
                    {"optimizer": "adamw", "lr": o.lr, "batch": o.batch}, NORMAL, ops)


def lstm_lm(o):
    """A word language model of stacked LSTMs (Zaremba et al. 2014, medium regularisation: --dropout 0.5)."""
    ops = [op("embedding", "embedding", num_embeddings=o.vocabulary, embedding_dim=o.width),
           *drop("drop", o.dropout)]
    for i in range(o.layers):
        ops += [op(f"lstm{i}", "lstm", hidden_size=o.width), *drop(f"drop{i}", o.dropout)]
    ops += [op("decoder", "linear", out_features=o.vocabulary), op("loss", "cross_entropy")]
    return document(o.name or "lstm_lm",
                    o.text or f"Language model of {o.layers} LSTM layers, {o.width} wide",
                    {"tokens": o.tokens, "vocabulary": o.vocabulary},
                    {"optimizer": "adam", "lr": o.lr, "batch": o.batch}, {}, ops, {"kind": "tokens"})


# ---- images ------------------------------------------------------------------------------------------------


def conv_norm(name, channels, kernel, source=None, stride=1, relu=True):
    ops = [op(f"{name}.conv", "conv2d", **({"in": source} if source else {}), out_channels=channels,
              kernel_size=kernel,
              stride=stride if stride > 1 else None, padding=kernel // 2 or None, bias=False),
           op(f"{name}.bn", "batch_norm2d")]
    return ops + ([op(f"{name}.relu", "relu")] if relu else [])


def bottleneck(name, before, width, stride, project):
    ops = conv_norm(f"{name}.1", width, 1, before) + conv_norm(f"{name}.2", width, 3, stride=stride)
    ops += conv_norm(f"{name}.3", 4 * width, 1, relu=False)
    last, short = ops[-1]["name"], before
    if project:
        ops += conv_norm(f"{name}.short", 4 * width, 1, before, stride, False)
        short = ops[-1]["name"]
    return ops + [op(f"{name}.add", "add", **{"in": [last, short]}), op(f"{name}.relu", "relu")]


def resnet50(o):
    """ResNet-50 (He et al. 2015), strides in the 3x3 convolutions as torchvision has them."""
    ops = conv_norm("stem", 64, 7, stride=2) + [op("pool", "max_pool2d", kernel_size=3, stride=2, padding=1)]
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            ops += bottleneck(f"stage{stage + 1}.{block}", ops[-1]["name"], 64 << stage, stride, not block)
    ops += [op("avgpool", "global_avg_pool"), op("fc", "linear", out_features=o.classes),
            op("loss", "cross_entropy")]
    return document(o.name or "resnet50", o.text or "ResNet-50 as torchvision has it, for images of your own",
                    {"height": o.image, "width": o.image, "channels": o.channels},
                    {"optimizer": "momentum", "lr": o.lr, "batch": o.batch}, {}, ops)


def autoencoder(o):
    """A deep autoencoder (Hinton and Salakhutdinov 2006) of the input's pixels; mean squared error."""
    size = o.image * o.image * o.channels
    ops = [op("pixels", "flatten")]
    for part, widths in (("encoder", (512, 128, 32)), ("decoder", (128, 512))):
        for i, width in enumerate(widths):
            ops.append(op(f"{part}{i}", "linear", out_features=width))
            if width > 32:
                ops.append(op(f"{part}{i}.relu", "relu"))
    ops += [op("output", "linear", out_features=size), op("loss", "mse", **{"in": ["output", "pixels"]})]
    return document(o.name or "autoencoder",
                    o.text or "Deep autoencoder with a code of 32 numbers; mean squared error",
                    {"height": o.image, "width": o.image, "channels": o.channels},
                    {"optimizer": "adam", "lr": o.lr, "batch": o.batch}, {}, ops)


def double_conv(name, channels, source=None):
    return conv_norm(f"{name}.a", channels, 3, source) + conv_norm(f"{name}.b", channels, 3)


def unet(o):
    """A denoising U-Net (Ronneberger et al. 2015): input with dropped pixels, target the full image."""
    depth, ops, skips = 3, [op("noise", "dropout", p=0.2)], []
    for i in range(depth):
        ops += double_conv(f"down{i}", o.width << i)
        skips.append(ops[-1]["name"])
        ops.append(op(f"down{i}.pool", "max_pool2d", kernel_size=2))
    ops += double_conv("bottom", o.width << depth)
    for i in reversed(range(depth)):
        ops += [op(f"up{i}", "upsample", scale_factor=2), *conv_norm(f"up{i}.reduce", o.width << i, 3)]
        ops.append(op(f"up{i}.join", "concat", **{"in": [skips[i], ops[-1]["name"]]}, dim=-1))
        ops += double_conv(f"up{i}", o.width << i)
    ops += [op("output", "conv2d", out_channels=o.channels, kernel_size=1),
            op("loss", "mse", **{"in": ["output", "input"]})]
    return document(o.name or "unet_small",
                    o.text or f"U-Net of {depth} levels, {o.width} to {o.width << depth} channels, "
                    "that fills in dropped pixels; mean squared error",
                    {"height": o.image, "width": o.image, "channels": o.channels},
                    {"optimizer": "adam", "lr": o.lr, "batch": o.batch}, {}, ops)


# ---- command line ------------------------------------------------------------------------------------------

KINDS = {"gpt": gpt, "vit": vit, "transformer_classifier": classifier, "lstm_lm": lstm_lm,
         "resnet50": resnet50, "autoencoder": autoencoder, "unet": unet}
BASE = {"name": None, "text": None, "layers": 4, "heads": 4, "width": 128, "tokens": 64, "vocabulary": 256,
        "dropout": 0.0, "decomposed": False, "tied": False, "image": 32, "channels": 1, "patch": 4,
        "classes": 10, "lr": 1e-3, "batch": 12}
BUILT_IN = [
    ("gpt", {"text": "GPT-2 small enough for a CPU: 4 layers, 128 wide, 64 tokens of 256"}),
    ("gpt", {"name": "gpt2_124m", "text": "GPT-2 small: 12 layers, 768 wide, 1024 tokens of 50257",
             "layers": 12,
             "heads": 12, "width": 768, "tokens": 1024, "vocabulary": 50257, "tied": True, "batch": 1,
             "lr": 6e-4, "dropout": 0.1}),
    ("vit", {"name": "vit_tiny", "text": "ViT-Ti with patches of 4 x 4: 12 layers, 192 wide, 3 heads",
             "layers": 12,
             "heads": 3, "width": 192, "batch": 32}),
    ("transformer_classifier",
     {"dropout": 0.1, "tokens": 64, "vocabulary": 1024, "layers": 2, "classes": 8, "batch": 32,
      "lr": 5e-4, "text": "BERT of 2 layers, 128 wide, classifying texts; weighted cross entropy"}),
    ("lstm_lm", {"layers": 2, "vocabulary": 1024, "dropout": 0.1, "batch": 32, "lr": 2e-3}),
    ("resnet50", {"image": 224, "channels": 3, "classes": 1000, "batch": 16, "lr": 0.1}),
    ("autoencoder", {"batch": 64}),
    ("unet", {"width": 16, "batch": 16}),
]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS, help="which network")
    parser.add_argument("--all", action="store_true", help="write the built-in ones again")
    parser.add_argument("--tied", action="store_true", help="gpt: the head reads the table of the embedding")
    parser.add_argument("--decomposed", action="store_true",
                        help="attention in single ops, so that its logits can be probed")
    for key, value in BASE.items():
        if value is False:
            continue
        parser.add_argument("--" + key, type=type(value) if value is not None else str, default=value,
                            help="" if value is None else f"default {value}")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    if options.all:
        for kind, keys in BUILT_IN:
            net = KINDS[kind](argparse.Namespace(**{**BASE, **keys}))
            with open(os.path.join(NETS, net["name"] + ".json"), "w") as file:
                file.write(dump(net))
    elif options.kind:
        sys.stdout.write(dump(KINDS[options.kind](options)))
    else:
        sys.exit("expected a network (" + ", ".join(KINDS) + ") or --all; see --help")


if __name__ == "__main__":
    main(sys.argv[1:])
