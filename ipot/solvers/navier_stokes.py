"""Two-dimensional incompressible flow on the unit torus, in vorticity form.

    w_t + u·grad w = ν Δw + f,    u = (ψ_y, -ψ_x),    -Δψ = w

x runs along the first axis of a field and y along the second. Fourier pseudo-spectral with the
2/3 rule; classical Runge-Kutta after an integrating factor, so that viscosity is exact and does
not limit the step. Canuto, Hussaini, Quarteroni and Zang, "Spectral Methods" (2007). The forcing
and the default resolution are those of Li et al., "Fourier neural operator" (2021), who stepped
with Crank-Nicolson and Euler at 1e-4; order four is more accurate at steps fifty times that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.device import captured
from ipot.solvers import spectral

# dt = 5e-3 at 256², 1e-2 at 128², 2e-2 at 64².
_STEP_TIMES_POINTS = 1.28
# Runge-Kutta is stable up to dt max(|u| + |v|) = 1.35 dx; half of it leaves room for the flow to
# gain speed until it is measured again.
_COURANT = 0.7
_MEASURE_EVERY = 1.0
_HOPELESS = 1e6  # steps per unit of time


def default_forcing(
    points: int,
    amplitude: float = 0.1,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Float[Tensor, "N N"]:
    """The benchmark's forcing, amplitude · (sin 2π(x + y) + cos 2π(x + y))."""
    x = torch.arange(points, dtype=torch.float64, device=device) / points
    phase = 2 * math.pi * (x[:, None] + x)
    return (amplitude * (phase.sin() + phase.cos())).to(dtype)


@torch.no_grad()
def solve(
    vorticity: Float[Tensor, "B N N"],
    *,
    viscosity: float,
    times: Sequence[float],
    dt: float | None = None,
    forcing: Float[Tensor, "*batch N N"] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Float[Tensor, "B T N N"]:
    """The vorticity at `times`, from `vorticity` at (i, j) / N and t = 0.

    `dt` is the longest step to take, by default 1.28 / N; steps are shortened to hit the times
    and where the fastest flow of the batch asks for it. `forcing` is `default_forcing` unless
    given; pass zeros for none. `progress` is told the time reached, about once per unit of time.
    Computed in the dtype of `vorticity`: float32 is enough for data, float64 for validation.
    """
    if list(times) != sorted(times) or min(times, default=-1) < 0:
        raise ValueError(f"times must be increasing and not negative, got {tuple(times)}")
    points = vorticity.shape[-1]
    dt = _STEP_TIMES_POINTS / points if dt is None else dt
    if forcing is None:
        forcing = default_forcing(points, dtype=vorticity.dtype, device=vorticity.device)
    flow = _Flow(vorticity, viscosity, forcing)
    frames = vorticity.new_empty(vorticity.shape[0], len(times), points, points)
    for index, (start, stop) in enumerate(pairwise((0.0, *times))):
        pieces = math.ceil((stop - start) / _MEASURE_EVERY - 1e-9)
        for piece in range(1, pieces + 1):
            flow.advance((stop - start) / pieces, dt)
            if progress is not None:
                progress(start + (stop - start) * piece / pieces)
        frames[:, index] = flow.vorticity()
        _require_finite(frames[:, index], stop)
    return frames


def _require_finite(w: Tensor, time: float) -> None:
    bad = (~w.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
    if bad:
        raise RuntimeError(
            f"the flow is not finite at t = {time:g} in samples {bad} (two share a transform, and "
            "one spoils the other): look at the input, or reduce dt"
        )


class _Flow:
    """The spectra of a batch of flows, and what it takes to advance them in place.

    Two flows share one complex field, w_1 + i w_2: every linear operator here maps real fields to
    real ones, so it acts on each by itself. Complex transforms of half the number move the same
    data as real ones and are quicker, twice on a CPU and by a quarter on a GPU.

    Everything a step reads or writes stays at one address, the step size included, so that on a
    GPU one step is captured as a graph and replayed: small grids are bound by kernel launches.
    Tables are complex because mixed products would be converted anew each time.
    """

    def __init__(self, vorticity: Tensor, viscosity: float, forcing: Tensor) -> None:
        self.count, self.points = vorticity.shape[0], vorticity.shape[-1]
        k = spectral.wavenumbers(self.points, device=vorticity.device)
        keep = spectral.resolved(k, self.points)[:, None] & spectral.resolved(k, self.points)
        # Advection is a divergence: without the mean, rounding cannot make it a source.
        keep[0, 0] = False
        square = 4 * math.pi**2 * (k[:, None] ** 2 + k**2)
        d_x = torch.where(keep, 2j * math.pi * k[:, None], 0)
        d_y = torch.where(keep, 2j * math.pi * k, 0)
        inverse = torch.where(keep, 1 / square, 0)

        number = vorticity.dtype.to_complex()
        # From w to u, v, w_x, w_y. Masked: unresolved modes of the input diffuse, no more.
        self.fields = torch.stack((d_y * inverse, -d_x * inverse, d_x, d_y)).to(number)
        self.minus_keep = -keep.to(number)
        self.diffusion = -viscosity * square
        self.forcing = torch.fft.fft2(_pack(forcing.to(vorticity).reshape(-1, *keep.shape)))
        self.state = torch.fft.fft2(_pack(vorticity))
        self.decay = torch.ones_like(keep, dtype=number)
        self.loss = torch.zeros_like(keep, dtype=number)
        self.dt = torch.zeros((), dtype=number, device=vorticity.device)
        # Here `dt` is still zero, so that rehearsing cannot blow up.
        self.step = captured(self._step, [self.state])

    def vorticity(self) -> Float[Tensor, "B N N"]:
        """The fields on the grid."""
        pairs = torch.view_as_real(torch.fft.ifft2(self.state))
        return pairs.movedim(-1, 1).flatten(0, 1)[: self.count]

    def advance(self, duration: float, longest: float) -> None:
        """Take equal steps of at most `longest` and of a safe Courant number."""
        courant = self._speed() * self.points / _COURANT  # steps per unit of time, at least
        wanted = 1 / longest
        # A flow that blew up, to NaN maybe, is not followed: the next record will refuse it.
        rate = max(wanted, courant) if courant < _HOPELESS else wanted
        steps = math.ceil(duration * rate - 1e-9)
        dt = duration / steps
        self.dt.fill_(dt)
        self.decay.copy_(torch.exp(self.diffusion * (dt / 2)))
        self.loss.copy_(torch.expm1(self.diffusion * dt))
        for _ in range(steps):
            self.step()

    def _speed(self) -> float:
        u, v = self._on_grid(self.state, self.fields[:2])
        return float((u.abs() + v.abs()).max())

    def _on_grid(self, w: Tensor, fields: Tensor) -> tuple[Tensor, ...]:
        """Real fields of the spectrum w, the two flows of a pair along the last axis."""
        pairs = torch.fft.ifft2(fields * w.unsqueeze(-3))
        return torch.view_as_real(pairs).unbind(-4)

    def _rate(self, w: Tensor) -> Tensor:
        """N(w) = f - u·grad w."""
        u, v, w_x, w_y = self._on_grid(w, self.fields)
        advection = torch.view_as_complex((u * w_x).addcmul_(v, w_y))
        return torch.addcmul(self.forcing, self.minus_keep, torch.fft.fft2(advection))

    def _step(self) -> None:
        """One step of w' = L w + N(w): classical Runge-Kutta for exp(-L t) w. With e = exp(L dt/2),

            w <- w + (e² - 1) w + dt/6 (e² a + 2 e (b + c) + d).

        Written as an increment for the sake of float32: e² is so close to one that its rounding,
        the same at every step, would add up to 5e-4 over 10 000 steps.
        """
        w, e, dt = self.state, self.decay, self.dt
        a = self._rate(w)
        b = self._rate(e * torch.addcmul(w, a, dt / 2))
        halfway = e * w
        c = self._rate(torch.addcmul(halfway, b, dt / 2))
        d = self._rate(e * torch.addcmul(halfway, c, dt))
        slope = d + e * torch.add(e * a, b + c, alpha=2)
        w += torch.addcmul(self.loss * w, slope, dt / 6)


def _pack(fields: Float[Tensor, "B N N"]) -> Tensor:
    if len(fields) % 2:
        fields = torch.cat((fields, fields[-1:]))
    return torch.complex(fields[0::2], fields[1::2])
