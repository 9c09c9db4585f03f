"""Systems that answer at their input points, by blocks with convolutions where there is a grid.

x = MLP(position, values)     position: distances to a grid of reference points
x = block(x)                  such blocks one after another; what a block is belongs to a system
u = W LN(x)
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.data.dataset import Dataset
from ipot.errors import DataError, Unsupported
from ipot.models.base import OneStep
from ipot.nn.points import Lift, UnitBox, with_parameters
from ipot.samples import Batch
from ipot.spec import Need, Spec


class Position(nn.Module):
    """Distances to points spread over the unit box, or the coordinates in it."""

    def __init__(self, reference: int, spec: Spec) -> None:
        super().__init__()
        self.box = UnitBox(spec.domain)
        line = torch.linspace(0, 1, reference)
        nodes = torch.cartesian_prod(*[line] * spec.dimension).view(-1, spec.dimension)
        self.register_buffer("nodes", nodes, persistent=False)
        self.width = len(nodes) if reference else spec.dimension

    def forward(self, points: Float[Tensor, "B N D"]) -> Float[Tensor, "B N F"]:
        """Features of positions."""
        points = self.box(points)
        if not len(self.nodes):
            return points
        # A norm and not a root of squares: a point may lie on a node, where the root has no slope.
        return torch.linalg.vector_norm(points.unsqueeze(-2) - self.nodes, dim=-1)


class GridOrPoints(OneStep):
    """Blocks at the input points. With `axes`, these are the axes of a grid, which data must have.

    A block takes the points (B, N, d), their mask and the grid.
    """

    needs = frozenset({Need.SAME_POINTS})
    on_a_grid: ClassVar[str]
    """The error for data without a grid, named by {}: why one is needed, and what to set."""

    def __init__(self, config: Any, spec: Spec, axes: int, block: type[nn.Module]) -> None:
        if axes:
            self.needs = type(self).needs | {Need.GRID}
        super().__init__(config, spec)
        width, values = config.width, spec.channels + len(spec.parameters)
        self.position = Position(config.reference, spec)
        self.lift = Lift(self.position.width, values, width, hidden=2 * width, precise=True)
        self.blocks = nn.ModuleList(block(config, axes) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, len(spec.outputs))

    def lifted(self, batch: Batch) -> Float[Tensor, "B N d"]:
        """What the first block sees."""
        values = with_parameters(batch.values, batch.parameters)
        return self.lift(self.position(batch.points), values)

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """The fields at the input points."""
        x = self.lifted(batch).expand(batch.size, -1, -1)
        for block in self.blocks:
            x = block(x, batch.point_mask, batch.grid)
        return self.out(self.norm(x))

    def forward(self, batch: Batch) -> Float[Tensor, "B 1 M K"]:
        """The answer with an axis for the time."""
        if Need.GRID in self.needs and batch.grid is None:
            raise DataError(self.on_a_grid.format("this batch"))
        return super().forward(batch)

    def examine(self, data: Dataset) -> None:
        """Refuse data without the grid that the model was built for."""
        if Need.GRID in self.needs and data[0].grid is None:
            raise Unsupported(self.on_a_grid.format("this view of the data"))
        super().examine(data)
