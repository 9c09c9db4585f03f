"""Faster versions of models: `accelerate` takes a model and returns the same function of the same
parameters, for its device, for a precision, for training or for inference.

    quick = accelerate(model, training=True)
    quick(batch)                              # what model(batch) is, up to rounding

It works layer by layer (`ipot.accelerate.layers`): a model made of layers that are known here is
accelerated as it is, and an unknown layer stays unchanged (`unchanged` lists them). The original
model is the reference that everything here is tested and measured against; models and layers know
nothing of this package.

    twins             the second tree of modules, made once for a device and a precision
    layers            the quicker version of each layer
    operators         whole models: decoding together, encoding in chunks, parts to compile
    attention         the ways to compute attention between given queries, keys and values
    projected         projections of tokens made straight from positions and values
    shared_mesh       a mesh that all samples of a batch share
    fixed_mesh        features and projections of a mesh that stays the same during training
    chunks            inputs that come in chunks, and the tokens made of them
    streaming         attention over any number of inputs, in chunks
    relay_streaming   the same for a relay, in several passes
    replay            CUDA graphs of repeated predictions
    cuda, cpu         kernels in Triton and in C++
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

if TYPE_CHECKING:
    from ipot.accelerate.twins import Target

__all__ = ["accelerate", "for_answers", "unchanged"]

M = TypeVar("M", bound=nn.Module)

_made: WeakKeyDictionary[nn.Module, dict[Any, tuple[Any, Any]]] = WeakKeyDictionary()


def accelerate(model: M, *, training: bool = False, attention: str = "auto") -> M:
    """A faster version of a model, on the model's device and with the model's own parameters.

    Products are computed in the model's own precision, or in that of autocast where it is on now;
    with `training` it can be differentiated. `attention` forces one implementation of attention,
    for tests and measurements (`ipot.accelerate.twins.ATTENTION`). The model itself is not changed.
    Everything is decided once: if layers or hooks of the model change later, accelerate it again.
    """
    from ipot.accelerate.layers import QUICKER
    from ipot.accelerate.operators import decoding_together
    from ipot.accelerate.twins import twin

    target = _target(model, training, attention)
    if target is None:
        return model

    def quicker(module: nn.Module) -> type[nn.Module] | None:
        return QUICKER.get(type(module)) or decoding_together(type(module))

    return cast(M, twin(model, quicker, target))


def for_answers(model: M) -> M:
    """The model accelerated for inference under the current autocast. It is cached as long as the
    model lives, and made again if layers, their attributes or hooks have changed."""
    from ipot.accelerate.twins import fingerprint

    target, known = _target(model, False, "auto"), fingerprint(model)
    kept = _made.setdefault(model, {})
    if target not in kept or kept[target][0] != known:
        made = accelerate(model)
        # Not the model itself, which would then live as long as this.
        kept[target] = known, None if made is model else made
    made = kept[target][1]
    return model if made is None else made


def _target(model: nn.Module, training: bool, attention: str) -> Target | None:
    """The device and precision that a model is accelerated for; None for a model without
    tensors."""
    from ipot.accelerate.twins import Target

    tensors = chain(model.parameters(), model.buffers())
    found = next((t for t in tensors if t.is_floating_point()), None)
    if found is None or found.is_meta:
        return None
    products = found.dtype
    if torch.is_autocast_enabled(found.device.type) and products != torch.float64:
        products = torch.get_autocast_dtype(found.device.type)
    return Target(found.device, products, training, attention)


def unchanged(model: nn.Module) -> list[str]:
    """The names of the layers with parameters that `accelerate` leaves unchanged."""
    from ipot.accelerate.layers import PARTS, QUICKER
    from ipot.accelerate.twins import is_closed

    names: list[str] = []

    def look(module: nn.Module, name: str, known: bool, closed: bool) -> None:
        closed = closed or is_closed(module)
        known = not closed and (type(module) in QUICKER or (known and type(module) in PARTS))
        if not known and any(True for _ in module.parameters(recurse=False)):
            names.append(name)
        for own, child in module.named_children():
            look(child, f"{name}.{own}" if name else own, known, closed)

    look(model, "", False, False)
    return names
