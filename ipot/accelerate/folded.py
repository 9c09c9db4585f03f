"""Layers folded around position features that are constants.

The position features of a fixed mesh need no gradient, and neither does what a LayerNorm makes of
them but for its scale and shift. These fold into the projection behind it:

    W (γ x̂ + β) + b = (W γ) x̂ + (W β + b) = W⁺ x̂⁺

with a column of ones beside x̂ in x̂⁺. That is one product forward and, since x̂ needs no gradient,
one product backward; nothing else goes over the rows.

Queries meet keys only in products, so the keys can absorb the projection of such queries:

    q · k = (W⁺ x̂⁺) · k = x̂⁺ · (W⁺ᵀ k)

Keys are then projected by W⁺ᵀ W_k, a product of parameters, and x̂⁺ itself attends to them. Nothing
goes over the rows of the queries but the attention. It pays where x̂⁺ has no more columns than the
head had, both padded to what matrix units take.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

ALIGNED = 8
"""Columns are filled up to a multiple of this: 16 bytes of bf16, which matrix units like best."""


class Folded(NamedTuple):
    """Queries that need no gradient, normalised but without the norm's scale and shift."""

    operand: Float[Tensor, "Bq M F2"]
    """What `fold` made of their features, in the precision of products."""
    tokens: None = None
    """Nothing is added to them later."""


def product_dtype(exact: torch.dtype, device: torch.device) -> torch.dtype:
    """The precision that a product with a tensor of this one is computed in now."""
    if exact == torch.float64 or not torch.is_autocast_enabled(device.type):
        return exact
    return torch.get_autocast_dtype(device.type)


def for_product(features: Tensor) -> Tensor:
    """Features in the precision that products are computed in now."""
    return features.to(product_dtype(features.dtype, features.device))


def fold(
    features: Float[Tensor, "B N F"], eps: float, columns: int | None = None
) -> Float[Tensor, "B N F2"]:
    """Layer-normalised features without scale and shift, a column of ones, and zeros: up to so many
    columns, or as few as matrix units like."""
    normed = F.layer_norm(features, features.shape[-1:], eps=eps)
    filled = F.pad(normed, (0, 1), value=1.0)
    return aligned(filled) if columns is None else F.pad(filled, (0, columns - filled.shape[-1]))


def aligned(x: Float[Tensor, "*rows F"]) -> Float[Tensor, "*rows F2"]:
    """Rows with columns of zeros behind them, so that each begins where matrix units like it."""
    return F.pad(x, (0, -x.shape[-1] % ALIGNED))


def product(
    operand: Float[Tensor, "*rows F2"], weight: Float[Tensor, "p F"]
) -> Float[Tensor, "*rows p"]:
    """operand @ weightᵀ, where the operand may have columns of zeros that the weight has not."""
    extra = operand.shape[-1] - weight.shape[1]
    return F.linear(operand, F.pad(weight, (0, extra)) if extra else weight)


def project_folded(
    operand: Float[Tensor, "B N F2"], norm: nn.LayerNorm, linear: nn.Linear
) -> Float[Tensor, "B N p"]:
    """linear(norm(features)), from what `fold` made of them."""
    return product(operand, folded_weight(norm, linear))


def folded_weight(norm: nn.LayerNorm, linear: nn.Linear) -> Float[Tensor, "p F1"]:
    """W⁺: the weight of both, and a last column for the ones beside the features."""
    # Not a matmul: under autocast that would round the weights before they are summed.
    offset = (linear.weight * norm.bias).sum(1, keepdim=True)
    if linear.bias is not None:
        offset = offset + linear.bias.unsqueeze(1)
    return torch.cat([linear.weight * norm.weight, offset], 1)


def absorbs(part: Any, features: int) -> bool:
    """True if the keys of a `MultiHead` have the sizes to absorb the projection of queries with so
    many features."""
    if part.heads > 1 or part.norm_context is None:
        return False
    return columns(features) <= _padded(part.to_query.out_features)


def columns(features: int) -> int:
    """Columns of x̂⁺ for so many features, as the kernels like it best."""
    return _padded(features + 1)


def absorbing_weights(part: Any, wide: int) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
    """The weights and bias for keys of `wide` channels, which meet x̂⁺ as it is, and values."""
    weight, bias = part.to_key_value.weight, part.to_key_value.bias
    inner = part.to_query.out_features
    # Rounded are the keys and the whole weight that they come by, not what it is made of.
    with torch.autocast(weight.device.type, enabled=False):
        by = folded_weight(part.norm, part.to_query)
        # Attention divides by the root of as many channels as it sees.
        by = F.pad(by * (wide / inner) ** 0.5, (0, wide - by.shape[1])).T
        weights = by @ weight[:inner], weight[inner:]
        if bias is not None:
            bias = torch.cat([by @ bias[:inner], bias[inner:]])
    return weights, bias


def _padded(count: int) -> int:
    """A power of two, at least what matrix units take."""
    return max(16, 1 << (count - 1).bit_length())
