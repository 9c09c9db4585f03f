"""Tokens in two parts: positions, which a batch may share, and values, which differ by sample.

LayerNorm and a projection of the two side by side are linear in them but for two numbers a token,
its mean and its deviation. So the positions of a shared mesh are projected once for the batch, and
what is left for each sample is one pass over the projections:

    W (γ (x - μ) / σ + β) = (P + V - μ w) / σ + W β

with P = W γ x of the positions, V that of the values, and w the sums over the rows of W γ.

On a CPU, kernels of our own attend to a shared mesh without writing down keys and values for each
sample: what the values add to scores and to means is of low rank. What is the same for all keys
(W β) does not change their weights.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ipot.accelerate import cuda
from ipot.accelerate.attention import goes_native
from ipot.accelerate.cpu import halves
from ipot.accelerate.cpu import mesh as native
from ipot.accelerate.cpu.interface import readable, rounds
from ipot.accelerate.fixed_mesh import Known, times_padded, with_norm
from ipot.accelerate.twins import Target


class Split(NamedTuple):
    """Tokens (B, N, F + C) in their two parts."""

    position: Float[Tensor, "B1 N F"]
    value: Float[Tensor, "B N C"]
    known: Known | None = None
    """What is kept of the positions, where they stay the same."""

    @property
    def shared(self) -> bool:
        """True if a batch shares the positions, so that keeping the parts apart pays."""
        return self.position.shape[0] == 1 and self.value.shape[0] > 1

    def joined(self) -> Float[Tensor, "B N FC"]:
        """The tokens."""
        position = self.position.expand(self.value.shape[0], -1, -1)
        return torch.cat([position, self.value.to(position.dtype)], dim=-1)

    def operand(self) -> Float[Tensor, "B1 N F2"]:
        """The positions as a product takes them, perhaps padded with zeros."""
        return self.position if self.known is None else self.known.operand

    def sums(self) -> Float[Tensor, "B1 N 2"]:
        """The sums of the features of each position, and of their squares."""
        if self.known is not None and self.known.sums is not None:
            return self.known.sums
        return sums_of(self.position)


def sums_of(position: Float[Tensor, "B1 N F"]) -> Float[Tensor, "B1 N 2"]:
    """Sums over the features of each position and over their squares."""
    return torch.stack([position.sum(-1), position.square().sum(-1)], -1)


def project(tokens: Split, norm: nn.LayerNorm, linear: nn.Linear) -> Float[Tensor, "B N p"]:
    """linear(norm(tokens)), the positions once for the whole batch.

    The deviation comes from a mean of squares. Its cancellation is bounded by the share of channels
    that are values, so it is safe if there are more features than values.
    """
    position, value = tokens.position, tokens.value
    features, width = position.shape[-1], position.shape[-1] + value.shape[-1]
    weight, offset = with_norm(norm, linear.weight, linear.bias)
    shared = times_padded(tokens.operand(), weight[:, :features])
    sums = tokens.sums()
    if _by_kernel(shared, value):
        from ipot.accelerate.cuda.pairs import shared_pairs

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
    """Tokens of a shared mesh, normalised and projected sample by sample in two passes, the first
    of which stays in a CPU's caches."""
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
    """True if there is a kernel for the pass over the samples."""
    if shared.dtype != torch.bfloat16 or value.requires_grad or not cuda.available(shared.device):
        return False
    from ipot.accelerate.cuda.pairs import supports

    return supports(value.shape[-1])


class Laid(NamedTuple):
    """A projection before the norm's mean and deviation: products of the mesh alone, the sums of
    its features and of their squares, and the values of each sample."""

    products: Float[Tensor, "1 N p"]
    sums: Float[Tensor, "1 N 2"]
    value: Float[Tensor, "B N C"]


def attends_itself(
    target: Target, query: Tensor, tokens: Split, mask: Tensor | None, heads: int
) -> bool:
    """True if C++ kernels can attend to these tokens as they are: values and positions need no
    gradient, values have few channels, and queries are the same for all samples."""
    position, value = tokens.position, tokens.value
    given = torch.is_grad_enabled() and (position.requires_grad or value.requires_grad)
    simple = mask is None and len(query) == 1 and value.shape[-1] < position.shape[-1] and not given
    return simple and target.free and readable(value) and goes_native(query, position, heads)


def lay(tokens: Split, norm: nn.LayerNorm, linear: nn.Linear) -> Laid:
    """Tokens in the form that the kernels take."""
    weight = (linear.weight * norm.weight)[:, : tokens.position.shape[-1]]
    return Laid(times_padded(tokens.operand(), weight), tokens.sums(), tokens.value)


def attend_laid(
    query: Float[Tensor, "1 M i"], laid: Laid, norm: nn.LayerNorm, linear: nn.Linear, heads: int
) -> Float[Tensor, "B M i"]:
    """The attention of queries over linear(norm(tokens)), which are keys and then values."""
    if rounds(query, laid.products):
        layer = halves.RoundedLayer(linear.weight, linear.bias, norm.weight, norm.bias)
        out = halves.attend_mesh(query.float(), *laid, layer, norm.eps, heads)
        if out is not None:
            return out
        with torch.autocast("cpu", enabled=False):
            return _attend_laid(query.float(), laid, norm, linear, heads)
    return _attend_laid(query, laid, norm, linear, heads)


def _attend_laid(
    query: Tensor, laid: Laid, norm: nn.LayerNorm, linear: nn.Linear, heads: int
) -> Tensor:
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
    out, means = native.attend(query, products, slope, factor, extra, heads)
    rest = (of_value @ means).permute(0, 3, 1, 2).flatten(2)
    return out + rest + offset
