"""The symmetries that a problem lists map solutions to solutions: the solver is the judge."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ipot import registry, symmetry
from ipot.samples import Batch
from ipot.solvers import burgers, darcy, navier_stokes, random_fields

SIDE = 32
SAMPLES = 8


def _noise(*shape: int) -> Tensor:
    return random_fields.normal(shape, seed=5, stream="symmetry", indices=range(SAMPLES))


def _permeability() -> Tensor:
    return torch.where(
        random_fields.neumann_square(_noise(SIDE, SIDE), alpha=2.0, tau=3.0) > 0, 12.0, 3.0
    )


def _state() -> Tensor:
    return random_fields.periodic_line(_noise(2, 10), 2 * SIDE, sigma=625.0, tau=5.0, gamma=4.0)


def _vorticity() -> Tensor:
    noise = _noise(*random_fields.periodic_square_noise_shape(SIDE))
    return random_fields.periodic_square(noise, SIDE, alpha=2.5, tau=7.0, sigma=7.0**1.5)


SOLVERS: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]] = {
    # Inputs (B, *grid) in float64, and their solutions (B, T, *grid).
    "darcy": (_permeability, lambda a: darcy.solve(a.double(), tolerance=1e-12).unsqueeze(1)),
    "burgers": (_state, lambda u: burgers.solve(u, viscosity=0.01, steps=100)),
    "navier_stokes": (
        _vorticity,
        lambda w: navier_stokes.solve(w, viscosity=1e-3, times=(1.0, 2.0, 4.0), dt=0.02),
    ),
}


# Problems whose inputs are no single channel on a square grid have a judge of their own.
ELSEWHERE = {
    "airfoil": "def test_the_mirror_image_solves_the_mirrored_wing",
    "elasticity": "def test_the_mirror_image_solves_the_mirrored_cavity",
    "plasticity": "def test_the_mirrored_sample_is_the_sample_of_the_mirrored_die",
    "shallow_water": "def test_a_turned_sample_is_a_solution",
}


def solved(fields: Tensor, solve: Callable[[Tensor], Tensor]) -> Batch:
    """Inputs and their solutions as a batch on a shared grid."""
    sides = tuple(fields.shape[1:])
    lines = [torch.arange(n, dtype=torch.float64) / n for n in sides]
    mesh = torch.cartesian_prod(*lines).reshape(1, -1, len(sides))
    frames = solve(fields).double()
    return Batch(
        points=mesh,
        queries=mesh,
        values=fields.double().flatten(1).unsqueeze(-1),
        targets=frames.flatten(2).unsqueeze(-1),
        times=tuple(float(t + 1) for t in range(frames.shape[1])),
        grid=sides,
        query_grid=sides,
    )


@pytest.mark.parametrize("name", registry.names("problems"))
def test_the_transformed_solution_solves_the_transformed_input(name):
    spec = registry.find("problems", name).spec
    if not spec.symmetries:
        pytest.skip("lists no symmetry")
    if name in ELSEWHERE:
        own = Path(__file__).parents[1] / "problems" / f"test_{name}.py"
        assert ELSEWHERE[name] in own.read_text(encoding="utf-8")
        return
    assert name in SOLVERS, f"{name} lists {spec.symmetries}: add its solver here"
    inputs, solve = SOLVERS[name]
    batch = solved(inputs(), solve)
    halves = torch.cartesian_prod(*[torch.tensor([0.1, 0.7])] * symmetry.DRAWS).double()
    draws = halves.unsqueeze(1).expand(-1, len(spec.symmetries), -1)
    turned = symmetry.apply(batch, draws, spec)
    fresh = solved(turned.values.squeeze(-1).unflatten(1, batch.grid), solve)
    scale = batch.targets.abs().max()
    torch.testing.assert_close(turned.targets, fresh.targets, atol=1e-7 * scale.item(), rtol=0)
    # The test would pass for the identity, or for solutions that are symmetric by themselves.
    moved = (turned.targets - batch.targets).flatten(1).abs().amax(1)
    assert (moved[1:] > 1e-2 * scale).all()


def test_what_is_not_a_symmetry_fails_the_judge():
    spec = registry.find("problems", "navier_stokes").spec
    inputs, solve = SOLVERS["navier_stokes"]
    batch = solved(inputs(), solve)
    wrong = replace(spec, symmetries=("translation",))
    draws = torch.full((SAMPLES, 1, symmetry.DRAWS), 0.3, dtype=torch.float64)
    turned = symmetry.apply(batch, draws, wrong)
    fresh = solved(turned.values.squeeze(-1).unflatten(1, batch.grid), solve)
    assert (turned.targets - fresh.targets).abs().max() > 1e-3 * batch.targets.abs().max()
