"""A loop of JAX, CuPy, numpy or anything else: arrays are shown at the end of each step, by name.

Nothing is patched and nothing is hooked: the record holds what the loop gives. Gradients are those that the
loop checks for inf and NaN, with the loss scale still in them.
"""

from __future__ import annotations

import atexit
import os
import platform
import sys
from time import perf_counter
from typing import Any, Iterator, Mapping, Optional

from . import _abi, _dlpack, _layout
from ._probe import see_array

# The first that was imported names the record.
_FRAMEWORKS = ("jax", "cupy", "tensorflow", "mxnet", "numpy")


def named(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays of nested dicts, lists and tuples, with names such as block.0.weight, in their order."""
    if isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from named(item, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, (list, tuple)):
        for index, item in enumerate(tree):
            yield from named(item, f"{name}.{index}" if name else str(index))
    elif tree is not None:
        yield name or "array", tree


def _view(array: Any) -> _layout.View | _layout.Unreadable:
    if hasattr(array, "block_until_ready"):
        array.block_until_ready()
    return _layout.view(array) if hasattr(array, "data_ptr") else _dlpack.view(array)


class Loop:
    """The record of a loop that shows its arrays itself. Made by loop()."""

    def __init__(self, record: Any, parameters: Any):
        self.record = record
        self.off = False
        self.reason: Optional[str] = None
        self._pid = os.getpid()
        self._closed = False
        self._step = 0
        self._spent = 0.0  # seconds of this step outside the library
        self._plan = record.plan(0)
        self._notes: set[str] = set()
        rows = list(named(parameters))
        self._ids = dict(zip((name for name, _ in rows), record.describe([_thing(*row) for row in rows])))
        atexit.register(self.close)

    @property
    def wants_updates(self) -> bool:
        """Whether `weights` and `updated` of this step will be looked at; else they need not be given."""
        return bool(self._plan & _abi.PLAN_UPDATE) and not self.off

    def step(
        self,
        gradients: Any,
        *,
        loss: Any = None,
        scale: Any = None,
        next_scale: Any = None,
        skipped: Optional[bool] = None,
        lr: Any = None,
        weights: Any = None,
        updated: Any = None,
    ) -> None:
        """Ends a step. Never raises: what fails turns the probe off, and training goes on.

        gradients   a tree of the parameters' shape, the loss scale still in it
        loss        without the scale
        scale, next_scale   the loss scale that the gradients carry, and that of the next step
        skipped     whether the loop left the update out; None: it does so where a gradient is not finite
        weights, updated    parameters before and after the update, where wants_updates: what rounding lost
        """
        if self.off or os.getpid() != self._pid:
            return
        try:
            self._show(gradients, skipped)
            if self.wants_updates and weights is not None and updated is not None and skipped is not True:
                self._compare(weights, updated)
            self._end(loss, scale, next_scale, skipped, lr)
        except Exception as error:
            self._fail(error)

    def _table(self, tree: Any, role: int) -> tuple[Any, list]:
        started = perf_counter()
        rows = [(name, array) for name, array in named(tree) if name in self._ids]
        missing = [name for name, _ in named(tree) if name not in self._ids]
        if missing:
            self.note(f"not a parameter that loop() was given: {missing[0]}")
        table = _abi.Table([self._ids[name] for name, _ in rows], [role] * len(rows), [0] * len(rows))
        keep = []
        for index, (name, array) in enumerate(rows):
            found = _view(array)
            if isinstance(found, _layout.View):
                place = (found.data, found.count, found.storage, found.dtype, found.device, 1, found.stream)
                table.put(index, *place)
                keep.append(found.keep)
            else:
                table.clear(index, found.dtype)
                self.note(f"{name}: not counted: {found.reason}")
        self._spent += perf_counter() - started
        return table, keep

    def _show(self, gradients: Any, skipped: Optional[bool]) -> None:
        flags = _abi.CHECK if skipped else _abi.FINITE if skipped is None else 0
        if self._plan & _abi.PLAN_GRADIENTS:
            table, keep = self._table(gradients, _abi.WEIGHT_GRADIENT)
            self.record.gradients(0, table, flags & _abi.FINITE)
            del keep
        if skipped or (skipped is None and not self._plan & _abi.PLAN_GRADIENTS):
            table, keep = self._table(gradients, _abi.WEIGHT_GRADIENT)
            self.record.gradients(0, table, _abi.CHECK)
            del keep

    def _compare(self, weights: Any, updated: Any) -> None:
        table, keep = self._table(weights, _abi.WEIGHT)
        self.record.before_update(0, table)
        table, keep = self._table(updated, _abi.WEIGHT)
        self.record.after_update(0, table)
        del keep

    def _end(self, loss: Any, scale: Any, next_scale: Any, skipped: Optional[bool], lr: Any) -> None:
        facts, flags = self.record.facts, 0
        facts.step, facts.group, facts.micro_batches, facts.spent = self._step, 0, 1, self._spent
        facts.stepped = -1 if skipped is None else int(not skipped)
        facts.found_inf = -1 if skipped is None or scale is None else int(skipped)
        if scale is not None:
            flags |= _abi.HAS_SCALE
            facts.scale_before = float(scale)
            facts.scale_after = facts.scale_before if next_scale is None else float(next_scale)
        if loss is not None:
            flags |= _abi.HAS_LOSS
            facts.loss = float(loss)
        if lr is not None:
            flags |= _abi.HAS_LR
            facts.lr = float(lr)
        facts.flags = flags
        self._plan = self.record.step()
        self._step += 1
        self._spent = 0.0

    def see(self, name: str, array: Any, role: str = "activation") -> None:
        """Shows one array of this step, by a name of its own."""
        if not self.off:
            try:
                see_array(self.record, name, array, role)
            except Exception as error:
                self._fail(error)

    def note(self, text: str) -> None:
        """Puts a line into the record's warnings, once."""
        if text not in self._notes and not self.off:
            self._notes.add(text)
            self.record.note(text)

    def _fail(self, error: BaseException) -> None:
        self.off = True
        self.reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        text = f"the probe turned itself off: {self.reason}"
        try:
            print(f"ampprobe: {text}; training goes on", file=sys.stderr)
            self.record.note(text)
        except Exception:  # stderr may be closed, and the record may be what failed
            pass

    def close(self) -> None:
        """Writes the record as complete. Also called at exit."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = self.off = True
        atexit.unregister(self.close)
        self.record.close()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _thing(name: str, array: Any) -> dict:
    shape = tuple(getattr(array, "shape", ()))
    return {"name": name, "dtype": _layout.dtype_code(array.dtype), "shape": shape, "flags": _abi.PARAMETER}


def _framework() -> dict[str, str]:
    for name in _FRAMEWORKS:
        if name in sys.modules:
            version = str(getattr(sys.modules[name], "__version__", "unknown"))
            return {"framework": name, "framework_version": version}
    return {"framework": "python", "framework_version": platform.python_version()}


def loop(
    parameters: Any,
    out: str | os.PathLike = "run.ampprobe.json",
    *,
    half: str = "fp16",
    every: int = 0,
    budget: float = 0.01,
    model: str = "model",
) -> Loop:
    """Starts a record of a loop without torch; `parameters` is a tree (dicts, lists, tuples) of its arrays.

    half     "fp16" or "bf16": the format whose range is judged
    every    look at gradients at every so many steps; 0: as the budget allows
    budget   share of the run's time that looking at gradients may take

    Wrong arguments raise TypeError or ValueError, a file that cannot be written OSError; later nothing
    is raised.
    """
    rows = list(named(parameters))
    if not rows:
        raise ValueError("ampprobe.loop: needs parameters")
    for name, array in rows:
        if not hasattr(array, "dtype"):
            raise TypeError(f"ampprobe.loop: {name} is a {type(array).__name__}, not an array")
    if half not in ("fp16", "bf16"):
        raise ValueError(f"ampprobe.loop: half is 'fp16' or 'bf16', not {half!r}")
    if not 0 <= budget <= 1 or every < 0:
        raise ValueError("ampprobe.loop: budget is a share from 0 to 1, every a whole number from 0")
    config = {"half": half, "budget": budget, "model": model, **_framework()}
    config["language"] = f"Python {platform.python_version()}"
    if every:
        config["probe_every"] = every
    try:
        return Loop(_abi.Record(os.fspath(out), config), parameters)
    except _abi.LibraryError as error:
        raise RuntimeError(f"ampprobe.loop: {error}") from None
    except _abi.ProbeError as error:
        kind = OSError if error.status == _abi.OUTPUT else ValueError
        raise kind(f"ampprobe.loop: {error}") from None
