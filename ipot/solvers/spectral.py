"""Wave numbers, the 2/3 rule and the trigonometric bases that several solvers share.

Everything is built in float64 and small; a caller casts or moves it where needed.
"""

from __future__ import annotations

import math

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


def cosine_matrix(
    points: int, modes: int, *, device: torch.device | None = None
) -> Float[Tensor, "points modes"]:
    """C[n, k] = c_k cos(π k x_n) at the cell centres x_n = (n + 1/2) / points; c_0 = 1, c_k = √2.

    The columns are orthonormal in L²(0, 1), so a series Σ_k a_k C[:, k] is the same function on
    every grid. C / √points with `modes = points` is the orthonormal inverse DCT-II.
    """
    centres = (torch.arange(points, dtype=torch.float64, device=device) + 0.5) / points
    mode = torch.arange(modes, dtype=torch.float64, device=device)
    matrix = math.sqrt(2) * torch.cos(math.pi * centres[:, None] * mode)
    matrix[:, 0] = 1.0
    return matrix


def sine_matrix(points: int, *, device: torch.device | None = None) -> Float[Tensor, "N N"]:
    """The orthogonal DST-II basis S[n, k-1] = √(2/N) sin(π k (n + 1/2) / N), k = 1..N.

    Its columns are the eigenvectors of the cell-centred Laplacian with zero value on the walls,
    with eigenvalues 4 sin²(π k / 2N).
    """
    centres = (torch.arange(points, dtype=torch.float64, device=device) + 0.5) / points
    mode = torch.arange(1, points + 1, dtype=torch.float64, device=device)
    matrix = math.sqrt(2 / points) * torch.sin(math.pi * centres[:, None] * mode)
    matrix[:, -1] /= math.sqrt(2)  # the alternating column has twice the norm of the others
    return matrix
