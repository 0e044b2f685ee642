#!/usr/bin/env python3
"""JAX as a peer of scripts/bench: a network file trained by one jitted step of XLA on the CPU, as one would
write it: images NHWC, donated buffers, the network's own optimizer. Prints step times as JSON.

    peer_jax.py --net lenet5 --threads 1 --modes fp32,bf16

The network, its initial values and its batches are those of peer_pytorch.py. A mode bf16 or fp16 keeps fp32
weights and casts them, as flax does with `dtype`; norms, softmax and losses compute in fp32. Compilation is
not timed. XLA's threads are those of the CPUs that the process may use, so --threads sets its affinity. Needs
jax, torch and numpy; a network with an op that is not here is refused with exit status 3.
"""
import argparse
import json
import math
import os
import sys
import time


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--net", default="lenet5")
    parser.add_argument("--data", default="")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--modes", default="fp32,bf16", help="of fp32, bf16, fp16")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each mode")
    parser.add_argument("--max-steps", type=int, default=200, help="for each mode")
    return parser.parse_args(arguments)


options = parse(sys.argv[1:])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])  # before XLA starts its threads
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

import peer_pytorch  # noqa: E402
import peer_turns  # noqa: E402

pair = peer_pytorch.pair
DTYPES = {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}

# ---- ops: (attributes, input, parameters) -> output; images are NHWC --------------------------------------


def conv2d(a, x, p):
    padding = [(n, n) for n in pair(a.get("padding", 0))]
    y = jax.lax.conv_general_dilated(x, p["weight"], pair(a.get("stride", 1)), padding,
                                     rhs_dilation=pair(a.get("dilation", 1)),
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                     feature_group_count=a.get("groups", 1))
    return y + p["bias"] if "bias" in p else y


def linear(a, x, p):
    y = x @ p["weight"].T
    return y + p["bias"] if "bias" in p else y


def max_pool2d(a, x, p):
    size, stride = pair(a["kernel_size"]), pair(a.get("stride") or a["kernel_size"])
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, *size, 1), (1, *stride, 1), "VALID")


def normalised(x, axes, eps):
    x = x.astype(jnp.float32)
    mean = x.mean(axes, keepdims=True)
    var = jnp.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + eps), mean, var


def scaled(y, p, dtype):
    return (y * p["weight"] + p["bias"] if "weight" in p else y).astype(dtype)


def batch_norm2d(a, x, p):
    """The running statistics are the second result."""
    y, mean, var = normalised(x, (0, 1, 2), a.get("eps", 1e-5))
    n, rate = math.prod(x.shape[:3]), a.get("momentum", 0.1)
    kept = {"running_mean": (1 - rate) * p["running_mean"] + rate * mean.ravel(),
            "running_var": (1 - rate) * p["running_var"] + rate * var.ravel() * n / (n - 1)}
    return scaled(y, p, x.dtype), kept


def layer_norm(a, x, p):
    return scaled(normalised(x, -1, a.get("eps", 1e-5))[0], p, x.dtype)


def attention(a, x, p):
    heads = a.get("num_heads", 1)
    q, k, v = (t.reshape(*t.shape[:2], heads, -1).transpose(0, 2, 1, 3) for t in jnp.split(x, 3, -1))
    scores = (q @ k.transpose(0, 1, 3, 2)).astype(jnp.float32) * (a.get("scale") or q.shape[-1]**-0.5)
    if a.get("is_causal"):
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    y = jax.nn.softmax(scores).astype(x.dtype) @ v
    return y.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)


def positional_embedding(a, x, p):
    if "class_token" in p:
        x = jnp.concatenate([jnp.broadcast_to(p["class_token"], (x.shape[0], 1, x.shape[2])), x], 1)
    return x + p["weight"][:x.shape[1]]


def flatten(a, x, p):
    """In torch's order: channels first."""
    return (x.transpose(0, 3, 1, 2) if x.ndim == 4 else x).reshape(x.shape[0], -1)


def reshape(a, x, p):
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(a["shape"])])


def gelu(a, x, p):
    return jax.nn.gelu(x, approximate=a.get("approximate") == "tanh")


OPS = {
    "conv2d": conv2d, "linear": linear, "max_pool2d": max_pool2d, "batch_norm2d": batch_norm2d,
    "layer_norm": layer_norm, "scaled_dot_product_attention": attention, "flatten": flatten,
    "positional_embedding": positional_embedding, "reshape": reshape, "gelu": gelu,
    "relu": lambda a, x, p: jax.nn.relu(x),
    "tanh": lambda a, x, p: jnp.tanh(x),
    "global_avg_pool": lambda a, x, p: x.mean((1, 2)),
    "embedding": lambda a, x, p: p["weight"][x],
    "select": lambda a, x, p: jnp.take(x, a.get("index", 0), a.get("dim", 1)),
    "add": lambda a, xs, p: sum(xs[1:], xs[0]),
}


def cross_entropy(x, targets):
    logs = jax.nn.log_softmax(x.astype(jnp.float32).reshape(-1, x.shape[-1]))
    return -jnp.take_along_axis(logs, targets.reshape(-1, 1), 1).mean()


# ---- a step ------------------------------------------------------------------------------------------------


def refuse(message):
    print(f"peer_jax: {message}", file=sys.stderr)
    sys.exit(3)


def check(net):
    for name, kind, inputs in net.ops:
        a = net.attrs[name]
        masked = kind == "scaled_dot_product_attention" and len(inputs) > 1
        if kind not in (*OPS, "cross_entropy") or masked:
            refuse(f"{net.name}: op {kind} is not written for JAX")
        if a.get("dropout_p") or (kind == "max_pool2d" and (a.get("padding") or a.get("ceil_mode"))):
            refuse(f"{net.name}: {name} has attributes that are not written for JAX")


def forward(net, params, images, targets, dtype):
    """The loss, and the running statistics."""
    kept, values = {}, {"input": images}
    for name, kind, inputs in net.ops:
        p = {k.rsplit(".", 1)[1]: v for k, v in params.items() if k.rsplit(".", 1)[0] == name}
        if kind not in ("batch_norm2d", "layer_norm"):
            p = {k: v.astype(dtype) for k, v in p.items()}
        xs = [values[i] for i in inputs]
        if kind == "cross_entropy":
            return cross_entropy(xs[0], targets), kept
        y = OPS[kind](net.attrs[name], xs if kind == "add" else xs[0], p)
        if kind == "batch_norm2d":
            y, statistics = y
            kept |= {f"{name}.{k}": v for k, v in statistics.items()}
        values[name] = y
    raise AssertionError("no loss")


def momentum(w, g, state, rate, step):
    v = 0.9 * state[0] + g
    return w - rate * v, (v, state[1])


def adamw(w, g, state, rate, step):
    m, v = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g
    size = jnp.sqrt(v / (1 - 0.999**step)) + 1e-8
    return w * (1 - rate * 0.01) - rate * m / (1 - 0.9**step) / size, (m, v)


class Timed:
    """One arm: ordinary training of a network in one precision."""
    warmup = 2

    def __init__(self, net, batches, mode):
        self.times, self.steps, self.first_loss = [], 0, None
        self.mode, self.batches = mode, batches
        self.params = {name: self.place(name, tensor.numpy()) for name, tensor in net.initial(1).items()}
        trained = [name for name in self.params if not peer_pytorch.is_buffer(name)]
        self.state = {name: tuple(jnp.zeros_like(self.params[name]) for _ in range(2)) for name in trained}
        rule = adamw if net.defaults.get("optimizer", "momentum").startswith("adam") else momentum
        rate = net.defaults.get("lr", 0.01)

        def step(params, state, images, targets, count):
            def loss_of(weights):
                return forward(net, params | weights, images, targets, DTYPES[mode])

            weights = {name: params[name] for name in trained}
            (loss, kept), grads = jax.value_and_grad(loss_of, has_aux=True)(weights)
            updated = {name: rule(weights[name], grads[name], state[name], rate, count) for name in trained}
            return (params | kept | {name: u[0] for name, u in updated.items()},
                    {name: u[1] for name, u in updated.items()}, loss)

        self.run = jax.jit(step, donate_argnums=(0, 1))

    def place(self, name, array):
        return jnp.array(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array)

    def step(self):
        images, targets = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        if images.dtype == jnp.float32:
            images = images.astype(DTYPES[self.mode])
        begin = time.perf_counter_ns()
        self.params, self.state, loss = self.run(self.params, self.state, images, targets, self.steps)
        loss.block_until_ready()
        self.times.append(time.perf_counter_ns() - begin)
        if self.steps == 1:
            self.first_loss = float(loss)
            self.times.clear()  # it compiled


def to_jax(images, targets):
    images = images.numpy()
    return (jnp.array(images.transpose(0, 2, 3, 1) if images.ndim == 4 else images),
            jnp.array(targets.numpy().astype(np.int32)))


def main():
    torch.set_num_threads(1)
    net = peer_pytorch.Net(options.net)
    check(net)
    batches = [to_jax(*b) for b in peer_pytorch.bench_batches(net, options.data, options.batch)]
    arms = [Timed(net, batches, mode) for mode in options.modes.split(",")]
    for arm in arms:
        arm.step()
    arms = peer_turns.take_turns(arms, options.seconds, options.max_steps)
    json.dump({"jax": jax.__version__,
               "results": [peer_turns.result_of(arm, net=net.name, mode=arm.mode, layout="channels_last",
                                                batch=options.batch, threads=options.threads)
                           for arm in arms]}, sys.stdout)
    print()


main()
