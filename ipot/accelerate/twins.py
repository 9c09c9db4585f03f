"""A second model of the same parameters, some of whose layers compute them in another way.

The twin of a module has its parameters, buffers and hooks, the very same objects, and children of
its own. Hooks are called with the module and not with its twin. A layer that nobody knows to make
quicker passes unchanged, and so does everything inside a module whose `forward` was replaced on the
instance, or that was compiled by itself.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ipot.accelerate.target import Target


class Accelerated:
    """A layer that knows what it is quick for."""

    target: Target

    def start(self) -> None:
        """Decide what does not depend on a call. The children are there, quicker ones too."""


Quicker = Callable[[nn.Module], type[nn.Module] | None]
"""The class that takes the place of a module's own, None to leave it."""


HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def twin(
    module: nn.Module,
    quicker: Quicker,
    target: Target,
    known: dict[nn.Module, nn.Module] | None = None,
) -> nn.Module:
    """The twin of a module for a target, or the module itself where nothing in it changes. One
    that stands in several places has one twin, which `known` remembers."""
    known = {} if known is None else known
    if module not in known:
        known[module] = _twin(module, quicker, target, known)
    return known[module]


def is_closed(module: nn.Module) -> bool:
    """True if a module computes by something else than the `forward` of its class."""
    return "forward" in vars(module) or module._compiled_call_impl is not None


def _twin(
    module: nn.Module, quicker: Quicker, target: Target, known: dict[nn.Module, nn.Module]
) -> nn.Module:
    if is_closed(module):
        return module
    children = {
        name: None if child is None else twin(child, quicker, target, known)
        for name, child in module._modules.items()
    }
    # One that is accelerated already may be so for something else.
    own = type(module) if isinstance(module, Accelerated) else quicker(module)
    same = all(children[name] is child for name, child in module._modules.items())
    if own is None and same:
        return module
    kind = own or type(module)
    made: Any = object.__new__(kind)
    vars(made).update(vars(module))
    vars(made)["_modules"] = children
    for name in HOOKS:
        if hooks := vars(module)[name]:
            told = {key: _telling(hook, module) for key, hook in hooks.items()}
            vars(made)[name] = OrderedDict(told)
    if isinstance(made, Accelerated):
        made.target = target
        made.start()
    return made


def _telling(hook: Callable[..., Any], module: nn.Module) -> _Telling:
    """A hook of a twin that is told of the module."""
    return hook if isinstance(hook, _Telling) else _Telling(hook, module)


class _Telling:
    """A hook that is called with one module, whichever calls it. It does not keep that alive."""

    def __init__(self, hook: Callable[..., Any], module: nn.Module) -> None:
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, twin: nn.Module, *rest: Any) -> Any:
        module = self.module()
        return self.hook(twin if module is None else module, *rest)


def hooked(*modules: nn.Module) -> bool:
    """True if hooks hang on any of some modules, or on all modules there are."""
    if torch.nn.modules.module._has_any_global_hook():
        return True
    return any(
        m._forward_pre_hooks or m._backward_pre_hooks or m._forward_hooks or m._backward_hooks
        for m in modules
    )


def is_plain(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """True if a module is of exactly one of these classes, with its own `forward` and no hooks."""
    return type(module) in kinds and not is_closed(module) and not hooked(module)


def are_plain_layers(*layers: nn.Module) -> bool:
    """True if these are LayerNorms with scale and shift, and Linears, that nobody has changed: what
    they compute can be computed from their parameters."""
    if not all(is_plain(m, nn.LayerNorm, nn.Linear) for m in layers):
        return False
    norms = (m for m in layers if isinstance(m, nn.LayerNorm))
    return all(m.weight is not None and m.bias is not None for m in norms)


def fingerprint(model: nn.Module) -> tuple[Any, ...]:
    """What a twin was made of: it changes when a layer is replaced, hooked, or given another
    attribute. A twin holds on to all of it but the modules, so that no place is given to others."""

    # Without `modules()`, whose names take as long again: a small question is answered in less than
    # a millisecond.
    found: list[Any] = [torch.nn.modules.module._has_any_global_hook()]
    left = [model]
    while left:
        module = left.pop()
        own = vars(module)
        found.append(type(module))
        found += map(id, own.values())
        found += [None if p is None else p.dtype for p in own["_parameters"].values()]
        for name in HOOKS:
            found += own[name]
        left += [child for child in own["_modules"].values() if child is not None]
    return tuple(found)
