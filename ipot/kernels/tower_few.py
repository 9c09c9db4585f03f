"""A tower of blocks on a few thousand rows, by the kernels of `ipot.kernels.rows`.

Such a tower is made of launches that are too short to fill a GPU. So the gradients of weights,
which nobody waits for, are left to the end: one launch for the rows of all applications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.kernels import rows_launch
from ipot.kernels.attention import attend_self_with_lse
from ipot.kernels.rows import pack_finish, pack_projection
from ipot.kernels.rows_launch import (
    Behind,
    Rowwise,
    fold,
    launch_finish_back,
    launch_project_back,
    norm_table,
    products,
)
from ipot.kernels.rows_layout import check_finish, tuning
from ipot.kernels.self_attention import self_gradients
from ipot.kernels.tower_plan import Plan


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
        self, shape: torch.Size, plan: Plan, kind: torch.dtype, packed: Sequence[Tensor]
    ) -> None:
        self.shape, self.plan, self.kind = shape, plan, kind
        self.rows, self.width = shape[0] * shape[1], shape[2]
        pairs = zip(packed[::2], packed[1::2], strict=True)
        self.blocks = [_Block(*pair, kind) for pair in pairs]
        self.count = plan.applications(len(self.blocks))

    @staticmethod
    def pack(
        before: Sequence[Tensor], bias: Tensor | None, behind: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The parameters of a block: what `pack_projection` and `pack_finish` take."""
        return pack_projection(*before, bias=bias), pack_finish(*behind)

    def forward(self, state: Tensor) -> tuple[Tensor, list[Kept]]:
        """The states asked for, and what to keep of each application."""
        x = state.detach().reshape(self.rows, self.width).float().contiguous()
        states = x.new_empty(len(self.plan.wanted), self.rows, self.width)
        kept = []
        for index in range(self.count):
            block, place = self._block(index), self.plan.place(index, len(self.blocks))
            triples = rows_launch.project(
                x, block.project, block.project_rounded, 3 * self.plan.inner, self.kind
            ).view(*self.shape[:2], -1)
            attended, lse = attend_self_with_lse(triples, self.plan.heads)
            kept.append(Kept(x, triples, attended, lse))
            out = None if place is None else states[place]
            rows = attended.view(self.rows, -1)
            x = rows_launch.finish(x, rows, block.finish, block.finish_rounded, out)
        return states.view(-1, *self.shape), kept

    def backward(self, gradient: Tensor, kept: list[Kept]) -> tuple[Tensor, list[Tensor]]:
        """The gradients of the first state and of all that is packed."""
        many = self.count // len(self.blocks)
        left = [_Left(block, kept[0], many) for block in self.blocks]
        left[-1].grad[-1].copy_(gradient[-1])
        dstate = torch.empty_like(kept[0].x)
        for index in reversed(range(self.count)):
            turn, number = divmod(index, len(self.blocks))
            place = self.plan.place(index - 1, len(self.blocks)) if index else None
            before = divmod(index - 1, len(self.blocks))
            to = left[before[1]].grad[before[0]] if index else dstate
            more = None if place is None else gradient[place]
            self._back(self.blocks[number], kept[index], left[number], turn, to, more)
        found = []
        for number, (block, each) in enumerate(zip(self.blocks, left, strict=True)):
            found += each.gradients(block, kept[number :: len(self.blocks)])
        return dstate.view(self.shape), found

    def _back(
        self, block: _Block, own: Kept, left: _Left, turn: int, to: Tensor, more: Tensor | None
    ) -> None:
        """Back through an application, whose gradient is in its place."""
        attended = own.attended.view(self.rows, -1)
        back, behind = torch.empty_like(attended), left.behind.of(turn)
        finish = (block.finish, block.finish_rounded)
        launch_finish_back(own.x, attended, *finish, left.grad[turn], back, behind)
        triples = self_gradients(
            back.view(own.attended.shape), own.triples, own.attended, own.lse, self.plan.heads
        ).view(self.rows, -1)
        left.triples[turn] = triples
        rowwise = Rowwise(to, left.sums[turn], behind.dx, more)
        project = (block.project, block.project_rounded)
        launch_project_back(own.x, *project, triples, rowwise, weigh=False)

    def _block(self, index: int) -> _Block:
        return self.blocks[index % len(self.blocks)]


class _Block:
    """The parameters of a block, in full and rounded."""

    def __init__(self, project: Tensor, finish: Tensor, kind: torch.dtype) -> None:
        self.project, self.finish = project.detach(), finish.detach()
        self.project_rounded, self.finish_rounded = self.project.to(kind), self.finish.to(kind)


class _Left:
    """What the applications of a block leave, for the gradients of its weights."""

    def __init__(self, block: _Block, like: Kept, many: int) -> None:
        attended = like.attended.flatten(0, 1)
        hidden = check_finish(like.x, attended, block.finish, block.finish_rounded)
        self.behind = Behind.empty(like.x, attended, hidden, len(attended), many)
        self.grad = like.x.new_empty(many, *like.x.shape)
        self.triples: list[Tensor] = [like.triples] * many
        sums = norm_table(like.x)
        self.sums = sums.new_empty(many, *sums.shape)

    def gradients(self, block: _Block, kept: Sequence[Kept]) -> tuple[Tensor, Tensor]:
        """Of what is packed, before and behind the attention."""
        how, behind = tuning(*reversed(kept[0].x.shape)), self.behind.flat()
        x = _below([own.x for own in kept])
        attended = _below([own.attended.flatten(0, 1) for own in kept])
        project = (block.project, block.project_rounded)
        before = launch_project_back(x, *project, _below(self.triples), None, how=how.project_back)
        shares = products(how.products, behind, self.grad.flatten(0, 1), attended)
        return (
            fold(before, self.sums.flatten(0, 1), block.project),
            fold(shares, behind.sums, block.finish),
        )


def _below(parts: Sequence[Tensor]) -> Tensor:
    """Rows of several tensors, one below the other."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
