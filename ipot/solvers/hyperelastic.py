"""A thin sheet of incompressible rubber around a hole, in plane stress.

    div P(F) + b = 0,   P = ∂ψ/∂F,   F = I + grad u
    ψ = C1 (I1 - 3) + C2 (I2 - 3)   with F33 = 1 / J, J = det F, so that det F3d = 1

the material of Mooney and of Rivlin and Saunders. In the plane I1 = |F|² + J^-2 and
I2 = J² + |F|² J^-2, and the pressure is gone: the sheet is free to change its thickness.
Nine-node quadrilaterals, 3 x 3 Gauss points, Newton's method with the exact tangent, which the
direct solver for rings factorises. Holzapfel, "Nonlinear Solid Mechanics" (2000), 6.5 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ipot.solvers import cyclic, fem


@dataclass(frozen=True)
class MooneyRivlin:
    """The two constants of the material; Young's modulus of small strains is 6 (C1 + C2)."""

    c1: float = 1.863e5
    c2: float = 9.79e3

    def energy(self, h: Float[Tensor, "*Q 2 2"]) -> Float[Tensor, "*Q"]:
        """ψ for a displacement gradient H = F - I."""
        f = _identity(h) + h
        square, j = f.square().sum((-2, -1)), _det(f)
        return self.c1 * (square + j**-2 - 3) + self.c2 * (j**2 + square * j**-2 - 3)

    def stress(self, h: Float[Tensor, "*Q 2 2"]) -> Float[Tensor, "*Q 2 2"]:
        """P = ∂ψ/∂F = α F + β cof F, the force on an area of the undeformed sheet.

        Written as α (F - cof F) + (α + β) cof F in terms of H, where nothing of order one cancels:
        strains of 5e-4 would cost three of sixteen digits, and the residual as many.
        """
        trace = h[..., 0, 0] + h[..., 1, 1]
        e = trace + _det(h)  # J - 1
        j = 1 + e
        first = e * (3 + e * (3 + e))  # J³ - 1
        second = e * (5 + e * (6 + e * (4 + e))) - 2 * trace - h.square().sum((-2, -1))
        both = 2 * (self.c1 * first + self.c2 * second) * j**-3
        along = 2 * (self.c1 + self.c2 * j**-2)
        part = along[..., None, None] * (h - _cofactor(h))
        return part + both[..., None, None] * (_identity(h) + _cofactor(h))

    def tangent(self, h: Float[Tensor, "*Q 2 2"]) -> Float[Tensor, "*Q 4 4"]:
        """∂P/∂F, of the four entries of P and F row by row."""
        f = _identity(h) + h
        square, j = f.square().sum((-2, -1))[..., None, None], _det(f)[..., None, None]
        g, f = _cofactor(f).flatten(-2).unsqueeze(-1), f.flatten(-2).unsqueeze(-1)
        along = 2 * (self.c1 + self.c2 * j**-2)
        across = 2 * (self.c2 * j - (self.c1 + self.c2 * square) * j**-3)
        mixed = -4 * self.c2 * j**-3
        twice = 2 * (self.c2 + 3 * (self.c1 + self.c2 * square) * j**-4)
        one = torch.eye(4, dtype=f.dtype, device=f.device)
        # The cofactors are linear in F, with this matrix: the second derivative of J.
        swap = one.flip(0) * one.new_tensor([1.0, -1.0, -1.0, 1.0])
        return along * one + across * swap + mixed * (f @ g.mT + g @ f.mT) + twice * (g @ g.mT)

    def von_mises(self, h: Float[Tensor, "*Q 2 2"]) -> Float[Tensor, "*Q"]:
        """The equivalent stress, of the second Piola-Kirchhoff stress S = F^-1 P."""
        f = _identity(h) + h
        s = _cofactor(f).mT @ self.stress(h) / _det(f)[..., None, None]
        xx, yy, xy = s[..., 0, 0], s[..., 1, 1], s[..., 0, 1]
        return (xx**2 - xx * yy + yy**2 + 3 * xy**2).sqrt()


class Body:
    """A mesh with its material: forces and stiffness for a displacement (B, L, R, 2)."""

    def __init__(self, nodes: Float[Tensor, "B L R 2"], material: MooneyRivlin) -> None:
        self.material = material
        local, weights = fem.gauss(device=nodes.device)
        _, slopes = fem.shapes(local)
        # (B, E, K, Q, A, 2): the gradient of every node's function at every point.
        self.slopes, det = fem.gradients(fem.elements(nodes).unsqueeze(3), slopes)
        bad = (~(det > 0).flatten(1).all(1)).nonzero().flatten().tolist()
        if bad:
            raise ValueError(f"elements are turned inside out in samples {bad}: look at the nodes")
        self.weights = det * weights

    def gradient(self, displacement: Float[Tensor, "B L R 2"]) -> Float[Tensor, "B E K Q 2 2"]:
        """H = grad u at the Gauss points."""
        return fem.elements(displacement).unsqueeze(3).mT @ self.slopes

    def forces(self, displacement: Float[Tensor, "B L R 2"]) -> Float[Tensor, "B L R 2"]:
        """What the nodes must be pulled with to keep them there."""
        stress = self.material.stress(self.gradient(displacement)) * self.weights[..., None, None]
        return fem.scatter((self.slopes @ stress.mT).sum(3))

    def stiffness(
        self, displacement: Float[Tensor, "B L R 2"], fixed: Bool[Tensor, "L R"]
    ) -> Float[Tensor, "B E n n"]:
        """The derivative of `forces` by sectors, with the identity for nodes that are fixed."""
        moduli = self.material.tangent(self.gradient(displacement)) * self.weights[..., None, None]
        # Σ_q ∂_j N_a A_ijkl ∂_l N_b, first over l and then over (q, j) at once.
        half = moduli.unflatten(-1, (2, 2)).flatten(-3, -2) @ self.slopes.mT
        half = half.unflatten(-2, (2, 2, 2)).transpose(-4, -3)
        left = self.slopes.mT.flatten(3, 4).mT
        matrices = (left @ half.flatten(-3).flatten(3, 4)).unflatten(-1, (2, 2, fem.NODES))
        matrices = matrices.transpose(-2, -1).flatten(-2).flatten(-3, -2)
        held = fixed[None, :, :, None].expand(1, -1, -1, 2).to(moduli)
        held = fem.elements(held).flatten(3)  # (1, E, K, 18)
        free = 1 - held
        matrices = matrices * free.unsqueeze(-1) * free.unsqueeze(-2) + torch.diag_embed(held)
        return fem.scatter_matrices(matrices)


@torch.no_grad()
def solve(
    body: Body,
    load: Float[Tensor, "*batch L R 2"],
    fixed: Bool[Tensor, "L R"],
    *,
    start: Float[Tensor, "B L R 2"] | None = None,
    tolerance: float = 1e-10,
    steps: int = 20,
) -> Float[Tensor, "B L R 2"]:
    """The displacement in equilibrium with forces on the nodes, in float64.

    Fixed nodes stay where `start` has them, which is zero unless given. `tolerance` bounds the
    residual relative to the load, or to the forces at the start where these are larger. A sample
    that has converged stays put while others go on: its result does not depend on its company.
    """
    free = ~fixed.unsqueeze(-1)
    u = body.slopes.new_zeros(len(body.slopes), *load.shape[-3:]) if start is None else start
    residual = torch.where(free, load - body.forces(u), 0)
    scale = torch.maximum(_norm(residual), _norm(torch.where(free, load, 0).expand_as(u)))
    error = _norm(residual)
    for _ in range(steps):
        active = ~(error <= tolerance * scale)
        if not active.any():
            return u
        factor = cyclic.factorize(body.stiffness(u, fixed))
        step = factor.solve(residual.flatten(2)).view_as(u)
        u = torch.where(active, u + step, u)
        residual = torch.where(free, load - body.forces(u), 0)
        error = _norm(residual)
    failed = (~(error <= tolerance * scale)).flatten().nonzero().flatten().tolist()
    if failed:
        worst = (error / scale).flatten()[failed].max()
        raise RuntimeError(
            f"no equilibrium after {steps} steps: samples {failed} have a relative residual of up "
            f"to {worst:.1e}, asked for {tolerance:.1e}. Load less, or in steps through `start`."
        )
    return u


def _identity(h: Tensor) -> Tensor:
    return torch.eye(2, dtype=h.dtype, device=h.device)


def _det(f: Tensor) -> Tensor:
    return f[..., 0, 0] * f[..., 1, 1] - f[..., 0, 1] * f[..., 1, 0]


def _cofactor(f: Tensor) -> Tensor:
    """∂ det F / ∂F."""
    (a, b), (c, d) = (row.unbind(-1) for row in f.unbind(-2))
    return torch.stack((d, -c, -b, a), -1).unflatten(-1, (2, 2))


def _norm(field: Tensor) -> Tensor:
    return field.flatten(1).norm(dim=1)[:, None, None, None]
