"""What a mesh that stays the same gives once and for all, and the layers folded around it.

The position features of a fixed mesh are constants, and so is what a LayerNorm makes of them but
for its scale and shift. These fold into the projection behind it:

    W (γ x̂ + β) + b = (W γ) x̂ + (W β + b)

With a column of ones beside x̂ that is one product forward and, since x̂ needs no gradient, one
product backward; nothing else goes over the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

ALIGNED = 8
"""Columns are filled up to a multiple of this: 16 bytes of bf16, which matrix units like best."""


class Known(NamedTuple):
    """What is kept of the positions in one tensor."""

    points: Tensor
    """The tensor itself, which it is known by."""
    operand: Float[Tensor, "1 N F2"]
    """What the product behind takes, in the precision of that: features, or what
    `fold` makes of them."""
    features: Float[Tensor, "1 N F"] | None = None
    """The features in full, where they are asked for."""
    sums: Float[Tensor, "1 N 2"] | None = None
    """Of the features and of their squares, where they are asked for."""

    def copy_(self, other: Known) -> None:
        """Take over the numbers of another one, in place and in this one's precision."""
        for name in ("operand", "features", "sums"):
            mine = getattr(self, name)
            if mine is not None:
                mine.copy_(getattr(other, name))


def product_dtype(exact: torch.dtype, device: torch.device) -> torch.dtype:
    """The precision that a product with a tensor of this one is computed in now."""
    if exact == torch.float64 or not torch.is_autocast_enabled(device.type):
        return exact
    return torch.get_autocast_dtype(device.type)


def called(*layers: nn.Module) -> bool:
    """Whether any of some LayerNorms and Linears must be called as a module: hooks hang on it, it
    is of another kind and may do something else, or a norm has not all of its parameters."""
    if any(type(m) not in (nn.LayerNorm, nn.Linear) for m in layers) or hooked(*layers):
        return True
    return any(isinstance(m, nn.LayerNorm) and (m.weight is None or m.bias is None) for m in layers)


def untouched(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is of this very kind, without hooks and with its own `forward`."""
    return type(module) is kind and "forward" not in vars(module) and not hooked(module)


def hooked(*modules: nn.Module) -> bool:
    """Whether hooks hang on any of some modules, or on all that there are."""
    if torch.nn.modules.module._has_any_global_hook():
        return True
    return any(
        m._forward_pre_hooks or m._backward_pre_hooks or m._forward_hooks or m._backward_hooks
        for m in modules
    )


def fold(
    features: Float[Tensor, "B N F"], eps: float, columns: int | None = None
) -> Float[Tensor, "B N F2"]:
    """Features behind a LayerNorm without its affine part, a column of ones, and zeros: up to so
    many columns, or as few as matrix units like."""
    normed = F.layer_norm(features, features.shape[-1:], eps=eps)
    filled = F.pad(normed, (0, 1), value=1.0)
    return aligned(filled) if columns is None else F.pad(filled, (0, columns - filled.shape[-1]))


def aligned(x: Float[Tensor, "*rows F"]) -> Float[Tensor, "*rows F2"]:
    """The same with columns of zeros, so that rows begin where matrix units like it."""
    return F.pad(x, (0, -x.shape[-1] % ALIGNED))


def product(
    operand: Float[Tensor, "*rows F2"], weight: Float[Tensor, "p F"]
) -> Float[Tensor, "*rows p"]:
    """What is behind the columns of a weight in an operand is zeros: multiply by none of it."""
    extra = operand.shape[-1] - weight.shape[1]
    return F.linear(operand, F.pad(weight, (0, extra)) if extra else weight)


def project_folded(
    operand: Float[Tensor, "B N F2"], norm: nn.LayerNorm, linear: nn.Linear
) -> Float[Tensor, "B N p"]:
    """linear(norm(features)), from what `fold` made of them."""
    return product(operand, folded_weight(norm, linear))


def folded_weight(norm: nn.LayerNorm, linear: nn.Linear) -> Float[Tensor, "p F1"]:
    """The weight of both, and a last column for the ones beside the features."""
    # Not a matmul: under autocast that would round the weights before they are summed.
    offset = (linear.weight * norm.bias).sum(1, keepdim=True)
    if linear.bias is not None:
        offset = offset + linear.bias.unsqueeze(1)
    return torch.cat([linear.weight * norm.weight, offset], 1)
