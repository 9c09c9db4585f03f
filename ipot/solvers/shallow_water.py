"""Rotating shallow water on the sphere, as vorticity ζ, divergence δ and height h.

    ζ_t = -div((ζ + f) u)                               - ν (Δ + 1)² ζ
    δ_t = k·curl((ζ + f) u) - Δ(|u|² / 2 + g h)         - ν (Δ + 1)² δ
    h_t = -div((H + h - b) u)                           - ν Δ² h

with f = 2 Ω sin φ. h is the surface above the mean depth H and b a mountain below it. This is the
rotational form of u_t + u·grad u + f k x u + g grad h = -ν Δ² u: on a sphere the Laplacian of a
vector has the eigenvalues 1 - l(l + 1), hence Δ + 1.

Spherical harmonics with all products free of aliasing; classical Runge-Kutta after an integrating
factor, so that the hyperdiffusion is exact. Mass is kept to the last bit. Hack and Jakob,
NCAR/TN-343 (1992). The unstable jets are those of Galewsky, Scott and Polvani, Tellus A 56 (2004),
one in each hemisphere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ipot.device import captured
from ipot.solvers.sphere import Transform

RADIUS = 6.37122e6
OMEGA = 7.292e-5
GRAVITY = 9.80616

# Runge-Kutta is stable up to dt c l / a = 2.8 for waves of speed c.
_STABLE = 2.4
_FLOW = 100.0  # m/s, as fast as a flow may get

State = Complex[Tensor, "3 B m l"]


@dataclass(frozen=True)
class Planet:
    """The numbers of the equation, in metres and seconds."""

    depth: float = 1e4
    """H, the mean depth."""
    rotation: float = OMEGA
    """Ω."""
    hyperdiffusion: float = 1e5 * RADIUS**2 / 32**2
    """ν in m⁴/s; by default as strong at l = 32 as a viscosity of 1e5 m²/s."""

    def longest_step(self, lmax: int) -> float:
        """A safe time step: gravity waves are the fastest."""
        speed = math.sqrt(GRAVITY * self.depth) + _FLOW
        return _STABLE * RADIUS / (speed * max(lmax, 1))


EARTH = Planet()


def products(lmax: int, device: torch.device | str | None = None) -> Transform:
    """The smallest grid on which products of two fields are free of aliasing, in float64."""
    rows = 3 * lmax // 2 + 1
    return Transform(lmax, rows + rows % 2, device=device)


@torch.no_grad()
def solve(
    state: State,
    *,
    times: Sequence[float],
    planet: Planet = EARTH,
    mountain: Complex[Tensor, "m l"] | None = None,
    dt: float | None = None,
) -> Iterator[State]:
    """The state at each of `times`, in seconds, from a state at t = 0.

    A state holds the coefficients of vorticity (1/s), divergence (1/s) and height (m), in the
    conventions of `sphere`. `dt` is the longest step to take, by default `planet.longest_step`.
    Between two times steps are equal, and do not depend on the flow. Every state is a copy.
    """
    if list(times) != sorted(times) or min(times, default=-1) < 0:
        raise ValueError(f"times must be increasing and not negative, got {tuple(times)}")
    flow = _Flow(state, _Equation(state, planet, mountain))
    longest = planet.longest_step(state.shape[-1] - 1) if dt is None else dt
    for start, stop in pairwise((0.0, *times)):
        flow.advance(stop - start, longest)
        _require_finite(flow.state, stop)
        yield flow.state.clone()


def balanced_height(
    vorticity: Complex[Tensor, "B m l"], planet: Planet = EARTH
) -> Complex[Tensor, "B m l"]:
    """The height of zero mean that keeps a flow without divergence free of it, for a moment."""
    state = torch.stack((vorticity, torch.zeros_like(vorticity), torch.zeros_like(vorticity)))
    equation = _Equation(state, planet, None)
    return equation.rate(state)[1] * equation.sphere.inverse_laplacian * (RADIUS**2 / GRAVITY)


def jets(latitudes: Float[Tensor, " rows"], speed: Float[Tensor, " B"]) -> Float[Tensor, "B rows"]:
    """Eastward winds of two jets with this maximum, between latitudes of π/7 and 5π/14."""
    south, north = math.pi / 7, math.pi / 2 - math.pi / 7
    distance = (latitudes.abs() - south) * (latitudes.abs() - north)
    # The exponent is -∞ at the edges, where the wind and all its derivatives vanish.
    inside = distance < 0
    exponent = 4 / (north - south) ** 2 + 1 / torch.where(inside, distance, -1.0)
    return speed[:, None] * torch.where(inside, exponent.exp(), 0.0)


def bump(
    latitudes: Float[Tensor, " rows"], longitudes: Float[Tensor, " columns"], *, wrap: bool
) -> Float[Tensor, "rows columns"]:
    """The height (m) that upsets the jets, at longitude 0 and latitudes of ±45 degrees.

    Without `wrap`, longitudes count from 0 to 2π and only the eastern half of it is there.
    """
    if wrap:
        longitudes = torch.remainder(longitudes + math.pi, 2 * math.pi) - math.pi
    width, breadth = 1 / 3, 1 / 15
    across = torch.exp(-(((latitudes.abs() - math.pi / 4) / breadth) ** 2))
    along = torch.exp(-((longitudes / width) ** 2))
    return 120 * (latitudes.cos() * across)[:, None] * along


def unstable_jets(
    speed: Float[Tensor, " B"], lmax: int, *, wrap: bool = False, planet: Planet = EARTH
) -> State:
    """Balanced jets with a bump beside them.

    Winds and bump are sampled on lmax + 1 Gauss lines, the grid of the published data: of the jump
    that an unwrapped bump has, this is the part that the grid can see.
    """
    sphere = Transform(lmax, lmax + 1, device=speed.device)
    wind = jets(sphere.latitudes, speed.double())[:, :, None].expand(-1, -1, sphere.columns)
    vorticity, divergence = sphere.rotation(wind / RADIUS, torch.zeros_like(wind))
    height = balanced_height(vorticity, planet)
    height += sphere.analysis(bump(sphere.latitudes, sphere.longitudes, wrap=wrap))
    return torch.stack((vorticity, divergence, height))


def energy(
    state: State, planet: Planet = EARTH, mountain: Complex[Tensor, "m l"] | None = None
) -> Float[Tensor, " B"]:
    """Kinetic energy and potential energy of the surface, ∫ (D |u|² + g h²) / 2, per area."""
    equation = _Equation(state, planet, mountain)
    u, v, _, height = equation.on_grid(state)
    density = (equation.rest + height) * (u**2 + v**2) + GRAVITY * height**2
    return equation.sphere.mean(density) / 2


class _Equation:
    """The right-hand side, for states like a given one."""

    def __init__(self, like: Tensor, planet: Planet, mountain: Tensor | None) -> None:
        self.sphere = products(like.shape[-1] - 1, like.device)
        ones = torch.ones_like(self.sphere.longitudes)
        self.coriolis = 2 * planet.rotation * self.sphere.latitudes.sin()[:, None] * ones
        self.rest = torch.full_like(self.coriolis, planet.depth)
        """The depth of the water at rest."""
        if mountain is not None:
            self.rest -= self.sphere.synthesis(mountain.to(torch.complex128))
        self.laplacian = self.sphere.laplacian / RADIUS**2
        nu = planet.hyperdiffusion / RADIUS**4
        vector, scalar = (-nu * (self.sphere.laplacian + shift) ** 2 for shift in (1, 0))
        self.damping = torch.stack((vector, vector, scalar))[:, None, None]

    def on_grid(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Winds (m/s), vorticity and height."""
        u, v = self.sphere.velocity(RADIUS * state[0], RADIUS * state[1])
        vorticity, height = self.sphere.synthesis(state[::2])
        return u, v, vorticity, height

    def rate(self, state: Tensor) -> Tensor:
        """The time derivative without damping."""
        u, v, vorticity, height = self.on_grid(state)
        carried = torch.stack((self.coriolis + vorticity, self.rest + height)) / RADIUS
        curl, divergence = self.sphere.rotation(carried * u, carried * v)
        head = self.sphere.analysis(u.square().addcmul_(v, v).mul_(0.5))
        head += GRAVITY * state[2]
        return torch.stack((-divergence[0], curl[0] - self.laplacian * head, -divergence[1]))


class _Flow:
    """The state of a batch of flows, and what it takes to advance it in place.

    Everything that a step reads or writes stays at one address, so that on a GPU it is captured as
    a graph and replayed.
    """

    def __init__(self, state: Tensor, equation: _Equation) -> None:
        self.state = state.to(torch.complex128, copy=True)
        self.rate, self.damping = equation.rate, equation.damping
        self.decay = torch.ones_like(self.damping)
        self.loss = torch.zeros_like(self.damping)
        self.dt = torch.zeros((), dtype=torch.float64, device=state.device)
        # Here `dt` is still zero, so that rehearsing cannot blow up.
        self.step = captured(self._step, [self.state])

    def advance(self, duration: float, longest: float) -> None:
        """Take equal steps of at most `longest`."""
        steps = math.ceil(duration / longest - 1e-9)
        if steps == 0:
            return
        dt = duration / steps
        self.dt.fill_(dt)
        self.decay.copy_(torch.exp(self.damping * (dt / 2)))
        self.loss.copy_(torch.expm1(self.damping * dt))
        for _ in range(steps):
            self.step()

    def _step(self) -> None:
        """One step of y' = L y + N(y): classical Runge-Kutta for exp(-L t) y, e = exp(L dt/2).

        y <- y + (e² - 1) y + dt/6 (e² a + 2 e (b + c) + d)
        """
        y, e, dt = self.state, self.decay, self.dt
        a = self.rate(y)
        halfway = e * y
        b = self.rate(halfway + (dt / 2) * e * a)
        c = self.rate(halfway + (dt / 2) * b)
        d = self.rate(e * (halfway + dt * c))
        slope = d + e * (e * a + 2 * (b + c))
        y += self.loss * y + (dt / 6) * slope


def _require_finite(state: Tensor, time: float) -> None:
    bad = (~torch.view_as_real(state).isfinite().all(-1).flatten(2).all(-1).all(0)).nonzero()
    if len(bad):
        raise RuntimeError(
            f"the flow is not finite at t = {time:g} s in samples {bad.flatten().tolist()}: "
            "look at the input, or reduce dt"
        )
