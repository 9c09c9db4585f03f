"""Projections straight from coordinates, where nothing is to be differentiated.

`ipot.kernels.project` computes position features, LayerNorm and projection in one pass and stores
none of what lies between. What it reads is prepared from the weights once, and again when they have
changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ipot.nn.paths import goes_by_kernel


class Ready(NamedTuple):
    """A context whose keys and values are there already."""

    pairs: Tensor


class Projected(NamedTuple):
    """Queries behind their norm and projection, and before it where they are added to later."""

    projected: Tensor
    tokens: Tensor | None


def project_points(
    position: Any,
    lift: Any,
    norm: Any,
    linear: nn.Linear,
    points: Tensor,
    values: Tensor | None = None,
    *,
    keep: bool = False,
) -> Projected | None:
    """linear(norm(tokens of the points)), with the tokens if they are to be kept.

    Tokens are the position features and values, or what `lift` makes of them. None where there is
    no kernel for it: then the layers do the same one by one.
    """
    if torch.is_grad_enabled() or not goes_by_kernel(points) or points.dtype != torch.float32:
        return None
    if points.device.type != "cuda":  # interpreted, these are for tests of their own
        return None
    from ipot.kernels import project as kernel

    channels = 0 if values is None else values.shape[-1]
    if not kernel.supports(position, values=channels, out=linear.out_features, lift=lift):
        return None
    if lift is None:
        prepared = _prepared(kernel.prepare, position, norm, linear)
        return Projected(kernel.project_tokens(points, values, prepared), None)
    prepared = _prepared(kernel.prepare_lift, position, lift, norm, linear)
    projected, tokens = kernel.lift_tokens(points, values, prepared, keep=keep)
    assert projected is not None
    return Projected(projected, tokens)


_kept: WeakKeyDictionary[nn.Module, tuple[Any, Any]] = WeakKeyDictionary()


def _prepared(make: Any, *modules: nn.Module) -> Any:
    """What a kernel reads, made once for as long as no weight changes."""
    linear = modules[-1]
    own = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    if any(t.is_inference() for t in own):  # these do not tell when they change
        return make(*modules, dtype=torch.bfloat16)
    state = tuple((t.data_ptr(), t._version) for t in own)
    found = _kept.get(linear)
    if found is None or found[0] != state:
        with torch.no_grad():
            found = _kept[linear] = state, make(*modules, dtype=torch.bfloat16)
    return found[1]
