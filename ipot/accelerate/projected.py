"""Projections straight from coordinates, without gradients.

`accelerate.cuda.project`, and on a CPU `accelerate.cpu.project`, compute position features,
LayerNorm and projection in one pass, without storing what lies between. The weights are prepared
for the Triton kernel once, and again when they have changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ipot.accelerate.cpu import halves, project
from ipot.accelerate.cpu.interface import rounds, served
from ipot.accelerate.cpu.project import has_kernel, waves
from ipot.accelerate.fixed_mesh import with_norm
from ipot.accelerate.shared_mesh import Laid
from ipot.accelerate.twins import Target, hooked


class Ready(NamedTuple):
    """A context whose keys and values have been computed already."""

    pairs: Tensor


class Projected(NamedTuple):
    """Queries after norm and projection, and before these if a residual needs them."""

    projected: Tensor
    tokens: Tensor | None


def project_points(
    target: Target,
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

    Tokens are the position features and values, or what `lift` makes of them. None if there is no
    kernel for it: then the layers do it one by one.
    """
    if torch.is_grad_enabled() or points.dtype != torch.float32:
        return None
    if points.device.type == "cpu":  # there Triton's are for tests of their own
        if not target.cpp:
            return None
        return _natively(position, lift, norm, linear, points, values)
    if not target.triton:
        return None
    from ipot.accelerate.cuda import project as kernel

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


def project_mesh(
    target: Target,
    position: Any,
    lift: Any,
    norm: Any,
    linear: nn.Linear,
    points: Tensor,
    values: Tensor,
) -> Laid | None:
    """The part of a projection that depends on a shared mesh alone; None if no kernel can use
    it."""
    if not target.cpp or torch.is_grad_enabled() or len(points) != 1 or len(values) == 1:
        return None
    if lift is not None or not _native(position, linear, norm, points, values):
        return None
    if rounds(points):
        layer = halves.RoundedLayer(linear.weight[:, : position.width], None, norm.weight)
        products, sums = halves.mesh_products(points, waves(position), layer)
    else:
        weight = (linear.weight * norm.weight)[:, : position.width]
        products, sums = project.mesh_products(points, waves(position), weight)
    return Laid(products, sums, values)


def _natively(
    position: Any, lift: Any, norm: Any, linear: nn.Linear, points: Tensor, values: Tensor | None
) -> Projected | None:
    """`project_points` on a CPU; None for lifted tokens, and for meshes that differ between
    samples."""
    own = values is None or len(values) == len(points)
    if lift is not None or not own or not _native(position, linear, norm, points, values):
        return None
    if rounds(points):
        layer = halves.RoundedLayer(linear.weight, linear.bias, norm.weight, norm.bias)
        found = halves.project(points, values, waves(position), layer, norm.eps)
        return Projected(found, None)
    weight, offset = with_norm(norm, linear.weight, linear.bias)
    found = project.project(points, values, waves(position), weight, offset, norm.eps)
    return Projected(found, None)


def _native(position: Any, linear: Any, norm: Any, points: Tensor, values: Tensor | None) -> bool:
    """True if there are kernels for these on a CPU."""
    if torch.compiler.is_compiling():
        return False
    narrow = values is None or values.shape[-1] < position.width
    given = [*norm.parameters(), *linear.parameters(), *([] if values is None else [values])]
    return narrow and not hooked(position) and served(*given) and has_kernel(position, points)


_kept: WeakKeyDictionary[nn.Module, tuple[Any, Any, list[Tensor]]] = WeakKeyDictionary()


def _prepared(make: Any, *modules: nn.Module) -> Any:
    """The weights as a kernel reads them, prepared again only when they have changed."""
    linear = modules[-1]
    own = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    if any(t.is_inference() for t in own):  # these do not tell when they change
        return make(*modules, dtype=torch.bfloat16)
    state = tuple((t.data_ptr(), t._version) for t in own)
    found = _kept.get(linear)
    if found is None or found[0] != state:
        with torch.no_grad():
            # With the weights themselves: their places are not given to others, of any version.
            made = make(*modules, dtype=torch.bfloat16)
            found = _kept[linear] = state, made, [t.detach() for t in own]
    return found[1]
