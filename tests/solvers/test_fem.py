"""Nine-node quadrilaterals on a ring."""

import itertools
import math

import pytest
import torch

from ipot.solvers import fem, unit_cell

SECTORS, LAYERS = 8, 2


def some_nodes(batch=2, sectors=SECTORS, layers=LAYERS):
    """A mesh around a wavy cavity."""
    phi = unit_cell.angles(2 * sectors)
    radius = torch.stack([0.3 + 0.02 * (k + 1) * (2 * phi + k).cos() for k in range(batch)])
    return unit_cell.ring(radius, layers)


def places():
    random = torch.Generator().manual_seed(1)
    return 2 * torch.rand(20, 2, generator=random, dtype=torch.float64) - 1


def test_a_shape_function_is_one_at_its_node_alone():
    line = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    around, outward = torch.meshgrid(line, line, indexing="ij")
    values, _ = fem.shapes(torch.stack((outward, around), -1).flatten(0, 1))
    torch.testing.assert_close(values, torch.eye(9, dtype=torch.float64))


def test_shape_functions_are_a_partition_of_one():
    values, slopes = fem.shapes(places())
    torch.testing.assert_close(values.sum(-1), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(slopes.sum(-2), torch.zeros(20, 2, dtype=torch.float64))


def test_local_gradients_are_those_of_the_functions():
    x = places().requires_grad_()
    columns = fem.shapes(x)[0].sum(0)
    expected = [torch.autograd.grad(c, x, retain_graph=True)[0] for c in columns]
    expected = torch.stack(expected, 1)
    torch.testing.assert_close(fem.shapes(places())[1], expected)


def test_biquadratic_fields_are_reproduced():
    line = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    around, outward = torch.meshgrid(line, line, indexing="ij")

    def field(s, t):
        return 1 + s - 2 * t + s * t + s**2 * t - 3 * t**2 * s + s**2 * t**2

    values, _ = fem.shapes(places())
    found = values @ field(outward, around).flatten()
    torch.testing.assert_close(found, field(*places().unbind(-1)))


def test_the_rule_of_gauss_is_exact_to_degree_five():
    local, weights = fem.gauss()
    for p, q in itertools.product(range(6), range(6)):
        exact = (0 if p % 2 else 2 / (p + 1)) * (0 if q % 2 else 2 / (q + 1))
        found = (weights * local[:, 0] ** p * local[:, 1] ** q).sum().item()
        assert found == pytest.approx(exact, abs=1e-14)
    # Not to degree six: the test can tell.
    assert (weights * local[:, 0] ** 6).sum().item() != pytest.approx(4 / 7, abs=1e-3)


def test_elements_are_three_lines_of_three_nodes_and_the_last_closes_the_ring():
    lines, count = 2 * SECTORS, 2 * LAYERS + 1
    number = torch.arange(lines * count).double().view(1, lines, count, 1)
    found = fem.elements(number)
    assert found.shape == (1, SECTORS, LAYERS, 9, 1)
    for sector, layer in itertools.product(range(SECTORS), range(LAYERS)):
        expected = [
            ((2 * sector + i) % lines) * count + 2 * layer + j for i in range(3) for j in range(3)
        ]
        assert found[0, sector, layer, :, 0].tolist() == expected


def test_scatter_is_the_transpose_of_elements():
    random = torch.Generator().manual_seed(2)
    field = torch.randn(2, 2 * SECTORS, 2 * LAYERS + 1, 2, generator=random, dtype=torch.float64)
    parts = torch.randn(2, SECTORS, LAYERS, 9, 2, generator=random, dtype=torch.float64)
    there, back = (fem.elements(field) * parts).sum(), (field * fem.scatter(parts)).sum()
    assert there.item() == pytest.approx(back.item(), rel=1e-12)


def test_matrices_of_elements_act_as_their_sum():
    """Applied to the lines of a sector, its matrix does what its elements do one by one."""
    random = torch.Generator().manual_seed(3)
    field = torch.randn(2, 2 * SECTORS, 2 * LAYERS + 1, 2, generator=random, dtype=torch.float64)
    parts = torch.randn(2, SECTORS, LAYERS, 18, 18, generator=random, dtype=torch.float64)
    moved = parts @ fem.elements(field).flatten(3).unsqueeze(-1)
    expected = fem.scatter(moved.squeeze(-1).unflatten(-1, (9, 2)))
    wrapped = torch.cat((field, field[:, :1]), 1).flatten(2)
    strips = wrapped.unfold(1, 3, 2).transpose(2, 3).flatten(2)
    found = (fem.scatter_matrices(parts) @ strips.unsqueeze(-1)).view(2, SECTORS, 3, -1)
    first, middle, last = found.unbind(2)
    found = torch.stack((first + last.roll(1, 1), middle), 2).view_as(expected)
    torch.testing.assert_close(found, expected)


def test_gradients_of_a_linear_field_are_its_own():
    nodes = some_nodes()
    matrix = torch.tensor([[0.3, -0.7], [1.1, 0.2]], dtype=torch.float64)
    corners = fem.elements(nodes).unsqueeze(3)
    slopes, det = fem.gradients(corners, fem.shapes(fem.gauss()[0])[1])
    assert (det > 0).all()
    found = fem.elements(nodes @ matrix.T).unsqueeze(3).mT @ slopes
    torch.testing.assert_close(found, matrix.expand_as(found))


def test_the_area_converges_with_order_four():
    """A quadratic boundary encloses the area of a smooth one to the fourth power of its pieces."""
    errors = []
    for sectors in (8, 16, 32):
        phi = unit_cell.angles(2 * sectors)
        nodes = unit_cell.ring((0.3 + 0.02 * (2 * phi).cos()).unsqueeze(0), 1)
        local, weights = fem.gauss()
        _, det = fem.gradients(fem.elements(nodes).unsqueeze(3), fem.shapes(local)[1])
        # The area of r = a + b cos 2φ is π (a² + b²/2).
        exact = 1 - math.pi * (0.3**2 + 0.02**2 / 2)
        errors.append(abs((det * weights).sum().item() - exact))
    slopes = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert all(3.7 < slope < 4.4 for slope in slopes), (errors, slopes)


def test_places_are_located_in_curved_elements():
    corners = fem.elements(some_nodes(sectors=8, layers=1))[:, :, 0]  # (2, 8, 9, 2)
    local = places()[:16].view(2, 8, 2)
    there = (fem.shapes(local)[0].unsqueeze(-2) @ corners).squeeze(-2)
    found = fem.locate(corners, there, torch.zeros(8, 2, dtype=torch.float64))
    torch.testing.assert_close(found, local, rtol=0, atol=1e-12)
