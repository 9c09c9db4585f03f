"""Attention blocks with fused Triton kernels.

What a block does to each row by itself, before and after its attention, is two kernels
(`ipot.accelerate.cuda.rows`). They take the parameters of a block packed in one tensor, so that a
block which is applied at every step of a rollout is packed, and rounded, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ipot.accelerate.twins import plain_after_attention, plain_before_self_attention

FEW = 4096
"""Rows up to which a norm and the projection after it are one kernel; of more, the library's
products may be quicker."""


class PackedBlock(NamedTuple):
    """The parameters before and after the attention of a block, and the same rounded."""

    project: Tensor
    project_rounded: Tensor
    finish: Tensor
    finish_rounded: Tensor

    @classmethod
    def of(cls, project: Tensor, finish: Tensor, kind: torch.dtype) -> PackedBlock:
        """Of what `pack_projection` and `pack_finish` give, rounded to the type of products."""
        return cls(project, project.to(kind), finish, finish.to(kind))


def finishes(block: Any) -> bool:
    """True if kernels can do what a block does after its attention."""
    if not plain_after_attention(block):
        return False
    part, last = block.attend, block.feed_forward
    if last.norm.eps != 1e-5 or any(x.bias is None for x in (part.to_out, last.into, last.out)):
        return False
    from ipot.accelerate.cuda.rows import supports

    return supports(part.to_out.out_features, part.to_out.in_features, last.out.in_features)


def applies(block: Any) -> bool:
    """True if kernels can do the whole of a block whose rows attend to each other."""
    if not plain_before_self_attention(block):
        return False
    return block.attend.norm.eps == 1e-5 and finishes(block)


def pack(block: Any) -> PackedBlock:
    """The parameters of a block of self-attention."""
    from ipot.accelerate.cuda.rows import pack_projection

    part = block.attend
    weights = (part.to_query.weight, part.to_key_value.weight)
    project = pack_projection(part.norm.weight, part.norm.bias, *weights, bias=_bias(part))
    return PackedBlock.of(project, _pack_finish(block), _kind(project))


def apply(block: Any, packed: PackedBlock, state: Tensor, mask: Tensor | None) -> Tensor:
    """A block of self-attention on (B, Z, d)."""
    from ipot.accelerate.cuda.attention import attend_self
    from ipot.accelerate.cuda.rows import finish_block, norm_project

    b, z, width = state.shape
    rows = state.reshape(b * z, width)
    columns = 3 * block.attend.to_query.out_features
    kind = packed.project_rounded.dtype
    triples = norm_project(rows, packed.project, columns, kind, packed.project_rounded)
    out = attend_self(triples.view(b, z, columns), mask, block.attend.heads)
    answer = finish_block(rows, out.reshape(b * z, -1), packed.finish, packed.finish_rounded)
    return answer.view(b, z, width)


def roll(
    blocks: Sequence[Any], repeats: int, state: Float[Tensor, "B Z d"], wanted: Sequence[int]
) -> Float[Tensor, "T B Z d"]:
    """The states after some numbers of steps, of which each goes over all blocks so many times."""
    from ipot.accelerate.cuda.tower import Schedule, roll, tower_for

    pack, packed = tower_for(state).pack, []
    for block in blocks:
        part = block.attend
        weights = (part.to_query.weight, part.to_key_value.weight)
        before = (part.norm.weight, part.norm.bias, *weights)
        packed += pack(before, _bias(part), _behind(block))
    part = blocks[0].attend
    schedule = Schedule(part.heads, part.to_query.out_features, repeats, tuple(wanted))
    return roll(state, schedule, _kind(state), *packed)


def alike(blocks: Sequence[Any]) -> bool:
    """True if blocks have the same sizes, as those of one processor do."""

    def sizes(block: Any) -> tuple[int, ...]:
        part = block.attend
        return part.heads, part.to_query.out_features, block.feed_forward.out.in_features

    return len({sizes(block) for block in blocks}) == 1


def projects(x: Tensor, norm: nn.LayerNorm, columns: int) -> bool:
    """True if one kernel does a norm and a projection to so many columns: rows are few, and of a
    size for it."""
    if norm.eps != 1e-5:
        return False
    from ipot.accelerate.cuda.rows import supports

    width = x.shape[-1]
    return x.numel() <= FEW * width and supports(width, columns)


def project(
    x: Float[Tensor, "B N d"],
    norm: nn.LayerNorm,
    weights: Sequence[Float[Tensor, "_ d"]],
    bias: Float[Tensor, " p"] | None,
) -> Float[Tensor, "B N p"]:
    """norm(x) times weights that lie one below the other, in one kernel where there is one."""
    if not projects(x, norm, sum(map(len, weights))):
        return F.linear(norm(x), torch.cat(tuple(weights)), bias)
    return _project(x, norm, weights, bias)


def _project(
    x: Tensor, norm: nn.LayerNorm, weights: Sequence[Tensor], bias: Tensor | None
) -> Tensor:
    from ipot.accelerate.cuda.rows import norm_project, pack_projection

    packed = pack_projection(norm.weight, norm.bias, *weights, bias=bias)
    rows = x.reshape(-1, x.shape[-1])
    answer = norm_project(rows, packed, sum(map(len, weights)), _kind(x))
    return answer.view(*x.shape[:-1], -1)


def finish(block: Any, y: Tensor, attended: Tensor) -> Tensor:
    """What a block does after its attention, (B, M, i), to the rows (B or 1, M, d) it adds to."""
    from ipot.accelerate.cuda.rows import finish_block

    packed = _pack_finish(block)
    rows, many = y.reshape(-1, y.shape[-1]), attended.reshape(-1, attended.shape[-1])
    kind = _kind(packed)
    answer = finish_block(rows, many.to(kind), packed, packed.to(kind))
    return answer.view(*attended.shape[:2], -1)


def _pack_finish(block: Any) -> Tensor:
    from ipot.accelerate.cuda.rows import pack_finish

    return pack_finish(*_behind(block))


def _bias(part: Any) -> Tensor | None:
    """Of queries, keys and values."""
    if part.to_query.bias is None:
        return None
    return torch.cat([part.to_query.bias, part.to_key_value.bias])


def _behind(block: Any) -> tuple[Tensor, ...]:
    """The parameters after an attention, in the order that they are packed by."""
    out, last = block.attend.to_out, block.feed_forward
    return (
        *(out.weight, out.bias, last.norm.weight, last.norm.bias),
        *(last.into.weight, last.into.bias, last.out.weight, last.out.bias),
    )


def _kind(x: Tensor) -> torch.dtype:
    """What the products are computed in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
