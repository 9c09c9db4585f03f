"""Tokens in two parts: positions, which a batch may share, and values, which are each sample's own.

LayerNorm and a projection of the two side by side are linear in them but for two numbers a token,
its mean and its deviation. So the positions of a shared mesh are projected once for the batch, and
what is left for each sample is one pass over the projections:

    W (γ (x - μ) / σ + β) = (P + V - μ w) / σ + W β

with P = W γ x of the positions, V that of the values, and w the sums over the rows of W γ.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ipot import kernels
from ipot.nn.folded import Known, called, product


class Split(NamedTuple):
    """Tokens (B, N, F + C) in their two parts."""

    position: Float[Tensor, "B1 N F"]
    value: Float[Tensor, "B N C"]
    known: Known | None = None
    """What is kept of the positions, where they stay the same."""

    @property
    def shared(self) -> bool:
        """Whether it is worth keeping the parts apart."""
        return self.position.shape[0] == 1 and self.value.shape[0] > 1

    def joined(self) -> Float[Tensor, "B N FC"]:
        """The tokens."""
        position = self.position.expand(self.value.shape[0], -1, -1)
        return torch.cat([position, self.value.to(position.dtype)], dim=-1)

    def operand(self) -> Float[Tensor, "B1 N F2"]:
        """The positions as a product takes them, perhaps with zeros behind them."""
        return self.position if self.known is None else self.known.operand

    def sums(self) -> Float[Tensor, "B1 N 2"]:
        """Of the features of each position and of their squares."""
        if self.known is not None and self.known.sums is not None:
            return self.known.sums
        return sums_of(self.position)


def sums_of(position: Float[Tensor, "B1 N F"]) -> Float[Tensor, "B1 N 2"]:
    """Sums over the features of each position and over their squares."""
    return torch.stack([position.sum(-1), position.square().sum(-1)], -1)


def project(tokens: Split, norm: nn.LayerNorm, linear: nn.Linear) -> Float[Tensor, "B N p"]:
    """linear(norm(tokens)), the positions once for the whole batch.

    The deviation comes from a mean of squares. That cancels no more than the share of the channels
    that are values, which is why it is safe where there are more features than values.
    """
    if called(norm, linear):
        return linear(norm(tokens.joined()))
    position, value = tokens.position, tokens.value
    features, width = position.shape[-1], position.shape[-1] + value.shape[-1]
    weight = linear.weight * norm.weight
    offset = linear.weight @ norm.bias
    if linear.bias is not None:
        offset = offset + linear.bias
    shared = product(tokens.operand(), weight[:, :features])
    sums = tokens.sums()
    if _by_kernel(shared, value):
        from ipot.kernels.pairs import shared_pairs

        own = weight[:, features:].T.contiguous()
        return shared_pairs(
            shared.squeeze(0), sums.squeeze(0), value, own, weight.sum(1), offset, width, norm.eps
        )
    total = sums[..., :1] + value.sum(-1, keepdim=True)
    squares = sums[..., 1:] + value.square().sum(-1, keepdim=True)
    mean = total / width
    scale = (squares / width - mean.square() + norm.eps).rsqrt()
    if shared.device.type == "cpu" and not _differentiated(shared, value, weight, offset):
        return _sample_by_sample(shared[0], mean, scale, value, weight, offset)
    out = shared - mean * weight.sum(1)
    out = out + F.linear(value, weight[:, features:].to(value.dtype))
    return (out * scale + offset).to(shared.dtype)


def _differentiated(*tensors: Tensor) -> bool:
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return wanted or torch.compiler.is_compiling()


def _sample_by_sample(
    shared: Tensor, mean: Tensor, scale: Tensor, value: Tensor, weight: Tensor, offset: Tensor
) -> Tensor:
    """The same in two passes for each sample, the first of which stays in a CPU's caches."""
    channels = value.shape[-1]
    own = torch.cat([weight.sum(1, keepdim=True).neg(), weight[:, -channels:]], 1).T
    own = own.to(shared.dtype)
    out = shared.new_empty(len(value), *shared.shape)
    room = torch.empty_like(shared)
    for row, numbers, factor in zip(out, torch.cat([mean, value], -1), scale, strict=True):
        torch.addmm(shared, numbers.to(shared.dtype), own, out=room)
        torch.addcmul(offset, room, factor.to(shared.dtype), out=row)
    return out


def _by_kernel(shared: Tensor, value: Tensor) -> bool:
    """Whether there is a kernel for the pass over the samples."""
    if (
        shared.dtype != torch.bfloat16
        or value.requires_grad
        or not kernels.available(shared.device)
    ):
        return False
    from ipot.kernels.pairs import supports

    return supports(value.shape[-1])
