"""Wave numbers and the 2/3 rule, which spectral solvers share. Everything is in float64."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def wavenumbers(points: int, *, device: torch.device | None = None) -> Float[Tensor, " N"]:
    """Integer wave numbers of a full transform, in FFT order: 0, 1, ..., -2, -1."""
    return torch.fft.fftfreq(points, 1 / points, dtype=torch.float64, device=device)


def half_wavenumbers(points: int, *, device: torch.device | None = None) -> Float[Tensor, " K"]:
    """Integer wave numbers of a real transform: 0, 1, ..., points // 2."""
    return torch.fft.rfftfreq(points, 1 / points, dtype=torch.float64, device=device)


def resolved(wavenumber: Float[Tensor, "*K"], points: int) -> Bool[Tensor, "*K"]:
    """Orszag's 2/3 rule: which modes a product of two fields does not alias into.

    Products of modes below `points / 3` reach 2/3 of the grid's modes and wrap around onto those
    above 1/3 only. This also drops the Nyquist mode, whose derivative has no real representation.
    """
    return 3 * wavenumber.abs() < points
