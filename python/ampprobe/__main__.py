"""python -m ampprobe: runs a training script that was not changed, with a probe that attaches by itself.

The script sees what it would see without: its arguments, `__main__`, its folder in sys.path, its exit status,
its exceptions. The record begins with the first backward pass or step of an optimizer.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import types
from typing import Any, Callable, NoReturn, Optional

USAGE = """\
usage: python -m ampprobe [options] SCRIPT [arguments]
       python -m ampprobe [options] -m MODULE [arguments]

Runs a training as `python SCRIPT arguments` would, and records it for `ampbench diagnose`. Model, optimizer
and GradScaler are found at the first step. Processes that the script starts are not recorded; under torchrun
every rank is: torchrun OPTIONS -m ampprobe SCRIPT arguments

  -o, --out FILE     the record (run.ampprobe.json)
  --every N          show everything at every so many steps; 0: as the budget allows (0)
  --budget SHARE     share of the run's time that the probe may take (0.01)
  --half FORMAT      fp16 or bf16: the format whose range is judged, where it cannot be seen
  --thorough         run it up to four times: as it is; with every operation looked at where it went wrong, or
                     of its first and last steps; in fp32; and in fp32 where that went wrong. Only the first
                     run's output is shown
  --look FIRST:LAST  look at every operation of these steps; FIRST: alone until the script ends; several with
                     commas between
  --stop-after STEP  end the script after this step
  --fp32             run it in fp32: autocast off, a GradScaler at 1, fp32 where it asks for a half dtype
  -h, --help         this text
  --version          version of the package and of its library
"""


class UsageError(Exception):
    """A wrong command line, in one line."""


def _number(kind: Callable, name: str, text: str, expected: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{name} is {expected}, not {text!r}") from None


def _half(text: str) -> str:
    if text not in ("fp16", "bf16"):
        raise UsageError(f"--half is fp16 or bf16, not {text!r}")
    return text


def _from_0(name: str, what: str, text: str) -> int:
    value = _number(int, name, text, f"{what} from 0")
    if value < 0:
        raise UsageError(f"{name} is {what} from 0, not {text!r}")
    return value


def _every(text: str) -> int:
    return _from_0("--every", "a whole number", text)


def _budget(text: str) -> float:
    value = _number(float, "--budget", text, "a share from 0 to 1")
    if not 0 <= value <= 1:
        raise UsageError(f"--budget is a share from 0 to 1, not {text!r}")
    return value


def _look(text: str) -> list[tuple[int, float]]:
    wanted = "two steps from 0, FIRST:LAST, or more of them with commas between"
    windows = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        begin = _number(int, "--look", first, wanted)
        end = _number(int, "--look", last, wanted) if last else math.inf if colon else begin
        if not 0 <= begin <= end:
            raise UsageError(f"--look is {wanted}, not {text!r}")
        windows.append((begin, end))
    return windows


def _stop_after(text: str) -> int:
    return _from_0("--stop-after", "a step", text)


_SWITCHES = ("--thorough", "--fp32")
_VALUES = {
    "--out": str,
    "--every": _every,
    "--budget": _budget,
    "--half": _half,
    "--look": _look,
    "--stop-after": _stop_after,
}


def parse(arguments: list[str]) -> tuple[dict, Optional[str], list[str]]:
    """Options, the module's name (None: a script), and the script or module with its arguments."""
    options: dict[str, Any] = {"out": "run.ampprobe.json"}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        name, equals, value = rest.pop(0).partition("=")
        name = "--out" if name == "-o" else name
        if name == "-m":
            if not rest:
                raise UsageError("-m needs the name of a module")
            return options, rest[0], rest
        if name == "--":
            break
        if name in _SWITCHES:
            if equals:
                raise UsageError(f"{name} has no value")
            options[name[2:]] = True
            continue
        if name not in _VALUES:
            raise UsageError(f"unknown option {name}; python -m ampprobe --help lists them")
        if not equals:
            if not rest:
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        options[name[2:].replace("-", "_")] = _VALUES[name](value)
    if not rest:
        raise UsageError("no script; expected SCRIPT or -m MODULE")
    return options, None, rest


def _code_of_script(path: str) -> tuple[Any, Any, str]:
    """Code, spec and name of a file, or of a folder or archive with a __main__.py."""
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path[0] = path
        return _code_of_module("__main__", path)
    whole = os.path.join(os.getcwd(), path)
    try:
        with open(path, "rb") as file:
            return compile(file.read(), whole, "exec"), None, whole
    except OSError as error:
        raise UsageError(f"cannot open {path!r}: {error.strerror}") from None


def _code_of_module(name: str, said: str) -> tuple[Any, Any, str]:
    kept = sys.modules.pop("__main__") if name == "__main__" else None
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(name + ".__main__")
    except (ImportError, ValueError):
        spec = None
    finally:
        if kept is not None:
            sys.modules["__main__"] = kept
    code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec is not None else None
    if code is None:
        raise UsageError(f"no module {said!r} that can be run")
    return code, spec, spec.origin


def _as_main(code: Any, spec: Any, path: str) -> types.ModuleType:
    """The module that the script is: `__main__`, as Python itself would make it."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=__builtins__, __annotations__={}, __file__=path, __cached__=None)
    if spec is not None:
        module.__spec__, module.__loader__, module.__package__ = spec, spec.loader, spec.parent
    else:
        from importlib.machinery import SourceFileLoader

        module.__spec__, module.__package__ = None, None
        module.__loader__ = SourceFileLoader("__main__", path)  # type: ignore[assignment]
    return module


def _without_own_frames(hook: Callable) -> Callable:
    """An excepthook that shows a traceback from the script's first line on."""

    def show(kind: Any, error: Any, trace: Any) -> Any:
        first = trace
        while first is not None and first.tb_frame.f_code.co_filename != __file__:
            first = first.tb_next
        while first is not None and first.tb_frame.f_code.co_filename == __file__:
            first = first.tb_next
        if first is not None:
            trace = first
            error.__traceback__ = first
        return hook(kind, error, trace)

    return show


def run(code: Any, module: types.ModuleType) -> None:
    """Runs the script; its exception passes, shown without the frames of this file."""
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = _without_own_frames(sys.excepthook)
        raise


def _refuse(error: Exception) -> NoReturn:
    print(f"ampprobe: {error}", file=sys.stderr)
    raise SystemExit(2)


def _prepare(options: dict) -> Any:
    """The part that waits for the first step; what can be refused is refused before the script runs."""
    from . import _abi, _wait

    folder = os.path.dirname(os.path.abspath(options["out"]))
    if not os.path.isdir(folder):
        raise UsageError(f"--out {options['out']}: there is no folder {folder}")
    if os.path.isdir(options["out"]):
        raise UsageError(f"--out {options['out']}: it is a folder, expected a file")
    _abi.library()
    return _wait.Waiting(options)


def _thorough(options: dict, name: Optional[str], rest: list[str]) -> NoReturn:
    """The same command line in several passes (_thorough)."""
    from . import _thorough as passes

    for other in ("look", "stop_after", "fp32"):
        if other in options:
            raise UsageError(f"--thorough chooses its passes itself: without --{other.replace('_', '-')}")
    if (why := passes.refused(os.environ)) is not None:
        raise UsageError(why)
    out = options.pop("out")
    plain = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    raise SystemExit(passes.run(plain, ["-m", *rest] if name is not None else rest, out))


def main(arguments: list[str]) -> None:
    """The command."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return
    from . import LibraryError, __version__, version

    try:
        if arguments[:1] == ["--version"]:
            print(f"ampprobe {__version__}, library {version()}")
            return
        options, name, rest = parse(arguments)
        if options.pop("thorough", False) and os.environ.get("AMPPROBE") != "0":
            _thorough(options, name, rest)
        if name is None:
            sys.path[0] = os.path.dirname(os.path.realpath(rest[0]))
            code, spec, path = _code_of_script(rest[0])
        else:
            code, spec, path = _code_of_module(name, name)
        waiting = None if os.environ.get("AMPPROBE") == "0" else _prepare(options)
    except (UsageError, LibraryError) as error:
        _refuse(error)
    sys.argv = [path if name is not None else rest[0], *rest[1:]]
    if waiting is not None:
        waiting.start()
    run(code, _as_main(code, spec, path))


if __name__ == "__main__":
    main(sys.argv[1:])
