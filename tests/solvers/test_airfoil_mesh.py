import itertools
import math

import pytest
import torch

from ipot.solvers import airfoil_mesh

BOX = [(x, -0.1) for x in (-0.25, 0.25, 0.75, 1.25)] + [(x, 0.1) for x in (1.25, 0.75, 0.25, -0.25)]
DOWN = torch.tensor([1.0, -1.0], dtype=torch.float64)


def displacements(count=3):
    random = torch.Generator().manual_seed(0)
    return 0.1 * torch.rand(count, 8, generator=random, dtype=torch.float64) - 0.05


def test_the_surface_is_a_naca_0012_with_a_closed_edge():
    x, y = airfoil_mesh.surface()
    assert len(x) == len(y) == 121
    assert (x[0], y[0], x[60], y[60], x[120], y[120]) == (1, 0, 0, 0, 1, 0)
    assert x == x[::-1]
    assert y == [-height for height in reversed(y)]
    assert max(y) == pytest.approx(0.06, abs=1e-4)  # twelve per cent of the chord
    assert x[y.index(max(y))] == pytest.approx(0.3, abs=0.01)
    gaps = [b - a for a, b in itertools.pairwise(x[60:])]
    assert gaps[0] == pytest.approx(1 / 59 / 4)
    assert gaps[1] == pytest.approx(3 / 59 / 4)
    assert gaps[2:] == pytest.approx([1 / 59] * 58)


@pytest.mark.parametrize(("count", "first"), [(51, 2 / 120 / 40), (51, 4e-4), (21, 0.04)])
def test_places_grow_geometrically_from_the_first_gap(count, first):
    places = airfoil_mesh.spaced(count, first)
    assert len(places) == count
    assert (places[0], places[-1]) == (0, 1)
    gaps = [b - a for a, b in itertools.pairwise(places)]
    assert gaps[0] == pytest.approx(first)
    ratios = [b / a for a, b in itertools.pairwise(gaps)]
    gentle = 3 * count // 4 - 1  # gaps that grow by at most two per cent
    if ratios[0] > 1.0199:
        assert ratios[: gentle - 1] == pytest.approx([1.02] * (gentle - 1))
        assert ratios[gentle:] == pytest.approx([ratios[gentle]] * len(ratios[gentle:]), rel=1e-6)
        assert ratios[gentle] > 1.02
    else:
        assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-6)


def test_nodes_of_the_box_move_as_told():
    moved = displacements()
    box = torch.tensor(BOX, dtype=torch.float64)
    expected = box.expand(3, 8, 2) + torch.stack((torch.zeros_like(moved), moved), -1)
    torch.testing.assert_close(airfoil_mesh.bent(box, moved), expected)


def test_bending_is_cubic_along_x_and_linear_along_y():
    """A displacement that is such a function is met between the nodes as well."""

    def lift(x, y):
        return 0.03 - 0.02 * x + 0.05 * x**2 - 0.04 * x**3 + y * (0.3 - 0.2 * x**3)

    moved = torch.tensor([[lift(x, y) for x, y in BOX]], dtype=torch.float64)
    points = torch.rand(50, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = airfoil_mesh.bent(points, moved)[0]
    torch.testing.assert_close(found[:, 0], points[:, 0])
    torch.testing.assert_close(found[:, 1], points[:, 1] + lift(points[:, 0], points[:, 1]))


def test_the_mesh_lies_where_it_should():
    mesh = airfoil_mesh.c_mesh(displacements())
    assert mesh.shape == (3, 221, 51, 2)
    x, y = airfoil_mesh.surface()
    body = airfoil_mesh.bent(torch.tensor([x, y], dtype=torch.float64).T, displacements())
    torch.testing.assert_close(mesh[:, 50:171, 0], body)
    assert torch.equal(mesh[:, :51, 0], mesh[:, 170:, 0].flip(1))  # the wake, bit by bit
    torch.testing.assert_close(mesh[:, 0, 0], mesh.new_tensor([[40.0, 0.0]] * 3))
    arc = mesh[:, 50:171, 50] - mesh.new_tensor([1.0, 0.0])
    torch.testing.assert_close(arc.norm(dim=-1), torch.full_like(arc[..., 0], 40.0))
    torch.testing.assert_close(mesh[0, 0, 50], mesh.new_tensor([40.0, 40.0]))
    torch.testing.assert_close(mesh[0, 220, 50], mesh.new_tensor([40.0, -40.0]))
    torch.testing.assert_close(mesh[0, 110, 50], mesh.new_tensor([-39.0, 0.0]))


def test_lines_leave_the_wall_straight_and_evenly():
    mesh = airfoil_mesh.c_mesh(displacements())
    inner, outer = mesh[:, :, :1], mesh[:, :, -1:]
    share = (mesh - inner).norm(dim=-1) / (outer - inner).norm(dim=-1)
    expected = torch.tensor(airfoil_mesh.spaced(51, 2 / 120 / 40), dtype=torch.float64)
    torch.testing.assert_close(share, expected.expand_as(share))


def test_the_wake_starts_with_cells_as_long_as_the_last_of_the_body():
    mesh = airfoil_mesh.c_mesh(torch.zeros(1, 8, dtype=torch.float64))[0, :, 0]
    last = math.dist(mesh[50].tolist(), mesh[51].tolist())
    assert math.dist(mesh[50].tolist(), mesh[49].tolist()) == pytest.approx(last)


def test_a_mirrored_airfoil_has_the_mirrored_mesh():
    moved = displacements()
    mirrored = airfoil_mesh.c_mesh(-moved.flip(1))
    torch.testing.assert_close(
        mirrored, airfoil_mesh.c_mesh(moved).flip(1) * DOWN, rtol=0, atol=1e-13
    )


def test_dtype_is_kept():
    assert airfoil_mesh.c_mesh(displacements().float()).dtype == torch.float32
