"""A grid of Gauss's lines of latitude, shared by problems on the sphere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ipot.errors import DataError
from ipot.problems.base import GridProblem
from ipot.solvers.sphere import Transform


@dataclass(frozen=True, kw_only=True)
class GaussGrid(GridProblem):
    """Gauss's lines from north to south, twice as many meridians eastward, points as unit vectors.

    A coarser resolution keeps every k-th row from the pole to the equator in the north, and its
    mirror images in the south: so the reflection about the equator maps every grid onto itself.
    """

    periodic: ClassVar[bool] = True
    spans: ClassVar[tuple[int, ...]] = (1, 2)

    def __post_init__(self) -> None:
        if self.size < 4 or self.size % 2:
            raise DataError(f"size must be even and at least 4, got {self.size}")

    def thins(self, fine: int, coarse: int) -> bool:
        """Only an even number of lines has as many in the north as in the south."""
        return coarse % 2 == 0 and super().thins(fine, coarse)

    def thin(self, field: Tensor, resolution: int) -> Tensor:
        """Every k-th row from the poles to the equator, and every k-th column."""
        rows = field.shape[-2]
        step = self.stride(rows, resolution)
        kept = _kept(rows, step).to(field.device)
        return field[..., ::step].index_select(-2, kept)

    def lines(self, resolution: int) -> tuple[Tensor, Tensor]:
        """Latitudes from north to south and longitudes eastward, in radians."""
        step = self.stride(self.nodes, resolution)
        whole = Transform(0, self.nodes)
        return whole.latitudes[_kept(self.nodes, step)], whole.longitudes[::step]

    def coordinates(self, resolution: int) -> Tensor:
        """Unit vectors (x, y, z), row by row."""
        latitude, longitude = torch.cartesian_prod(*self.lines(resolution)).unbind(-1)
        cosine = latitude.cos()
        return torch.stack((cosine * longitude.cos(), cosine * longitude.sin(), latitude.sin()), -1)

    def weights(self, resolution: int) -> Tensor:
        """The area between the lines halfway to the neighbours, with mean one."""
        latitudes, longitudes = self.lines(resolution)
        pole = latitudes.new_tensor([math.pi / 2])
        borders = torch.cat((pole, (latitudes[1:] + latitudes[:-1]) / 2, -pole)).sin()
        area = borders[:-1] - borders[1:]
        return (area / area.mean()).repeat_interleave(len(longitudes))


def _kept(rows: int, step: int) -> Tensor:
    """Every k-th row of the northern half, and its mirror images."""
    north = torch.arange(0, rows // 2, step)
    return torch.cat((north, rows - 1 - north.flip(0)))
