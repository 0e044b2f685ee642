"""ampprobe: a numerical record of a training loop, for `ampbench diagnose`, `advise` and `report`.

    import ampprobe
    probe = ampprobe.attach(model, optimizer, scaler=scaler, out="run.ampprobe.json")
    ... the training loop as it was ...

The record is complete when the program ends, or at probe.close().
"""

from ._abi import LibraryError, ProbeError
from . import trainers
from ._attach import attach
from ._loop import Loop, loop
from ._probe import Probe

__all__ = ["LibraryError", "Loop", "Probe", "ProbeError", "attach", "loop", "see", "trainers", "version"]
__version__ = "0.1.0"


def version() -> str:
    """Version of the C library."""
    from . import _abi

    return _abi.version()


def see(name, array, role="activation"):
    """Shows an array to every open probe (see Probe.see)."""
    from . import _patches

    for probe in _patches._probes:
        if isinstance(probe, Probe):
            probe.see(name, array, role)
