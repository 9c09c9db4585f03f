"""From a C-mesh to the next coarser one and back.

A coarse mesh drops every other node along both axes, but never the trailing edge or an end.
Prolongation is linear in the index. Restriction is its transpose: what flows out of a dropped cell
is handed to the cells around it, and nothing is lost.

All of it is indexing and sums, no products of matrices: a sample does not depend on its company.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class Axis:
    """One axis of a mesh, made of parts whose ends are kept, and what its coarse mesh keeps."""

    def __init__(self, parts: list[int], dtype: torch.dtype, device: torch.device) -> None:
        self.parts = [(cells + 1) // 2 for cells in parts]
        nodes = sum(parts) + 1
        kept = _kept(parts)
        place = {node: number for number, node in enumerate(kept)}

        def number(node: int, towards: int) -> int:
            return place[node] if node in place else place[node + towards]

        def dropped(node: int, towards: int) -> int:
            beside = node + towards
            return beside if 0 <= beside < nodes and beside not in place else node

        def tensor(values: list[int]) -> Tensor:
            return torch.tensor(values, device=device)

        self.kept = tensor(kept)
        self.low = tensor([number(node, -1) for node in range(nodes)])
        self.high = tensor([number(node, 1) for node in range(nodes)])
        self.before = tensor([dropped(node, -1) for node in kept])
        self.behind = tensor([dropped(node, 1) for node in kept])
        # Half of a dropped node goes to either side; where none was dropped, nothing does.
        self.share_before = (self.before != self.kept).to(dtype) / 2
        self.share_behind = (self.behind != self.kept).to(dtype) / 2


def _kept(parts: list[int]) -> list[int]:
    """Every other node, with the ends of all parts.

    A part of an odd number of cells keeps one cell whole, at the end that lies in the middle of
    the axis, so that a mesh and its mirror image are coarsened alike.
    """
    kept, start, middle = [], 0, sum(parts) / 2
    for cells in parts:
        first = start if start + cells / 2 <= middle else start + cells % 2
        kept += [start, *range(first, start + cells, 2)]
        start += cells
    return sorted({*kept, start})


def inject(field: Float[Tensor, "*C I J"], axes: tuple[Axis, Axis]) -> Float[Tensor, "*C i j"]:
    """The values at the nodes that are kept."""
    return field.index_select(-2, axes[0].kept).index_select(-1, axes[1].kept)


def prolongate(field: Float[Tensor, "*C i j"], axes: tuple[Axis, Axis]) -> Float[Tensor, "*C I J"]:
    """Linear interpolation in the index along both axes."""
    for axis, dim in zip(axes, (-2, -1), strict=True):
        field = (field.index_select(dim, axis.low) + field.index_select(dim, axis.high)) / 2
    return field


def restrict(field: Float[Tensor, "*C I J"], axes: tuple[Axis, Axis]) -> Float[Tensor, "*C i j"]:
    """The transpose of `prolongate`."""
    for axis, dim in zip(axes, (-2, -1), strict=True):
        before, behind = axis.share_before, axis.share_behind
        if dim == -2:
            before, behind = before.unsqueeze(-1), behind.unsqueeze(-1)
        total = field.index_select(dim, axis.kept)
        total.addcmul_(field.index_select(dim, axis.before), before)
        field = total.addcmul_(field.index_select(dim, axis.behind), behind)
    return field
