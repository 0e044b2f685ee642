"""Step times of PyTorch on a device: the same network files in ordinary training loops.

Called by peer_pytorch.py --bench --device cuda; prints the same JSON.

Arms are MODE or MODE+compile. Modes: fp32 (IEEE, no TF32), autocast_fp16 and autocast_bf16 (with GradScaler
for fp16), O2_fp16 (half model, fp32 batch norms, masters and loss scale by hand, as apex defined it), O3_fp16
(everything half). Also products: large matrix products and convolutions through torch, for the rate of the
libraries. Images are random: times do not depend on them.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F


class Clock:
    """Nanoseconds of a step, by events on a GPU and by the wall clock elsewhere."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.marks = []

    def mark(self):
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter_ns())

    def times(self):
        if not self.cuda:
            return [b - a for a, b in zip(self.marks, self.marks[1:])]
        torch.cuda.synchronize()
        return [int(a.elapsed_time(b) * 1e6) for a, b in zip(self.marks, self.marks[1:])]


class Arm:
    """One training loop: a network in one precision, layout and mode of execution."""

    def __init__(self, peer, net, arm, layout, batch, device):
        self.peer, self.net, self.arm, self.layout, self.device = peer, net, arm, layout, device
        self.mode, _, self.compiled = arm.partition("+")
        self.format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        self.half = torch.bfloat16 if self.mode.endswith("bf16") else torch.float16
        self.autocast = self.mode.startswith("autocast")
        self.half_model = self.mode[:2] in ("O2", "O3")
        generator = torch.Generator().manual_seed(1)
        self.batches = [self.make_batch(batch, generator) for _ in range(4)]
        self.params = {n: self.place(n, t) for n, t in net.initial(1).items()}
        self.masters = self.make_masters()
        trained = list(self.masters.values()) or [p for n, p in self.params.items() if not peer.is_buffer(n)]
        self.optimizer = torch.optim.SGD(trained, lr=0.01, momentum=0.9)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.mode == "autocast_fp16")
        self.run = peer.Run(net, peer.Policy("O0"))
        self.forward = torch.compile(self.plain_forward) if self.compiled else self.plain_forward
        self.times, self.count = [], 0

    def make_tokens(self, size, generator):
        given = self.net.document["input"]
        shape = (size, given["tokens"])
        ids = torch.randint(0, given["vocabulary"], shape, generator=generator)
        targets = torch.randint(0, given["vocabulary"], shape, generator=generator)
        return ids.to(self.device), targets.to(self.device)

    def make_batch(self, size, generator):
        if "tokens" in self.net.document["input"]:
            return self.make_tokens(size, generator)
        images = torch.randn(size, self.net.channels, self.net.height, self.net.width, generator=generator)
        targets = torch.randint(0, 10, (size,), generator=generator)
        dtype = self.half if self.half_model else torch.float32
        return images.to(self.device, dtype).contiguous(memory_format=self.format), targets.to(self.device)

    def is_norm(self, name):
        return any(name.rsplit(".", 1)[0] == op and kind == "batch_norm2d" for op, kind, _ in self.net.ops)

    def place(self, name, tensor):
        keep = self.mode.startswith("O2") and self.is_norm(name)
        tensor = tensor.to(self.device, self.half if self.half_model and not keep else torch.float32)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=self.format)
        return tensor if self.peer.is_buffer(name) else tensor.requires_grad_()

    def make_masters(self):
        if not self.mode.startswith("O2"):
            return {}
        return {n: p.detach().float().clone().requires_grad_() for n, p in self.params.items()
                if not self.peer.is_buffer(n)}

    def batch_norm(self, x, p, attrs):
        return F.batch_norm(x, p["running_mean"], p["running_var"], p.get("weight"), p.get("bias"), True,
                            attrs.get("momentum", 0.1), attrs.get("eps", 1e-5))

    def plain_forward(self, images, targets):
        self.run.targets = targets
        values = {"input": images}
        for name, kind, inputs in self.net.ops:
            p = {k: self.params[f"{name}.{k}"] for k in ("weight", "bias", "running_mean", "running_var")
                 if f"{name}.{k}" in self.params}
            xs = [values[i] for i in inputs]
            attrs = self.net.attrs[name]
            if kind == "batch_norm2d":
                last = self.batch_norm(xs[0], p, attrs)
            elif kind == "cross_entropy":
                last = F.cross_entropy(xs[0].float().flatten(0, -2), targets.flatten())
            else:
                last = self.peer.OPS[kind][1](self.run, attrs,
                                              xs if kind in self.peer.SEVERAL_INPUTS else xs[0], p)
            values[name] = last
        return last

    def update_masters(self, scale):
        """Masters from half gradients; a step with a non-finite gradient is skipped, as in apex."""
        names = list(self.masters)
        grads = [self.params[n].grad.float().div_(scale) for n in names]
        for name, grad in zip(names, grads):
            self.masters[name].grad = grad
        if bool(torch.stack([torch.isfinite(g).all() for g in grads]).all()):
            self.optimizer.step()
            with torch.no_grad():
                for name in names:
                    self.params[name].copy_(self.masters[name])
        for name in names:
            self.params[name].grad = None

    def step(self):
        images, targets = self.batches[self.count % len(self.batches)]
        self.count += 1
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, dtype=self.half, enabled=self.autocast):
            loss = self.forward(images, targets)
        if self.masters:
            (loss * 1024.0).backward()
            self.update_masters(1024.0)
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def turn(self, steps):
        clock = Clock(self.device)
        clock.mark()
        for _ in range(steps):
            self.step()
            clock.mark()
        self.times += clock.times()

    def result(self, warmup):
        peak = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None
        return {"net": self.net.name, "mode": self.arm, "layout": self.layout,
                "batch": len(self.batches[0][1]),
                "device": self.device.type, "warmup_steps": warmup, "step_time_ns": self.times[warmup:],
                "median_step_time_ns": statistics.median(self.times[warmup:]),
                "peak_bytes_of_all_arms": peak}


def products(device, seconds):
    """Rates of torch's own matrix products and convolutions, in FLOP/s."""
    results = []
    large = 4096 if device.type == "cuda" else 256
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for n in (large // 4, large // 2, large):
            a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
            results.append({"what": "matmul", "size": n, "format": str(dtype)[6:],
                            "flop_per_s": 2.0 * n ** 3 * rate(lambda: a @ b, device, seconds)})
        c = 64 if device.type == "cuda" else 8
        x = torch.randn(64, c, 56, 56, device=device,
                        dtype=dtype).contiguous(memory_format=torch.channels_last)
        w = torch.randn(c, c, 3, 3, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
        results.append({"what": "conv2d", "size": c, "format": str(dtype)[6:], "flop_per_s":
                        2.0 * 64 * 56 * 56 * c * c * 9
                        * rate(lambda: F.conv2d(x, w, padding=1), device, seconds)})
    return results


def rate(call, device, seconds):
    """Calls a second, after warming up."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(3):
        call()
    wait()
    begin, count = time.perf_counter(), 0
    while count < 3 or time.perf_counter() - begin < seconds:
        for _ in range(5):
            call()
        wait()
        count += 5
    return count / (time.perf_counter() - begin)


def bench(peer, options):
    """Arms take turns of a few steps; each stops when its seconds are over."""
    device = torch.device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    net = peer.Net(options.net)
    layouts = ("contiguous", "channels_last")
    arms = [Arm(peer, net, arm, layout, options.batch, device) for arm in options.modes.split(",")
            for layout in layouts]
    warmup, turn, waiting, failed = 5, 10, list(arms), []
    while waiting:
        for arm in list(waiting):
            try:
                arm.turn(turn)
            except Exception as error:  # what torch does not support (compile, a type) ends this arm only
                failed.append({"net": net.name, "mode": arm.arm, "layout": arm.layout,
                               "failed": str(error)[:300]})
                waiting.remove(arm)
                arms.remove(arm)
                continue
            timed = arm.times[warmup:]
            if len(timed) >= options.max_steps or sum(timed) > options.seconds * 1e9:
                waiting.remove(arm)
    document = {"torch": torch.__version__, "device": str(device), "tf32": False,
                "results": [arm.result(warmup) for arm in arms] + failed}
    if device.type == "cuda":
        document["gpu"] = torch.cuda.get_device_name(device)
    if options.products:
        document["products"] = products(device, options.seconds / 10)
    json.dump(document, sys.stdout)
    print()
