"""A training that fails for a reason that people have: features in their own units, and fp16.

House prices from 16 features, one of which is the area of the land in square metres. In fp32 it trains. Under
autocast in fp16 every step is skipped, and the loss scale falls without end. `--fix` normalises the features.
"""

import sys

import torch

import ampprobe

torch.manual_seed(0)
torch.set_num_threads(1)
features = torch.randn(4096, 16)
price = features @ torch.randn(16, 1) + 0.1 * torch.randn(4096, 1)
features[:, 3] = (features[:, 3] + 4) * 1e5  # square metres
if "--fix" in sys.argv:
    features = (features - features.mean(0)) / features.std(0)

model = torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
probe = ampprobe.attach(model, optimizer, scaler=scaler, out="prices.ampprobe.json")


def loss_of(rows):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.nn.functional.mse_loss(model(features[rows]).float(), price[rows])


for step in range(300):
    rows = torch.randint(0, 4096, (64,))
    with probe.step(lambda: loss_of(rows)):  # only for the name of the operation; all else works without
        optimizer.zero_grad()
        loss = loss_of(rows)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if step % 60 == 0:
        print(f"step {step:3d}  loss {loss.item():.4f}  scale {scaler.get_scale():g}")
