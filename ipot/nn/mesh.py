"""Attention to a mesh that the samples of a batch share, by kernels for a CPU.

As `ipot.nn.split` has it, a key or value is (P + V - μ w) / σ, with P of the mesh alone. What the
others add to scores and to means is of low rank, so that keys and values are never written down
for each sample. What is the same for all keys (W β) does not change their weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.native import halves, mesh
from ipot.native.reach import readable, rounds
from ipot.nn.folded import called, product
from ipot.nn.paths import goes_native, path_is_free
from ipot.nn.split import Split


class Laid(NamedTuple):
    """A projection before the norm's mean and deviation: products of the mesh alone, the sums of
    its features and of their squares, and the values of each sample."""

    products: Float[Tensor, "1 N p"]
    sums: Float[Tensor, "1 N 2"]
    value: Float[Tensor, "B N C"]


def fits(
    query: Tensor, tokens: Split, mask: Tensor | None, heads: int, layers: tuple[Any, ...]
) -> bool:
    """Whether the kernels can attend to these tokens, behind these layers, and may now: values and
    positions are data, of a few channels, and queries the same for all samples."""
    position, value = tokens.position, tokens.value
    given = torch.is_grad_enabled() and (position.requires_grad or value.requires_grad)
    simple = mask is None and len(query) == 1 and value.shape[-1] < position.shape[-1] and not given
    simple = simple and path_is_free() and not called(*layers)
    return simple and readable(value) and goes_native(query, position, heads)


def lay(tokens: Split, norm: nn.LayerNorm, linear: nn.Linear) -> Laid:
    """Tokens as the kernels take them."""
    weight = (linear.weight * norm.weight)[:, : tokens.position.shape[-1]]
    return Laid(product(tokens.operand(), weight), tokens.sums(), tokens.value)


def attend(
    query: Float[Tensor, "1 M i"], laid: Laid, norm: nn.LayerNorm, linear: nn.Linear, heads: int
) -> Float[Tensor, "B M i"]:
    """The attention of queries over linear(norm(tokens)), keys and behind them values."""
    if rounds(query, laid.products):
        layer = halves.Layer(linear.weight, linear.bias, norm.weight, norm.bias)
        out = halves.attend_mesh(query.float(), *laid, layer, norm.eps, heads)
        if out is not None:
            return out
        with torch.autocast("cpu", enabled=False):
            return _attend(query.float(), laid, norm, linear, heads)
    return _attend(query, laid, norm, linear, heads)


def _attend(query: Tensor, laid: Laid, norm: nn.LayerNorm, linear: nn.Linear, heads: int) -> Tensor:
    products, sums, value = laid
    width, inner = linear.in_features, query.shape[-1]
    weight = linear.weight * norm.weight
    offset = linear.weight[inner:] @ norm.bias
    if linear.bias is not None:
        offset = offset + linear.bias[inner:]
    mean = (sums[..., 0] + value.sum(-1)) / width
    squares = sums[..., 1] + value.square().sum(-1)
    factor = (squares / width - mean.square() + norm.eps).rsqrt()
    extra = torch.cat([value, -mean.unsqueeze(-1)], -1)
    own = torch.cat([weight[:, width - value.shape[-1] :], weight.sum(1, keepdim=True)], 1)
    of_key, of_value = own.unflatten(0, (2, heads, -1)).unbind()  # each (H, e, T)
    asked = query[0].unflatten(-1, (heads, -1)).permute(1, 2, 0)
    slope = of_key.transpose(1, 2) @ asked
    out, means = mesh.attend(query, products, slope, factor, extra, heads)
    rest = (of_value @ means).permute(0, 3, 1, 2).flatten(2)
    return out + rest + offset
