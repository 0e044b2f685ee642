"""Lightning on a run that fails for a reason that people have: fine-tuning with bf16 weights.

`precision="bf16-true"` keeps the weights themselves in bf16, whose numbers lie 0.4 % apart. At a rate of 1e-5
hardly an update is that large, and most are lost. `--fix` trains with `bf16-mixed`, whose weights are fp32.
"""

import sys

import lightning
import torch

import ampprobe

lightning.seed_everything(0, verbose=False)
torch.set_num_threads(1)
inputs = torch.randn(3200, 32)
labels = (inputs[:, :4].sum(dim=1) > 0).long()


class Head(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))

    def training_step(self, batch, number):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x.to(self.dtype)).float(), y)
        self.log("train_loss", loss)
        if number % 100 == 0:
            print(f"step {number:3d}  loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)


trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", precision="bf16-mixed" if "--fix" in sys.argv else "bf16-true",
    callbacks=[ampprobe.trainers.lightning(out="finetune.ampprobe.json")],
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
data = torch.utils.data.TensorDataset(inputs, labels)
trainer.fit(Head(), torch.utils.data.DataLoader(data, batch_size=16))
