"""A tower of blocks on a few thousand rows, by the kernels of `ipot.accelerate.cuda.rows`.

Such a tower is made of launches that are too short to fill a GPU. So the gradients of weights,
which nobody waits for, are left to the end: one launch for the rows of all applications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cuda import rows_launch
from ipot.accelerate.cuda.attention import attend_self_with_lse
from ipot.accelerate.cuda.blocks import PackedBlock
from ipot.accelerate.cuda.rows import pack_finish, pack_projection
from ipot.accelerate.cuda.rows_launch import Rowwise, launch_finish_back, launch_project_back
from ipot.accelerate.cuda.self_attention import self_gradients
from ipot.accelerate.cuda.tower_schedule import Schedule
from ipot.accelerate.cuda.tower_weights import Left

SCRATCH = 1 << 30
"""Bytes that applications may leave for the gradients of weights before these are computed."""


class Kept(NamedTuple):
    """What the backward pass of an application needs."""

    x: Float[Tensor, "R d"]
    triples: Float[Tensor, "B Z i3"]
    attended: Float[Tensor, "B Z i"]
    lse: Float[Tensor, "B H Z"]


class FewRows:
    """One pass over all applications, and back."""

    Kept = Kept

    def __init__(
        self, shape: torch.Size, schedule: Schedule, kind: torch.dtype, packed: Sequence[Tensor]
    ) -> None:
        self.shape, self.schedule, self.kind = shape, schedule, kind
        self.rows, self.width = shape[0] * shape[1], shape[2]
        pairs = zip(packed[::2], packed[1::2], strict=True)
        self.blocks = [PackedBlock.of(p.detach(), f.detach(), kind) for p, f in pairs]
        self.count = schedule.applications(len(self.blocks))

    @staticmethod
    def pack(
        before: Sequence[Tensor], bias: Tensor | None, behind: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The parameters of a block: what `pack_projection` and `pack_finish` take."""
        return pack_projection(*before, bias=bias), pack_finish(*behind)

    def forward(self, state: Tensor) -> tuple[Tensor, list[Kept]]:
        """The states asked for, and what to keep of each application."""
        x = state.detach().reshape(self.rows, self.width).float().contiguous()
        states = x.new_empty(len(self.schedule.wanted), self.rows, self.width)
        kept = []
        for index in range(self.count):
            block, place = self._block(index), self.schedule.place(index, len(self.blocks))
            triples = rows_launch.project(
                x, block.project, block.project_rounded, 3 * self.schedule.inner, self.kind
            ).view(*self.shape[:2], -1)
            attended, lse = attend_self_with_lse(triples, self.schedule.heads)
            kept.append(Kept(x, triples, attended, lse))
            out = None if place is None else states[place]
            rows = attended.view(self.rows, -1)
            x = rows_launch.finish(x, rows, block.finish, block.finish_rounded, out)
        return states.view(-1, *self.shape), kept

    def backward(self, gradient: Tensor, kept: list[Kept]) -> tuple[Tensor, list[Tensor]]:
        """The gradients of the first state and of all that is packed."""
        weights, dstate = _Weights(self, kept), torch.empty_like(kept[0].x)
        weights.grad(self.count - 1).copy_(gradient[-1])
        for index in reversed(range(self.count)):
            place = self.schedule.place(index - 1, len(self.blocks)) if index else None
            more = None if place is None else gradient[place]
            self._back(index, kept[index], weights, dstate, more)
        return dstate.view(self.shape), weights.totals()

    def _back(
        self, index: int, own: Kept, weights: _Weights, dstate: Tensor, more: Tensor | None
    ) -> None:
        """Back through an application, whose gradient is in its place."""
        block, (left, place) = self._block(index), weights.left(index)
        attended, behind = own.attended.view(self.rows, -1), left.behind.of(place)
        back = torch.empty_like(attended)
        finish = (block.finish, block.finish_rounded)
        launch_finish_back(own.x, attended, *finish, left.grad[place], back, behind)
        triples = self_gradients(
            back.view(own.attended.shape), own.triples, own.attended, own.lse, self.schedule.heads
        ).view(self.rows, -1)
        left.keep(place, own.x, attended, triples)
        to = weights.grad(index - 1) if index else dstate
        rowwise = Rowwise(to, left.sums[place], behind.dx, more)
        project = (block.project, block.project_rounded)
        launch_project_back(own.x, *project, triples, rowwise, weigh=False)
        if place == 0:
            weights.add(index, left)

    def _block(self, index: int) -> PackedBlock:
        return self.blocks[index % len(self.blocks)]


class _Weights:
    """The gradients of weights, which are summed over some applications at a time: over all of them
    unless what they leave would take too much memory."""

    def __init__(self, tower: FewRows, kept: list[Kept]) -> None:
        self.blocks, self.count = tower.blocks, tower.count
        self.like = kept[0].x, kept[0].attended.flatten(0, 1)
        # Of one block there are two groups at once: one is begun before the other is taken in.
        each = (len(self.blocks) + 1) * Left.size(self.blocks[0], *self.like)
        self.turns = max(1, min(self.count // len(self.blocks), SCRATCH // each))
        self._left: dict[tuple[int, int], Left] = {}
        self._totals: dict[int, tuple[Tensor, ...]] = {}

    def left(self, index: int) -> tuple[Left, int]:
        """Where an application leaves what it does, and its place there."""
        turn, number = divmod(index, len(self.blocks))
        group, place = divmod(turn, self.turns)
        if (group, number) not in self._left:
            many = min(self.turns, self.count // len(self.blocks) - group * self.turns)
            self._left[group, number] = Left(self.blocks[number], *self.like, many)
        return self._left[group, number], place

    def grad(self, index: int) -> Tensor:
        """Where the gradient that comes to an application goes."""
        left, place = self.left(index)
        return left.grad[place]

    def add(self, index: int, left: Left) -> None:
        """Take in a group of applications that is complete, and let go of what it left."""
        turn, number = divmod(index, len(self.blocks))
        found, before = left.gradients(), self._totals.get(number)
        if before is not None:
            found = tuple(a + b for a, b in zip(before, found, strict=True))
        self._totals[number] = found
        del self._left[turn // self.turns, number]

    def totals(self) -> list[Tensor]:
        """Of all that is packed, block by block."""
        return [each for number in sorted(self._totals) for each in self._totals[number]]
