"""Convolutions by their Fourier coefficients: low modes of a grid, and layers that act on them.

A block of low modes has, along every axis but the last, the frequencies 0 ... p - 1 and then
-q ... -1 with p = q or p = q + 1, and along the last 0 ... p - 1: the fields are real, so that the
rest is known. Coefficients are those of the function, not of its samples: the transform divides by
the number of points, and a finer grid of the same function has the same low modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn


def at_least_single(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """In float32 or float64: FFTs and phases need as much."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def block(shape: Sequence[int], modes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of the block of low modes that a grid can carry, `modes` at most.

    The Nyquist frequency of an even axis is left out: there a sine and a cosine look alike.
    """
    *leading, last = [
        (min(m, (n + 1) // 2), min(m, (n - 1) // 2)) for n, m in zip(shape, modes, strict=True)
    ]
    return (*(p + q for p, q in leading), last[0])


def to_modes(
    x: Float[Tensor, "B C *grid"], modes: Sequence[int]
) -> Complex[Tensor, "B C *frequencies"]:
    """The low modes of fields on a periodic grid."""
    axes = range(2, x.ndim)
    sizes = block(x.shape[2:], modes)
    spectrum = torch.fft.rfftn(x, dim=tuple(axes), norm="forward")[..., : sizes[-1]]
    for axis, size in zip(axes, sizes[:-1], strict=False):
        spectrum = _ends(spectrum, axis, size)
    return spectrum


def from_modes(
    coefficients: Complex[Tensor, "B C *frequencies"], shape: Sequence[int]
) -> Float[Tensor, "B C *grid"]:
    """The fields with these low modes on a periodic grid; all other modes are zero."""
    axes = tuple(range(2, coefficients.ndim))
    for axis, size in zip(axes[:-1], shape, strict=False):
        coefficients = _apart(coefficients, axis, size)
    return torch.fft.irfftn(coefficients, s=tuple(shape), dim=axes, norm="forward")


def multiply(
    coefficients: Complex[Tensor, "B I *rest K"], weight: Complex[Tensor, "K I O"]
) -> Complex[Tensor, "B O *rest K"]:
    """A product with one matrix over the channels for every frequency."""
    batch, channels, *rest, frequencies = coefficients.shape
    rows = coefficients.reshape(batch, channels, -1, frequencies)
    out = torch.einsum("birk,kio->bork", rows, weight)
    return out.reshape(batch, -1, *rest, frequencies)


class SpectralConv(nn.Module):
    """A convolution on a periodic grid of any number of axes, given by its low modes.

    Weights are real, with a last axis of two for the parts of a complex number: files and fused
    optimisers want real ones. A grid too coarse for all modes uses those that it has.
    """

    def __init__(self, channels: int, out: int, modes: Sequence[int]) -> None:
        super().__init__()
        self.modes = tuple(modes)
        sizes = (*(2 * m for m in modes[:-1]), modes[-1])
        weight = torch.rand(*sizes, channels, out, 2) / (channels * out)
        self.weight = nn.Parameter(weight)

    def forward(self, x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B O *grid"]:
        """In float32 at least, under autocast as well."""
        with torch.autocast(x.device.type, enabled=False):
            low = to_modes(at_least_single(x), self.modes)
            sizes = low.shape[2:]
            weight = self._carried(sizes).flatten(0, -3)
            out = multiply(low.flatten(2), weight)
            return from_modes(out.unflatten(-1, sizes), x.shape[2:])

    def _carried(self, sizes: Sequence[int]) -> Tensor:
        """The weights of the modes that are there."""
        weight = torch.view_as_complex(self.weight)
        for axis, size in enumerate(sizes[:-1]):
            weight = _ends(weight, axis, size)
        return weight.narrow(len(sizes) - 1, 0, sizes[-1])


class FactorizedConv(nn.Module):
    """A sum of convolutions along the axes, each given by its low modes.

    In Fourier space m(k1, k2) = m1(k1) + m2(k2), for any number of axes.
    """

    def __init__(self, channels: int, out: int, modes: Sequence[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            torch.randn(m, channels, out, 2) / math.sqrt((channels + out) * m) for m in modes
        )

    def forward(self, x: Float[Tensor, "B C *grid"]) -> Float[Tensor, "B O *grid"]:
        """In float32 at least, under autocast as well."""
        with torch.autocast(x.device.type, enabled=False):
            x = at_least_single(x)
            parts = [
                _along(x.movedim(2 + axis, -1), weight).movedim(-1, 2 + axis)
                for axis, weight in enumerate(self.weights)
            ]
            return sum(parts[1:], parts[0])


def _along(x: Tensor, weight: Tensor) -> Tensor:
    """A convolution along the last axis."""
    (size,) = block(x.shape[-1:], weight.shape[:1])
    low = torch.fft.rfft(x, norm="forward")[..., :size]
    out = multiply(low, torch.view_as_complex(weight)[:size])
    return torch.fft.irfft(out, n=x.shape[-1], norm="forward")


def _ends(x: Tensor, axis: int, size: int) -> Tensor:
    """The first and the last entries along an axis, `size` together: the lowest frequencies of an
    FFT."""
    have = x.shape[axis]
    if have == size:
        return x
    first, last = (size + 1) // 2, size // 2
    return torch.cat([x.narrow(axis, 0, first), x.narrow(axis, have - last, last)], axis)


def _apart(x: Tensor, axis: int, size: int) -> Tensor:
    """The inverse of `_ends`: zeros are put between the two ends."""
    have = x.shape[axis]
    if have == size:
        return x
    first, last = (have + 1) // 2, have // 2
    gap = x.new_zeros([size - have if a == axis else n for a, n in enumerate(x.shape)])
    return torch.cat([x.narrow(axis, 0, first), gap, x.narrow(axis, first, last)], axis)
