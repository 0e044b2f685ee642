"""DDP on three processes: a flipped bit on one rank is found by the records of all, and the twin is sound."""

import os
import unittest

import ranks

TRAINING = """
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(rank)  # DDP broadcasts the weights of rank 0
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
probe = ampprobe.attach(model, optimizer, out="run.json", check_ranks=2)
replica = DistributedDataParallel(model) if {wrapped} else model
for step in range(140 if {long} else 12):
    x, y = batch(step * world + rank)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(replica(x), y).backward()
    optimizer.step()
    if {flip} and rank == 1 and step == 6:
        with torch.no_grad():
            model[2].weight.view(torch.int32)[1, 3] ^= 1
probe.close()
assert probe.reason is None, probe.reason
result = 0
"""


@unittest.skipUnless(
    ranks.PROGRAM and os.environ.get("AMPPROBE_LIBRARY"), "AMPBENCH or AMPPROBE_LIBRARY is not set"
)
class RanksOutOfStep(unittest.TestCase):
    def train(self, **how):
        options = {"wrapped": True, "long": False, "flip": False, **how}
        _, documents = ranks.run(TRAINING.format(**options), world=3)
        self.assertEqual(len(documents), 3)
        return documents

    def test_a_flipped_bit_is_named_with_rank_tensor_and_step(self):
        ids, text = ranks.diagnosis(self.train(flip=True))
        self.assertEqual(ids[0], "ranks_out_of_step")
        self.assertIn("after 8 steps 2.weight of rank 1 is not, bit by bit, that of most ranks", text)
        self.assertIn("(1 of 3 ranks and 1 tensor differ)", text)
        self.assertIn("after 6 steps the weights of all ranks were the same", text)

    def test_the_healthy_twin_is_healthy(self):
        documents = self.train()
        checks = documents["run.rank2.json"]["probe"]["about"]["replicas"]["checks"]
        self.assertEqual([check[0] for check in checks], [0, 2, 4, 6, 8, 10, 12])
        self.assertNotIn("ranks_out_of_step", ranks.diagnosis(documents)[0])

    def test_ranks_that_start_apart_are_told_before_the_first_step(self):
        ids, text = ranks.diagnosis(self.train(wrapped=False))
        self.assertEqual(ids[0], "ranks_out_of_step")
        self.assertIn("before the first step 0.weight of rank", text)
        self.assertIn("load checkpoints before", text)

    def test_many_checks_are_thinned_alike_on_all_ranks(self):
        documents = self.train(long=True, flip=True)
        for document in documents.values():
            kept = document["probe"]["about"]["replicas"]
            self.assertEqual(kept["every"], 4)
            self.assertEqual([check[0] for check in kept["checks"]], list(range(0, 141, 4)))
        self.assertEqual(ranks.diagnosis(documents)[0][0], "ranks_out_of_step")


if __name__ == "__main__":
    unittest.main()
