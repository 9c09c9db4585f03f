"""Fluxes of the compressible Euler equations, and states at the two sides of a face.

States are primitive, (density, x velocity, y velocity, pressure), with these along the axis that is
named; conserved states are (density, x momentum, y momentum, energy). Perfect gas with γ = 1.4.

Roe, J. Comput. Phys. 43 (1981); Steger and Warming, J. Comput. Phys. 40 (1981); van Albada, van
Leer and Roberts, Astron. Astrophys. 108 (1982).
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

GAMMA = 1.4

Limiter = Literal["minmod", "van albada"]

LEAST = 0.02
"""Density and pressure of iterates are kept above this; solutions stay far above by themselves."""

# Differences below its root are not limited: noise of that size would never settle.
_SMALL = 1e-6


def primitive(conserved: Float[Tensor, "4 ..."]) -> Float[Tensor, "4 ..."]:
    """From conserved to primitive, with density and pressure kept off zero."""
    made = torch.empty_like(conserved)
    density, u, v, p = made
    torch.clamp(conserved[0], min=LEAST, out=density)
    torch.div(conserved[1:3], density, out=made[1:3])
    torch.addcmul(conserved[3], conserved[1], u, value=-0.5, out=p)
    p.addcmul_(conserved[2], v, value=-0.5).mul_(GAMMA - 1).clamp_(min=LEAST)
    return made


def pressure(conserved: Float[Tensor, "4 ..."]) -> Tensor:
    """The pressure of a conserved state of positive density, negative as it may be."""
    density, mx, my, energy = conserved
    return (energy - torch.addcmul(mx * mx, my, my) / (2 * density)) * (GAMMA - 1)


def conserved(state: Float[Tensor, "4 ..."]) -> Float[Tensor, "4 ..."]:
    """From primitive to conserved."""
    density, u, v, p = state
    energy = p / (GAMMA - 1) + density * (u * u + v * v) / 2
    return torch.stack((density, density * u, density * v, energy))


def mach(state: Float[Tensor, "4 ..."]) -> Tensor:
    """Speed over the speed of sound."""
    density, u, v, p = state
    return ((u * u + v * v) * density / (GAMMA * p)).sqrt()


def total_enthalpy(state: Float[Tensor, "4 ..."]) -> Tensor:
    """(E + p) / ρ, which a steady flow carries along unchanged."""
    density, u, v, p = state
    half = torch.addcmul(u * u, v, v) / 2
    return torch.addcdiv(half, p, density, value=GAMMA / (GAMMA - 1))


def limited(a: Tensor, b: Tensor, limiter: Limiter) -> Tensor:
    """A slope of the size of the smaller of two, or next to nothing where their signs differ."""
    if limiter == "minmod":
        return torch.clamp(b, a.clamp(max=0), a.clamp(min=0))
    # Continuous where the signs part, even for slopes of the size of noise.
    share = (a * b).clamp(min=0).add_(_SMALL) / (a * a + b * b).add_(2 * _SMALL)
    return (a + b).mul_(share)


def roe(
    sides: Float[Tensor, "2 4 ..."], normal: Float[Tensor, "2 ..."], area: Tensor
) -> Float[Tensor, "4 ..."]:
    """What flows through faces between two states, by Roe's linearisation without entropy fix."""
    density, u, v, p = sides.unbind(1)
    nx, ny = normal
    normal_speed = torch.addcmul(u * nx, v, ny)
    mass = density * normal_speed
    enthalpy = total_enthalpy(sides.movedim(1, 0))

    root = density.sqrt()
    share = root[1] / (root[0] + root[1])
    mean_u, mean_v = torch.lerp(u[0], u[1], share), torch.lerp(v[0], v[1], share)
    h = torch.lerp(enthalpy[0], enthalpy[1], share)
    speed = torch.lerp(normal_speed[0], normal_speed[1], share)
    kinetic = torch.addcmul(mean_u * mean_u, mean_v, mean_v) / 2
    square = ((h - kinetic) * (GAMMA - 1)).clamp_(min=LEAST)
    sound = square.sqrt()

    jump = sides[1] - sides[0]
    jump_speed = normal_speed[1] - normal_speed[0]
    # Strengths of the waves, times their speeds: two of sound, one of entropy, one of shear.
    middle = root[0] * root[1]
    pressure = jump[3] / square
    push = middle / sound * jump_speed
    slow = (pressure - push) * (speed - sound).abs_() / 2
    fast = (pressure + push) * (speed + sound).abs_() / 2
    carried = speed.abs()
    entropy, shear = (jump[0] - pressure) * carried, middle * carried
    sonic = slow + fast
    total = sonic + entropy
    turn = torch.addcmul((fast - slow) * sound, shear, jump_speed, value=-1)

    flux = torch.empty_like(jump)
    torch.sub(mass[0] + mass[1], total, out=flux[0])
    push = p[0] + p[1] - turn
    for row, (along, mean, n) in enumerate(((u, mean_u, nx), (v, mean_v, ny)), start=1):
        carried = torch.addcmul(mass[0] * along[0], mass[1], along[1]).addcmul_(push, n)
        carried.addcmul_(total, mean, value=-1)
        torch.addcmul(carried, shear, jump[row], value=-1, out=flux[row])
    work = torch.addcmul(mean_u * jump[1], mean_v, jump[2])
    energy = torch.addcmul(mass[0] * enthalpy[0], mass[1], enthalpy[1])
    energy.addcmul_(sonic, h, value=-1).addcmul_(entropy, kinetic, value=-1)
    energy.addcmul_(turn, speed, value=-1)
    torch.addcmul(energy, shear, work, value=-1, out=flux[3])
    return flux.mul_(area / 2)


def steger_warming(
    state: Float[Tensor, "4 ..."], outside: Float[Tensor, "4 ..."], normal: Float[Tensor, "2 ..."]
) -> Float[Tensor, "4 ..."]:
    """What leaves through a far boundary: waves out carry `state`, waves in carry `outside`.

    Conserved states are split by the Jacobian A at `state`. A times its own state is the flux
    there, so that what waves in change is all there is to split: F + A⁻ (outside - state). The
    normals are as long as their faces.
    """
    density, u, v, p = state
    area = normal.norm(dim=0)
    nx, ny = normal / area
    square = GAMMA * p / density
    sound = square.sqrt()
    speed = u * nx + v * ny
    kinetic = (u * u + v * v) / 2
    h = square / (GAMMA - 1) + kinetic
    mass = density * speed

    d, dx, dy, de = outside - conserved(state)
    pressure = (GAMMA - 1) * (kinetic * d - u * dx - v * dy + de) / square
    push = nx * dx + ny * dy - speed * d
    slow = (pressure - push / sound) * (speed - sound).clamp(max=0) / 2
    fast = (pressure + push / sound) * (speed + sound).clamp(max=0) / 2
    carried = speed.clamp(max=0)
    entropy = (d - pressure) * carried
    shear_x, shear_y = (dx - u * d - nx * push) * carried, (dy - v * d - ny * push) * carried
    total, turn = mass + slow + fast + entropy, p + (fast - slow) * sound
    flux = (
        total,
        total * u + turn * nx + shear_x,
        total * v + turn * ny + shear_y,
        (mass + slow + fast) * h
        + entropy * kinetic
        + (turn - p) * speed
        + u * shear_x
        + v * shear_y,
    )
    return torch.stack(flux) * area
