"""The block that is forged: its mesh, its state, and one step of time.

Bilinear quadrilaterals with 2 x 2 points of integration, in the current configuration: no hourglass
modes to suppress, and no locking, since the thickness adapts. Units are mm, ms and MPa; stresses
are in units of the shear modulus. Nodes are counted from the right, x = 0.35 mm, to the left and
from the top, y = 14.9 mm, down, as in the published data.

The die is rigid and without friction. Its profile is a piecewise cubic of one continuous
derivative, so that the normal does not jump, and goes on straight beyond its ends. A node above the
profile is put back along the normal: no penalty stiffness, hence no parameter and no limit on the
step.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.solvers import plane_stress
from ipot.solvers.plane_stress import Metal

LENGTH, HEIGHT = 50.0, 15.0
RIGHT, TOP = 0.35, 14.9
SPEED = 3.0  # of the die

_GAUSS = (0.5 - 0.5 / math.sqrt(3), 0.5 + 0.5 / math.sqrt(3))
_SAFE = 0.9  # of the longest stable step


def rows(nodes: int) -> int:
    """Nodes from top to bottom for so many along the block, in square cells."""
    cells, rest = divmod((nodes - 1) * round(HEIGHT), round(LENGTH))
    if nodes < 2 or rest:
        raise ValueError(
            f"{nodes} nodes along the block make no square cells: take 10 k + 1, such as 21 or 101"
        )
    return cells + 1


def reference(nodes: int) -> Float[Tensor, "n m 2"]:
    """Where the nodes are at first, in mm and float64."""
    spacing = LENGTH / (nodes - 1)
    x = RIGHT - spacing * torch.arange(nodes, dtype=torch.float64)
    y = TOP - spacing * torch.arange(rows(nodes), dtype=torch.float64)
    return torch.stack(torch.meshgrid(x, y, indexing="ij"), -1)


def density(metal: Metal, mass_scaling: float) -> float:
    """In MPa ms² / mm²."""
    return metal.density * 1e-6 * mass_scaling


def sound(metal: Metal, mass_scaling: float = 1.0) -> float:
    """The speed of sound in a sheet, in mm / ms."""
    return math.sqrt(metal.young / (1 - metal.poisson**2) / density(metal, mass_scaling))


class Block:
    """All samples side by side. `state` is what a step changes, in place."""

    def __init__(self, die: Tensor, metal: Metal, mass_scaling: float, dt: float) -> None:
        self.metal, self.dt = metal, dt
        samples, n = die.shape
        m = rows(n)
        self.spacing = LENGTH / (n - 1)
        self.die = Die(die, self.spacing, RIGHT)
        # Displacement and its change in a step, x and y. Not places: float32 is finer near zero.
        self.motion = die.new_zeros(2, 2, samples, n, m)
        # p, q, s and the plastic strain at points (left or right, up or down) of every cell.
        self.stress = die.new_zeros(3, 2, 2, samples, n - 1, m - 1)
        self.strain = torch.zeros_like(self.stress[0])
        self.descent = torch.zeros((), dtype=torch.float64, device=die.device)
        self.skin = _skin(n, m, die.device)
        start = reference(n).to(die).movedim(-1, 0)
        self.skin_start = start.flatten(1)[:, None, self.skin]
        self.pushed = die.new_zeros(samples, len(self.skin))
        self.state = [self.motion, self.stress, self.strain, self.descent, self.pushed]

        share = die.new_ones(n, m)
        share[[0, -1]] /= 2
        share[:, [0, -1]] /= 2
        self.mass = share * (density(metal, mass_scaling) * self.spacing**2)
        # From forces over G h², summed over four points, to what they add to the change in a step.
        free = -metal.shear * (dt * self.spacing / 2) ** 2 / self.mass
        held = free.clone()
        held[:, -1] = 0
        self.response = torch.stack((free, held)).unsqueeze(1)
        self.limit = (dt * sound(metal, mass_scaling) / _SAFE) ** 2 / 2
        self.gauss = die.new_tensor(_GAUSS).view(2, 1, 1, 1)
        self.force = torch.zeros_like(self.motion[0])
        self.tension = torch.empty_like(self.stress)

    def step(self) -> None:
        """Strain, stress, forces, velocity, place, contact."""
        along, down = self._gradients()
        self._stretch(along, down)
        self._forces(along[0], down[0])
        displacement, change = self.motion
        change.addcmul_(self.force, self.response)
        displacement += change
        self.descent.add_(SPEED * self.dt)
        self._contact()

    def _gradients(self) -> tuple[Tensor, Tensor]:
        """Differences of place and of its change over a cell, at its points.

        (place or change, x or y, 2, B, cells), where the 2 counts the points up and down for
        the difference along i, and left and right for the one down j.
        """
        motion = self.motion.unsqueeze(2)
        i, j = motion.diff(dim=-2), motion.diff(dim=-1)
        along = torch.lerp(i[..., :-1], i[..., 1:], self.gauss)
        down = torch.lerp(j[..., :-1, :], j[..., 1:, :], self.gauss)
        along[0, 0] -= self.spacing
        down[0, 1] -= self.spacing
        return along, down

    def _stretch(self, along: Tensor, down: Tensor) -> None:
        """Update the stress by the strain of one step, seen from the middle of the step."""
        half_along = torch.add(along[0], along[1], alpha=-0.5)
        half_down = torch.add(down[0], down[1], alpha=-0.5)
        (a, b), (c, d) = half_along.unsqueeze(1), half_down.unsqueeze(2)
        v_i, v_j = along[1].unsqueeze(1), down[1].unsqueeze(2)
        inverse = _inverse_area(half_along, half_down)
        xx, yx = torch.addcmul(v_i * d, v_j, b, value=-1).mul_(inverse)
        xy, yy = torch.addcmul(v_j * a, v_i, c, value=-1).mul_(inverse)
        stiffness = self._stiffness(half_along, half_down, inverse)
        increment = (xx + yy, xx - yy, xy + yx, xy - yx)
        plane_stress.load(self.stress, *increment, stiffness, self.metal)
        plane_stress.relax(self.stress, self.strain, stiffness, self.metal)

    def _stiffness(self, along: Tensor, down: Tensor, inverse: Tensor) -> Tensor:
        """Elastic moduli over those of the metal: less where a cell is squeezed.

        Sound crosses a flat cell sooner. Its metal flows plastically and elasticity is only there
        to pass the yield stress on, so it may be slower rather than the step shorter for all.

        The step is stable up to 2 / ω, where ω² = 4 c² λ for the stiffest mode of a cell, with λ
        the larger eigenvalue of (a² νab; νab b²) and a, b the inverse principal lengths. Here as
        the larger root of λ² - (a² + b²) λ + (1 - ν²) a² b².
        """
        edges = along.square().sum(0) + down.square().sum(0).unsqueeze(1)
        product = inverse.square()
        total = product * edges
        root = torch.addcmul(product * (4 * self.metal.poisson**2 - 4), total, total).sqrt_()
        return root.add_(total).mul_(self.limit).clamp_min_(1).reciprocal_()

    def _forces(self, along: Tensor, down: Tensor) -> None:
        """Internal forces on the nodes, from the stress in the current configuration."""
        (a, b), (c, d) = along.unsqueeze(1), down.unsqueeze(2)
        p, q, s = self.stress
        # Only elasticity changes the volume, which gives the thickness without a history.
        inverse = _inverse_area(along, down)
        thickness = torch.addcmul(inverse, inverse, p, value=self.metal.swells_by)
        xx, xy, yy = self.tension
        torch.mul(thickness, s, out=xy)
        mean = thickness * p
        torch.addcmul(mean, thickness, q, out=xx)
        torch.addcmul(mean, thickness, q, value=-1, out=yy)
        first, second = self.tension[:2], self.tension[1:]
        i = torch.addcmul(first * d, second, c, value=-1)
        j = torch.addcmul(second * a, first, b, value=-1)
        up, low = _spread(i[:, 0] + i[:, 1])
        right, left = _spread(j[:, :, 0] + j[:, :, 1])
        force = self.force.zero_()
        force[..., :-1, :-1] -= up + right
        force[..., 1:, :-1] += up - left
        force[..., :-1, 1:] += right - low
        force[..., 1:, 1:] += low + left

    def _contact(self) -> None:
        """Put what the die has passed back on it; the change in this step is another then."""
        move = self._push()
        self.pushed -= move[1]
        self.motion.flatten(-2).index_add_(-1, self.skin, move.expand(2, *move.shape))

    def _push(self) -> Float[Tensor, "xy B K"]:
        """How far the die moves the nodes of the skin.

        First by the middles of the top edges, which hold a cell that spans a narrow tip: its nodes
        alone would let the die cut in between them. Then the nodes, which end on or below the die.
        """
        place = self.motion[0].flatten(-2).index_select(-1, self.skin) + self.skin_start
        top = place[..., : self.motion.shape[-2]]
        middle = self.die.push(torch.lerp(top[..., :-1], top[..., 1:], 0.5), self.descent)
        move = torch.zeros_like(place)
        move[..., : middle.shape[-1]].add_(middle, alpha=0.5)
        move[..., 1 : middle.shape[-1] + 1].add_(middle, alpha=0.5)
        return move.add_(self.die.push(place + move, self.descent))

    def inside(self) -> list[int]:
        """Samples whose die overlaps the block."""
        return self._push().any(0).any(-1).nonzero().flatten().tolist()

    def displacement(self) -> Float[Tensor, "B n m 2"]:
        """A copy, in mm."""
        return self.motion[0].movedim(0, -1).clone()

    def energies(self) -> Tensor:
        """Work of the die so far, and elastic, plastic and kinetic energy: (4, B) in mJ."""
        work = (self.pushed * self.mass.flatten()[self.skin]).sum(-1) * (SPEED / self.dt)
        volume = self.spacing**2 / 4 * self.metal.shear
        axes = (0, 1, 3, 4)
        elastic = plane_stress.elastic_energy(self.stress, self.metal).sum(axes) * volume
        slope = self.metal.hardening / self.metal.shear
        yields = self.strain * (self.metal.yields_at + self.strain * (slope / 2))
        kinetic = (self.motion[1].square() * self.mass).sum((0, 2, 3)) / (2 * self.dt**2)
        return torch.stack((work, elastic, yields.sum(axes) * volume, kinetic))


def _inverse_area(along: Tensor, down: Tensor) -> Tensor:
    """1 over the area of a cell as seen from its points."""
    (a, b), (c, d) = along.unsqueeze(1), down.unsqueeze(2)
    return torch.addcmul(a * d, b, c, value=-1).reciprocal_()


def _spread(points: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over two points (component, 2, B, cells) for the node beside each of them."""
    first, second = points.unbind(1)
    near, far = _GAUSS
    return first * far + second * near, first * near + second * far


def _skin(n: int, m: int, device: torch.device) -> Tensor:
    """Nodes that may meet the die: the top, and the upper half of both sides."""
    index = torch.arange(n * m, device=device).view(n, m)
    upper = slice(1, (m + 1) // 2)
    return torch.cat((index[:, 0], index[0, upper], index[-1, upper]))


class Die:
    """Heights at equally spaced places, counted from `origin` towards negative x."""

    def __init__(self, heights: Float[Tensor, "B n"], spacing: float, origin: float) -> None:
        self.spacing, self.origin = spacing, origin
        (slope,) = torch.gradient(heights, dim=-1, edge_order=2)
        y0, y1, s0, s1 = heights[:, :-1], heights[:, 1:], slope[:, :-1], slope[:, 1:]
        rise = y1 - y0
        cubic = torch.stack((y0, s0, 3 * rise - 2 * s0 - s1, s0 + s1 - 2 * rise), -1)
        self.cubic = cubic.contiguous()  # (B, n - 1, 4): powers of the place within a cell

    def at(self, x: Float[Tensor, "B K"]) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
        """Height and slope dy/dx of the profile where it starts."""
        place = (self.origin - x) / self.spacing
        cell = place.floor().clamp(0, self.cubic.shape[1] - 1)
        beyond = place - cell
        within = beyond.clamp(0, 1)
        index = cell.long().unsqueeze(-1).expand(-1, -1, 4)
        c0, c1, c2, c3 = self.cubic.gather(1, index).unbind(-1)
        slope = torch.addcmul(c1, within, torch.addcmul(2 * c2, within, c3, value=3))
        height = torch.addcmul(c1, within, torch.addcmul(c2, within, c3))
        height = torch.addcmul(c0, within, height).addcmul_(slope, beyond - within)
        return height, slope / -self.spacing

    def push(
        self, places: Float[Tensor, "xy B K"], descent: Float[Tensor, ""]
    ) -> Float[Tensor, "xy B K"]:
        """How far points must move to lie on or below the die, lowered by `descent`."""
        x, y = places
        height, slope = self.at(x)
        depth = (y - height + descent).clamp_min_(0) / (slope.square() + 1)
        return torch.stack((depth * slope, -depth))
