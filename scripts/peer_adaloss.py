#!/usr/bin/env python3
"""AdaLoss in PyTorch and numpy, layer by layer, as the original does it in Chainer
(kumasento/gradient-scaling, ada_loss/).

    peer_adaloss.py           writes tests/golden/adaloss/traces.jsonl

The backward pass runs op by op: each op's gradients come from autograd on that op alone, with one rounding
(peer_pytorch.py), together with the product of the scales so far. The rule of a layer's scale, its bounds and
the sum of branches follow the paper (arXiv:1910.12385) and the original's method approx_range, with its
float32 statistics. Needs torch 2.11, numpy and scipy. Not part of the build and not run by any test.
"""
import math
import os

import numpy as np
import torch
from scipy.special import erfinv

import peer_pytorch as peer

CONFIG = {**peer.BASE, "net": "tests/golden/adaloss.json", "data": "tests/golden/data", "batch": 8,
          "lr": 20.0, "steps": 4,
          "level": "O2", "scaler": "adaloss"}
TRACES = ({}, {"scaler": "adaloss:bound=4,accum=32"}, {"level": "O3"})
U_MIN, U_MAX = np.float32(6e-8), np.float32(65504)
LAYERS = ("conv2d", "linear")


def options(text):
    given = dict(item.split("=") for item in text.partition(":")[2].split(",") if item)
    return float(given.get("bound", 16)), float(given.get("accum", 1024))


def layer_scale(g, w, chain, bound, accum):
    """g as it comes, scaled by `chain`; w as the layer reads it. numpy arrays of float32."""
    variance = (g.std()**2 + g.mean()**2) * (w.std()**2 + w.mean()**2)
    sigma = np.float32(np.sqrt(variance))
    if sigma == 0:
        return 1.0
    fan_in = w.shape[0] * int(np.prod(w.shape[2:]))
    wanted = max(np.float32(U_MIN / (erfinv(1e-3) * math.sqrt(2) * sigma)), np.float32(1))
    scale = min(wanted, (U_MAX / fan_in) / (np.abs(g).max() * np.abs(w).max()))
    scale = min(scale, accum / chain, bound)
    return float(2.0**math.floor(math.log2(scale)))


def meet(a, b):
    """Two gradients brought to one scale: the larger one if fp16 can hold the largest gradient times it."""
    (ga, ca), (gb, cb) = a, b
    largest = max(float(ga.abs().max()), float(gb.abs().max()))
    target = next((c for c in sorted((ca, cb), reverse=True) if largest * c < 65504), None)
    if target is None:
        target = min(ca, cb)
        while target >= 1 / 8 and largest * target >= 65504:
            target /= 2
    half = lambda g, c: (g.float() * (target / c)).to(g.dtype)
    return half(ga, ca), half(gb, cb), target


class AdaLoss:
    def __init__(self, net, initial, config):
        self.net, self.policy = net, peer.Policy(config["level"], config["half"], 1.0)
        self.run, self.bounds = peer.Run(net, self.policy), options(config["scaler"])
        self.params = {n: v.to(self.policy.half).requires_grad_() for n, v in initial.items()}
        masters = self.policy.masters
        self.trained = {n: p.detach().float().requires_grad_() if masters else p
                        for n, p in self.params.items()}
        self.optimizer = peer.make_optimizer(config, self.trained, self.run)
        self.weight = net.document["losses"][0]["weight"]
        self.layers = [name for name, kind, _ in net.ops if kind in LAYERS]

    def forward(self, images, targets):
        self.run.targets, self.run.cast_cache = targets, {}
        values, self.tape = {"input": self.run.narrow(images)}, []
        for name, kind, inputs in self.net.ops:
            leaves = [values[i].detach().requires_grad_() for i in inputs]
            out = self.run.step(name, kind, leaves, self.params)
            self.tape.append((name, kind, inputs, leaves, out))
            values[name] = out.detach()
        return float(out.detach())

    def add(self, grads, name, grad, chain):
        if name not in grads:
            grads[name] = (grad, chain)
            return
        a, b, target = meet(grads[name], (grad, chain))
        grads[name] = ((a.float() + b.float()).to(a.dtype), target)

    def backward(self):
        grads, scales = {self.net.ops[-1][0]: (torch.tensor(self.weight), 1.0)}, {}
        for name, kind, inputs, leaves, out in reversed(self.tape):
            dout, chain = grads.pop(name)
            own = {n: p for n, p in self.params.items() if n.rsplit(".", 1)[0] == name}
            if own:
                found = torch.autograd.grad(out, list(own.values()), dout, retain_graph=True)
                for n, g in zip(own, found):
                    unscaled = g.float() / chain
                    self.trained[n].grad = unscaled if self.policy.masters else unscaled.to(self.policy.half)
            scale = 1.0
            if kind in LAYERS:
                w = self.params[name + ".weight"].detach().float().numpy()
                scales[name] = scale = layer_scale(dout.float().numpy(), w, chain, *self.bounds)
            wanted = [(i, x) for i, x in zip(inputs, leaves) if i != "input"]
            if not wanted:
                continue
            scaled = (dout.float() * scale).to(dout.dtype)
            for (i, _), g in zip(wanted, torch.autograd.grad(out, [x for _, x in wanted], scaled)):
                self.add(grads, i, g, chain * scale)
        return [scales[layer] for layer in self.layers]

    def step(self, images, targets):
        loss = self.forward(images, targets)
        scales = self.backward()
        self.optimizer.step()
        with torch.no_grad():
            for name, p in self.params.items():
                if self.trained[name] is not p:
                    p.copy_(self.trained[name].to(self.policy.half))
        return {"loss": self.weight * loss, "scale": 1.0, "skipped": False, "layers": scales}


def record(config):
    net = peer.Net(peer.resolve(config["net"]))
    data = peer.open_data(config["data"], net, config["normalize"])
    initial = net.initial(config["seed"])
    ada = AdaLoss(net, initial, config)
    start = {name: p.detach().clone() for name, p in ada.trained.items()}
    tensors = {name: {"count": p.numel(), "precision": 1 - int(math.log2(torch.finfo(p.dtype).eps)),
                      "start": peer.describe(name, p)} for name, p in start.items()}
    steps = []
    for i in range(config["steps"]):
        steps.append(ada.step(*data.batch(i, config["batch"])))
        for name, p in ada.trained.items():
            if i == 0:
                tensors[name]["gradient"] = peer.describe(name, p.grad)
            elif i == 1:
                tensors[name]["weight"] = peer.describe(name, p)
                tensors[name]["update_l2"] = float((p.detach().double() - start[name].double()).norm())
    return {"format": "ampbench-golden-1", "made_by": f"scripts/peer_adaloss.py, torch {torch.__version__}",
            "config": config, "init_digest": peer.init_digest(initial),
            "data": {"mean": data.mean, "std": data.std, "first_batch_digest": data.digest(config["batch"])},
            "layers": ada.layers, "layer_scales": [s["layers"] for s in steps], "steps": steps,
            "tensors": tensors}


def main():
    folder = os.path.join(peer.GOLDEN, "adaloss")
    os.makedirs(folder, exist_ok=True)
    for entry in TRACES:
        config = {**CONFIG, **entry}
        scaler = config["scaler"].replace(":", "-").replace("=", "").replace(",", "-")
        name = f"{config['level']}-{scaler}.json"
        with peer.torch_settings(1):
            peer.write_trace(os.path.join(folder, name), record(config))


if __name__ == "__main__":
    main()
