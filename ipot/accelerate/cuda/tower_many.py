"""A tower of blocks on tens of thousands of rows: products by the library, the rest by kernels.

Forward, every application leaves what its two norms made of the rows (rounded, with their factors),
its queries, keys and values, and its attention: nothing has to be computed again but the hidden
layer. Backward, what lies between the library's products are four passes over memory:

    gates_back        the hidden layer, and the gradients of its gates
    norm_pass_back    through the norm after the attention, past it and rounded
    --                the attention's backward pass
    norm_pass_back    through the norm before it, and with the gradient of a state asked for added

The affine part of a norm is folded into the weight after it: its gradients are those of small
weights and cost nothing over the rows. Gradients of weights are kept for each application and added
up in the end, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cuda import rows_forward, tower_rows
from ipot.accelerate.cuda.attention import attend_self_with_lse
from ipot.accelerate.cuda.rows import joined
from ipot.accelerate.cuda.rows_launch import finish_sizes
from ipot.accelerate.cuda.rows_layout import share, transposed_product, tuning, views_of_finish
from ipot.accelerate.cuda.self_attention import blocks_of, self_gradients
from ipot.accelerate.cuda.tower_schedule import Schedule

PROGRAMS = 1056
"""Of a pass that sums columns, at most: eight for each processor of a large GPU."""
PASS: dict[str, Any] = {"ROWS": 16, "num_warps": 2}
"""How such a pass runs."""
GATES: dict[str, Any] = {"ROWS": 32, "HIDDEN": 64, "num_warps": 4, "num_stages": 2}
"""How the hidden layer's backward pass runs."""


class Kept(NamedTuple):
    """What the backward pass of an application needs."""

    values: Float[Tensor, "R d"]
    factors: Float[Tensor, " R"]
    triples: Float[Tensor, "B Z i3"]
    attended: Float[Tensor, "B Z i"]
    lse: Float[Tensor, "B H Z"]
    inside: Float[Tensor, "R d"]
    inside_factors: Float[Tensor, " R"]


class ManyRows:
    """One pass over all applications, and back."""

    Kept = Kept

    def __init__(
        self, shape: torch.Size, schedule: Schedule, kind: torch.dtype, packed: Sequence[Tensor]
    ) -> None:
        self.shape, self.schedule, self.kind = shape, schedule, kind
        self.rows, self.width = shape[0] * shape[1], shape[2]
        pairs = zip(packed[::2], packed[1::2], strict=True)
        self.blocks = [_Block(*pair, schedule.inner, self.width, kind) for pair in pairs]
        # Of a pass that sums columns: its programs, and the rows of each.
        self.stretch = triton.cdiv(triton.cdiv(self.rows, PROGRAMS), PASS["ROWS"]) * PASS["ROWS"]
        self.programs = triton.cdiv(self.rows, self.stretch)
        self.count = schedule.applications(len(self.blocks))

    @staticmethod
    def pack(
        before: Sequence[Tensor], bias: Tensor | None, behind: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The parameters of a block, with the affine parts of its norms folded away: what
        `rows.pack_projection` and `rows.pack_finish` take."""
        gamma, beta, *weights = before
        weight, offset = _folded(torch.cat(weights), bias, gamma, beta)
        project = joined([weight, offset])
        out_weight, out_bias, gamma, beta, into_weight, into_bias, weight, bias = behind
        into, offset = _folded(into_weight, into_bias, gamma, beta)
        one, none = torch.ones_like(gamma), torch.zeros_like(beta)
        parts = [into, offset, weight, bias, out_weight, out_bias, one, none]
        return project, joined(parts)

    def forward(self, state: Tensor) -> tuple[Tensor, list[Kept]]:
        """The states asked for, and what to keep of each application."""
        x = state.detach().reshape(self.rows, self.width).float().contiguous()
        states = x.new_empty(len(self.schedule.wanted), self.rows, self.width)
        values, factors = self._empty()
        tower_rows.normalise[(triton.cdiv(self.rows, PASS["ROWS"]),)](
            x, values, factors, self.rows, D=self.width, **PASS
        )
        kept = []
        for index in range(self.count):
            block, place = self._block(index), self.schedule.place(index, len(self.blocks))
            triples = torch.addmm(block.offset, values, block.project.T)
            triples = triples.view(*self.shape[:2], -1)
            attended, lse = attend_self_with_lse(triples, self.schedule.heads)
            inside, behind = self._empty(), self._empty()
            out = torch.empty_like(x) if place is None else states[place]
            self._finish(block, x, attended, out, inside, behind)
            kept.append(Kept(values, factors, triples, attended, lse, *inside))
            x, (values, factors) = out, behind
        return states.view(-1, *self.shape), kept

    def backward(self, gradient: Tensor, kept: list[Kept]) -> tuple[Tensor, list[Tensor]]:
        """The gradients of the first state and of all that is packed."""
        sums = _Sums(self, gradient)
        dy = gradient[-1]
        rounded = dy.to(self.kind)
        torch.sum(dy, 0, out=sums.back[-1, 0])
        for index in reversed(range(self.count)):
            block, own = self._block(index), kept[index]
            dy, rounded = self._behind(index, block, own, sums, dy, rounded)
            place = self.schedule.place(index - 1, len(self.blocks)) if index else None
            more = None if place is None else gradient[place]
            dy, rounded = self._before(index, block, own, sums, dy, rounded, more)
        return dy.view(self.shape), sums.gradients(self.blocks)

    def _behind(
        self, index: int, block: _Block, own: Kept, sums: _Sums, dy: Tensor, rounded: Tensor
    ) -> tuple[Tensor, Tensor]:
        """From after a block to after its attention."""
        gates = rounded.new_empty(self.rows, 2 * block.hidden)
        units = rounded.new_empty(self.rows, block.hidden)
        tower_rows.gates_back[(triton.cdiv(self.rows, GATES["ROWS"]),)](
            *(own.inside, rounded, block.packed, block.rounded),
            *(gates, units, sums.gates[index], self.rows),
            D=self.width,
            F=block.hidden,
            **GATES | {"HIDDEN": share(block.hidden, GATES["HIDDEN"])},
        )
        transposed_product(gates, own.inside, sums.into[index])
        transposed_product(rounded, units, sums.weight[index])
        return self._norm_back(
            gates @ block.into, own.inside, own.inside_factors, dy, None, sums.out_bias[index]
        )

    def _before(
        self,
        index: int,
        block: _Block,
        own: Kept,
        sums: _Sums,
        dy: Tensor,
        rounded: Tensor,
        more: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """From after a block's attention to before the block."""
        attended = own.attended.view(self.rows, -1)
        transposed_product(rounded, attended, sums.out[index])
        back = (rounded @ block.out).view(own.attended.shape)
        triples = self_gradients(
            back, own.triples, own.attended, own.lse, self.schedule.heads, sums.queries[index]
        ).view(self.rows, -1)
        transposed_product(triples, own.values, sums.project[index])
        total = sums.back[index - 1] if index else sums.unused
        return self._norm_back(triples @ block.project, own.values, own.factors, dy, more, total)

    def _block(self, index: int) -> _Block:
        return self.blocks[index % len(self.blocks)]

    def _empty(self) -> tuple[Tensor, Tensor]:
        like = self.blocks[0].packed
        values = like.new_empty(self.rows, self.width, dtype=self.kind)
        return values, like.new_empty(self.rows, dtype=torch.float32)

    def _finish(
        self,
        block: _Block,
        x: Tensor,
        attended: Tensor,
        out: Tensor,
        inside: tuple[Tensor, Tensor],
        behind: tuple[Tensor, Tensor],
    ) -> None:
        """All after the attention; values and factors of the norm inside and of the next one."""
        how = tuning(self.width, self.rows).finish
        rows_forward.finish[(triton.cdiv(self.rows, how.rows),)](
            *(x, attended, block.packed, block.rounded, out),
            *(*inside, *behind, self.rows, self.rows),
            **finish_sizes(how, self.width, block.hidden, block.inner),
            KEEP=True,
        )

    def _norm_back(
        self,
        dn: Tensor,
        values: Tensor,
        factors: Tensor,
        grad: Tensor,
        more: Tensor | None,
        total: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The gradient before a norm, in full and rounded; its sums go to `total`."""
        dx, rounded = torch.empty_like(grad), torch.empty_like(values)
        tower_rows.norm_pass_back[(self.programs,)](
            *(dn, values, factors, grad, grad if more is None else more, dx, rounded, total),
            *(self.rows, self.stretch),
            D=self.width,
            MORE=more is not None,
            **PASS,
        )
        return dx, rounded


class _Block:
    """The parameters of a block, as products and kernels take them."""

    def __init__(
        self, project: Tensor, finish: Tensor, inner: int, width: int, kind: torch.dtype
    ) -> None:
        columns = 3 * inner
        self.packed, self.rounded = finish.detach(), finish.detach().to(kind)
        project = project.detach().to(kind)
        self.project = project[: columns * width].view(columns, width)
        self.offset = project[columns * width :]
        self.inner = inner
        self.hidden = (finish.numel() - width * (self.inner + 4)) // (3 * width + 2)
        self.into, self.weight, self.out = views_of_finish(
            self.rounded, width, self.hidden, self.inner
        )


class _Sums:
    """The gradients of weights, of every application by itself."""

    def __init__(self, tower: ManyRows, like: Tensor) -> None:
        block, width, count = tower.blocks[0], tower.width, tower.count

        def table(*shape: int) -> Tensor:
            return like.new_empty(count, *shape)

        self.project = table(3 * block.inner, width)
        samples, rows, _ = tower.shape
        blocks = blocks_of(rows, block.inner // tower.schedule.heads)
        self.queries = table(samples * blocks, block.inner)
        self.into = table(2 * block.hidden, width)
        self.gates = table(triton.cdiv(tower.rows, GATES["ROWS"]), 2 * block.hidden)
        self.weight = table(width, block.hidden)
        self.back = table(tower.programs, width)
        self.back[-1].zero_()  # the last has one sum instead of many
        self.out = table(width, block.inner)
        self.out_bias = table(tower.programs, width)
        self.unused = like.new_empty(tower.programs, width)

    def gradients(self, blocks: list[_Block]) -> list[Tensor]:
        """Of the two tensors of each block, over all of its applications."""
        found = []
        for index, block in enumerate(blocks):
            mine = slice(index, None, len(blocks))
            bias = self.out_bias[mine].sum((0, 1))
            found.append(self._projection(mine, bias, block))
            parts = [
                self.into[mine].sum(0),
                self.gates[mine].sum((0, 1)),
                self.weight[mine].sum(0),
                self.back[mine].sum((0, 1)),
                self.out[mine].sum(0),
                bias,
                bias.new_zeros(2 * len(bias)),  # of the norm, which is folded away
            ]
            found.append(joined(parts).to(block.packed.dtype))
        return found

    def _projection(self, mine: slice, bias: Tensor, block: _Block) -> Tensor:
        """The sums of the gradients of keys are zero, since a shift of all keys changes no weight.
        Those of values are the sums of what came to the attention's answers, since the weights of
        a row add up to one."""
        queries = self.queries[mine].sum((0, 1))
        values = (bias.unsqueeze(1) * block.out).sum(0)
        parts = [self.project[mine].sum(0), queries, torch.zeros_like(queries), values]
        return joined(parts).to(block.packed.dtype)


def _folded(
    weight: Tensor, bias: Tensor | None, gamma: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """W (γ x + β) + b as one product: Wγ and Wβ + b."""
    offset = (weight * beta).sum(1)  # no product of matrices: autocast would round it
    return weight * gamma, offset if bias is None else offset + bias
