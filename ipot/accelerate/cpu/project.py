"""Position features of points, and their projections, on a CPU in one pass. Nothing here is
differentiated. See `project.cpp`."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from ipot.accelerate.cpu.build import call, loaded
from ipot.accelerate.cpu.interface import (
    Features,
    Projection,
    Rows,
    address,
    available,
    dense,
    pointer,
    readable,
    rows,
    threads,
)
from ipot.nn.points import FourierFeatures

MOST_DIMENSIONS = 16
"""That points may have."""


class Waves(NamedTuple):
    """What features are made with: coordinates go to (x - centre) / radius, these through a matrix
    (D, phases) to half turns, and some (`raw`) are features themselves."""

    centre: Float[Tensor, " D"]
    radius: Float[Tensor, " D"]
    matrix: Float[Tensor, "D phases"]
    raw: Tensor

    @property
    def width(self) -> int:
        """How many features there are."""
        return len(self.raw) + 2 * self.matrix.shape[1]


def waves(position: FourierFeatures) -> Waves:
    """What the position features of a layer are made with."""
    return Waves(position.centre, position.radius, position.matrix, position.raw)


def has_kernel(position: FourierFeatures, points: Tensor) -> bool:
    """True if there are compiled kernels for the position features of points like these."""
    small = len(position.centre) <= MOST_DIMENSIONS
    return small and readable(points, position.centre) and available()


def features(points: Float[Tensor, "B N D"], waves: Waves) -> Float[Tensor, "B N F"]:
    """The features of points: raw coordinates, sines, cosines."""
    given, held = given_features(points, waves)
    out = points.new_empty(*points.shape[:2], waves.width)
    loaded().ipot_features(ctypes.byref(given), address(out))
    del held
    return out


def project(
    points: Float[Tensor, "B N D"],
    values: Float[Tensor, "B N C"] | None,
    waves: Waves,
    weight: Float[Tensor, "p FC"],
    offset: Float[Tensor, " p"],
    epsilon: float,
) -> Float[Tensor, "B N p"]:
    """weight @ [features, values] after a norm without parameters, and the offset."""
    out = points.new_empty(*points.shape[:2], len(weight))
    _project(points, values, waves, weight, offset, epsilon, out, None)
    return out


def mesh_products(
    points: Float[Tensor, "B N D"], waves: Waves, weight: Float[Tensor, "p F"]
) -> tuple[Float[Tensor, "B N p"], Float[Tensor, "B N 2"]]:
    """weight @ features, and the sums of the features of each point and of their squares."""
    out = points.new_empty(*points.shape[:2], len(weight))
    totals = points.new_empty(*points.shape[:2], 2)
    _project(points, None, waves, weight, None, 0.0, out, totals)
    return out, totals


def _project(
    points: Tensor,
    values: Tensor | None,
    waves: Waves,
    weight: Tensor,
    offset: Tensor | None,
    epsilon: float,
    out: Tensor,
    totals: Tensor | None,
) -> None:
    given, held = given_features(points, waves, len(weight))
    held.append(weight.contiguous())
    at: list[int | None] = [pointer(held[-1]), None]
    if offset is not None:
        held.append(offset.contiguous())
        at[1] = pointer(held[-1])
    own = Rows()
    if values is not None:
        held.append(dense(values))
        own = rows(held[-1])
    width = 0 if values is None else values.shape[-1]
    asked = Projection(own, *at, width, len(weight), epsilon)
    place = None if totals is None else address(totals)
    call("ipot_project", ctypes.byref(given), ctypes.byref(asked), address(out), place)
    del held


def given_features(points: Tensor, waves: Waves, columns: int = 0) -> tuple[Features, list[Tensor]]:
    """What the library reads, and the tensors that must live as long."""
    held = [dense(points), *(t.contiguous() for t in waves)]
    sizes = (*points.shape, waves.matrix.shape[1], len(waves.raw))
    parts = (rows(held[0]), *map(pointer, held[1:4]), held[4].data_ptr())
    # Two dozen operations make a feature.
    work = points.shape[0] * points.shape[1] * waves.width * (24 + columns)
    return Features(*parts, *sizes, threads(work)), held
