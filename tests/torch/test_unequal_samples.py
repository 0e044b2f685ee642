"""DDP on two gloo processes whose batches have 12 and 3 samples: the mean of their means, and the verdict."""

import os
import unittest

import ranks

TRAINING = """
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
x, y = torch.randn(15, 8), torch.randint(0, 4, (15,))
counts = {counts}
begin = sum(counts[:rank])
mine = slice(begin, begin + counts[rank])
loss_of = torch.nn.functional.cross_entropy
model = torch.nn.Linear(8, 4)
whole = torch.autograd.grad(loss_of(model(x[: sum(counts)]), y[: sum(counts)]), model.weight)[0]
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
probe = ampprobe.attach(model, optimizer, out="run.json")
replica = DistributedDataParallel(model)
for step in range(12):
    seen = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(seen, torch.tensor([float(counts[rank])]))
    samples = [float(one) for one in seen]
    optimizer.zero_grad()
    loss = loss_of(replica(x[mine]), y[mine])
    if {weighted}:
        loss = loss * (world * counts[rank] / sum(samples))
    else:
        probe.fact("rank_samples_ratio", max(samples) / min(samples))
    loss.backward()
    if step == 0:
        result = float((model.weight.grad - whole).norm() / whole.norm())
    optimizer.step()
probe.close()
assert probe.reason is None, probe.reason
"""


@unittest.skipUnless(
    ranks.PROGRAM and os.environ.get("AMPPROBE_LIBRARY"), "AMPBENCH or AMPPROBE_LIBRARY is not set"
)
class UnequalSamples(unittest.TestCase):
    def train(self, counts=(12, 3), weighted=False):
        """How far DDP's first gradient is from that of all samples, verdicts and text of both records."""
        far, documents = ranks.run(TRAINING.format(counts=counts, weighted=weighted))
        ids, text = ranks.diagnosis(documents)
        return max(far), ids, text

    def test_a_mean_of_means_is_not_that_of_all_samples_and_is_named(self):
        far, ids, text = self.train()
        self.assertGreater(far, 0.05)
        self.assertIn("ranks_weighted_alike", ids)
        self.assertIn("a sample of the smallest batch counts 4 times", text)

    def test_ranks_weighted_by_their_samples_give_the_gradient_of_all(self):
        far, ids, _ = self.train(weighted=True)
        self.assertLess(far, 1e-5)
        self.assertNotIn("ranks_weighted_alike", ids)

    def test_equal_ranks_are_not_accused(self):
        far, ids, _ = self.train(counts=(6, 6))
        self.assertLess(far, 1e-5)
        self.assertNotIn("ranks_weighted_alike", ids)


if __name__ == "__main__":
    unittest.main()
