"""Points that form a regular grid: rows to axes and back, and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.errors import Unsupported

Number = TypeVar("Number", int, float)


def to_grid(rows: Float[Tensor, "B N C"], shape: Sequence[int]) -> Float[Tensor, "B C *grid"]:
    """Rows in row-major order, channels first, as an FFT and a convolution like them."""
    return rows.transpose(1, 2).unflatten(-1, tuple(shape)).contiguous()


def to_rows(x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B N C"]:
    """The rows again."""
    return x.flatten(2).transpose(1, 2)


def unit_grid(shape: Sequence[int], like: Tensor) -> Float[Tensor, "1 N D"]:
    """The points of a periodic grid on the unit torus: i / n along every axis."""
    made = {"dtype": torch.promote_types(like.dtype, torch.float32), "device": like.device}
    lines = [torch.arange(n, **made) / n for n in shape]
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).flatten(0, -2).unsqueeze(0)


class Pointwise(nn.Linear):
    """A linear map of the channels at every point of a grid, without moving them to the end."""

    def forward(self, input: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B O *grid"]:
        """One map for all points."""
        weight = self.weight.expand(input.shape[0], -1, -1)
        out = torch.baddbmm(self.bias.unsqueeze(-1), weight, input.flatten(2))
        return out.unflatten(2, input.shape[2:])


def padded(
    shape: Sequence[int], padding: Sequence[float], wraps: Sequence[bool]
) -> tuple[int, ...]:
    """The size of the grid with padding after the end of every axis that does not wrap.

    An axis of n points from end to end grows to 1 + padding times its length, whatever n is: a
    Fourier mode then has the same wavelength at every resolution. A fixed number of points would
    change it.
    """
    return tuple(
        n if wrap else max(n, round((1 + room) * (n - 1)))
        for n, room, wrap in zip(shape, padding, wraps, strict=True)
    )


def extend(x: Float[Tensor, "B C *grid"], shape: Sequence[int]) -> Float[Tensor, "B C *larger"]:
    """Zeros after the end of every axis, up to a larger grid."""
    pad = [width for old, new in zip(x.shape[2:], shape, strict=True) for width in (new - old, 0)]
    return nn.functional.pad(x, pad[::-1]) if any(pad) else x


def crop(x: Float[Tensor, "B C *larger"], shape: Sequence[int]) -> Float[Tensor, "B C *grid"]:
    """The first points of every axis."""
    return x[(..., *(slice(n) for n in shape))]


def for_axes(name: str, numbers: Sequence[Number], axes: int) -> tuple[Number, ...]:
    """A setting for every axis, from one number for all axes or one for each."""
    if len(numbers) not in (1, axes):
        raise Unsupported(
            f"model.{name} must be one number, or one for each of {axes} axes: {tuple(numbers)}"
        )
    return tuple(numbers) * axes if len(numbers) == 1 else tuple(numbers)
