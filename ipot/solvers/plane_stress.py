"""Elastic and perfectly plastic, or linearly hardening, metal in plane stress.

Yield is von Mises', p² + 3 (q² + s²) = Y², in the three numbers

    p = (σ11 + σ22) / 2,   q = (σ11 - σ22) / 2,   s = σ12,

in which elasticity, rotation and plastic flow are nearly diagonal. Stresses are in units of the
shear modulus G. Simo and Hughes, "Computational Inelasticity" (1998), box 3.3; Simo and Taylor,
Int. J. Numer. Methods Eng. 22 (1986).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Metal:
    """Constants of the metal, in MPa and kg / m³."""

    young: float = 200e3
    poisson: float = 0.3
    strength: float = 70.0
    hardening: float = 0.0
    density: float = 7850.0

    @property
    def shear(self) -> float:
        """G."""
        return self.young / (2 * (1 + self.poisson))

    @property
    def bulk(self) -> float:
        """How much stiffer p is than q and s, over their strains tr D and D11 - D22, 2 D12."""
        return (1 + self.poisson) / (1 - self.poisson)

    @property
    def yields_at(self) -> float:
        """The initial yield stress over G."""
        return self.strength / self.shear

    @property
    def swells_by(self) -> float:
        """The relative change of volume for p = G; plastic flow changes no volume."""
        return (1 - 2 * self.poisson) / (1 + self.poisson)


def load(
    stress: Float[Tensor, " pqs *points"],
    dilation: Float[Tensor, "*points"],
    stretch: Float[Tensor, "*points"],
    shear: Float[Tensor, "*points"],
    spin: Float[Tensor, "*points"],
    stiffness: Float[Tensor, "*points"],
    metal: Metal,
) -> None:
    """Add an elastic increment to (p, q, s), in place, in the frame that turns with the material.

    Increments of D11 + D22, D11 - D22, 2 D12 and of the spin ∂v1/∂x2 - ∂v2/∂x1 (Jaumann's rate).
    `stiffness` is the shear modulus there, over G.
    """
    p, q, s = stress
    p.addcmul_(dilation, stiffness, value=metal.bulk)
    turned = torch.addcmul(shear * stiffness, spin, q, value=-1)
    q.addcmul_(spin, s).addcmul_(stretch, stiffness)
    s += turned


def relax(
    stress: Float[Tensor, " pqs *points"],
    strain: Float[Tensor, "*points"],
    stiffness: Float[Tensor, "*points"],
    metal: Metal,
) -> None:
    """Bring (p, q, s) back to the yield surface and add to the plastic strain, both in place.

    The implicit step divides p by 1 + κγ and q, s by 1 + γ, where γ is the plastic multiplier.
    Hardening lags by one step.
    """
    p, q, s = stress
    yields = metal.yields_at
    if metal.hardening:
        yields = strain * (metal.hardening / metal.shear) + yields
    gamma = multiplier(p.square(), (q.square() + s.square()) * 3, yields, metal)
    stress[1:] /= gamma + 1
    p /= gamma * (metal.bulk / 3) + 1
    strain.addcdiv_(gamma * yields, stiffness, value=1 / 3)


def multiplier(
    mean: Float[Tensor, "*points"],
    rest: Float[Tensor, "*points"],
    yields: float | Float[Tensor, "*points"],
    metal: Metal,
) -> Float[Tensor, "*points"]:
    """γ for p² and 3 (q² + s²) of the trial stress; zero where it is elastic.

    Newton's method on Y / √(p² + 3 (q² + s²)) = 1: the left side is concave in γ and all but
    linear, so that the iteration climbs to the root from γ = 0 without ever passing it. Two steps
    leave at most 1.4e-5 of the yield stress, for any trial stress.
    """
    kappa = metal.bulk / 3
    # An elastic point is moved onto the yield surface, where γ = 0 solves the equation.
    rest = torch.maximum(rest, yields**2 - mean)
    gamma = _climb(mean, rest, mean * kappa + rest, yields)
    shrink, other = (gamma * kappa + 1).reciprocal_(), (gamma + 1).reciprocal_()
    mean, rest = mean * shrink.square(), rest * other.square()
    rate = torch.addcmul(rest * other, mean, shrink, value=kappa)
    return gamma.add_(_climb(mean, rest, rate, yields)).clamp_min_(0)


def _climb(mean: Tensor, rest: Tensor, rate: Tensor, yields: float | Tensor) -> Tensor:
    """One step of Newton's method; `rate` is -d/dγ of (mean + rest) / 2."""
    square = mean + rest
    excess = square.sqrt() - yields
    return square.mul_(excess).div_(rate * yields)


def mises(stress: Float[Tensor, " pqs *points"]) -> Float[Tensor, "*points"]:
    """The equivalent stress of (p, q, s)."""
    p, q, s = stress
    return (p.square() + 3 * (q.square() + s.square())).sqrt()


def elastic_energy(stress: Float[Tensor, " pqs *points"], metal: Metal) -> Float[Tensor, "*points"]:
    """Energy per volume, over G."""
    p, q, s = stress
    return (p.square() / metal.bulk + q.square() + s.square()) / 2
