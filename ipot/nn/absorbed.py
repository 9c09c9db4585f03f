"""Queries that are constants: the keys absorb their projection.

Queries from features x̂ that need no gradient meet keys only in products (`ipot.nn.folded` has the
norm's scale and shift in W⁺, and a column of ones in x̂⁺):

    q · k = (W⁺ x̂⁺) · k = x̂⁺ · (W⁺ᵀ k)

So keys are projected by W⁺ᵀ W_k, a product of parameters, and x̂⁺ itself is what attends to them.
Nothing goes over the rows of the queries but the attention, whose backward pass has a product less
and writes nothing of their size. It pays where x̂⁺ has no more columns than the head had, both
padded to what matrix units take.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ipot.nn import fused
from ipot.nn.folded import called, fold, folded_weight, product_dtype
from ipot.nn.paths import goes_by_kernel


class Folded(NamedTuple):
    """Queries that need no gradient, behind their norm but for its affine part."""

    operand: Float[Tensor, "Bq M F2"]
    """What `ipot.nn.folded.fold` made of their features, in the precision of products."""
    tokens: None = None
    """Nothing is added to them later."""


def fits(part: Any, features: int) -> bool:
    """Whether the sizes of a `MultiHead` are such that its keys may absorb the projection of
    queries with so many features."""
    if part.heads > 1 or part.norm_context is None:
        return False
    return columns(features) <= _padded(part.to_query.out_features)


def goes(part: Any, features: int, context: Tensor) -> bool:
    """Whether they do now, with this context: by our kernels alone, which leave a gradient out."""
    layers = (part.norm, part.to_query, part.norm_context, part.to_key_value)
    return fits(part, features) and goes_by_kernel(context) and not called(*layers)


def columns(features: int) -> int:
    """Those of an operand for so many features and the ones, as the kernels like it best."""
    return _padded(features + 1)


def folded(part: Any, features: Float[Tensor, "Bq M F"]) -> Folded:
    """Features as queries of a part that absorbs their projection."""
    wide = fold(features, part.norm.eps, columns(features.shape[-1]))
    return Folded(wide.to(product_dtype(wide.dtype, wide.device)))


def pairs(
    part: Any, operand: Float[Tensor, "Bq M F2"], context: Float[Tensor, "B N c"]
) -> Float[Tensor, "B N p"]:
    """Keys as long as the rows of an operand, which meets them as it is, and behind them values."""
    weight, bias = part.to_key_value.weight, part.to_key_value.bias
    inner, wide = part.to_query.out_features, operand.shape[-1]
    # Rounded are the keys and the whole weight that they come by, not what it is made of.
    with torch.autocast(weight.device.type, enabled=False):
        by = folded_weight(part.norm, part.to_query)
        # Attention divides by the root of as many channels as it sees.
        by = F.pad(by * (wide / inner) ** 0.5, (0, wide - by.shape[1])).T
        weights = by @ weight[:inner], weight[inner:]
        if bias is not None:
            bias = torch.cat([by @ bias[:inner], bias[inner:]])
    return fused.project_by(context, part.norm_context, weights, bias)


def _padded(count: int) -> int:
    """A power of two, at least what matrix units take."""
    return max(16, 1 << (count - 1).bit_length())
