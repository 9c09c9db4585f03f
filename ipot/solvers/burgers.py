"""Viscous Burgers on the periodic unit interval: u_t + (u²/2)_x = ν u_xx.

Fourier pseudo-spectral in space with the 2/3 rule, fourth-order exponential time differencing
(ETDRK4) in time: diffusion is exact, advection a Runge-Kutta rule. Cox and Matthews, J. Comput.
Phys. 176 (2002); coefficients by contour integrals, Kassam and Trefethen, SIAM J. Sci. Comput. 26
(2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ipot.solvers import spectral


@torch.no_grad()
def solve(
    initial: Float[Tensor, "B N"],
    *,
    viscosity: float,
    times: Sequence[float] = (1.0,),
    steps: int = 200,
) -> Float[Tensor, "B T N"]:
    """The solution at `times`, from `initial` at x_i = i / N and t = 0.

    `steps` is the number of time steps per unit of time; each of `times`, in increasing order,
    must be a whole number of them. Computed in float64, returned in the dtype of `initial`.
    """
    records = _whole_steps(times, steps)
    points = initial.shape[-1]
    k = spectral.half_wavenumbers(points, device=initial.device)
    keep = spectral.resolved(k, points)
    flux = torch.where(keep, -0.5j * 2 * math.pi * k, 0)
    rule = _etdrk4(-viscosity * (2 * math.pi * k) ** 2, 1 / steps)

    def advection(u: Complex[Tensor, "B K"]) -> Complex[Tensor, "B K"]:
        # Masking what is squared as well keeps the resolved modes a closed Galerkin system; the
        # others only diffuse.
        return flux * torch.fft.rfft(torch.fft.irfft(u * keep, n=points) ** 2)

    state = torch.fft.rfft(initial.double())
    frames, done = [], 0
    for record in records:
        for _ in range(record - done):
            state = _step(state, advection, rule)
        done = record
        frames.append(torch.fft.irfft(state, n=points))
    return torch.stack(frames, dim=1).to(initial.dtype)


def _whole_steps(times: Sequence[float], steps: int) -> list[int]:
    records = [round(time * steps) for time in times]
    if any(abs(time * steps - n) > 1e-6 for time, n in zip(times, records, strict=True)):
        raise ValueError(
            f"times must be multiples of the time step 1/{steps}, got {tuple(times)}: "
            "change `steps` or the times"
        )
    if not records or records != sorted(records) or records[0] < 0:
        raise ValueError(f"times must be increasing and not negative, got {tuple(times)}")
    return records


class _Rule(NamedTuple):
    """The coefficients of one ETDRK4 step, in the notation of Kassam and Trefethen."""

    full: Tensor
    half: Tensor
    stage: Tensor
    first: Tensor
    middle: Tensor
    last: Tensor


def _etdrk4(linear: Float[Tensor, " K"], step: float, contour: int = 32) -> _Rule:
    """Coefficients for u' = linear · u + N(u), `linear` diagonal and real.

    Written out they are quotients like (exp z - 1) / z, which cancel for small z. The mean over a
    circle around z, where nothing cancels, gives the same value; `linear` is real, so the upper
    half of the circle suffices.
    """
    angles = math.pi * (torch.arange(contour, dtype=torch.float64) + 0.5) / contour
    circle = torch.exp(1j * angles).to(linear.device)
    z = step * linear[:, None] + circle
    e = torch.exp(z)

    def mean(values: Tensor) -> Tensor:
        return step * values.mean(-1).real

    return _Rule(
        full=torch.exp(step * linear),
        half=torch.exp(step * linear / 2),
        stage=mean((torch.exp(z / 2) - 1) / z),
        first=mean((-4 - z + e * (4 - 3 * z + z**2)) / z**3),
        middle=mean(2 * (2 + z + e * (z - 2)) / z**3),
        last=mean((-4 - 3 * z - z**2 + e * (4 - z)) / z**3),
    )


def _step(u: Tensor, advection: Callable[[Tensor], Tensor], rule: _Rule) -> Tensor:
    n_u = advection(u)
    a = rule.half * u + rule.stage * n_u
    n_a = advection(a)
    b = rule.half * u + rule.stage * n_a
    n_b = advection(b)
    c = rule.half * a + rule.stage * (2 * n_b - n_u)
    n_c = advection(c)
    return rule.full * u + rule.first * n_u + rule.middle * (n_a + n_b) + rule.last * n_c
