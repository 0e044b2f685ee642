"""Tensors of every kind: the layout is checked before a pointer is given away.

What breaks probes of PyTorch, and the test of each:

vmap and grad wrappers, FakeTensors, meta,     here: test_refused; in a model: test_layers
  quantised, complex, fp8, freed                 test_function_transforms
expanded gradients, gaps, transposed           here: test_by_a_copy, test_without_a_copy; test_layers
                                                 test_expanded_gradients_are_not_read_out_of_bounds
sparse embeddings, shared, zero-size,          here: test_gradients_of_all_kinds
  channels_last, freed gradients
frozen parameters, layers before them          settings.mlp, in all of test_steps; test_layers
                                                 test_frozen_first_layer_is_seen_forward_only
pickle, deepcopy, torch.save, schedules,       test_objects
  subclasses, optimizers with a scaler inside, accelerate, Lightning
fused optimizers that skip by themselves       test_steps test_optimizers; test_quiet
closures, clipping without a scaler            test_steps test_closure, test_clipping_without_scaler...
compiled models and optimizer steps            test_steps, test_layers test_compiled_models
gradients before DDP has reduced them          test_record test_two_ranks_write_two_records
FSDP, ZeRO, Megatron                           test_fsdp, test_deepspeed, test_megatron
in-place ReLU, modules used twice, tuples,     test_layers
  attention, checkpointing, gradient penalty, TorchScript, validation, copies of the model
a fused SGD whose first step is skipped        test_causes
hooks of others on the optimizer's step,       test_quiet
  classes that others patch
"""

import unittest

from settings import _abi, ampprobe, torch, use_recorder

from ampprobe import _layout
from ampprobe._layout import Unreadable, View


class Values(unittest.TestCase):
    def readable(self, tensor, count):
        found = _layout.view(tensor)
        self.assertIsInstance(found, View, found)
        self.assertEqual(found.count, count)
        self.assertLessEqual(found.count * _abi.ITEM_BYTES[found.dtype], found.storage)
        return found

    def refused(self, tensor, text):
        found = _layout.view(tensor)
        self.assertIsInstance(found, Unreadable, found)
        self.assertIn(text, found.reason)

    def test_without_a_copy(self):
        base = torch.randn(4, 3, 5, 6)
        for tensor in (
            base,
            base.half(),
            base.bfloat16(),
            base.double(),
            base[2],
            base.t() if base.dim() == 2 else base.permute(2, 0, 1, 3),
            base.to(memory_format=torch.channels_last),
            torch.tensor(1.5),
            torch.nn.Parameter(base),
        ):
            self.assertEqual(self.readable(tensor, tensor.numel()).data, tensor.data_ptr())

    def test_by_a_copy(self):
        for tensor in (
            torch.ones(()).expand(40, 100),
            torch.randn(8, 8)[:, ::2],
            torch.randn(9)[::2],
            torch.randn(3, 1).expand(3, 7),
        ):
            found = self.readable(tensor, tensor.numel())
            self.assertNotEqual(found.data, tensor.data_ptr())

    def test_empty(self):
        self.readable(torch.zeros(0, 4), 0)

    def test_sparse(self):
        sparse = torch.sparse_coo_tensor([[0, 0, 3]], [[1.0, 2.0]] * 3, (5, 2))
        self.readable(sparse, 4)

    def test_refused(self):
        self.refused(torch.empty(3, device="meta"), "no values")
        with torch._subclasses.FakeTensorMode():
            fake = torch.randn(3)
        self.refused(fake, "no values")
        self.refused(torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8), "quantised")
        self.refused(torch.ones(3, dtype=torch.complex64), "complex")
        self.refused(torch.ones(3, dtype=torch.int64), "int64")
        self.refused(torch.ones(3).to(torch.float8_e4m3fn), "float8_e4m3fn")
        self.refused(torch.ones(2, 2).to_sparse_csr(), "layout")
        freed = torch.randn(100)
        freed.untyped_storage().resize_(0)
        self.refused(freed, "freed")
        self.refused(object(), "cannot be read")

        def transformed(tensor):
            self.refused(tensor, "function transform")
            return tensor.sum()

        torch.vmap(transformed)(torch.randn(3, 2))
        torch.func.grad(transformed)(torch.randn(3))

    def test_gradients_of_all_kinds(self):
        use_recorder()
        model = torch.nn.ModuleDict(
            {
                "sparse": torch.nn.Embedding(50, 4, sparse=True),
                "dense": torch.nn.Linear(4, 4),
                "conv": torch.nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last),
            }
        )
        model.register_parameter("empty", torch.nn.Parameter(torch.zeros(0)))
        model.register_parameter("expanded", torch.nn.Parameter(torch.zeros(40, 100)))
        model["tied"] = torch.nn.Linear(4, 4)
        model["tied"].weight = model["dense"].weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        probe = ampprobe.attach(model, optimizer)
        x = model["tied"](model["dense"](model["sparse"](torch.tensor([1, 1, 7]))))
        (x.sum() + model["conv"](torch.randn(1, 1, 4, 4)).sum()).backward()
        model.expanded.grad = torch.ones(()).expand(40, 100)
        optimizer.step()
        record = probe.record
        self.assertIsNone(probe.reason)
        seen = {record.things[g["id"]]["name"]: g for g in record.steps[0]["gradients"][0]}
        self.assertEqual(seen["sparse.weight"]["count"], 8)  # rows 1 and 7, added up
        self.assertEqual(seen["expanded"]["sum"], 4000.0)
        self.assertEqual(seen["conv.weight"]["count"], 36)
        self.assertEqual(seen["empty"]["count"], 0)
        self.assertEqual(sum("weight" in t["name"] for t in record.things if t.get("flags", 0) & 1), 3)
        with self.subTest("a freed gradient is passed by"):
            x = model["dense"](torch.randn(2, 4))
            x.sum().backward()
            model["dense"].weight.grad.untyped_storage().resize_(0)
            probe.groups[0].before_unscale(torch.amp.GradScaler("cpu", enabled=False))
            self.assertIsNone(probe.reason)
            found = {record.things[g["id"]]["name"]: g for g in record.current[-1]}
            self.assertEqual(found["dense.weight"]["count"], 0)
        probe.close()

    def test_parameters_that_are_added(self):
        use_recorder()
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        probe = ampprobe.attach(model, optimizer)
        for step in range(2):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            extra = torch.nn.Parameter(torch.ones(3))
            extra.grad = torch.ones(3)
            optimizer.add_param_group({"params": [extra]})
        probe.close()
        self.assertEqual([len(s["gradients"][0]) for s in probe.record.steps], [2, 3])


if __name__ == "__main__":
    unittest.main()
