"""Quicker lattices: weights of a fixed mesh are computed once, and norms in low precision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ipot.accelerate.fixed_mesh import KeepsNeighbours
from ipot.accelerate.twins import Accelerated
from ipot.nn.lattice import ChannelNorm
from ipot.nn.neighbours import Neighbours
from ipot.nn.places import Corners, Places, ToPlaces

CLOSE = 1e-2
"""A weight this near to one is taken as one, where a mesh is kept."""


class QuickPlaces(Accelerated, KeepsNeighbours, Places):
    """Places around queries, found once if the mesh stays the same during training."""

    def forward(self, queries: Float[Tensor, "G M D"]) -> Neighbours:
        """The places around all queries, and their weights."""
        kept = None
        if self._kept_points is not None:
            asked = None if queries is self._kept_points else queries
            kept = self.kept_for(self._kept_points, asked)
        return super().forward(queries) if kept is None else kept

    def search(self, points: Tensor, queries: Tensor | None) -> Neighbours:
        """What is kept: the places around queries, or around points, which may be queries too."""
        return only_one(super().forward(points if queries is None else queries))

    def takes(self, points: Tensor) -> bool:
        """True for points of the chart's space."""
        return points.shape[-1] == self.chart.dimension


class QuickToPlaces(Accelerated, KeepsNeighbours, ToPlaces):
    """Weights of inputs at places, found once if the mesh stays the same during training. If the
    mesh is the lattice, every place takes the value of one input, and nothing is summed."""

    def forward(
        self,
        points: Float[Tensor, "G N D"],
        values: Float[Tensor, "B N C"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, "B Z C"], Float[Tensor, "G1 Z A1"]]:
        """V at all places, and its support."""
        kept = None if mask is not None else self.kept_for(points, None)
        if not isinstance(kept, Neighbours):
            return super().forward(points, values, mask)
        exact = torch.promote_types(values.dtype, self.places.gap.dtype)
        found = kept.look_up(values.to(exact))
        return found, found.new_zeros(1, found.shape[1], len(self.places.counts) + 1)

    def corners(
        self, points: Float[Tensor, "G N D"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Corners:
        """The corners that each input contributes to, and its weights there."""
        kept = None if mask is not None else self.kept_for(points, None)
        return kept if isinstance(kept, Corners) else super().corners(points, mask)

    def search(self, points: Tensor, queries: Tensor | None) -> Neighbours | Corners:
        """What is kept for points; queries are ignored."""
        corners = super().corners(points, None)
        return one_input_each(corners, self.places.number) or corners

    def takes(self, points: Tensor) -> bool:
        """True for points of the chart's space."""
        return points.shape[-1] == self.places.chart.dimension


def only_one(found: Neighbours) -> Neighbours:
    """These neighbours without weights, if at every query one has weight one and the others zero.
    Then nothing has to be summed, and a GPU's backward pass has one order. This waits for the
    device."""
    if found.weight is None or not found.weight.shape[-1]:
        return found
    largest, which = found.weight.max(-1, keepdim=True)
    others = found.weight.abs().sum(-1, keepdim=True) - largest.abs()
    if bool(((largest - 1).abs() > CLOSE).any()) or bool((others > CLOSE).any()):
        return found
    return Neighbours(found.index.gather(-1, which))


def one_input_each(corners: Corners, number: int) -> Neighbours | None:
    """The input on each place, if all points lie on places and every place has exactly one. This
    waits for the device."""
    if len(corners.index) != 1:
        return None
    largest, which = corners.moments[0, ..., 0].max(-1)  # Λ
    place = corners.index[0].gather(-1, which.unsqueeze(-1)).squeeze(-1)
    on_places = bool((largest > 1 - CLOSE).all())
    if not on_places or place.unique().numel() != number or len(place) != number:
        return None
    return Neighbours(place.argsort().view(1, -1, 1))


class QuickChannelNorm(Accelerated, ChannelNorm):
    """Computes in the precision of products under autocast; the kernel still sums in float32."""

    def forward(self, input: Float[Tensor, "B first *rest"]) -> Float[Tensor, "B first *rest"]:
        """Each place is normalised by itself."""
        device = input.device.type
        if not torch.is_autocast_enabled(device):
            return super().forward(input)
        rows = input.movedim(self.axis, -1).to(torch.get_autocast_dtype(device))
        with torch.autocast(device, enabled=False):
            weight, bias = self.weight.to(rows.dtype), self.bias.to(rows.dtype)
            found = F.layer_norm(rows, self.normalized_shape, weight, bias, self.eps)
        return found.movedim(-1, self.axis)
