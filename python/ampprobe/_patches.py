"""Patches of torch's classes and functions, which tell a probe what its loop does.

GradScaler's scale, unscale_, step, update and load_state_dict, an optimizer's load_state_dict,
torch.autograd.backward, ReduceLROnPlateau's step and the function that clips gradients are replaced once,
for all instances, by functions that look the instance up and call the original. Nothing is set on an object
of the user: pickle, deepcopy, state_dict and signatures stay as they are. The originals come back when the
last probe is closed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import weakref
from typing import Any, Callable, Iterator, Optional

_lock = threading.RLock()
_probes: tuple = ()  # open probes; replaced and never changed, so that a call of one may open another
_by_optimizer: dict[int, tuple] = {}  # id of an optimizer -> (weak reference, group)
_by_parameter: dict[int, Any] = {}  # id of a parameter -> group
_quiet: Any = None  # the only probe's Quiet, while its steps are
_made: list["_Patch"] = []
_AS_IT_IS = contextlib.nullcontext()
_MOST_WRAPPERS = 8  # round an optimizer
_patched: set = set()  # classes and names of methods


def unwrapped(optimizer: Any) -> Iterator[Any]:
    """An optimizer and, where it is accelerate's or Lightning's wrapper, those inside, the plain one last."""
    for _ in range(_MOST_WRAPPERS):
        yield optimizer
        optimizer = getattr(optimizer, "optimizer", None)
        if not hasattr(optimizer, "param_groups"):
            break


def group_of(optimizer: Any) -> Any:
    """The group that watches this optimizer, or None."""
    for one in unwrapped(optimizer):
        entry = _by_optimizer.get(id(one))
        if entry is not None and entry[0]() is one:
            return entry[1]
    return None


def _group_for_scaler(optimizer: Any) -> Any:
    """The same of an optimizer that a scaler is about to unscale or step: one that came later is followed."""
    group = group_of(optimizer)
    if group is None and optimizer is not None:
        *_, plain = unwrapped(optimizer)
        for probe in _probes:
            group = probe.comes(plain) or group
    return group


def tracing() -> Callable[[], bool]:
    """The function that torch.compile knows and takes for true while it traces; one Python frame in eager."""
    torch = sys.modules.get("torch")
    return torch.compiler.is_dynamo_compiling if torch is not None else lambda: False


def without_modes(torch: Any) -> Any:
    """A context in which no mode of somebody's sees the operations; torch's own takes 20 microseconds."""
    if torch._C._len_torch_dispatch_stack() or torch._ops._len_torch_dispatch_stack_pre_dispatch():
        return torch.utils._python_dispatch._disable_current_modes()
    return _AS_IT_IS


# The functions below run at every step of a training: each is one frame where nothing is to be shown.


def _wrap_scale(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def scale(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced():
            outputs = args[0] if args else kwargs.get("outputs")
            if _quiet is not None:
                _quiet.other_scaler(self, outputs)
            else:
                for probe in _probes:
                    probe.saw_loss(self, outputs)
                result = original(self, *args, **kwargs)
                for probe in _probes:
                    probe.scaled(self, outputs, result)
                return result
        return original(self, *args, **kwargs)

    return scale


def _wrap_unscale(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def unscale_(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced() and _quiet is None:
            group = _group_for_scaler(args[0] if args else kwargs.get("optimizer"))
            if group is not None and not group.inside:  # else the scaler's step has shown them
                group.before_unscale(self)
        return original(self, *args, **kwargs)

    return unscale_


def _wrap_step(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if traced() or _quiet is not None:
            return original(self, *args, **kwargs)
        group = _group_for_scaler(args[0] if args else kwargs.get("optimizer"))
        if group is None or not group.before_scaler_step(self):
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            group.scaler_step_raised()
            raise
        group.after_scaler_step(self)
        return result

    return step


def _wrap_update(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        if traced():
            return original(self, *args, **kwargs)
        result = original(self, *args, **kwargs)
        if _quiet is None:
            for probe in _probes:
                probe.after_update(self)
        return result

    return update


def _then(tell: str) -> Callable:
    """Of what was called on an object, probes are told afterwards, by their method of this name."""

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            for probe in _probes:
                getattr(probe, tell)(self)
            return result

        return called

    return wrap


_wrap_load = _then("loaded")  # a scaler's or an optimizer's state comes back
_wrap_made = _then("made")  # an optimizer is made, or copied


def _wrap_log(original: Callable) -> Callable:
    """Of accelerate's Accelerator: what goes to its trackers."""

    @functools.wraps(original)
    def log(self: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        for probe in _probes:
            probe.logged(values)
        return original(self, values, *args, **kwargs)

    return log


_SCALER_METHODS = {
    "scale": _wrap_scale,
    "unscale_": _wrap_unscale,
    "step": _wrap_step,
    "update": _wrap_update,
    "load_state_dict": _wrap_load,
}


class _Patch:
    """One function of a class or module that was replaced."""

    def __init__(self, owner: Any, name: str, wrapper: Callable):
        self.owner, self.name, self.wrapper = owner, name, wrapper
        self.original = owner.__dict__[name]
        self.stands = self.replacement = wrapper(self.original)
        setattr(owner, name, self.replacement)

    def is_there(self) -> bool:
        """Whether nobody has patched it after us."""
        return self.owner.__dict__.get(self.name) is self.stands

    def put(self, function: Any) -> None:
        """Puts another function there. If somebody patched after us: over theirs, which may call ours."""
        if self.is_there():
            self.stands = function
            setattr(self.owner, self.name, function)
        elif function is self.replacement and self.stands is not function:
            self.stands = function
            _replace(self.owner, self.name, self.wrapper)


def _replace(owner: Any, name: str, wrapper: Callable) -> None:
    _made.append(_Patch(owner, name, wrapper))


def patch_scaler_class(cls: type) -> None:
    """Patches a scaler's methods."""
    patch_class(cls, _SCALER_METHODS)


def patch_class(cls: type, methods: dict[str, Callable]) -> None:
    """Patches a class and those bases of it that define one of the methods themselves."""
    with _lock:
        for owner in cls.__mro__:
            for name, wrapper in methods.items():
                if owner is object or (owner, name) in _patched:
                    continue
                _patched.add((owner, name))
                if callable(owner.__dict__.get(name)):
                    _replace(owner, name, wrapper)


def patch_function(owner: Any, name: str, wrapper: Callable) -> None:
    """Patches one function of a class or a module, once."""
    with _lock:
        if (owner, name) not in _patched:
            _patched.add((owner, name))
            _replace(owner, name, wrapper)


def open_probes() -> tuple:
    """Probes that are open."""
    return _probes


def _wrap_backward(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced():
            for probe in _probes:
                probe.saw_backward(tensors)
        result = original(tensors, *args, **kwargs)
        if not traced():
            for probe in _probes:
                probe.backward_ran()
        return result

    return backward


def _wrap_grad(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced() and not kwargs.get("create_graph") and _of_parameters(inputs):
            for probe in _probes:
                probe.saw_grad(outputs)
        result = original(outputs, inputs, *args, **kwargs)
        if kwargs.get("create_graph") and _quiet is None and not traced():
            for probe in _probes:
                probe.asked_for_graph(outputs, result)
        return result

    return grad


def _of_parameters(inputs: Any) -> bool:
    """Whether these are parameters, as far as the first of them says it."""
    if isinstance(inputs, (list, tuple)) and inputs:
        inputs = inputs[0]
    return type(inputs) is sys.modules["torch"].nn.Parameter


def _wrap_clip(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def clip(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced():
            saw_clip(parameters, max_norm, total_norm)
        return original(parameters, max_norm, total_norm, *args, **kwargs)

    return clip


def _wrap_plateau(original: Callable) -> Callable:
    """Of torch's ReduceLROnPlateau: what it is told, and what it does then."""

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        group = group_of(self.optimizer)
        before = group.probe.plateau_steps(self) if group is not None else None
        result = original(self, *args, **kwargs)
        if before:
            group.probe.plateau_stepped(self, args[0] if args else kwargs.get("metrics"), before)
        return result

    return step


def _wrap_clip_value(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def clip(parameters: Any, clip_value: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced():
            if not hasattr(parameters, "grad") and not isinstance(parameters, (list, tuple)):
                parameters = list(parameters)
            saw_clip(parameters, None, None)
        return original(parameters, clip_value, *args, **kwargs)

    return clip


def _wrap_zero_grad(original: Callable) -> Callable:
    traced = tracing()

    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        if traced():
            pass
        elif _quiet is None:
            for group in owner_groups(self):
                group.before_zero_grad()
        elif _quiet.losses:
            _quiet.tell_clearing(self)
        return original(self, *args, **kwargs)

    return zero_grad


def owner_groups(owner: Any) -> list:
    """The group of an optimizer, or those of a module's parameters."""
    if hasattr(owner, "param_groups"):
        group = group_of(owner)
        return [] if group is None else [group]
    return _groups_of(owner.parameters())


def _groups_of(parameters: Any) -> list:
    """Those that hold any of these."""
    groups: list = []
    for parameter in parameters:
        group = _by_parameter.get(id(parameter))
        if group is not None and group not in groups:
            groups.append(group)
            if len(groups) == len(_by_optimizer):
                break
    return groups


def saw_clip(parameters: Any, max_norm: Any, total_norm: Any) -> None:
    """Gradients are about to be clipped; `parameters` is a tensor or a list."""
    for group in _groups_of([parameters] if hasattr(parameters, "grad") else parameters):
        group.before_clip(max_norm, total_norm)


def _patch_torch() -> None:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    patch_scaler_class(torch.amp.GradScaler)
    made = {"__init__": _wrap_made, "__setstate__": _wrap_made}
    patch_class(torch.optim.Optimizer, {"load_state_dict": _wrap_load, **made})
    accelerator = getattr(sys.modules.get("accelerate"), "Accelerator", None)
    if accelerator is not None:
        patch_class(accelerator, {"log": _wrap_log})
    _replace(torch.autograd, "backward", _wrap_backward)
    _replace(torch.autograd, "grad", _wrap_grad)
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        _replace(owner, "zero_grad", _wrap_zero_grad)
    clipping = sys.modules["torch.nn.utils.clip_grad"]
    if hasattr(clipping, "_clip_grads_with_norm_"):  # the part that clip_grad_norm_ looks up at every call
        _replace(clipping, "_clip_grads_with_norm_", _wrap_clip)
    patch_function(torch.optim.lr_scheduler.ReduceLROnPlateau, "step", _wrap_plateau)
    for module in (clipping, torch.nn.utils):
        _replace(module, "clip_grad_value_", _wrap_clip_value)


def register(probe: Any) -> None:
    """A probe begins to watch: the patches are made if it is the first."""
    global _probes
    with _lock:
        if _quiet is not None:
            _quiet.end()
        if not _probes:
            _patch_torch()
        _probes = (*_probes, probe)


def be_quiet(quiet: Any, functions: dict[str, Optional[Callable]], scaler: Any) -> bool:
    """From here on events go to `quiet` alone: functions of the scaler's class and backward are wrapped by
    these in place of ours, or by none; whether it may be so."""
    global _quiet
    with _lock:
        torch = sys.modules["torch"]
        owners = [torch.autograd]
        owners += type(scaler).__mro__ if scaler is not None else ()
        found = [
            patch
            for patch in _made
            if patch.name in functions and any(patch.owner is one for one in owners)
        ]
        if len(_probes) != 1 or _quiet is not None or not all(patch.is_there() for patch in found):
            return False
        _quiet = quiet
        for patch in found:
            wrap = functions[patch.name]
            patch.put(patch.original if wrap is None else wrap(patch.original))
        return True


def be_loud() -> None:
    """Events go to all probes again."""
    global _quiet
    with _lock:
        _quiet = None
        for patch in [patch for patch in _made if patch.stands is not patch.replacement]:
            patch.put(patch.replacement)


def _in_child() -> None:
    """Another thread may have held the lock when the process was copied."""
    global _lock
    _lock = threading.RLock()
    if _quiet is not None:
        _quiet.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def watch(group: Any, optimizer: Any) -> None:
    """Looks this optimizer up from now on."""
    with _lock:
        key = id(optimizer)

        def gone(reference: Any) -> None:
            entry = _by_optimizer.get(key)
            if entry is not None and entry[0] is reference:
                del _by_optimizer[key]
                entry[1].optimizer_gone()

        _by_optimizer[key] = (weakref.ref(optimizer, gone), group)


def forget(group: Any) -> None:
    """Looks nothing up for this group any more."""
    with _lock:
        for key in [key for key, entry in _by_optimizer.items() if entry[1] is group]:
            del _by_optimizer[key]
        for key in [key for key, owner in _by_parameter.items() if owner is group]:
            del _by_parameter[key]


def watch_parameters(group: Any, parameters: list) -> None:
    """Looks these parameters up from now on, and those that the group had before no more."""
    with _lock:
        for key in [key for key, owner in _by_parameter.items() if owner is group]:
            del _by_parameter[key]
        for parameter in parameters:
            _by_parameter[id(parameter)] = group


def unregister(probe: Any) -> None:
    """A probe watches no more: the originals come back if it was the last."""
    global _probes
    with _lock:
        if _quiet is not None and _quiet.probe is probe:
            _quiet.stop()
        _probes = tuple(other for other in _probes if other is not probe)
        for key in [key for key, entry in _by_optimizer.items() if entry[1].probe is probe]:
            del _by_optimizer[key]
        for key in [key for key, group in _by_parameter.items() if group.probe is probe]:
            del _by_parameter[key]
        if not _probes:
            while _made:
                patch = _made.pop()
                patch.put(patch.original)
            _patched.clear()


def watched(optimizer: Any) -> Optional[Any]:
    """The probe that watches this optimizer, or None."""
    group = group_of(optimizer)
    return group.probe if group is not None else None
