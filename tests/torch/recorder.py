"""A stand-in for the library's record: keeps what the probe told, and counts values with ctypes and struct.

Tests of what the probe sees use it, so that they do not depend on what the library samples.
"""

import ctypes
import math
import struct

from ampprobe import _abi

FORMATS = {0: "f", 1: "e", 3: "d"}


def values_of(entry):
    """The values that an ampprobe_tensor points to."""
    size = _abi.ITEM_BYTES.get(entry.dtype)
    if not entry.data or not entry.count or not size or entry.count * size > entry.storage_bytes:
        return []  # as the library does: AMPPROBE_SKIP_...
    raw = ctypes.string_at(entry.data, entry.count * size)
    if entry.dtype == 2:
        wide = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
        return struct.unpack(f"<{entry.count}f", wide)
    return struct.unpack(f"<{entry.count}{FORMATS[entry.dtype]}", raw)


class Recorder:
    """Has the methods of _abi.Record."""

    plans = None  # step -> plan; None: everything at every step
    opened = []

    def __init__(self, path, config):
        self.path, self.config = path, config
        self.seen = _abi.Seen()
        self.facts = _abi.StepFacts()
        self.things, self.steps, self.notes, self.tensors, self.updates = [], [], [], [], []
        self.facts_stated = []
        self.current, self.checks, self.closed, self.settings = [], [], 0, {}
        Recorder.opened.append(self)

    def set(self, key, value):
        if key == "about":
            self.settings.setdefault("about", {}).update(value)
        else:
            self.settings[key] = value

    def note(self, text):
        self.notes.append(text)

    def fact(self, name, value, place, step):
        self.facts_stated.append((name, value, place, step))

    def latest(self, count):
        return (_abi.StepFacts * count)()

    def describe(self, things):
        first = len(self.things)
        self.things += things
        return list(range(first, first + len(things)))

    def gradients(self, group, table, flags):
        found = []
        for entry in table.array[: table.count]:
            values = values_of(entry)
            bad = sum(1 for value in values if not math.isfinite(value))
            finite = [abs(value) for value in values if math.isfinite(value)]
            entry.nonfinite = bad
            found.append({"id": entry.id, "count": len(values), "nonfinite": bad, "sum": math.fsum(finite)})
        (self.checks if flags & _abi.CHECK else self.current).append(found)
        self.seen.nonfinite = sum(item["nonfinite"] for item in found)
        self.seen.exact = 1
        return self.seen

    def see(self, table, flags=0):
        for entry in table.array[: table.count]:
            entry.nonfinite = sum(1 for value in values_of(entry) if not math.isfinite(value))
            self.tensors.append(
                {
                    "step": len(self.steps),
                    "name": self.things[entry.id]["name"],
                    "role": entry.role,
                    "slot": entry.slot,
                    "sum": math.fsum(map(abs, values_of(entry))),
                    "count": entry.count,
                    "dtype": entry.dtype,
                }
            )

    def see_named(self, name, table):
        entry = table.array[0]
        self.tensors.append({"name": name, "role": entry.role, "values": values_of(entry)})

    def before_update(self, group, table):
        self._before = [values_of(entry) for entry in table.array[: table.count]]

    def after_update(self, group, table):
        roles = [entry.role for entry in table.array[: table.count]]
        after = [values_of(entry) for entry in table.array[: table.count] if entry.role == _abi.WEIGHT]
        self.updates.append(
            {
                "step": len(self.steps),
                "roles": roles,
                "changed": sum(
                    1 for one, other in zip(self._before, after) for x, y in zip(one, other) if x != y
                ),
            }
        )

    def plan(self, step):
        everything = _abi.PLAN_LAYERS | _abi.PLAN_UPDATE | _abi.PLAN_STATE | _abi.PLAN_GRADIENTS
        return everything if self.plans is None else self.plans(step)

    def step(self):
        facts = {name: getattr(self.facts, name) for name, _ in _abi.StepFacts._fields_}
        facts["gradients"] = self.current
        facts["sum"] = sum(item["sum"] for found in self.current for item in found)
        self.current = []
        self.steps.append(facts)
        return self.plan(self.facts.step + 1)

    def end_steps(self, facts, count):
        plan = 0
        for self.facts in facts[:count]:
            plan = self.step()
        self.facts = _abi.StepFacts()
        return plan

    def spent(self, seconds):
        pass

    def close(self):
        self.closed += 1

    def of(self, key, group=0):
        """One fact of all steps of a group."""
        return [facts[key] for facts in self.steps if facts["group"] == group]
