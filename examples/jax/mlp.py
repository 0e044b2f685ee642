"""A training in JAX with half gradients and a loss scale, which ampprobe records at the end of each step.

An MLP on Fashion-MNIST; JAX has no loss scaler of its own, so the loop halves and doubles the scale by hand.
Usage: mlp.py DATA STEPS OUT [INITIAL_SCALE]; DATA has train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz.
"""

import gzip
import sys

import jax
import jax.numpy as jnp
import numpy

import ampprobe

folder, steps, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
scale = float(sys.argv[4]) if len(sys.argv) > 4 else 2.0**16
with gzip.open(f"{folder}/train-images-idx3-ubyte.gz") as file:
    images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 784) / numpy.float32(255)
with gzip.open(f"{folder}/train-labels-idx1-ubyte.gz") as file:
    labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8).astype(numpy.int32)

rng = numpy.random.default_rng(1)
parameters = {
    f"fc{i}": {
        "weight": jnp.asarray(rng.normal(0, (2 / n) ** 0.5, (n, m)), jnp.float32),
        "bias": jnp.zeros(m, jnp.float32),
    }
    for i, (n, m) in enumerate([(784, 64), (64, 10)])
}


def scaled_loss(parameters, x, y, scale):
    half = jax.tree_util.tree_map(lambda w: w.astype(jnp.float16), parameters)
    hidden = jax.nn.relu(x.astype(jnp.float16) @ half["fc0"]["weight"] + half["fc0"]["bias"])
    logits = (hidden @ half["fc1"]["weight"] + half["fc1"]["bias"]).astype(jnp.float32)
    loss = -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(y)), y])
    return loss * scale, loss


@jax.jit
def gradients_of(parameters, x, y, scale):
    (_, loss), gradients = jax.value_and_grad(scaled_loss, has_aux=True)(parameters, x, y, scale)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree_util.tree_leaves(gradients)]))
    return loss, gradients, finite


@jax.jit
def updated(parameters, gradients, scale):
    return jax.tree_util.tree_map(lambda w, g: w - 0.05 * g / scale, parameters, gradients)


good = 0
with ampprobe.loop(parameters, out=out, half="fp16", model="MLP of 784, 64 and 10") as probe:
    for step in range(steps):
        rows = rng.integers(0, len(images), 64)
        loss, gradients, finite = gradients_of(parameters, images[rows], labels[rows], scale)
        skipped = not bool(finite)
        after = parameters if skipped else updated(parameters, gradients, scale)
        good = 0 if skipped else good + 1
        next_scale = scale / 2 if skipped else scale * 2 if good % 2000 == 0 else scale
        probe.step(
            gradients,
            loss=loss,
            scale=scale,
            next_scale=next_scale,
            skipped=skipped,
            lr=0.05,
            weights=parameters,
            updated=after,
        )
        parameters, scale = after, next_scale
