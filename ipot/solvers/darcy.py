"""Darcy flow on the unit square: -div(a grad u) = f, u = 0 on the walls.

Cell-centred finite volumes on N x N cells with values at (i + 1/2) / N. Conjugate gradients,
preconditioned by the Laplacian of constant coefficient, which fast sine transforms invert
exactly: the number of iterations depends on the contrast of `a` (about 20 for 12 : 3) and not on
N. Concus and Golub, SIAM J. Numer. Anal. 10 (1973).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Face = Literal["arithmetic", "harmonic"]
_Map = Callable[[Tensor], Tensor]

# Asking whether all have converged makes a GPU wait for the host: ask every so often.
_CHECK_EVERY = 5


@torch.no_grad()
def solve(
    coefficient: Float[Tensor, "B N N"],
    *,
    forcing: float | Float[Tensor, "*batch N N"] = 1.0,
    tolerance: float = 1e-9,
    iterations: int = 500,
    face: Face = "arithmetic",
) -> Float[Tensor, "B N N"]:
    """The pressure at cell centres, for a coefficient and a forcing at cell centres.

    `face` says how two cells share their common face: "arithmetic" is what the public benchmark
    has, "harmonic" is exact where the coefficient jumps at the face of a layered medium.
    `tolerance` bounds the residual, relative to the start, in the norm of the preconditioner,
    which is the relative error in energy up to the root of the contrast. Computed in float64,
    returned in the dtype of `coefficient`.
    """
    # float64 for two reasons: 1e-9 is out of reach of float32, and float32 products on a GPU may
    # silently be TF32.
    a = coefficient.double()
    _require_positive(a)
    points = a.shape[-1]
    b = torch.as_tensor(forcing, dtype=a.dtype, device=a.device).expand_as(a) / points**2
    u, error = _conjugate_gradients(
        _diffusion(a, face), _inverse_laplacian(points, a.device), b, tolerance, iterations
    )
    failed = (~(error <= tolerance)).nonzero().flatten().tolist()
    if failed:
        raise RuntimeError(
            f"not converged after {iterations} iterations: samples {failed} have a relative "
            f"residual of up to {error[failed].max():.1e}, asked for {tolerance:.1e}"
        )
    return u.to(coefficient.dtype)


def _require_positive(a: Tensor) -> None:
    valid = (a > 0) & a.isfinite()
    bad = (~valid.flatten(1).all(1)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"the coefficient must be positive and finite; it is not in samples {bad}")


def _diffusion(a: Tensor, face: Face) -> _Map:
    """u -> the net outflow of each cell, the area of a face times -a grad u.

    In two dimensions the width of a face and the distance of two centres cancel; from centre to
    wall is half that distance, hence the 2.
    """

    def faces(dim: int) -> Tensor:
        left, right = a.narrow(dim, 0, a.shape[dim] - 1), a.narrow(dim, 1, a.shape[dim] - 1)
        inner = (left + right) / 2 if face == "arithmetic" else 2 * left * right / (left + right)
        first, last = a.narrow(dim, 0, 1), a.narrow(dim, a.shape[dim] - 1, 1)
        return torch.cat((2 * first, inner, 2 * last), dim)

    vertical, horizontal = faces(-2), faces(-1)
    row, column = torch.zeros_like(a[..., :1, :]), torch.zeros_like(a[..., :, :1])

    def apply(u: Tensor) -> Tensor:
        down = vertical * torch.diff(u, dim=-2, prepend=row, append=row)
        across = horizontal * torch.diff(u, dim=-1, prepend=column, append=column)
        return -torch.diff(down, dim=-2) - torch.diff(across, dim=-1)

    return apply


def _inverse_laplacian(points: int, device: torch.device) -> _Map:
    """r -> the solution for a = 1. The scale of `a` does not matter to conjugate gradients.

    Dense products with the sine basis: at a few hundred points, primes like 421 among them, they
    are as quick as an FFT and run on every device.
    """
    basis = sine_matrix(points, device=device)
    mode = torch.arange(1, points + 1, dtype=torch.float64, device=device)
    eigenvalue = 4 * torch.sin(math.pi * mode / (2 * points)) ** 2
    inverse = 1 / (eigenvalue[:, None] + eigenvalue)

    def apply(r: Tensor) -> Tensor:
        # (r S)ᵀ S is the transpose of Sᵀ r S; going back the same way undoes that.
        modes = (r @ basis).mT @ basis
        return ((modes * inverse) @ basis.mT).mT @ basis.mT

    return apply


def _conjugate_gradients(
    operator: _Map, preconditioner: _Map, b: Tensor, tolerance: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Solve operator(x) = b for a batch; return x and the relative residual of each sample.

    A sample stops where it has converged and stays put while the others go on, so that its
    result does not depend on its company.
    """

    def dot(v: Tensor, w: Tensor) -> Tensor:
        return (v * w).sum((-2, -1), keepdim=True)

    x, r = torch.zeros_like(b), b.clone()
    z = preconditioner(r)
    p, rz = z, dot(r, z)
    start = rz
    target = tolerance**2 * start
    active = rz > target
    for iteration in range(iterations):
        if iteration % _CHECK_EVERY == 0 and not active.any():
            break
        q = operator(p)
        step = torch.where(active, rz / dot(p, q), 0)
        x.addcmul_(step, p)
        r.addcmul_(step, q, value=-1)
        z = preconditioner(r)
        rz, before = dot(r, z), rz
        p = torch.addcmul(z, torch.where(active, rz / before, 0), p)
        active = active & (rz > target)
    # Nothing to solve (b = 0) counts as solved.
    return x, torch.where(start > 0, (rz / start).sqrt(), rz).flatten()


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
