#!/usr/bin/env python3
"""Records what the loss scalers of frameworks do, for tests/unit/bench/amp/test_scaler_golden.c.

For each scaler of bench/amp/scaler/ that a package has, the package's own class gets fixed patterns of
overflows. The scale after every step, whether the optimizer ran, and the step at which it raised are written
to tests/golden/scalers/traces.jsonl, a line a scaler. Nothing of ampbench is used.

  pip install torch==2.11.0 numpy
  pip download --no-deps megatron-core==0.16.1 keras==3.15.1 mindspore==2.10.0 deepspeed==0.19.8
  pip download --no-deps --only-binary=:all: --python-version 3.8 --abi cp38 fairseq==0.12.2
  scripts/peer_scalers.py --packages DIR [--out tests/golden/scalers] [DIALECT...]

DIR holds the unpacked packages (DIR/keras/src/..., DIR/megatron/core/..., DIR/mindspore/...,
DIR/deepspeed/..., DIR/fairseq/...). Of megatron, deepspeed, fairseq and mindspore only the scaler's source
file is executed, with stubs for imports that it does not compute with (device 'cuda' becomes 'cpu';
logging; configuration classes). torch and keras are used as installed; keras needs KERAS_BACKEND=torch.
mindspore's two tensor forms (cell, functional) are executed with their operators mapped to numpy's fp32
operators of the same name, because the package's own need its runtime. mindspore 2.10's runtime gave the
same scales on the CPU in all 40 recordings that were repeated with it (1,160 steps).
"""
import argparse, json, math, os, random, re, sys, types

import golden_traces

# ---- patterns: (name, text); every dialect runs each of its configurations over all of them ----------------

def patterns():
    rnd = random.Random(20)
    out = {
        "reference": "00011000001000000000",
        "clean": "0" * 30,
        "alternating": "01" * 12 + "0" * 12,
        "overflowing": "1" * 12 + "0" * 8,
        "pairs": "0011" * 8 + "00000000",
    }
    for i, share in enumerate((0.05, 0.15, 0.3, 0.6)):
        out[f"random{i}"] = "".join("1" if rnd.random() < share else "0" for _ in range(120))
    out["long_overflow"] = "1" * 1200 + "0" * 12
    out["long_clean"] = "0" * 1200 + "1" * 4
    return out

# ---- drivers: step() returns True if the optimizer ran; scale() returns the scale --------------------------

class Torch:
    def __init__(self, init=65536.0, growth=2.0, backoff=0.5, window=2000):
        import torch
        self.torch = torch
        self.p = torch.nn.Parameter(torch.zeros(1))
        self.ran = False
        outer = self

        class Probe(torch.optim.SGD):
            def step(self, closure=None):
                outer.ran = True

        self.opt = Probe([self.p], lr=1.0)
        self.s = torch.amp.GradScaler("cpu", init_scale=init, growth_factor=growth, backoff_factor=backoff,
                                      growth_interval=window)
        self.s.scale(torch.zeros(1))

    def step(self, overflow):
        self.p.grad = self.torch.full((1,), math.inf if overflow else 1.0)
        self.ran = False
        self.s.step(self.opt)
        self.s.update()
        return self.ran

    def scale(self):
        return self.s.get_scale()


def source(packages, path):
    with open(os.path.join(packages, path)) as f:
        return f.read()


class Megatron:
    packages = None

    def __init__(self, init=2.0**32, min=1.0, growth=2.0, backoff=0.5, window=1000, hysteresis=2):
        text = source(self.packages, "megatron/core/optimizer/grad_scaler.py").replace("device='cuda'",
                                                                                       "device='cpu'")
        space = {}
        exec(compile(text, "grad_scaler.py", "exec"), space)
        self.s = space["DynamicGradScaler"](init, min, growth, backoff, window, hysteresis)

    def step(self, overflow):
        self.s.update(overflow)
        return not overflow

    def scale(self):
        return self.s.scale.item()


class MegatronConstant(Megatron):
    def __init__(self, init=65536.0):
        text = source(self.packages, "megatron/core/optimizer/grad_scaler.py").replace("device='cuda'",
                                                                                       "device='cpu'")
        space = {}
        exec(compile(text, "grad_scaler.py", "exec"), space)
        self.s = space["ConstantGradScaler"](init)


class Fairseq:
    packages = None

    def __init__(self, init=2.0**15, factor=2.0, window=2000, tolerance=0.0, threshold=0, min=1e-4):
        space = {}
        exec(compile(source(self.packages, "fairseq/optim/dynamic_loss_scaler.py"), "dynamic_loss_scaler.py",
                     "exec"), space)
        self.s = space["DynamicLossScaler"](init, factor, window, tolerance, threshold or None, min)

    def step(self, overflow):
        # FP16Optimizer: clip_grad_norm checks, step() runs and then calls update()
        try:
            self.s.check_overflow(math.inf if overflow else 1.0)
        except OverflowError:
            return False
        self.s.update()
        return True

    def scale(self):
        return self.s.loss_scale


def deepspeed_space(packages):
    def module(name, **members):
        m = types.ModuleType(name)
        m.__dict__.update(members)
        sys.modules[name] = m
        return m

    class Quiet:
        def __getattr__(self, name):
            return lambda *a, **k: None

    for name in ("deepspeed", "deepspeed.runtime"):
        module(name).__path__ = []
    module("deepspeed.comm", get_rank=lambda: 0)
    sys.modules["deepspeed"].comm = sys.modules["deepspeed.comm"]
    module("deepspeed.runtime.config_utils", DeepSpeedConfigObject=object)
    module("deepspeed.utils", log_dist=lambda *a, **k: None, logger=Quiet())
    module("deepspeed.runtime.utils", has_inf_or_nan=None)
    space = {"__name__": "loss_scaler"}
    sys.modules["loss_scaler"] = types.ModuleType("loss_scaler")
    exec(compile(source(packages, "deepspeed/runtime/fp16/loss_scaler.py"), "loss_scaler.py", "exec"), space)
    return space


class DeepSpeed:
    packages = None

    def __init__(self, init=65536.0, window=1000, min=1.0, hysteresis=2, consecutive=False, raises=True):
        self.s = deepspeed_space(self.packages)["DynamicLossScaler"](init, window, min, hysteresis,
                                                                     consecutive, raises)

    def step(self, overflow):
        self.s.update_scale(overflow)
        return not overflow

    def scale(self):
        return self.s.cur_scale


class DeepSpeedInline:
    """_update_scale of the optimizer's source, bound to an object with the configuration."""
    packages, which = None, None

    def __init__(self, **given):
        space = deepspeed_space(self.packages)
        profiles = space["LossScaleProfile"]
        profile = profiles.FUSED if self.which == "fused" else profiles.UNFUSED
        import torch
        args = None
        if given:
            d = space["LOSS_SCALE_PROFILE_DEFAULTS"][profile]
            args = {"init_scale": given.get("init", d.initial_dynamic_scale),
                    "scale_window": given.get("window", d.default_scale_window),
                    "min_scale": given.get("min", d.default_min_loss_scale)}
        self.loss_scale_config = space["LossScaleConfig"](torch.float16, True, 1.0, args, profile=profile)
        text = source(self.packages, f"deepspeed/runtime/fp16/{self.which}_optimizer.py")
        body = re.search(r"    def _update_scale\(self, skip\):\n(?:(?:        .*)?\n)+", text).group(0)
        code = "class Cut:\n" + body
        cut = {"logger": types.SimpleNamespace(info=lambda *a: None)}
        exec(compile(code, "optimizer.py", "exec"), cut)
        self.verbose = False
        self.update = types.MethodType(cut["Cut"]._update_scale, self)

    def step(self, overflow):
        self.update(overflow)
        return not overflow

    def scale(self):
        return self.loss_scale_config.cur_scale


class DeepSpeedFused(DeepSpeedInline):
    which = "fused"


class DeepSpeedUnfused(DeepSpeedInline):
    which = "unfused"


class Keras:
    def __init__(self, init=2.0**15, window=2000):
        os.environ.setdefault("KERAS_BACKEND", "torch")
        import keras
        self.keras = keras
        outer = self

        class Probe(keras.optimizers.SGD):
            def apply(self, grads, trainable_variables=None):
                outer.ran = True
                return super().apply(grads, trainable_variables)

        self.v = keras.Variable([0.0])
        self.s = keras.optimizers.LossScaleOptimizer(Probe(0.0), initial_scale=init,
                                                     dynamic_growth_steps=window)
        self.s.build([self.v])
        self.s.built = True

    def step(self, overflow):
        self.ran = False
        self.s.apply([self.keras.ops.convert_to_tensor([math.inf if overflow else 1.0])], [self.v])
        return self.ran

    def scale(self):
        return float(self.s.dynamic_scale.value)


class MindSporeHost:
    packages = None

    def __init__(self, init=2**24, factor=2, window=2000):
        text = source(self.packages, "mindspore/train/loss_scale_manager.py")
        classes = text[text.index("class LossScaleManager"):]
        space = {"validator": types.SimpleNamespace(check_positive_int=lambda *a: a[0]), "nn": None}
        exec(compile(classes, "loss_scale_manager.py", "exec"), space)
        self.s = space["DynamicLossScaleManager"](init, factor, window)

    def step(self, overflow):
        self.s.update_loss_scale(overflow)
        return not overflow

    def scale(self):
        s = self.s.get_loss_scale()
        try:
            return float(s)
        except OverflowError:
            return math.inf  # an int that no float represents


class Cell0:
    """A numpy stub of a 0-d Parameter of mindspore: fp32 or int32, assigned in place."""

    def __init__(self, value, dtype):
        import numpy
        self.v = numpy.array(value, dtype)

    @staticmethod
    def of(x):
        return x.v if isinstance(x, Cell0) else x

    def __add__(self, o): return Cell0.wrap(self.v + self.like(o))
    def __sub__(self, o): return Cell0.wrap(self.v - self.like(o))
    def __mul__(self, o): return Cell0.wrap(self.v * self.like(o))
    def __mod__(self, o): return Cell0.wrap(self.v % self.like(o))
    def __truediv__(self, o): return Cell0.wrap(self.v / self.like(o))
    def __eq__(self, o): return Cell0.wrap(self.v == self.like(o))

    def like(self, o):
        o = Cell0.of(o)
        return self.v.dtype.type(o) if isinstance(o, (int, float, bool)) else o

    @property
    def dtype(self):
        return self.v.dtype

    @staticmethod
    def wrap(v):
        import numpy
        c = Cell0.__new__(Cell0)
        c.v = numpy.asarray(v)
        return c


def mindspore_space():
    import numpy as np
    of, wrap = Cell0.of, Cell0.wrap
    select = lambda c, a, b: wrap(np.where(of(c), of(a), of(b)).astype(np.asarray(of(a)).dtype))

    def assign(p, v):
        p.v = np.array(of(v), p.v.dtype)
        return p

    op = lambda f: (lambda *a: (lambda *b: wrap(f(*map(of, b)))))
    ops = types.SimpleNamespace(
        Select=lambda: select, select=select, assign=assign, depend=lambda v, _: v, Maximum=op(np.maximum),
        Reciprocal=op(lambda x: np.float32(1) / x), LessEqual=op(lambda a, b: a <= b),
        LogicalAnd=op(np.logical_and),
        LogicalNot=op(np.logical_not), LogicalOr=op(np.logical_or),
        maximum=lambda a, b: wrap(np.maximum(of(a), of(b))),
        isfinite=lambda x: wrap(np.isfinite(of(x))), ones=lambda shape, dtype: wrap(np.ones(shape, dtype)))

    class Cell:
        def __init__(self):
            pass

    return {"ops": ops, "Cell": Cell, "ABC": object, "abstractmethod": lambda f: f, "np": np,
            "mstype": types.SimpleNamespace(int32=np.int32, float32=np.float32, bool_=np.bool_),
            "Tensor": lambda v, dtype=np.float32: Cell0(v, dtype), "Parameter": lambda t, name=None: t,
            "validator": types.SimpleNamespace(check_positive_int=lambda v, *a: v,
                                               check_value_type=lambda n, v, t: v)}


class MindSporeCell:
    packages = None

    def __init__(self, init=2.0**24, factor=2.0, window=2000):
        import numpy as np
        text = source(self.packages, "mindspore/nn/wrap/loss_scale.py")
        start, end = (text.index(f"class {kind}LossScaleUpdateCell") for kind in ("Dynamic", "Fixed"))
        cut = text[start:end]
        space = mindspore_space()
        exec(compile(cut, "loss_scale.py", "exec"), space)
        self.cell = space["DynamicLossScaleUpdateCell"](init, factor, window)
        self.sense = Cell0(init, np.float32)

    def step(self, overflow):
        import numpy as np
        return not bool(Cell0.of(self.cell.construct(self.sense, Cell0(overflow, np.bool_))))

    def scale(self):
        return float(self.sense.v)


class MindSporeFunctional:
    packages = None

    def __init__(self, init=65536.0, factor=2, window=2000):
        text = source(self.packages, "mindspore/amp.py")
        cut = text[text.index("class LossScaler(ABC)"):text.index("__all__")]
        space = mindspore_space()
        exec(compile(cut, "amp.py", "exec"), space)
        self.s = space["DynamicLossScaler"](init, factor, window)

    def step(self, overflow):
        import numpy as np
        self.s.adjust(Cell0(not overflow, np.bool_))
        return not overflow

    def scale(self):
        return float(self.s.scale_value.v)


# ---- what is recorded: (text for ampbench, arguments for the driver) ---------------------------------------

DIALECTS = {
    "torch": (Torch, [
        ("torch", {}), ("torch:window=4", dict(window=4)),
        ("torch:init=4,window=4", dict(init=4.0, window=4)),
        ("torch:window=1", dict(window=1)), ("torch:window=0", dict(window=0)),
        ("torch:window=-3", dict(window=-3)),
        ("torch:growth=3,backoff=0.7,window=3", dict(growth=3.0, backoff=0.7, window=3)),
        ("torch:growth=1.001,backoff=0.75,window=1", dict(growth=1.001, backoff=0.75, window=1)),
        ("torch:init=1e38,window=2", dict(init=1e38, window=2)),
        ("torch:backoff=0,window=2", dict(backoff=0.0, window=2)),
        ("torch:backoff=-0.5,window=2", dict(backoff=-0.5, window=2)),
        ("torch:init=1000.1,window=5", dict(init=1000.1, window=5))]),
    "megatron": (Megatron, [
        ("megatron", {}), ("megatron:window=4,init=65536", dict(window=4, init=65536.0)),
        ("megatron:window=4,init=65536,hysteresis=1", dict(window=4, init=65536.0, hysteresis=1)),
        ("megatron:window=3,init=4,hysteresis=3", dict(window=3, init=4.0, hysteresis=3)),
        ("megatron:window=1", dict(window=1)), ("megatron:window=2.5", dict(window=2.5)),
        ("megatron:growth=1.1,backoff=0.9,window=2,init=1000,min=3.3",
         dict(growth=1.1, backoff=0.9, window=2, init=1000.0, min=3.3))]),
    "megatron-constant": (MegatronConstant,
                          [("megatron-constant", {}), ("megatron-constant:init=0.1", dict(init=0.1))]),
    "fairseq": (Fairseq, [
        ("fairseq", {}), ("fairseq:init=128,window=4", dict(init=128.0, window=4)),
        ("fairseq:window=4,tolerance=0.25", dict(window=4, tolerance=0.25)),
        ("fairseq:window=3,tolerance=0.5,factor=3", dict(window=3, tolerance=0.5, factor=3.0)),
        ("fairseq:window=4,threshold=8", dict(window=4, threshold=8.0)),
        ("fairseq:window=1,factor=1.5", dict(window=1, factor=1.5)),
        ("fairseq:init=4,window=2,min=1", dict(init=4.0, window=2, min=1.0))]),
    "deepspeed": (DeepSpeed, [
        ("deepspeed", {}), ("deepspeed:window=4", dict(window=4)),
        ("deepspeed:window=4,hysteresis=1", dict(window=4, hysteresis=1)),
        ("deepspeed:window=4,consecutive=True", dict(window=4, consecutive=True)),
        ("deepspeed:init=4,window=4", dict(init=4.0, window=4)),
        ("deepspeed:init=4,window=4,raises=False", dict(init=4.0, window=4, raises=False)),
        ("deepspeed:hysteresis=0,window=2", dict(hysteresis=0, window=2)),
        ("deepspeed:window=1", dict(window=1)),
        ("deepspeed:init=1,min=8,window=3,hysteresis=3", dict(init=1.0, min=8.0, window=3, hysteresis=3))]),
    "deepspeed-fused": (DeepSpeedFused, [
        ("deepspeed-fused", {}), ("deepspeed-fused:init=65536,window=4", dict(init=65536.0, window=4)),
        ("deepspeed-fused:init=4,window=2,min=3", dict(init=4.0, window=2, min=3.0)),
        ("deepspeed-fused:window=1", dict(window=1))]),
    "deepspeed-unfused": (DeepSpeedUnfused, [
        ("deepspeed-unfused", {}), ("deepspeed-unfused:window=4", dict(window=4)),
        ("deepspeed-unfused:window=1,init=1", dict(window=1, init=1.0))]),
    "keras": (Keras, [
        ("keras", {}), ("keras:window=4", dict(window=4)), ("keras:window=1", dict(window=1)),
        ("keras:init=1000.1,window=3", dict(init=1000.1, window=3)), ("keras:window=0", dict(window=0))]),
    "mindspore-host": (MindSporeHost, [
        ("mindspore-host", {}), ("mindspore-host:init=65536,window=4", dict(init=65536, window=4)),
        ("mindspore-host:init=65536.0,window=4", dict(init=65536.0, window=4)),
        ("mindspore-host:window=1", dict(window=1)),
        ("mindspore-host:window=1,factor=3", dict(window=1, factor=3)),
        ("mindspore-host:window=1,factor=2.0", dict(window=1, factor=2.0)),
        ("mindspore-host:window=2,factor=1.5", dict(window=2, factor=1.5)),
        ("mindspore-host:init=1000,window=3,factor=10", dict(init=1000, window=3, factor=10)),
        ("mindspore-host:init=5.5,window=2,factor=0.5", dict(init=5.5, window=2, factor=0.5)),
        ("mindspore-host:window=3,factor=1.001", dict(window=3, factor=1.001))]),
    "mindspore-cell": (MindSporeCell, [
        ("mindspore-cell", {}), ("mindspore-cell:init=65536,window=4", dict(init=65536.0, window=4)),
        ("mindspore-cell:init=4,window=4", dict(init=4.0, window=4)),
        ("mindspore-cell:window=1", dict(window=1)),
        ("mindspore-cell:factor=3,window=2", dict(factor=3.0, window=2)),
        ("mindspore-cell:factor=1.5,window=3,init=1000", dict(factor=1.5, window=3, init=1000.0))]),
    "mindspore-functional": (MindSporeFunctional, [
        ("mindspore-functional:window=4", dict(window=4)),
        ("mindspore-functional:init=4,window=4", dict(init=4.0, window=4)),
        ("mindspore-functional:window=1", dict(window=1)),
        ("mindspore-functional:factor=3,window=2", dict(factor=3, window=2))]),
}


def record(driver, pattern):
    """[[scale after, ran, count]...] and the step that raised."""
    runs, raised = [], None
    for k, flag in enumerate(pattern):
        try:
            ran = driver.step(flag == "1")
        except Exception as e:  # noqa: BLE001: whatever the package raises
            raised = {"step": k, "type": type(e).__name__}
            break
        s = driver.scale()
        s = "inf" if s == math.inf else s
        if runs and runs[-1][:2] == [s, ran]:
            runs[-1][2] += 1
        else:
            runs.append([s, ran, 1])
    return runs, raised


def versions(packages):
    import importlib.metadata as m
    out = {"torch": m.version("torch")}
    try:
        out["keras"] = m.version("keras")
    except m.PackageNotFoundError:
        pass
    out.update({"megatron-core": "0.16.1", "deepspeed": "0.19.8", "fairseq": "0.12.2", "mindspore": "2.10.0"})
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--packages", required=True)
    ap.add_argument("--out", default="tests/golden/scalers")
    ap.add_argument("dialects", nargs="*")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    for name, (driver, configs) in DIALECTS.items():
        if a.dialects and name not in a.dialects:
            continue
        driver.packages = a.packages
        traces = []
        for text, kwargs in configs:
            for label, pattern in patterns().items():
                runs, raised = record(driver(**kwargs), pattern)
                traces.append({"config": text, "pattern": label, "runs": runs, "raised": raised})
        document = {"dialect": name, "made_by": "scripts/peer_scalers.py", "versions": versions(a.packages),
                    "patterns": patterns(), "traces": traces}
        golden_traces.put(os.path.join(a.out, name + ".json"), json.dumps(document))
        print(name, len(traces))


if __name__ == "__main__":
    main()
