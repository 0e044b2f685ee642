"""What ampprobe adds to the peak of a training's memory: one process trains, and says its peak.

A process imports torch, makes a network of probe_arms.py, attaches a probe or not, as a loop does (before its
first step), trains and prints the most that it ever had in memory (`ru_maxrss`, what a job's limit is about),
in bytes. Nothing is timed: the machine may be busy. An allocator moves the peak of a training without a probe
by several MiB from process to process, so peer_probe.py has it give free memory back at once, and
probe_estimate.peaks takes many differences.
Usage: probe_memory.py NETWORK eager|compiled off|probe STEPS
"""

import json
import os
import resource
import sys
import tempfile

import probe_arms


def train(net, compiled, probed, steps, out):
    """The training; what the probe's library holds at its end, in bytes."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs, labels = probe_arms.NETS[net](torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    forward, probe = torch.compile(model) if compiled else model, None
    if probed:
        sys.path.insert(0, os.path.join(probe_arms.HERE, "..", "python"))
        import ampprobe

        probe = ampprobe.attach(model, optimizer, scaler=scaler, out=out)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if probe is None:
        return 0
    held = probe.record.costs()["memory_bytes"]
    probe.close()
    if probe.reason:
        raise SystemExit(probe.reason)
    return held


def main():
    net, kind, arm, steps = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        held = train(net, kind == "compiled", arm == "probe", int(steps), os.path.join(folder, "run.json"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak_bytes": peak, "held_bytes": held}))


if __name__ == "__main__":
    main()
