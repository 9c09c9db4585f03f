"""Blocks of self-attention applied one after another, as one function: a rollout's, or a deep
processor's.

A compiler sees each block by itself. Whoever sees all of them adds up gradients where they are
made, instead of in passes of their own, and leaves the gradients of weights to the end, where those
of all applications are one product or one sum. There are two ways, by the number of rows:

    few     kernels do all that a block does to a row, and compute it again backward (`tower_few`)
    many    products are the library's, and what lies between them is kept (`tower_many`)

The plain version is a loop over `ipot.nn.attention.AttentionBlock`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ipot.accelerate.cuda.rows_layout import by_library
from ipot.accelerate.cuda.tower_few import FewRows
from ipot.accelerate.cuda.tower_many import ManyRows
from ipot.accelerate.cuda.tower_schedule import Schedule

__all__ = ["FewRows", "ManyRows", "Schedule", "roll", "tower_for"]


def tower_for(state: Float[Tensor, "B Z d"]) -> type[FewRows] | type[ManyRows]:
    """The way for so many rows. Its `pack` makes of a block's parameters what `roll` takes."""
    return ManyRows if by_library(state.shape[2], state.shape[0] * state.shape[1]) else FewRows


def roll(
    state: Float[Tensor, "B Z d"], schedule: Schedule, kind: torch.dtype, *packed: Tensor
) -> Float[Tensor, "T B Z d"]:
    """The states that are asked for, by blocks that are packed as two tensors each. Products are of
    this `kind`."""
    return _Rolled.apply(state, schedule, kind, *packed)


class _Rolled(torch.autograd.Function):
    """All blocks, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, state: Tensor, schedule: Schedule, kind: torch.dtype, *packed: Tensor
    ) -> Tensor:
        with torch.autocast(state.device.type, enabled=False), torch.cuda.device_of(state):
            tower = tower_for(state)(state.shape, schedule, kind, packed)
            states, kept = tower.forward(state)
        ctx.tower, ctx.kind = tower, state.dtype
        ctx.save_for_backward(*(tensor for each in kept for tensor in each))
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        (gradient,), tower = grad_outputs, ctx.tower
        tensors, size = ctx.saved_tensors, len(tower.Kept._fields)
        kept = [tower.Kept(*tensors[i : i + size]) for i in range(0, len(tensors), size)]
        with torch.autocast(gradient.device.type, enabled=False), torch.cuda.device_of(gradient):
            gradient = gradient.float().contiguous().flatten(1, 2)
            dstate, found = tower.backward(gradient, kept)
        return dstate.to(ctx.kind), None, None, *found
