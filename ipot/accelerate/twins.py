"""A second model with the same parameters, in which some layers have a quicker implementation.

The twin of a module shares its parameters, buffers and hooks, and has children of its own. What it
is made for, its `Target`, is decided once, before the first call. Hooks are called with the
original module. A layer without a quicker version stays unchanged, and so does everything inside a
module whose `forward` was replaced on the instance, or that was compiled.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from ipot.accelerate import cuda
from ipot.accelerate.cpu.build import why_not_bf16
from ipot.accelerate.cpu.interface import available
from ipot.errors import shown
from ipot.nn.attention import GatedFeedForward

ATTENTION = ("auto", "plain", "fused", "native", "halves", "blocks", "kernel")
"""Implementations of attention; see `ipot.accelerate.attention`."""


@dataclass(frozen=True)
class Target:
    """A device, the precision of products, and whether gradients are wanted."""

    device: torch.device
    products: torch.dtype
    """What products of matrices are computed in: the model's own precision, or that of autocast."""
    training: bool
    attention: str = "auto"
    """One of `ATTENTION`: "auto" leaves it to device and sizes; others are for measurements."""

    def __post_init__(self) -> None:
        if self.attention not in ATTENTION:
            raise ValueError(
                f"unknown attention {shown(self.attention)}; known: {', '.join(ATTENTION)}"
            )

    @property
    def free(self) -> bool:
        """True if device and sizes choose the implementation of attention."""
        return self.attention == "auto"

    @cached_property
    def triton(self) -> bool:
        """True if our Triton kernels compute what they can: bf16 on a GPU that has it."""
        if not self.free:
            return self.attention == "kernel"
        bf16 = self.device.type == "cuda" and self.products == torch.bfloat16
        return bf16 and cuda.available(self.device)

    @cached_property
    def cpp(self) -> bool:
        """True if our C++ kernels compute what they can without gradients: float32 on a CPU, or
        bf16 on one that has the instructions. The first use of this compiles them."""
        if not self.free or self.device.type != "cpu" or self.training:
            return False
        if self.products == torch.float32:
            return available()
        return self.products == torch.bfloat16 and why_not_bf16() is None


class Accelerated:
    """A quicker layer, made for a `Target`."""

    target: Target

    def start(self) -> None:
        """Decide what does not depend on single calls. The layer's children have been replaced
        already."""


Quicker = Callable[[nn.Module], type[nn.Module] | None]
"""The class that takes the place of a module's own, None to leave it."""


HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def twin(
    module: nn.Module,
    quicker: Quicker,
    target: Target,
    known: dict[nn.Module, nn.Module] | None = None,
) -> nn.Module:
    """The twin of a module for a target, or the module itself if nothing in it changes. A module
    that is used several times has one twin, which is remembered in `known`."""
    known = {} if known is None else known
    if module not in known:
        known[module] = _twin(module, quicker, target, known)
    return known[module]


def is_closed(module: nn.Module) -> bool:
    """True if calling a module does not run the `forward` of its class."""
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
    cls = own or type(module)
    made: Any = object.__new__(cls)
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
    """A hook for a twin that is called with the original module."""
    return hook if isinstance(hook, _Telling) else _Telling(hook, module)


class _Telling:
    """Calls a hook with the original module, to which it holds a weak reference."""

    def __init__(self, hook: Callable[..., Any], module: nn.Module) -> None:
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, twin: nn.Module, *rest: Any) -> Any:
        module = self.module()
        return self.hook(twin if module is None else module, *rest)


def hooked(*modules: nn.Module) -> bool:
    """True if any of these modules has a hook, or if there is a global one."""
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
    """True if these are unmodified Linears, and LayerNorms with scale and shift, so that kernels
    can use their parameters directly."""
    if not all(is_plain(m, nn.LayerNorm, nn.Linear) for m in layers):
        return False
    norms = (m for m in layers if isinstance(m, nn.LayerNorm))
    return all(m.weight is not None and m.bias is not None for m in norms)


def plain_after_attention(block: Any) -> bool:
    """True if kernels can compute what an `AttentionBlock` does after its attention: a residual and
    a gated feed-forward, of unmodified layers."""
    part, last = block.attend, block.feed_forward
    if not (block.residual and isinstance(last, GatedFeedForward)) or hooked(part, last):
        return False
    return are_plain_layers(part.to_out, last.norm, last.into, last.out)


def plain_before_self_attention(block: Any) -> bool:
    """True if an `AttentionBlock` is self-attention with projections that kernels can compute:
    unmodified, and all or none with a bias."""
    part = block.attend
    if part.norm_context is not None:
        return False
    if (part.to_query.bias is None) != (part.to_key_value.bias is None):
        return False
    return are_plain_layers(part.norm, part.to_query, part.to_key_value)


def fingerprint(model: nn.Module) -> tuple[Any, ...]:
    """What a twin was made from: it differs after a layer was replaced, hooked, or given another
    attribute. The twin keeps all of these objects but the modules alive, so their ids stay
    unique."""

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
