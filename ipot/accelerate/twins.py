"""A second model of the same parameters, some of whose layers compute them in another way.

The twin of a module has its parameters, buffers and hooks, the very same objects, and children of
its own. A layer that nobody knows to make quicker passes unchanged, and so does everything inside
a module whose `forward` was replaced on the instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def twin(module: nn.Module, quicker: Quicker, target: Target) -> nn.Module:
    """The twin of a module for a target, or the module itself where nothing in it changes."""
    if "forward" in vars(module):
        return module
    children = {
        name: None if child is None else twin(child, quicker, target)
        for name, child in module._modules.items()
    }
    own = quicker(module)
    same = all(children[name] is child for name, child in module._modules.items())
    if own is None and same:
        return module
    kind = own or type(module)
    made: Any = kind.__new__(kind)
    vars(made).update(vars(module))
    vars(made)["_modules"] = children
    if isinstance(made, Accelerated):
        made.target = target
        made.start()
    return made


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
    return type(module) in kinds and "forward" not in vars(module) and not hooked(module)


def are_plain_layers(*layers: nn.Module) -> bool:
    """True if these are LayerNorms with scale and shift, and Linears, that nobody has changed: what
    they compute can be computed from their parameters."""
    if not all(is_plain(m, nn.LayerNorm, nn.Linear) for m in layers):
        return False
    norms = (m for m in layers if isinstance(m, nn.LayerNorm))
    return all(m.weight is not None and m.bias is not None for m in norms)


def fingerprint(model: nn.Module) -> tuple[Any, ...]:
    """What the choice of layers depends on: it changes when a layer is replaced or hooked."""

    def facts() -> Iterator[Any]:
        for m in model.modules():
            yield id(m), type(m), "forward" in vars(m), hooked(m)

    return tuple(facts())
