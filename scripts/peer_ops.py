"""PyTorch's side of the ops of transformers, recurrences and images, for scripts/peer_pytorch.py: class in apex's O1 lists,
function of widened inputs, parameters from attributes and input shape. Images are NCHW here and NHWC in network files."""
import torch
import torch.nn.functional as F


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
    y = F.scaled_dot_product_attention(q, k, v, xs[3] if len(xs) > 3 else None, is_causal=a.get("is_causal", False),
                                       scale=a.get("scale") or None)
    return y.transpose(1, 2).flatten(2) if three else y


def reshape(run, a, x, p):
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1)
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(a["shape"])])


def lstm_params(a, shape):
    hidden = a["hidden_size"]
    bound = ("uniform", hidden**-0.5)
    params = {"weight_ih_l0": ((4 * hidden, shape[2]), bound), "weight_hh_l0": ((4 * hidden, hidden), bound)}
    bias = {"bias_ih_l0": ((4 * hidden,), bound), "bias_hh_l0": ((4 * hidden,), bound)}
    return params | (bias if a.get("bias", True) else {})


def lstm(run, a, x, p):
    zero = x.new_zeros(1, x.shape[0], a["hidden_size"])
    weights = [p[k] for k in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0") if k in p]
    return torch.lstm(x, (zero, zero), weights, len(weights) == 4, 1, 0.0, True, False, True)[0]


class FromOutput(torch.autograd.Function):
    """A function whose gradient torch computes from the output as it is stored: rounded, if the op gives halves."""

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
    "softmax": ("fp32", from_output(lambda x: x.softmax(-1), lambda y, dy: y * (dy - (y * dy).sum(-1, True))), None),
    "log_softmax": ("fp32", from_output(lambda x: x.log_softmax(-1),
                                        lambda y, dy: dy - y.exp() * dy.sum(-1, True)), None),
    "scaled_dot_product_attention": ("low", attention, None),
    "embedding": ("follow", lambda run, a, x, p: F.embedding(x, p["weight"]), embedding_params),
    "positional_embedding": ("promote", positional_embedding, position_params),
    "select": ("follow", lambda run, a, x, p: x.select(a.get("dim", 1), a.get("index", 0)), None),
    "reshape": ("follow", reshape, None),
    "lstm": ("low", lstm, lstm_params),
}
SEVERAL_INPUTS = {"scaled_dot_product_attention"}  # functions that get a list
NORMS = {"batch_norm2d", "layer_norm", "rms_norm", "group_norm"}  # a file's init does not reach them
