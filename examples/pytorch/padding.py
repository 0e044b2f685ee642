"""Hugging Face's Trainer on a run that fails for a reason that people have: a row of nothing but padding.

Sentences of numbers, one of which is empty, as a tokenizer leaves a blank line. Its attention has no key, its
softmax is NaN, and so are all weights after the step. The log says "loss: 0": the Trainer replaces NaN before
it logs. `--fix` has no empty sentence.
"""

import sys

import torch
import transformers

import ampprobe

transformers.set_seed(0)
torch.set_num_threads(1)


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 32)
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = torch.nn.Linear(32, 2)

    def forward(self, tokens, labels):
        inputs = self.embedding(tokens)
        read, _ = self.attention(inputs, inputs, inputs, key_padding_mask=tokens == 0)
        logits = self.head(read.mean(dim=1))
        return {"loss": torch.nn.functional.cross_entropy(logits.float(), labels), "logits": logits}


rows = []
for number in range(1600):
    length = 0 if number == 700 and "--fix" not in sys.argv else 1 + number % 12
    tokens = torch.randint(1, 100, (12,)) * (torch.arange(12) < length)
    rows.append({"tokens": tokens, "labels": (tokens.sum() > 300).long()})

arguments = transformers.TrainingArguments(
    "out", use_cpu=True, bf16=True, per_device_train_batch_size=16, max_steps=100, logging_steps=25,
    report_to=[], save_strategy="no", disable_tqdm=True,
)  # fmt: skip
probe = ampprobe.trainers.hugging_face(out="padding.ampprobe.json", every=1)
transformers.Trainer(Classifier(), arguments, train_dataset=rows, callbacks=[probe]).train()
