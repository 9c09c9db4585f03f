"""Gaussian random fields whose draws belong to a sample, not to a batch, a device or a grid.

Noise is drawn sample by sample in float64 on the CPU (`normal`) and indexed by wave number. The
functions that turn it into a field are linear and grid-free: the same noise on another number of
points is the same function, less the modes that grid cannot carry.

Conventions follow the public generators of Li et al., "Fourier neural operator" (2021), whose
printed covariances are in part square roots of those of the files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.seeds import generator


def normal(
    shape: Sequence[int], *, seed: int, stream: str, indices: Sequence[int]
) -> Float[Tensor, "B ..."]:
    """Standard normal numbers in float64 on the CPU, one row per sample index.

    Row j depends on `seed`, `stream` and `indices[j]` alone: sample 17 has the same draw in any
    batch. A draw of another `shape` is another draw.
    """
    noise = torch.empty(len(indices), *shape, dtype=torch.float64)
    for row, index in zip(noise, indices, strict=True):
        row.normal_(generator=generator(seed, stream, int(index)))
    return noise


def periodic_line(
    noise: Float[Tensor, "B 2 K"], points: int, *, sigma: float, tau: float, gamma: float
) -> Float[Tensor, "B points"]:
    """A periodic field of zero mean at x_i = i / points of the unit interval.

    u(x) = Σ_{k=1..K} s_k (ξ_k cos 2πkx + η_k sin 2πkx),   s_k = √2 σ ((2πk)² + τ²)^(-γ/2)

    with `noise` = (ξ, η), whose first entry along K is mode 1.
    """
    modes = min(noise.shape[-1], (points - 1) // 2)
    k = torch.arange(1, modes + 1, dtype=noise.dtype, device=noise.device)
    scale = math.sqrt(2) * sigma * ((2 * math.pi * k) ** 2 + tau**2) ** (-gamma / 2)
    xi, eta = noise[..., :modes].unbind(-2)
    # ξ cos θ + η sin θ = Re((ξ - iη) exp iθ); irfft adds the conjugate mode, hence the half.
    coefficients = torch.complex(scale * xi, -scale * eta) * (points / 2)
    return torch.fft.irfft(torch.nn.functional.pad(coefficients, (1, 0)), n=points)


def neumann_square(
    noise: Float[Tensor, "B s s"], points: int | None = None, *, alpha: float, tau: float
) -> Float[Tensor, "B points points"]:
    """A field of zero mean and zero wall gradient at the cell centres of the unit square.

    U(x, y) = Σ_{k ≠ 0} ξ_k τ^(α-1) (π²|k|² + τ²)^(-α/2) c_{k1} cos(πk1 x) c_{k2} cos(πk2 y)

    with c_0 = 1 and c_k = √2: the Karhunen-Loève series of N(0, τ^(2α-2) (-Δ + τ²)^(-α)). The
    noise has one entry per mode; modes that `points` (default: s) cannot carry are dropped.
    """
    points = noise.shape[-1] if points is None else points
    modes = min(noise.shape[-1], points)
    k = torch.arange(modes, dtype=torch.float64, device=noise.device)
    decay = (math.pi**2 * (k[:, None] ** 2 + k**2) + tau**2) ** (-alpha / 2)
    decay[0, 0] = 0.0
    # In float64 throughout: a float32 product on a GPU may run with 10-bit mantissas (TF32).
    coefficients = noise[..., :modes, :modes].double() * (tau ** (alpha - 1) * decay)
    basis = cosine_matrix(points, modes, device=noise.device)
    return (basis @ (coefficients @ basis.mT)).to(noise.dtype)


def periodic_square_noise_shape(points: int) -> tuple[int, int, int]:
    """The shape of the noise that holds every mode a `points`² grid can carry."""
    cutoff = (points - 1) // 2
    return 2, 2 * cutoff + 1, cutoff + 1


def periodic_square(
    noise: Float[Tensor, "B 2 rows columns"],
    points: int,
    *,
    alpha: float,
    tau: float,
    sigma: float,
) -> Float[Tensor, "B points points"]:
    """A periodic field of zero mean at (i, j) / points of the unit torus.

    w(x) = Σ_k a_k (ξ_k cos 2πk·x + η_k sin 2πk·x),   a_k = √2 σ (4π²|k|² + τ²)^(-α/2)

    over one half of the plane of wave numbers. This has the law of Re ifft2(N² a_k z_k) with
    complex normal z, E|z|² = 1, on the whole plane, without the Nyquist lines: these mean another
    function on every grid, and would be dropped by the 2/3 rule anyway.

    `noise` = (ξ, η) of k = (k1, k2), k1 = -K..K along the rows and k2 = 0..K along the columns;
    see `periodic_square_noise_shape`. Both halves of the column k2 = 0 are used, as in the law.
    """
    cutoff = min(noise.shape[-1], (points + 1) // 2) - 1
    middle = noise.shape[-2] // 2
    xi, eta = noise[..., middle - cutoff : middle + cutoff + 1, : cutoff + 1].unbind(-3)
    k1 = torch.arange(-cutoff, cutoff + 1, device=noise.device)
    k2 = torch.arange(cutoff + 1, device=noise.device)
    square = (k1[:, None] ** 2 + k2**2).to(noise.dtype)
    scale = math.sqrt(2) * sigma * (4 * math.pi**2 * square + tau**2) ** (-alpha / 2)
    scale[cutoff, 0] = 0.0

    coefficients = torch.complex(scale * xi, -scale * eta) * (points**2 / 2)
    # The modes (±k1, 0) are conjugates. Make them so: what a real transform does with others
    # differs between the CPU and the GPU. Two independent draws share the variance of one mode.
    axis = coefficients[..., 0]
    coefficients[..., 0] = (axis + axis.flip(-1).conj()) / math.sqrt(2)

    spectrum = coefficients.new_zeros(*noise.shape[:-3], points, points // 2 + 1)
    spectrum[..., k1 % points, : cutoff + 1] = coefficients
    return torch.fft.irfft2(spectrum, s=(points, points))


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
