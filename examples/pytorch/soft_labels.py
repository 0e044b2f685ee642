"""A training that fails for a reason that people have: the logarithm of a probability, in fp16.

A classifier learns from labels of which one in twenty is wrong. The 1e-8 that should keep the logarithm finite
is 0 in fp16, so the loss is inf as soon as the network is sure of an example that it is told is another. Nothing of ampprobe is in here: it is run with
`python -m ampprobe --thorough soft_labels.py`.
"""

import torch

torch.manual_seed(10)
torch.set_num_threads(1)
prototypes = torch.randn(6, 20) * 8
model = torch.nn.Sequential(torch.nn.Linear(20, 96), torch.nn.ReLU(), torch.nn.Linear(96, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scaler = torch.amp.GradScaler("cpu")


def soft_cross_entropy(logits, targets):
    probabilities = torch.softmax(logits, dim=1)
    return -(targets * torch.log(probabilities + 1e-8)).sum(1).mean()


for step in range(200):
    labels = torch.randint(0, 6, (64,))
    inputs = prototypes[labels] + torch.randn(64, 20)
    wrong = torch.rand(64) < 0.05
    labels = torch.where(wrong, torch.randint(0, 6, (64,)), labels)
    targets = torch.nn.functional.one_hot(labels, 6).float()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = soft_cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss.item():.4f}  scale {scaler.get_scale():g}")
