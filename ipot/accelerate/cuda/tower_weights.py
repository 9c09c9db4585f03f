"""The gradients of a block's weights, from what several applications of it left."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cuda.blocks import PackedBlock
from ipot.accelerate.cuda.rows import joined
from ipot.accelerate.cuda.rows_launch import (
    Behind,
    add_shares,
    launch_project_back,
    norm_table,
    weight_shares,
)
from ipot.accelerate.cuda.rows_layout import (
    EPS,
    check_finish,
    transposed_product,
    tuning,
    views_of_finish,
)

LIBRARY = 32768
"""Rows, of all applications together, from where on the library's products are quicker."""


class Left:
    """Places for what some applications of a block leave in their backward pass."""

    def __init__(
        self, block: PackedBlock, x: Float[Tensor, "R d"], attended: Float[Tensor, "R i"], many: int
    ) -> None:
        self.block, self.rows = block, len(x)
        self.hidden = check_finish(x, attended, block.finish, block.finish_rounded)
        self.behind = Behind.empty(x, attended, self.hidden, len(x), many)
        self.grad = x.new_empty(many, *x.shape)
        table = norm_table(x)
        self.sums = table.new_empty(many, *table.shape)
        self.x, self.attended, self.triples = [x] * many, [attended] * many, [attended] * many

    @staticmethod
    def size(block: PackedBlock, x: Float[Tensor, "R d"], attended: Float[Tensor, "R i"]) -> int:
        """Bytes that one application takes, but for its sums."""
        hidden = check_finish(x, attended, block.finish, block.finish_rounded)
        rounded = x.shape[1] + 3 * hidden + 3 * attended.shape[1]
        return len(x) * (8 * x.shape[1] + rounded * attended.element_size())

    def keep(self, place: int, x: Tensor, attended: Tensor, triples: Tensor) -> None:
        """What an application had before and after its attention, and its triples' gradient."""
        self.x[place], self.attended[place], self.triples[place] = x, attended, triples

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Of what is packed, before and after the attention."""
        x, attended, triples = (_below(t) for t in (self.x, self.attended, self.triples))
        sums, behind, grad = self.sums.flatten(0, 1), self.behind.flat(), self.grad.flatten(0, 1)
        if len(x) >= LIBRARY:
            return (
                self._before_by_library(x, triples, sums),
                self._behind_by_library(attended, behind, grad),
            )
        how, block = tuning(x.shape[1], self.rows), self.block
        project = (block.project, block.project_rounded)
        before = launch_project_back(x, *project, triples, None, how=how.project_back)
        shares = weight_shares(how.products, behind, grad, attended)
        return add_shares(before, sums, block.project), add_shares(
            shares, behind.sums, block.finish
        )

    def _before_by_library(self, x: Tensor, triples: Tensor, sums: Tensor) -> Tensor:
        width, columns = x.shape[1], triples.shape[1]
        packed = self.block.project
        gamma, beta = packed[-2 * width : -width], packed[-width:]
        normed = F.layer_norm(x, (width,), gamma, beta, EPS).to(triples.dtype)
        weight = x.new_empty(columns, width, dtype=torch.float32)
        transposed_product(triples, normed, weight)
        parts = [weight]
        if packed.numel() > (columns + 2) * width:
            parts.append(_sums(triples))
        return joined([*parts, _sums(sums)]).to(packed.dtype)

    def _behind_by_library(self, attended: Tensor, behind: Behind, grad: Tensor) -> Tensor:
        packed, kind = self.block.finish, attended.dtype
        found = torch.empty_like(packed, dtype=torch.float32)
        width, inner = grad.shape[1], attended.shape[1]
        into, weight, out = views_of_finish(found, width, self.hidden, inner)
        transposed_product(behind.dgates, behind.normed, into)
        transposed_product(grad.to(kind), behind.units, weight)
        transposed_product(behind.dx.to(kind), attended, out)
        sums = _sums(behind.dgates), _sums(grad), joined([_sums(behind.dx), _sums(behind.sums)])
        # Biases stand after their weights: W1 b1 W2 b2 Wo bo gamma beta.
        place = 0
        for weights, some in zip((into, weight, out), sums, strict=True):
            place += weights.numel()
            found[place : place + len(some)] = some
            place += len(some)
        return found.to(packed.dtype)


def _sums(table: Tensor) -> Tensor:
    return table.sum(0, dtype=torch.float32)


def _below(parts: Sequence[Tensor]) -> Tensor:
    """Rows of several tensors, one below the other."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
