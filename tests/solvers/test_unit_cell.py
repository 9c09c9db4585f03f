"""The sheet with a cavity: its mesh, its loads and its balance."""

import pytest
import torch

from ipot.solvers import fem, hyperelastic, unit_cell

RUBBER = hyperelastic.MooneyRivlin()


def wavy(phi):
    """Two cavities without any symmetry."""
    first = 0.3 + 0.06 * (2 * phi + 0.4).cos() + 0.03 * (3 * phi).sin()
    return torch.stack((first, 0.27 + 0.05 * (phi - 1).cos()))


def mesh(sectors=36, layers=3):
    return unit_cell.ring(wavy(unit_cell.angles(2 * sectors)), layers)


def nearest(points, others):
    """For every point, how far the nearest of others is, and which."""
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist").min(-1)


def test_nodes_run_from_the_cavity_to_the_sides():
    nodes = mesh()
    assert nodes.shape == (2, 72, 7, 2)
    phi = unit_cell.angles(72)
    radius = (nodes[:, :, 0] - 0.5).norm(dim=-1)
    torch.testing.assert_close(radius, wavy(phi))
    outer = nodes[:, :, -1]
    assert ((outer == 0) | (outer == 1)).any(-1).all()
    for corner in ((1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)):
        where = (outer[0] == torch.tensor(corner, dtype=torch.float64)).all(-1).nonzero().flatten()
        assert where.numel() == 1
        assert where.item() % 2 == 0  # an edge of elements, not their middle
    sides = torch.cat((outer, outer[:, :1]), 1).diff(dim=1).norm(dim=-1)
    torch.testing.assert_close(sides, torch.full_like(sides, 1 / 18))


def test_the_mesh_is_valid_for_the_smallest_and_the_largest_cavity():
    for radius in (0.2, 0.4):
        nodes = unit_cell.ring(torch.full((1, 72), radius, dtype=torch.float64), 3)
        slopes = fem.shapes(fem.gauss()[0])[1]
        _, det = fem.gradients(fem.elements(nodes).unsqueeze(3), slopes)
        assert det.min() > 0
        assert det.max() / det.min() < 20


def test_lines_must_fit_four_sides():
    with pytest.raises(ValueError, match="multiple of 8 lines, got 36"):
        unit_cell.ring(torch.full((1, 36), 0.3), 1)


def test_the_load_and_the_clamp_are_where_they_should_be():
    outer = mesh()[0, :, -1]
    held, shares = unit_cell.bottom(72, 7), unit_cell.top_shares(72, 7)
    assert not held[:, :-1].any()
    assert torch.equal(held[:, -1], outer[:, 1] == 0)
    assert not shares[:, :-1].any()
    assert not shares[..., 0].any()
    assert torch.equal(shares[:, -1, 1] > 0, outer[:, 1] == 1)
    # Consistent: exact for the work done on fields up to degree three, edge by edge.
    x = outer[:, 0]
    for power in range(4):
        work = (shares[:, -1, 1] * x**power).sum().item()
        assert work == pytest.approx(1 / (power + 1), rel=1e-12)


def test_what_pulls_at_the_top_holds_at_the_bottom():
    """Forces and moments balance, in the deformed state."""
    nodes = mesh()
    body, u = unit_cell.pulled(nodes, 100.0, RUBBER)
    forces, held = body.forces(u), unit_cell.bottom(72, 7)
    reaction = forces[:, held].sum(1)
    expected = torch.tensor([0.0, -100.0], dtype=torch.float64).expand(2, 2)
    torch.testing.assert_close(reaction, expected, rtol=0, atol=1e-8)
    place = nodes + u
    moment = place[..., 0] * forces[..., 1] - place[..., 1] * forces[..., 0]
    assert moment.flatten(1).sum(1).abs().max() < 1e-8
    assert not u[:, held].any()


def test_mean_stress_over_a_cut_carries_the_load():
    """Over the whole sheet: ∫ P_yy = 100, by the divergence theorem with y as its weight."""
    nodes = mesh()
    body, u = unit_cell.pulled(nodes, 100.0, RUBBER)
    total = (RUBBER.stress(body.gradient(u))[..., 1, 1] * body.weights).flatten(1).sum(1)
    torch.testing.assert_close(total, torch.full((2,), 100.0).double(), rtol=1e-9, atol=0)


def test_mirrored_cavities_have_mirrored_stress():
    points, stress = unit_cell.stress(wavy)
    mirrored, other = unit_cell.stress(lambda phi: wavy(torch.pi - phi))
    mirrored[..., 0] = 1 - mirrored[..., 0]
    gap, match = nearest(points, mirrored)
    assert gap.max() < 1e-12
    torch.testing.assert_close(other.gather(1, match), stress, rtol=1e-8, atol=0)
    # Not so about the other axis, where one side is held: the test can tell.
    upside, turned = unit_cell.stress(lambda phi: wavy(-phi))
    upside[..., 1] = 1 - upside[..., 1]
    gap, match = nearest(points, upside)
    assert gap.max() < 1e-12
    assert (turned.gather(1, match) - stress).norm() > 0.05 * stress.norm()


def test_the_traction_is_a_hundred_unless_said():
    assert torch.equal(unit_cell.stress(wavy)[1], unit_cell.stress(wavy, traction=100.0)[1])


def test_stress_is_linear_in_a_small_load():
    stress = unit_cell.stress(wavy, traction=1.0)[1]
    torch.testing.assert_close(
        unit_cell.stress(wavy, traction=2.0)[1], 2 * stress, rtol=1e-3, atol=0
    )


def test_refinement_keeps_the_points_and_brings_the_stress_closer():
    coarse, fine, finest = (
        unit_cell.stress(wavy, sectors=8, layers=1, refine=refine) for refine in (1, 3, 9)
    )
    assert torch.equal(coarse[0], finest[0])
    error = [(s - finest[1]).norm().item() / finest[1].norm().item() for _, s in (coarse, fine)]
    assert error[1] < 0.05
    assert error[1] < error[0] / 3


def test_points_are_found_in_the_finer_mesh():
    """Fields of the finer mesh are read off at the same places: here the places themselves."""
    sectors, layers, factor = 8, 2, 5
    points = unit_cell.gauss_points(mesh(sectors, layers))
    fine = mesh(factor * sectors, factor * layers)
    sector, layer, start = unit_cell.refined(sectors, layers, factor)
    corners = fem.elements(fine)[:, sector, layer]
    local = fem.locate(corners, points, start)
    assert local.abs().max() < 1
    found = (fem.shapes(local)[0].unsqueeze(-2) @ corners).squeeze(-2)
    torch.testing.assert_close(found, points, rtol=0, atol=1e-12)
    # The guess is close: curved lines of the two meshes differ by little.
    assert (local - start).abs().max() < 0.5


def test_an_even_refinement_is_refused():
    with pytest.raises(ValueError, match="odd factor, got 2"):
        unit_cell.refined(8, 1, 2)


@pytest.mark.slow
def test_the_stress_converges_under_refinement():
    stress = {n: unit_cell.stress(wavy, refine=n)[1] for n in (1, 3, 5, 7)}
    truth = stress.pop(7)
    errors = [((s - truth).norm(dim=1) / truth.norm(dim=1)).max().item() for s in stress.values()]
    assert errors[0] < 0.05
    assert errors[1] < 0.008
    assert errors[2] < 0.005
