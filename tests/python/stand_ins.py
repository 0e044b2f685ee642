"""A training loop without a framework: arrays with the few methods that the probe uses."""

import array
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "torch")]

_PACKED = {"float32": ("f", 4), "float16": ("e", 2), "float64": ("d", 8)}


def to_half(value):
    """Bits of a value as fp16; infinite if it is too large."""
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00


class Tensor:
    """data_ptr, dtype, numel, shape, grad."""

    def __init__(self, values, dtype="float32"):
        self.dtype, self.shape, self.grad = dtype, (len(values),), None
        if dtype == "bfloat16":
            bits = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
            self.store = array.array("H", bits)
        elif dtype == "float16":
            self.store = array.array("H", [to_half(value) for value in values])
        else:
            self.store = array.array({"float32": "f", "float64": "d"}[dtype], values)

    def data_ptr(self):
        return self.store.buffer_info()[0]

    def numel(self):
        return len(self.store)

    @property
    def nbytes(self):
        return len(self.store) * self.store.itemsize


class Model:
    """Named parameters."""

    def __init__(self, **parameters):
        self.parameters = parameters

    def named_parameters(self):
        return list(self.parameters.items())


class Optimizer:
    """Calls hooks as torch's does; subtracts lr times the gradient."""

    def __init__(self, parameters, lr=0.1):
        self.param_groups = [{"params": list(parameters), "lr": lr}]
        self.state, self.before, self.after = {}, {}, {}

    def register_step_pre_hook(self, hook):
        return Handle(self.before, hook)

    def register_step_post_hook(self, hook):
        return Handle(self.after, hook)

    def step(self):
        for hook in list(self.before.values()):
            hook(self, (self,), {})
        for p in self.param_groups[0]["params"]:
            if p.grad is not None and p.dtype == "float32":
                for i, g in enumerate(p.grad.store):
                    p.store[i] -= self.param_groups[0]["lr"] * g
        for hook in list(self.after.values()):
            hook(self, (self,), {})


class Handle:
    """Takes a hook away again."""

    def __init__(self, hooks, hook):
        self.hooks, self.key = hooks, object()
        hooks[self.key] = hook

    def remove(self):
        self.hooks.pop(self.key, None)


class Scaler:
    """A loss scaler with the methods of GradScaler."""

    def __init__(self, scale):
        self.value, self.bad = scale, False

    def is_enabled(self):
        return True

    def get_scale(self):
        return self.value

    def scale(self, loss):
        return loss * self.value

    def unscale_(self, optimizer):
        grads = [p.grad for p in optimizer.param_groups[0]["params"] if p.grad is not None]
        self.bad = any(value - value != 0 for g in grads for value in g.store)
        for g in grads:
            for i, value in enumerate(g.store):
                g.store[i] = value / self.value

    def step(self, optimizer):
        self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        self.value *= 0.5 if self.bad else 1.0
