"""Ops of transformers, recurrent and image networks in PyTorch, for scripts/peer_pytorch.py.

Each has its class in apex's O1 lists, a function of widened inputs, and parameters from attributes and input
shape. Images are NCHW here and NHWC in network files."""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F


RNG_DROPOUT = 5


class Arrays:
    """x and y of an .npz file; the last tenth of the samples is for tests; images become NCHW."""

    def __init__(self, path, digest):
        arrays = np.load(path)
        self.x, self.y, self.digest_of, self.mean, self.std = arrays["x"], arrays["y"], digest, 0.0, 1.0
        self.count = len(self.x) - (len(self.x) + 9) // 10

    def batch(self, step, size):
        first = step % (self.count // size) * size
        x = torch.from_numpy(self.x[first:first + size].astype(np.float32))
        y = self.y[first:first + size].astype(np.int64)
        return x.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y)

    def digest(self, size):
        return f"{self.digest_of(self.y[:size].tobytes(), self.digest_of(self.x[:size].tobytes())):016x}"


def write_colours(path):
    """14 images of 64 x 64 x 3, multiples of 1/8: discs and stripes that depend on the class."""
    n = np.arange(14)[:, None, None, None]
    y, x = np.arange(64)[None, :, None, None], np.arange(64)[None, None, :, None]
    c = np.arange(3)[None, None, None]
    label = n * 3 % 10
    disc = (x - 20 - 2 * label)**2 + (y - 44 + 2 * label)**2 < (12 + n)**2
    stripes = (x * (1 + label % 4) + y * (1 + label // 3) + 5 * c + 3 * n) % (9 + 2 * c)
    values = np.where(disc, 8 - 3 * ((label + c) % 3), stripes) - 4
    np.savez_compressed(path, x=(values / 8).astype(np.float16), y=label.reshape(-1).astype(np.int32))


class Text:
    """Bytes of text as tokens, cut as bench/data/text.c cuts them: the training split in order."""

    def __init__(self, path, net, fnv1a64):
        given = net.document["input"]
        self.length, self.fnv1a64, self.mean, self.std = given["tokens"], fnv1a64, 0.0, 1.0
        stream = net.document.get("targets", {}).get("kind") == "tokens"
        self.tokens, self.labels = (self.windows if stream else self.files)(path)

    def windows(self, path):
        with open(path, "rb") as file:
            text = file.read()
        cut = len(text) // 10 * 9
        while text[cut] not in b" \n\t\r":
            cut += 1
        count = (cut - 1) // self.length
        tokens = np.frombuffer(text, np.uint8)[:count * self.length + 1].astype(np.int64)
        return tokens[:-1].reshape(count, -1), tokens[1:].reshape(count, -1)

    def files(self, path):
        """One folder a class. In tests/golden they are lines of `path`.txt: "<class>/<file>", a tab, the
        text."""
        tokens, labels, packed = [], [], {}
        with open(path + ".txt") as file:
            for line in file:
                name, text = line.split("\t", 1)
                packed[name] = packed.get(name, "") + text
        folders = sorted({name.split("/")[0] for name in packed})
        for label, folder in enumerate(folders):
            for i, name in enumerate(sorted(name for name in packed if name.split("/")[0] == folder)):
                if i % 10 == 9:
                    continue
                text = packed[name].encode()[:self.length]
                tokens.append(np.frombuffer(text.ljust(self.length, b"\0"), np.uint8).astype(np.int64))
                labels.append(label)
        return np.stack(tokens), np.array(labels)

    def batch(self, step, size):
        first = step % (len(self.tokens) // size) * size
        part = slice(first, first + size)
        return torch.from_numpy(self.tokens[part]), torch.from_numpy(self.labels[part])

    def digest(self, size):
        tokens, labels = (x[:size].astype("<i4").tobytes() for x in (self.tokens, self.labels))
        return f"{self.fnv1a64(labels, self.fnv1a64(tokens)):016x}"


def write_text(directory):
    """Random sentences: a stream, and two classes of files, packed as lines, that prefer different words."""
    words = ("the a one small old red fox dog bird tree sees likes finds near under and sleeps runs sings "
             "here").split()
    generator = np.random.default_rng(7)

    def sentences(count, favourite):
        weight = np.where(np.arange(len(words)) % 2 == favourite, 3.0, 1.0)
        return "".join(" ".join(generator.choice(words, generator.integers(3, 9), p=weight / weight.sum()))
                       + ".\n"
                       for _ in range(count))

    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "stream.txt"), "w") as file:
        file.write(sentences(240, 0))
    with open(os.path.join(directory, "classes.txt"), "w") as file:
        for label, name in enumerate(("even", "odd")):
            for i in range(20):
                for line in sentences(3, label).splitlines():
                    file.write(f"{name}/{i:02}.txt\t{line}\n")


def words_of(counter, key0, key1):
    """All four words of Philox4x32-10, as kernels/core/rng.c makes them."""
    low, c = np.uint64(0xFFFFFFFF), list(counter)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [p1 >> np.uint64(32) ^ c[1] ^ np.uint64(key0), p1 & low,
             p0 >> np.uint64(32) ^ c[3] ^ np.uint64(key1), p0 & low]
        key0, key1 = key0 + 0x9E3779B9 & 0xFFFFFFFF, key1 + 0xBB67AE85 & 0xFFFFFFFF
    return c


def dropout_factors(run, name, shape, p):
    """0 or 1 / (1 - p) for element i, from word i % 4 of the block (i / 4, op's number in the file, step)."""
    count = math.prod(shape)
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    instance = [n for n, _, _ in run.net.ops].index(name)
    counter = [block, *(np.full_like(block, x) for x in (instance, run.calls, RNG_DROPOUT))]
    coins = np.stack(words_of(counter, run.seed & 0xFFFFFFFF, run.seed >> 32), 1).reshape(-1)[:count]
    kept = (coins >> np.uint64(8)).astype(np.float64) * 2.0**-24 >= p
    return torch.from_numpy((kept / (1.0 - p)).astype(np.float32).reshape(shape)).to(run.wide)


def dropout(run, a, x, p):
    if not run.training:
        return x
    return x * dropout_factors(run, a["name"], x.shape, a.get("p", 0.5))


def dropped_attention(run, a, q, k, v):
    scores = q @ k.transpose(-1, -2) * (a.get("scale") or q.shape[-1]**-0.5)
    if a.get("is_causal"):
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) * dropout_factors(run, a["name"], scores.shape, a["dropout_p"]) @ v


def last(shape):
    return shape[-1]


def norm_params(a, shape, channels=last):
    if not a.get("elementwise_affine", a.get("affine", True)):
        return {}
    params = {"weight": ((channels(shape),), ("ones",))}
    return params | ({"bias": ((channels(shape),), ("zeros",))} if a.get("bias", True) else {})


def layer_norm(run, a, x, p):
    return F.layer_norm(x, x.shape[-1:], p.get("weight"), p.get("bias"), a.get("eps", 1e-5))


def rms_norm(run, a, x, p):
    return F.rms_norm(x, x.shape[-1:], p.get("weight"), a.get("eps"))


def group_norm(run, a, x, p):
    return F.group_norm(x, a["num_groups"], p.get("weight"), p.get("bias"), a.get("eps", 1e-5))


def embedding_params(a, shape):
    return {"weight": ((a["num_embeddings"], a["embedding_dim"]), ("normal", 1.0))}


def positions(a, shape):
    return a.get("num_embeddings") or shape[1] + a.get("class_token", False)


def position_params(a, shape):
    params = {"weight": ((positions(a, shape), shape[2]), ("normal", 0.02))}
    return params | ({"class_token": ((shape[2],), ("normal", 0.02))} if a.get("class_token") else {})


def positional_embedding(run, a, x, p):
    if "class_token" in p:
        x = torch.cat([p["class_token"].expand(x.shape[0], 1, -1), x], 1)
    return x + p["weight"][:x.shape[1]]


def attention(run, a, xs, p):
    heads = a.get("num_heads", 1)
    if len(xs) <= 2:
        xs = [*xs[0].chunk(3, -1), *xs[1:]]
    three = xs[0].dim() == 3
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) if three else x for x in xs[:3])
    if a.get("dropout_p") and run.training:
        return dropped_attention(run, a, q, k, v).transpose(1, 2).flatten(2)
    y = F.scaled_dot_product_attention(q, k, v, xs[3] if len(xs) > 3 else None,
                                       is_causal=a.get("is_causal", False),
                                       scale=a.get("scale") or None)
    return y.transpose(1, 2).flatten(2) if three else y


def reshape(run, a, x, p):
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1)
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(a["shape"])])


def concat(run, a, xs, p):
    """Images are NHWC in a network file: their last dimension is torch's second."""
    return torch.cat(xs, 1 if xs[0].dim() == 4 and a["dim"] == -1 else a["dim"])


def lstm_params(a, shape):
    hidden = a["hidden_size"]
    bound = ("uniform", hidden**-0.5)
    params = {"weight_ih_l0": ((4 * hidden, shape[2]), bound), "weight_hh_l0": ((4 * hidden, hidden), bound)}
    bias = {"bias_ih_l0": ((4 * hidden,), bound), "bias_hh_l0": ((4 * hidden,), bound)}
    return params | (bias if a.get("bias", True) else {})


def lstm(run, a, x, p):
    """torch's own in fp32. In half each hidden state is rounded before the next step; gradients are not."""
    zero = x.new_zeros(x.shape[0], a["hidden_size"])
    weights = [p[k] for k in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0") if k in p]
    if not run.out_half:
        states = (zero[None], zero[None])
        return torch.lstm(x, states, weights, len(weights) == 4, 1, 0.0, True, False, True)[0]
    h, c, states = zero, zero, []
    for t in range(x.shape[1]):
        new, c = torch.lstm_cell(x[:, t], (h, c), *weights)
        h = new + (new.to(run.policy.half).to(new.dtype) - new).detach()
        states.append(h)
    return torch.stack(states, 1)


class FromOutput(torch.autograd.Function):
    """A function whose gradient torch computes from the stored output, rounded if the op's output is half."""

    @staticmethod
    def forward(ctx, x, f, gradient, half):
        y = f(x)
        ctx.gradient = gradient
        ctx.save_for_backward(y.to(half).to(y.dtype) if half else y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return ctx.gradient(*ctx.saved_tensors, dy), None, None, None


def from_output(f, gradient):
    return lambda run, a, x, p: FromOutput.apply(x, f, gradient, run.policy.half if run.out_half else None)


OPS = {
    "layer_norm": ("fp32", layer_norm, norm_params),
    "rms_norm": ("follow", rms_norm, lambda a, shape: norm_params({**a, "bias": False}, shape)),
    "group_norm": ("fp32", group_norm, lambda a, shape: norm_params(a, shape, lambda s: s[1])),
    "gelu": ("fp32", lambda run, a, x, p: F.gelu(x, approximate=a.get("approximate", "none")), None),
    "silu": ("follow", lambda run, a, x, p: F.silu(x), None),
    "tanh": ("follow", from_output(torch.tanh, lambda y, dy: dy * (1 - y * y)), None),
    "sigmoid": ("follow", from_output(torch.sigmoid, lambda y, dy: dy * y * (1 - y)), None),
    "softmax": ("fp32", from_output(lambda x: x.softmax(-1), lambda y, dy: y * (dy - (y * dy).sum(-1, True))),
                None),
    "log_softmax": ("fp32", from_output(lambda x: x.log_softmax(-1),
                                        lambda y, dy: dy - y.exp() * dy.sum(-1, True)), None),
    "scaled_dot_product_attention": ("low", attention, None),
    "embedding": ("follow", lambda run, a, x, p: F.embedding(x, p["weight"]), embedding_params),
    "positional_embedding": ("promote", positional_embedding, position_params),
    "dropout": ("follow", dropout, None),
    "select": ("follow", lambda run, a, x, p: x.select(a.get("dim", 1), a.get("index", 0)), None),
    "reshape": ("follow", reshape, None),
    "lstm": ("low", lstm, lstm_params),
    "concat": ("promote", concat, None),
    "upsample": ("fp32", lambda run, a, x, p: F.interpolate(x, scale_factor=a["scale_factor"],
                                                            mode="nearest"), None),
    "mse": ("fp32", lambda run, a, xs, p: F.mse_loss(*xs), None),
}
SEVERAL_INPUTS = {"scaled_dot_product_attention", "concat", "mse"}  # functions that get a list
NORMS = {"batch_norm2d", "layer_norm", "rms_norm", "group_norm"}  # not set by `init` of a network file
