"""Arrays in a GPU's memory: stand-ins whose memory is that of the emulated device where its plugin is there
(AMPBENCH_PLUGIN_DIR), and what is said where it is not."""

import array
import ctypes
import json
import math
import os
import tempfile
import types
import unittest
import unittest.mock

import stand_ins  # noqa: F401 (puts the package on the path)

LIBRARY = os.environ.get("AMPPROBE_LIBRARY")
FOLDER = os.environ.setdefault("AMPBENCH_PLUGIN_DIR", "/none")
PLUGIN = os.path.join(FOLDER, "libampbench_cuda.so")

import ampprobe  # noqa: E402
from ampprobe import _abi, _cuda  # noqa: E402


def device_memory(data):
    """Address of a copy of the bytes in the emulated device's memory."""
    block = ctypes.CDLL(PLUGIN).emulated_block
    block.restype, block.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_size_t]
    return block(data, len(data))


class Array:
    """fp32 values at an address, as CuPy describes them."""

    dtype = "float32"

    def __init__(self, values, address=None, **about):
        self.store = array.array("f", values)
        at = self.store.buffer_info()[0] if address is None else address(self.store.tobytes())
        self.shape = (len(values),)
        self.__cuda_array_interface__ = {
            "shape": self.shape,
            "typestr": "<f4",
            "data": (at, True),
            "strides": None,
            "version": 3,
            **about,
        }


class Views(unittest.TestCase):
    def test_what_the_interface_says(self):
        found = _cuda.view(Array([1.0, 2.0], stream=7))
        self.assertEqual((found.count, found.storage, found.dtype), (2, 8, _abi.DTYPES["float32"]))
        self.assertEqual((found.device, found.stream), (_abi.CUDA, 7))
        self.assertEqual(_cuda.view(Array([1.0], strides=(4,))).stream, 0)
        spread = _cuda.view(Array([1.0, 2.0], strides=(8,)))
        self.assertEqual(spread.reason, "it is not contiguous on a device")
        self.assertEqual(_cuda.view(Array([1.0], typestr="<i4")).reason, "its type is <i4")

    def test_a_gradient_of_torch(self):
        class Gradient:
            dtype, is_cuda, is_sparse = "torch.bfloat16", True, False
            device = types.SimpleNamespace(index=1)
            data_ptr, numel, storage_offset = (lambda _: 4096), (lambda _: 10), (lambda _: 2)
            contiguous = True

            def is_contiguous(self):
                return self.contiguous

            def untyped_storage(self):
                return types.SimpleNamespace(nbytes=lambda: 64)

        entry, gradient = _abi.Tensor(), Gradient()
        torch = types.SimpleNamespace(_C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda at: 80 + at))
        with unittest.mock.patch.dict("sys.modules", torch=torch):
            self.assertTrue(_cuda.put(entry, gradient, Gradient))
            self.assertFalse(_cuda.put(entry, gradient, dict))
            gradient.contiguous = False
            self.assertFalse(_cuda.put(entry, gradient, Gradient))
        self.assertEqual((entry.data, entry.count, entry.storage_bytes), (4096, 10, 60))
        self.assertEqual((entry.device, entry.stride, entry.stream), (_abi.CUDA, 1, 81))
        self.assertEqual(entry.dtype, _abi.DTYPES["bfloat16"])


@unittest.skipUnless(LIBRARY and os.path.exists(LIBRARY), "AMPPROBE_LIBRARY is not there")
class Loops(unittest.TestCase):
    def record(self, address):
        """The record of a loop with gradients of one kind of memory."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run.ampprobe.json")
            with ampprobe.loop({"w": stand_ins.Tensor([0.0] * 9)}, out=out, every=5) as probe:
                for step in range(24):
                    values = [(1.0 + i) / (1.0 + step) for i in range(9)]
                    values[4] = math.inf if step in (9, 14) else 0.0
                    gradient = Array(values, address) if address else stand_ins.Tensor(values)
                    probe.step({"w": gradient}, loss=1.0, scale=2.0)
                self.assertIsNone(probe.reason)
            with open(out, encoding="utf-8") as file:
                return json.load(file)

    @unittest.skipUnless(os.path.exists(PLUGIN), "the emulated plugin is not there")
    def test_a_loop_on_a_gpu_has_the_record_of_one_on_the_host(self):
        rows = []
        for address in (None, device_memory):
            document = self.record(address)
            cell = document["cells"][0]
            row = next(row for row in cell["probes"]["tensors"] if row["name"] == "w.grad")
            kept = ("count", "zero", "inf", "nonzero", "exponents", "min_abs", "max_abs")
            rows.append([cell["skipped_steps"], document["probe"]["overflowed"]] + [row.get(k) for k in kept])
            self.assertEqual(document["probe"]["not_counted"]["device"], 0)
        self.assertEqual(rows[0][0], [9, 14])
        self.assertEqual(rows[0], rows[1])

    @unittest.skipIf(os.path.exists(PLUGIN), "there is a plugin")
    def test_without_the_plugin_they_are_skipped_and_the_record_says_why(self):
        document = self.record(lambda data: 4096)
        self.assertEqual(document["probe"]["not_counted"]["device"], 24)
        said = [text for text in document["warnings"] if "tensors in CUDA memory are skipped" in text]
        self.assertEqual(len(said), 1)
        self.assertIn("libampbench_cuda.so", said[0])


if __name__ == "__main__":
    unittest.main()
