"""The C library libampprobe through ctypes: structures, functions, where the file is looked for.

All knowledge of the C interface (probes/lib/ampprobe.h) is in this file. It knows nothing of frameworks.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_void_p
from typing import Any, Iterable, Sequence

ABI = 1
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}
OTHER_DTYPE = 99
ITEM_BYTES = {0: 4, 1: 2, 2: 2, 3: 8}
HOST, CUDA = 0, 1

WEIGHT_GRADIENT, ACTIVATION_GRADIENT, UNSCALED_GRADIENT, ACTIVATION, WEIGHT, OPTIMIZER_STATE = range(6)

OK, ARGUMENT, OUTPUT, MEMORY, OFF, FORKED, INPUT = range(7)
FINAL = (OUTPUT, OFF, FORKED)

PARAMETER, FROZEN = 1, 2
ALL, CHECK, FINITE = 1, 2, 4
PLAN_LAYERS, PLAN_UPDATE, PLAN_STATE, PLAN_GRADIENTS = 1, 2, 4, 8

HAS_SCALE, HAS_LOSS, HAS_LR, HAS_NORM, HAS_CLIP = 1, 2, 4, 8, 16
CLIPPED_SCALED, SCHEDULE_ON_SKIP, LAYERS_SHOWN = 32, 64, 128


class Thing(ctypes.Structure):
    """ampprobe_thing."""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char_p),
        ("layer", c_char_p),
        ("type", c_char_p),
        ("dtype", c_int32),
        ("group", c_int32),
        ("dimensions", c_int32),
        ("reserved", c_int32),
        ("shape", c_int64 * 8),
    ]


class Tensor(ctypes.Structure):
    """ampprobe_tensor."""

    _fields_ = [
        ("id", c_int32),
        ("role", c_int32),
        ("dtype", c_int32),
        ("device", c_int32),
        ("data", c_void_p),
        ("count", c_int64),
        ("stride", c_int64),
        ("storage_bytes", c_int64),
        ("stream", c_void_p),
        ("slot", c_int32),
        ("skipped", c_int32),
        ("counted", c_int64),
        ("nonfinite", c_int64),
    ]


# The structure as 64-bit words, for writes through a memoryview, which cost a third of a ctypes attribute.
WORDS = ctypes.sizeof(Tensor) // 8
_TENSOR_BYTES = ctypes.sizeof(Tensor)
_AT_DTYPE, _SLOT_WORD = Tensor.dtype.offset, Tensor.slot.offset // 8
_pack_what = struct.Struct("=4iQ2q").pack_into  # the first fields
_pack_whose = struct.Struct("=2i").pack_into  # of those: id and role
_pack_where = struct.Struct("=2iQ3qQ").pack_into  # from dtype to stream
WORD_DATA = 2


class Seen(ctypes.Structure):
    """ampprobe_seen."""

    _fields_ = [
        ("size", c_uint32),
        ("exact", c_int32),
        ("values", c_int64),
        ("counted", c_int64),
        ("nonfinite", c_int64),
        ("tensors", c_int32),
        ("skipped", c_int32),
        ("first", c_int32),
        ("overflowed", c_int32),
    ]


class StepFacts(ctypes.Structure):
    """ampprobe_step_facts."""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("step", c_int64),
        ("group", c_int32),
        ("found_inf", c_int32),
        ("stepped", c_int32),
        ("micro_batches", c_int32),
        ("scale_before", c_double),
        ("scale_after", c_double),
        ("loss", c_double),
        ("lr", c_double),
        ("norm_before_clip", c_double),
        ("norm_after_clip", c_double),
        ("clip_norm", c_double),
        ("seconds", c_double),
        ("spent", c_double),
        ("plan", c_int32),
        ("reserved", c_int32),
    ]


# Writes a StepFacts with its fields in their order: one call in place of one a field.
pack_facts = struct.Struct("=2Iq4i9d2i").pack_into
FACTS_BYTES = ctypes.sizeof(StepFacts)


class Cost(ctypes.Structure):
    """ampprobe_cost."""

    _fields_ = [
        ("size", c_uint32),
        ("stride", c_int32),
        ("probe_seconds", c_double),
        ("run_seconds", c_double),
        ("steps", c_int64),
        ("layer_steps", c_int64),
        ("memory_bytes", c_int64),
    ]


class ProbeError(RuntimeError):
    """A call of the library failed. `final`: the probe is off from here on."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status
        self.final = status in FINAL


class LibraryError(RuntimeError):
    """The library was not found, cannot be loaded or is of another version."""


_HANDLE = c_void_p
_SIGNATURES = {
    "ampprobe_abi": (c_int, []),
    "ampprobe_version": (c_char_p, []),
    "ampprobe_error": (c_char_p, []),
    "ampprobe_open": (c_int, [c_char_p, c_char_p, POINTER(_HANDLE)]),
    "ampprobe_set": (c_int, [_HANDLE, c_char_p, c_char_p]),
    "ampprobe_note": (c_int, [_HANDLE, c_char_p]),
    "ampprobe_fact": (c_int, [_HANDLE, c_char_p, c_char_p, c_int64, c_double]),
    "ampprobe_flush": (c_int, [_HANDLE]),
    "ampprobe_close": (c_int, [_HANDLE]),
    "ampprobe_describe": (c_int, [_HANDLE, POINTER(Thing), c_int32, POINTER(c_int32)]),
    "ampprobe_gradients": (c_int, [_HANDLE, c_int32, c_void_p, c_int32, c_uint32, c_void_p]),
    "ampprobe_see": (c_int, [_HANDLE, c_void_p, c_int32, c_uint32, c_void_p]),
    "ampprobe_see_named": (c_int, [_HANDLE, c_char_p, c_void_p]),
    "ampprobe_before_update": (c_int, [_HANDLE, c_int32, c_void_p, c_int32]),
    "ampprobe_after_update": (c_int, [_HANDLE, c_int32, c_void_p, c_int32]),
    "ampprobe_plan": (c_int, [_HANDLE, c_int64]),
    "ampprobe_step": (c_int, [_HANDLE, c_void_p]),
    "ampprobe_steps": (c_int, [_HANDLE, c_void_p, c_int32]),
    "ampprobe_latest": (c_int, [_HANDLE, c_int32, POINTER(c_void_p)]),
    "ampprobe_spent": (c_int, [_HANDLE, c_double]),
    "ampprobe_costs": (c_int, [_HANDLE, POINTER(Cost)]),
}


def _candidates() -> Iterable[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("AMPPROBE_LIBRARY")
    if named:
        yield named
        return
    for folder in (here, os.path.join(here, "lib")):
        for name in ("libampprobe.so.1", "libampprobe.so", "libampprobe.dylib"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                yield path
    yield "libampprobe.so.1"
    yield "libampprobe.so"


def _open_library() -> ctypes.CDLL:
    tried = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    raise LibraryError("libampprobe was not found (set AMPPROBE_LIBRARY to its file): " + "; ".join(tried))


_library: Any = None


def library() -> ctypes.CDLL:
    """The library, loaded once and checked for its version."""
    global _library
    if _library is not None:
        return _library
    loaded = _open_library()
    if not hasattr(loaded, "ampprobe_abi"):
        raise LibraryError(f"{loaded._name} is not libampprobe: it has no function ampprobe_abi")
    found = loaded.ampprobe_abi()
    if found != ABI:
        raise LibraryError(f"{loaded._name} has ABI version {found}, this Python package needs {ABI}")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise LibraryError(f"{loaded._name} lacks the function {name}")
        function.restype = result
        function.argtypes = arguments
    _library = loaded
    return loaded


class Table:
    """An array of ampprobe_tensor that is kept and filled anew at every step."""

    def __init__(
        self,
        ids: Sequence[int],
        roles: Sequence[int],
        dtypes: Sequence[int] = (),
        slots: Sequence[int] = (),
    ):
        self.count = len(ids)
        self.array = (Tensor * max(self.count, 1))()
        self.bytes = memoryview(self.array).cast("B")
        for index, (number, role, dtype) in enumerate(zip(ids, roles, dtypes or [0] * self.count)):
            _pack_what(self.bytes, index * _TENSOR_BYTES, number, role, dtype, HOST, 0, 0, 1)
        self.words = self.bytes.cast("q")
        for index, slot in enumerate(slots):
            self.words[index * WORDS + _SLOT_WORD] = slot
        self.address = ctypes.addressof(self.array)

    def put(
        self,
        index: int,
        data: int,
        count: int,
        storage: int,
        dtype: int,
        device: int = HOST,
        stride: int = 1,
        stream: int = 0,
    ) -> None:
        """Fills one entry; data 0: there is nothing to see."""
        self.fill(index, (dtype, device, data, count, stride, storage, stream))

    def fill(self, index: int, place: tuple) -> None:
        """Fills one entry: dtype, device, data, count, stride, storage, stream."""
        _pack_where(self.bytes, index * _TENSOR_BYTES + _AT_DTYPE, *place)

    def aim(self, number: int, role: int) -> None:
        """Of a table with one entry: whose values it shows."""
        _pack_whose(self.bytes, 0, number, role)

    def clear(self, index: int, dtype: int = 0) -> None:
        """Marks one entry as not there."""
        self.put(index, 0, 0, 0, dtype)


def gradient_table(ids: Sequence[int]) -> Table:
    """A table of the gradients of parameters."""
    return Table(ids, [WEIGHT_GRADIENT] * len(ids))


class Record:
    """An open record. Every method but close raises ProbeError when the library reports a failure."""

    def __init__(self, path: str, config: dict):
        self.library = library()
        self.path = path
        self.handle: Any = _HANDLE()
        text = json.dumps(config, default=str).encode()
        status = self.library.ampprobe_open(os.fsencode(path), text, byref(self.handle))
        self._check(status)
        self.seen = Seen(size=ctypes.sizeof(Seen))
        self.facts = StepFacts(size=ctypes.sizeof(StepFacts))
        self._seen_at = ctypes.addressof(self.seen)
        self._facts_at = ctypes.addressof(self.facts)

    def _check(self, status: int) -> None:
        if status != OK:
            raise ProbeError(self.library.ampprobe_error().decode("utf-8", "replace"), status)

    def set(self, key: str, value: Any) -> None:
        """Sets one key of the configuration."""
        self._check(
            self.library.ampprobe_set(self.handle, key.encode(), json.dumps(value, default=str).encode())
        )

    def note(self, text: str) -> None:
        """Adds a line to the record's warnings."""
        self._check(self.library.ampprobe_note(self.handle, text.encode("utf-8", "replace")))

    def fact(self, name: str, value: float, place: str, step: int) -> None:
        """States a named fact."""
        where = place.encode("utf-8", "replace")[:159].decode("utf-8", "ignore").encode()
        self._check(self.library.ampprobe_fact(self.handle, name.encode(), where, step, value))

    def describe(self, things: Sequence[dict]) -> list[int]:
        """Describes parameters or layers (name, layer, type, dtype, shape, group); gives their numbers."""
        if not things:
            return []
        array = (Thing * len(things))()
        for entry, thing in zip(array, things):
            shape = list(thing.get("shape", ()))[:8]
            entry.size = ctypes.sizeof(Thing)
            entry.flags = thing.get("flags", 0)
            entry.name = thing["name"].encode()
            entry.layer = thing["layer"].encode() if thing.get("layer") is not None else None
            entry.type = thing["type"].encode() if thing.get("type") else None
            entry.dtype, entry.group = thing.get("dtype", OTHER_DTYPE), thing.get("group", 0)
            entry.dimensions = len(shape)
            entry.shape[: len(shape)] = shape
        ids = (c_int32 * len(things))()
        self._check(self.library.ampprobe_describe(self.handle, array, len(things), ids))
        return list(ids)

    def gradients(self, group: int, table: Table, flags: int) -> Seen:
        """Shows the gradients of one optimizer; what was seen is valid until the next call."""
        self._check(
            self.library.ampprobe_gradients(
                self.handle, group, table.address, table.count, flags, self._seen_at
            )
        )
        return self.seen

    def see(self, table: Table, flags: int = 0) -> None:
        """Shows tensors of any roles."""
        status = self.library.ampprobe_see(self.handle, table.address, table.count, flags, None)
        if status != OK:
            self._check(status)

    def see_named(self, name: str, table: Table) -> None:
        """Shows one tensor by its name."""
        self._check(self.library.ampprobe_see_named(self.handle, name.encode(), table.address))

    def before_update(self, group: int, table: Table) -> None:
        """Samples weights before the optimizer's step."""
        self._check(self.library.ampprobe_before_update(self.handle, group, table.address, table.count))

    def after_update(self, group: int, table: Table) -> None:
        """Compares weights with the sample, after the optimizer's step."""
        self._check(self.library.ampprobe_after_update(self.handle, group, table.address, table.count))

    def plan(self, step: int) -> int:
        """What this step should show: a set of PLAN_..."""
        return self.library.ampprobe_plan(self.handle, step)

    def step(self) -> int:
        """Ends a step, whose facts are in `facts`; the plan of the next one."""
        status = self.library.ampprobe_step(self.handle, self._facts_at)
        if status != OK:
            self._check(status)
        return self.facts.plan

    def end_steps(self, facts: Any, count: int) -> int:
        """Ends the first `count` steps of an array of StepFacts; the plan of the next one."""
        self._check(self.library.ampprobe_steps(self.handle, ctypes.addressof(facts), count))
        return facts[count - 1].plan

    def latest(self, count: int) -> Any:
        """An array of StepFacts that outlives a process that is killed; None: there is no such memory."""
        place = c_void_p()
        self._check(self.library.ampprobe_latest(self.handle, count, byref(place)))
        return (StepFacts * count).from_address(place.value) if place.value else None

    def spent(self, seconds: float) -> None:
        """Tells the governor what the probe cost outside the library."""
        self.library.ampprobe_spent(self.handle, seconds)

    def costs(self) -> dict:
        """What the probe has cost so far."""
        cost = Cost(size=ctypes.sizeof(Cost))
        self._check(self.library.ampprobe_costs(self.handle, byref(cost)))
        return {name: getattr(cost, name) for name, _ in Cost._fields_ if name != "size"}

    def close(self) -> None:
        """Writes the document as complete. Says on stderr if that fails; never raises."""
        handle, self.handle = self.handle, None
        if handle and self.library.ampprobe_close(handle) not in (OK, OFF, FORKED):
            text = self.library.ampprobe_error().decode("utf-8", "replace")
            try:
                print(f"ampprobe: {text}", file=sys.stderr)
            except Exception:  # stderr may be closed
                pass


def version() -> str:
    """Version of the library."""
    return library().ampprobe_version().decode()
