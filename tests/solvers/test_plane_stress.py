"""The metal at a point, against analytic states and an independent optimiser."""

import math

import numpy as np
import pytest
import scipy.optimize
import torch

from ipot.solvers import plane_stress
from ipot.solvers.plane_stress import Metal

METAL = Metal()
YIELD = METAL.yields_at


def trial(count, largest, seed=0):
    """Random (p, q, s) with von Mises stresses of up to so many times the yield stress."""
    random = torch.Generator().manual_seed(seed)
    stress = torch.randn(3, count, generator=random, dtype=torch.float64)
    sizes = torch.rand(count, generator=random, dtype=torch.float64) * largest * YIELD
    return stress * (sizes / plane_stress.mises(stress))


def relaxed(stress, metal=METAL, stiffness=1.0):
    stress, strain = stress.clone(), torch.zeros_like(stress[0])
    plane_stress.relax(stress, strain, torch.full_like(strain, stiffness), metal)
    return stress, strain


def follow(path, metal=METAL):
    """Stress, plastic strain and the change of thickness along steps (D11, D22, D12)."""
    stress, strain = torch.zeros(3, 1).double(), torch.zeros(1).double()
    thickness, stresses = 0.0, []
    for xx, yy, xy in path:
        before, old = stress[0].clone(), strain.clone()
        steps = torch.tensor([[xx + yy], [xx - yy], [2 * xy], [0.0]], dtype=torch.float64)
        plane_stress.load(stress, *steps, torch.ones(1).double(), metal)
        plane_stress.relax(stress, strain, torch.ones(1).double(), metal)
        mises = plane_stress.mises(stress)
        thickness -= 2 * metal.poisson / metal.young * metal.shear * (stress[0] - before).item()
        thickness -= ((strain - old) * stress[0] / mises.clamp_min(1e-30)).item()
        stresses.append(stress[:, 0].clone())
    return torch.stack(stresses), strain.item(), thickness


def test_no_stress_is_left_outside_the_yield_surface():
    stress, strain = relaxed(trial(4000, largest=20.0))
    mises = plane_stress.mises(stress) / YIELD
    assert mises.max() < 1 + 1.4e-5
    flowing = strain > 0
    assert (mises[flowing] > 1 - 1e-12).all()


def test_an_elastic_stress_is_kept():
    stress = trial(1000, largest=1.0)
    kept, strain = relaxed(stress)
    torch.testing.assert_close(kept, stress, rtol=1e-12, atol=0)
    assert strain.max() < 1e-15
    nothing, strain = relaxed(torch.zeros(3, 4).double())
    assert not nothing.any()
    assert not strain.any()


@pytest.mark.parametrize("largest", [1.3, 3.0])
def test_the_relaxed_stress_is_the_closest_in_energy(largest):
    """The implicit step of associative plasticity is a projection: let an optimiser find it."""
    stress = trial(12, largest)
    got, _ = relaxed(stress)
    weights = np.array([1 / METAL.bulk, 1.0, 1.0])
    for here, start in zip(got.T.numpy() / YIELD, stress.T.numpy() / YIELD, strict=True):
        best = scipy.optimize.minimize(
            lambda x, start=start: (weights * (x - start) ** 2).sum(),
            start / max(1, math.sqrt(start[0] ** 2 + 3 * (start[1:] ** 2).sum())),
            constraints={"type": "ineq", "fun": lambda x: 1 - x[0] ** 2 - 3 * (x[1:] ** 2).sum()},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(here, best.x, atol=2e-5)


def test_plastic_strain_is_the_elastic_strain_given_up():
    """What the stress loses over the moduli is plastic strain along the normal of the surface."""
    stress = trial(50, largest=3.0)
    got, strain = relaxed(stress)
    p, q, s = (stress - got) / torch.tensor([[METAL.bulk], [1.0], [1.0]]).double()
    # Equivalent strain of (D11 + D22, D11 - D22, 2 D12) for a flow without change of volume.
    lost = (p.square() + (q.square() + s.square()) / 3).sqrt()
    torch.testing.assert_close(strain, lost, rtol=5e-5, atol=1e-9)
    softer = relaxed(stress, stiffness=0.1)[1]
    torch.testing.assert_close(softer, 10 * strain)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ((1.0, 1.0, 0.0), (1.0, 0.0, 0.0)),
        ((0.0, 0.0, 1.0), (0.0, 0.0, 1 / math.sqrt(3))),
        ((1.0, -1.0, 0.0), (0.0, 1 / math.sqrt(3), 0.0)),
        # Plane strain: flow along one axis only needs σ22 = σ11 / 2.
        ((1.0, 0.0, 0.0), (math.sqrt(0.75), math.sqrt(1 / 12), 0.0)),
        # Uniaxial tension: the other axis and the thickness shrink alike.
        ((1.0, -0.5, 0.0), (0.5, 0.5, 0.0)),
    ],
)
def test_flow_in_a_direction_ends_in_its_stress(direction, expected):
    step = 5e-5
    stresses, strain, _ = follow([[step * d for d in direction]] * 200)
    got = stresses[-1].numpy() / YIELD
    np.testing.assert_allclose(got, expected, atol=2e-5)
    total = 200 * step * np.array(direction)
    third = -(total[0] + total[1])
    size = math.sqrt(2 / 3 * (total[0] ** 2 + total[1] ** 2 + third**2 + 2 * total[2] ** 2))
    assert strain == pytest.approx(size, rel=0.07)  # less what is elastic


def test_a_bar_pulled_elastically_has_its_modulus():
    step = 1e-6
    stresses, strain, thickness = follow([(step, -METAL.poisson * step, 0.0)] * 100)
    p, q, s = stresses[-1] * METAL.shear
    assert (p + q).item() == pytest.approx(METAL.young * 1e-4)
    assert (p - q).item() == pytest.approx(0, abs=1e-9)
    assert s == 0
    assert strain == pytest.approx(0, abs=1e-18)
    assert thickness == pytest.approx(-METAL.poisson * 1e-4)


def test_flow_keeps_the_volume_and_elasticity_gives_the_rest():
    """Thickness by its history and by the volume, along a path of turning strains."""
    angles = [0.005 * k for k in range(600)]
    path = [(5e-5 * math.cos(a), 5e-5 * math.sin(2 * a), 5e-5 * math.sin(3 * a)) for a in angles]
    stresses, strain, thickness = follow(path)
    area = sum(xx + yy for xx, yy, _ in path)
    assert strain > 0.01
    assert area + thickness == pytest.approx(METAL.swells_by * stresses[-1, 0].item(), abs=1e-9)


def test_hardening_gives_the_tangent_of_a_bar():
    metal = Metal(hardening=2000.0)
    tangent = metal.young * metal.hardening / (metal.young + metal.hardening)
    step, count = 4e-5, 500
    # Strains of a bar: elastic by Poisson's ratio, plastic by one half.
    elastic = metal.strength / metal.young
    path = []
    for k in range(count):
        plastic = max(0.0, min(step, (k + 1) * step - elastic)) * (1 - tangent / metal.young)
        path.append((step, -metal.poisson * (step - plastic) - plastic / 2, 0.0))
    stresses, strain, _ = follow(path, metal)
    p, q, _ = stresses[-1] * metal.shear
    expected = metal.strength + tangent * (count * step - elastic)
    assert (p + q).item() == pytest.approx(expected, rel=1e-3)
    assert (p - q).item() == pytest.approx(0, abs=0.002 * expected)
    assert strain == pytest.approx((expected - metal.strength) / metal.hardening, rel=2e-3)


def test_a_turning_stress_keeps_its_size():
    """A quarter turn exchanges the axes; the error is that of many small steps."""
    stress = torch.tensor([[3e-4], [2e-4], [1e-4]]).double()
    start, steps = stress.clone(), 2000
    nothing, one = torch.zeros(1).double(), torch.ones(1).double()
    # ∂v1/∂x2 - ∂v2/∂x1 is minus twice the angle.
    for _ in range(steps):
        spin = torch.full((1,), -math.pi / steps).double()
        plane_stress.load(stress, nothing, nothing, nothing, spin, one, METAL)
    torch.testing.assert_close(stress[0], start[0])
    torch.testing.assert_close(stress[1:], -start[1:], rtol=5e-3, atol=0)


def test_energy_of_a_pulled_bar():
    stress = torch.tensor([[0.5e-3], [0.5e-3], [0.0]]).double()
    got = plane_stress.elastic_energy(stress, METAL) * METAL.shear
    bar = (1e-3 * METAL.shear) ** 2 / (2 * METAL.young)
    assert got.item() == pytest.approx(bar)
