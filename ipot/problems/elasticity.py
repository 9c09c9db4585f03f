"""Stress in a sheet of rubber around a cavity of random shape.

A unit square, held at its bottom and pulled at its top by a traction of 100, with a cavity about
its centre of the radius

    r(φ) = 0.2 + 0.2 / (1 + exp ρ(φ))
    ρ(φ) = Σ_{l=1..5} (θ_{2l-1} cos lφ + θ_{2l} sin lφ) / (√π (l² + 9))

Incompressible material of Mooney and Rivlin in plane stress; the von Mises stress at the 972
Gauss points of a mesh around the cavity. Li et al., "Fourier neural operator with learned
deformations", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.problems import _unit_cells
from ipot.problems.base import Problem
from ipot.samples import Batch
from ipot.solvers import random_fields, unit_cell
from ipot.spec import Need, Spec

MODES = 5
REFINE = {"faithful": 1, "accurate": 3}
# Where the paper's model has the origin of its polar coordinates.
CORNER = 1e-4


@dataclass(frozen=True, kw_only=True)
class Elasticity(Problem):
    """The cavity in, the stress at points of its own around it out."""

    name: ClassVar[str] = "elasticity"
    about: ClassVar[str] = "a sheet of rubber with a random cavity: its shape to the stress"
    source: ClassVar[str] = "36 x 3 nine-node quadrilaterals, Newton's method to 1e-10"
    sizes: ClassVar[Mapping[str, int]] = {"train": 1000, "validation": 100, "test": 200}
    piece: ClassVar[int] = 100
    views: ClassVar[tuple[str, ...]] = ("polar", "inputs")
    shown: ClassVar[Mapping[str, Any]] = {"inputs": "points"}
    published: ClassVar[tuple[str, ...]] = _unit_cells.FILES

    polar: Literal["none", "corner"] = "none"
    """Coordinates: x and y, or these with angle and radius about the lower left corner."""
    inputs: Literal["points", "radii", "mesh"] = "points"
    """The cavity as its radius towards every point; as its radius at 41 angles; or as the mesh
    around it, two coordinates for each of 972 numbered nodes. The last two have inputs at the same
    places in every sample."""
    convention: Literal["file", "paper"] = "file"
    """Covariance of the exponent: 4⁴(-Δ + 9)⁻² as the file has it, or 4²(-Δ + 9)⁻¹ as printed."""
    mode: Literal["faithful", "accurate"] = "faithful"
    """The original's 108 elements, or nine times as many for the stress at the same points."""

    @property
    def spec(self) -> Spec:
        """The cavity in, one channel out at points of each sample's own."""
        corner = self.polar == "corner"
        polar = ((0.0, math.pi / 2), (0.0, math.sqrt(2)))
        plane = ((0.0, 1.0), (0.0, 1.0), *(polar if corner else ()))
        facts: dict[str, Any] = {"name": self.name, "outputs": ("stress",), "units": ("Pa",)}
        if self.inputs == "points":
            return Spec(
                **facts,
                inputs=("radius",),
                domain=plane,
                # About a corner, the mirror image is not a map of each coordinate by itself.
                symmetries=() if corner else ("cell",),
                provides=frozenset({Need.SAME_POINTS}),
            )
        radii = self.inputs == "radii"
        return Spec(
            **facts,
            inputs=("radius",) if radii else ("x", "y"),
            domain=((0.0, 1.0),),
            periods=(1.0,) if radii else (None,),
            query_domain=plane,
            provides=frozenset({Need.FIXED_POINTS}),
            shape=(_unit_cells.ANGLES - 1 if radii else _unit_cells.POINTS,),
        )

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Draw cavities and solve."""
        noise = random_fields.normal(
            (2 * MODES,), seed=seed, stream=f"elasticity/{split}", indices=indices
        )
        theta = (noise * deviations(self.convention)).to(device)
        radius = partial(cavity, theta)
        points, stress = unit_cell.stress(radius, refine=REFINE[self.mode], device=device)
        return {
            "theta": theta,
            "radii": radius(published_angles(device)).float(),
            "points": points.float(),
            "stress": stress.float(),
        }

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """The cavity, and the stress at the points around it."""
        points, radii = fields["points"].float(), fields["radii"].float()
        places = about_corner(points) if self.polar == "corner" else points
        if self.inputs == "points":
            seen, values = places, radius_towards(points, radii).unsqueeze(-1)
        elif self.inputs == "radii":
            # The last angle is the first.
            values = radii[:, :-1].unsqueeze(-1)
            seen = (published_angles()[:-1] / (2 * math.pi)).float().view(1, -1, 1)
        else:
            seen, values = torch.linspace(0, 1, points.shape[1]).view(1, -1, 1), points
        return Stacked(
            Batch(
                points=seen,
                values=values,
                queries=places,
                targets=fields["stress"].float()[:, None, :, None],
            )
        )

    def bytes_each(self, resolution: int | None) -> int:
        """Ten numbers in float64; radii, points and stresses in float32."""
        count = _unit_cells.POINTS
        return 8 * 2 * MODES + 4 * (_unit_cells.ANGLES + 2 * count + count)

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """From the published arrays: the first 1000 columns train, the last 200 test."""
        return _unit_cells.read(split, count, files, self.sizes)

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """Four arrays in a folder `Meshes`, and one that says which columns are whose."""
        return _unit_cells.write(splits, folder)


def deviations(convention: str) -> Float[Tensor, " 10"]:
    """Standard deviations of θ; on the circle, cos lφ / √π and sin lφ / √π have norm one.

    θ / (l² + 9) of deviation 16 has the covariance 16² (l² + 9)⁻², that of the published file.
    The printed one, 4² (l² + 9)⁻¹, takes θ of deviation 4 (l² + 9)^½. Both stop at mode five
    and have no mean.
    """
    mode = torch.arange(1, MODES + 1, dtype=torch.float64)
    each = torch.full_like(mode, 16.0) if convention == "file" else 4 * (mode**2 + 9).sqrt()
    return each.repeat_interleave(2)


def cavity(theta: Float[Tensor, "S 10"], angles: Float[Tensor, " L"]) -> Float[Tensor, "S L"]:
    """The radius r(φ), between 0.2 and 0.4, in float64."""
    mode = torch.arange(1, MODES + 1, dtype=torch.float64, device=angles.device)
    phase = mode[:, None] * angles
    waves = torch.stack((phase.cos(), phase.sin()), 1) / (mode**2 + 9)[:, None, None]
    exponent = theta.double() @ waves.flatten(0, 1) / math.sqrt(math.pi)
    return 0.2 + 0.2 * torch.sigmoid(-exponent)


def published_angles(device: torch.device | None = None) -> Float[Tensor, " 42"]:
    """The angles of the stored radii, from 0 to 2π; the last is the first."""
    steps = torch.arange(_unit_cells.ANGLES, dtype=torch.float64, device=device)
    gaps = _unit_cells.ANGLES - 1
    return 2 * math.pi / gaps * (steps % gaps)


def radius_towards(
    points: Float[Tensor, "S N 2"], radii: Float[Tensor, "S 42"]
) -> Float[Tensor, "S N"]:
    """The cavity's radius at the angle of each point about the centre, linear between the radii."""
    x, y = (points.double() - unit_cell.CENTRE).unbind(-1)
    gaps = radii.shape[-1] - 1
    place = torch.remainder(torch.atan2(y, x) * (gaps / (2 * math.pi)), gaps)
    below = place.floor().long().clamp(max=gaps - 1)
    low, high = radii.gather(-1, below), radii.gather(-1, below + 1)
    return torch.lerp(low, high, (place - below).to(radii))


def about_corner(points: Float[Tensor, "S N 2"]) -> Float[Tensor, "S N 4"]:
    """x, y, and the angle and the distance about a place next to the lower left corner."""
    x, y = (points - CORNER).unbind(-1)
    return torch.cat((points, torch.stack((torch.atan2(y, x), torch.hypot(x, y)), -1)), -1)


PROBLEM = Elasticity()
