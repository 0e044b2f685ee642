#!/usr/bin/env python3
"""PyTorch taking apex's steps for several losses, each under a loss scale of its own (num_losses, loss_id).

    peer_losses.py            writes tests/golden/losses/traces.jsonl

Reimplements apex/amp/handle.py and _process_optimizer.py for one optimizer. For every loss: stash the
gradients, backpropagate its scaled loss, check and unscale the new gradients, add the stash, update the
loss's scaler. An overflow of any loss skips the next optimizer step. Networks, data, initial bits and the
rounding of half ops are those of peer_pytorch.py; its Trainer is not used. Needs torch 2.11 and numpy. Not
part of the build and not run by any test.
"""
import math
import os

import torch

import peer_pytorch as peer

CONFIG = {**peer.BASE, "net": "tests/golden/two_losses.json", "data": "tests/golden/data", "batch": 8,
          "lr": 0.0001,
          "steps": 12, "num_losses": 2, "scale_window": 3}
TRACES = ({"level": "O0"}, {"level": "O1"}, {"level": "O2"}, {"level": "O2", "half": "bf16"},
          {"level": "O3", "scale": 128.0})


class LossScaler:
    """apex's, with a window that can be set."""

    def __init__(self, loss_scale, window):
        self.dynamic, self.window, self.unskipped = loss_scale == "dynamic", window, 0
        self.scale = 65536.0 if self.dynamic else float(loss_scale)

    def update(self, overflow):
        skip = self.dynamic and overflow
        if skip:
            self.scale /= 2
        self.unskipped = 0 if skip else self.unskipped + 1
        if self.dynamic and self.unskipped == self.window:
            self.scale, self.unskipped = min(2.0**24, self.scale * 2), 0
        return skip


class Apex:
    """One model, one optimizer, `num_losses` scalers."""

    def __init__(self, net, initial, config):
        self.net, self.policy = net, peer.Policy(config["level"], config["half"], config["scale"])
        self.run = peer.Run(net, self.policy)
        self.scalers = [LossScaler(self.policy.loss_scale, config["scale_window"])
                        for _ in range(config["num_losses"])]
        kinds = {name: kind for name, kind, _ in net.ops}
        self.params, self.masters = {}, {}
        for name, value in initial.items():
            norm = kinds[name.rsplit(".", 1)[0]] == "batch_norm2d" and self.policy.keep_batchnorm
            half = self.policy.half_model and not norm
            self.params[name] = value.to(self.policy.half) if half else value.clone()
        self.model = {n: p.requires_grad_() for n, p in self.params.items() if not peer.is_buffer(n)}
        for name, p in self.model.items():
            if self.policy.masters and p.dtype == self.policy.half:
                self.masters[name] = p.detach().float().requires_grad_()
        self.trained = {n: self.masters.get(n, p) for n, p in self.model.items()}
        self.optimizer = peer.make_optimizer(config, self.trained, self.run)
        self.weights = [(l, 1.0) if isinstance(l, str) else (l["op"], l["weight"])
                        for l in net.document["losses"]]

    def forward(self, images, targets):
        run = self.run
        run.targets, run.cast_cache = targets, {}
        values = {"input": run.narrow(images) if self.policy.half_model else images}
        for name, kind, inputs in self.net.ops:
            values[name] = run.step(name, kind, [values[i] for i in inputs], self.params)
        return [values[name].float() * weight for name, weight in self.weights]

    def scale_loss(self, loss, scaler, retain):
        """with amp.scale_loss(loss, optimizer, loss_id) as scaled: scaled.backward(). Whether to skip."""
        untouched = not self.masters and not scaler.dynamic and scaler.scale == 1.0
        if untouched:  # autograd adds to existing gradients
            loss.backward(retain_graph=retain)
            return False, False
        aside = {n: p.grad for n, p in self.model.items()}
        for p in self.model.values():
            p.grad = None
        (loss * scaler.scale).backward(retain_graph=retain)
        overflow, inverse = False, 1.0 / scaler.scale
        for name, p in self.model.items():
            if p.grad is None:
                p.grad = aside[name]
                continue
            came = p.grad.float()
            overflow |= not bool(torch.isfinite(came).all())
            owner = self.trained[name]
            before = owner.grad if name in self.masters else aside[name]
            total = came * inverse if before is None else came * inverse + before.float()
            p.grad = None
            owner.grad = total.to(owner.dtype)
        return scaler.update(overflow), overflow and scaler.dynamic

    def step(self, images, targets):
        scales, skip, overflows = [s.scale for s in self.scalers], False, []
        for p in (*self.model.values(), *self.masters.values()):
            p.grad = None
        losses = self.forward(images, targets)
        for k, scaler in enumerate(self.scalers):
            skips, overflow = self.scale_loss(losses[k], scaler, k + 1 < len(self.scalers))
            skip |= skips
            overflows += [k] if overflow else []
        if not skip:
            self.optimizer.step()
            with torch.no_grad():
                for name, master in self.masters.items():
                    self.model[name].copy_(master.to(self.policy.half))
        total = sum(float(x.detach()) for x in losses)
        return {"loss": total, "scale": scales[0], "skipped": skip, "scales": scales, "overflows": overflows}


def record(config):
    net = peer.Net(peer.resolve(config["net"]))
    data = peer.open_data(config["data"], net, config["normalize"])
    initial = net.initial(config["seed"])
    apex = Apex(net, initial, config)
    start = {name: p.detach().clone() for name, p in apex.trained.items()}
    tensors = {name: {"count": p.numel()} for name, p in apex.params.items()}
    for name, p in start.items():
        tensors[name]["precision"] = 1 - int(math.log2(torch.finfo(p.dtype).eps))
        tensors[name]["start"] = peer.describe(name, p)
    steps, taken = [], 0
    for i in range(config["steps"]):
        steps.append(apex.step(*data.batch(i, config["batch"])))
        taken += not steps[-1]["skipped"]
        if steps[-1]["skipped"] or taken > 2:
            continue
        for name, p in apex.trained.items():
            if taken == 1:
                tensors[name]["gradient"] = peer.describe(name, p.grad)
            else:
                tensors[name]["weight"] = peer.describe(name, p)
                tensors[name]["update_l2"] = float((p.detach().double() - start[name].double()).norm())
        for name in filter(peer.is_buffer, apex.params):
            tensors[name]["buffer"] = peer.describe(name, apex.params[name])
    return {"format": "ampbench-golden-1", "made_by": f"scripts/peer_losses.py, torch {torch.__version__}",
            "config": config, "init_digest": peer.init_digest(initial),
            "data": {"mean": data.mean, "std": data.std, "first_batch_digest": data.digest(config["batch"])},
            "scales": [s["scales"] for s in steps], "overflows": [s["overflows"] for s in steps],
            "steps": steps, "tensors": tensors}


def main():
    os.makedirs(os.path.join(peer.GOLDEN, "losses"), exist_ok=True)
    for entry in TRACES:
        config = {**CONFIG, **entry}
        with peer.torch_settings(1):
            peer.write_trace(os.path.join(peer.GOLDEN, "losses", peer.trace_name(config)), record(config))


if __name__ == "__main__":
    main()
