"""What Fourier neural operators share: settings, input channels, and padding of a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.errors import DataError, Unsupported
from ipot.models._settings import positive
from ipot.models.base import OneStep
from ipot.nn.grid import crop, extend, for_axes, padded, to_grid, to_rows
from ipot.nn.points import UnitBox, with_parameters
from ipot.samples import Batch
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of all Fourier neural operators."""

    modes: tuple[int, ...] = (12,)
    """Fourier modes that are kept, for each axis or one number for all."""
    width: int = 32
    """Channels between lifting and projection."""
    layers: int = 4
    """Fourier layers."""
    projection: int = 128
    """Hidden channels of the projection to the outputs."""
    padding: tuple[float, ...] = (0.12,)
    """Padding after the end of every axis that is not periodic, as a part of its length, for each
    axis or one number for all: 0.12 is the published 9 points on 85. A part, and no number of
    points, so that a mode means the same wavelength at every resolution."""

    def __post_init__(self) -> None:
        positive(self, "width", "layers", "projection")
        if not self.modes or min(self.modes) < 1:
            raise Unsupported(f"model.modes must be positive, got {self.modes}")
        if not self.padding or not min(self.padding) >= 0:
            raise Unsupported(f"model.padding must not be negative, got {self.padding}")


class Fourier(OneStep):
    """A model whose layers act on the Fourier modes of a grid of `rank` axes."""

    def __init__(self, config: Settings, spec: Spec, *, rank: int) -> None:
        super().__init__(config, spec)
        self.modes = for_axes("modes", config.modes, rank)
        self.padding = for_axes("padding", config.padding, rank)
        self.place = UnitBox(spec.domain)
        self.inputs = spec.channels + len(spec.parameters) + spec.dimension

    def seen(self, batch: Batch) -> Float[Tensor, "B N F"]:
        """The input channels at every point: values, parameters, coordinates in the unit box."""
        values = with_parameters(batch.values, batch.parameters)
        place = self.place(batch.points).expand(batch.size, -1, -1)
        return torch.cat([values, place.to(values.dtype)], -1)

    def on_grid(
        self,
        rows: Float[Tensor, "B N d"],
        shape: tuple[int, ...] | None,
        layers: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "B N o"]:
        """Apply layers to the grid that the rows form, padded where an axis is not periodic."""
        wraps = self.spec.wraps
        if shape is None or len(shape) != len(wraps):
            raise DataError(
                f"{type(self).__name__} was made for a grid of {len(wraps)} axes, got {shape}"
            )
        x = extend(to_grid(rows, shape), padded(shape, self.padding, wraps))
        return to_rows(crop(layers(x), shape))
