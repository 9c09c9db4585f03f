"""The discrete Euler equations, piece by piece: no flow is solved for here."""

import itertools
import math

import pytest
import torch

from ipot.solvers import airfoil_mesh, euler, euler_flux, euler_grid, euler_residual
from ipot.solvers.euler_multigrid import Axis, Hierarchy, Settings, inject, prolongate, restrict

F64 = torch.float64


def displacements(count=2):
    random = torch.Generator().manual_seed(0)
    return 0.1 * torch.rand(count, 8, generator=random, dtype=F64) - 0.05


def mesh(step=2):
    return airfoil_mesh.c_mesh(displacements())[:, ::step, ::step]


def states(*shape, speed=1.0):
    random = torch.Generator().manual_seed(1)
    state = torch.rand(4, *shape, generator=random, dtype=F64) + 0.5
    state[1:3] = speed * (state[1:3] - 1)
    return state


def normals(count):
    angle = torch.linspace(0, 6, count, dtype=F64)
    return torch.stack((angle.cos(), angle.sin()))


# Fluxes -------------------------------------------------------------------------------------------


def flux(conserved, n):
    """The flux through a face of normal n, from its definition."""
    density, mx, my, energy = conserved
    u, v = mx / density, my / density
    p = 0.4 * (energy - density * (u * u + v * v) / 2)
    speed = u * n[0] + v * n[1]
    return torch.stack(
        (density * speed, mx * speed + p * n[0], my * speed + p * n[1], (energy + p) * speed)
    )


def jacobian(conserved, n, function):
    """A function of the eigenvalues of the flux's Jacobian, by dense linear algebra."""
    matrix = torch.func.jacrev(lambda w: flux(w, n))(conserved)
    values, vectors = torch.linalg.eig(matrix)
    return (vectors @ torch.diag(function(values.real)).to(vectors) @ vectors.inverse()).real


def test_primitive_and_conserved_are_inverse():
    state = states(20, speed=0.3)
    torch.testing.assert_close(euler_flux.primitive(euler_flux.conserved(state)), state)
    assert euler_flux.primitive(torch.zeros(4, 3))[0::3].min() == pytest.approx(euler_flux.LEAST)


def test_mach_and_enthalpy_of_a_known_state():
    state = torch.tensor([1.4, 3.0, 4.0, 1.0], dtype=F64)  # a speed of sound of 1
    assert euler_flux.mach(state).item() == pytest.approx(5)
    assert euler_flux.total_enthalpy(state).item() == pytest.approx(2.5 + 12.5)


@pytest.mark.parametrize("speed", [0.5, 3.0])
def test_roe_agrees_with_dense_eigenvectors(speed):
    left, right, n = states(12, speed=speed), states(13, speed=speed)[:, 1:], normals(12)
    area = torch.linspace(0.1, 2, 12, dtype=F64)
    found = euler_flux.roe(torch.stack((left, right)), n, area)
    a, b = left[0].sqrt(), right[0].sqrt()
    mean = (a * left + b * right) / (a + b)
    h = (a * euler_flux.total_enthalpy(left) + b * euler_flux.total_enthalpy(right)) / (a + b)
    u, v = mean[1], mean[2]
    p = (h - (u * u + v * v) / 2) / 3.5  # of a density of one, which the Jacobian does not know
    middle = euler_flux.conserved(torch.stack((torch.ones_like(u), u, v, p)))
    wl, wr = euler_flux.conserved(left), euler_flux.conserved(right)
    for k in range(12):
        wave = jacobian(middle[:, k], n[:, k], torch.abs) @ (wr[:, k] - wl[:, k])
        expected = (flux(wl[:, k], n[:, k]) + flux(wr[:, k], n[:, k]) - wave) / 2 * area[k]
        torch.testing.assert_close(found[:, k], expected)


def test_far_boundaries_agree_with_dense_eigenvectors():
    inside, outside, n = states(12), euler_flux.conserved(states(13)[:, 1:]), normals(12)
    found = euler_flux.steger_warming(inside, outside, 0.7 * n)
    conserved = euler_flux.conserved(inside)
    for k in range(12):
        out = jacobian(conserved[:, k], n[:, k], lambda x: x.clamp(min=0)) @ conserved[:, k]
        back = jacobian(conserved[:, k], n[:, k], lambda x: x.clamp(max=0)) @ outside[:, k]
        torch.testing.assert_close(found[:, k], 0.7 * (out + back))


@pytest.mark.parametrize("limiter", ["minmod", "van albada"])
def test_limited_slopes(limiter):
    a = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 0.0], dtype=F64)
    b = torch.tensor([0.5, 1.0, 3.0, -3.0, 0.5, -0.5, 2.0], dtype=F64)
    found = euler_flux.limited(a, b, limiter)
    assert found[1] == pytest.approx(1)
    assert found[4:].abs().max() < 1e-5
    assert found[3] == pytest.approx(-found[2].item())
    if limiter == "minmod":
        torch.testing.assert_close(found[:3], torch.tensor([0.5, 1.0, 1.0], dtype=F64))
    else:  # (a b² + b a²) / (a² + b²)
        expected = torch.tensor([0.6, 1.0, 1.2], dtype=F64)
        torch.testing.assert_close(found[:3], expected, rtol=1e-5, atol=0)


# Geometry -----------------------------------------------------------------------------------------


def polygon(points):
    x, y = points.unbind(-1)
    return ((x * y.roll(-1, -1) - y * x.roll(-1, -1)).sum(-1) / 2).abs()


@pytest.mark.parametrize("step", [1, 2, 5])
def test_volumes_are_positive_and_fill_the_domain(step):
    x = mesh(step)
    grid = euler_grid.build(x, F64)
    wake = 50 // step
    assert grid.wake == wake
    assert (grid.volume > 0).all()
    once = grid.volume.clone()
    once[:, -1 - wake :, 0] = 0  # the second copy of the wake
    inside = x[:, wake : x.shape[1] - wake, 0]
    torch.testing.assert_close(once.sum((1, 2)), polygon(x[:, :, -1]) - polygon(inside))


def free_stream_outflow(limiter, x, grid):
    state = torch.tensor([1.2, 0.7, -0.4, 0.9], dtype=F64)
    outside = euler_flux.conserved(state).view(4, 1, 1)
    field = outside.unsqueeze(-1).expand(4, *x.shape[:3]).contiguous()
    return euler_residual.outflow(field, grid, outside, limiter)


@pytest.mark.parametrize("limiter", [None, "minmod", "van albada"])
def test_a_free_stream_stays(limiter):
    """All that is left is what the wall would have to hold back."""
    x = mesh(1)
    grid = euler_grid.build(x, F64)
    sums = free_stream_outflow(limiter, x, grid)
    through = grid.wall * torch.tensor([0.7, -0.4], dtype=F64)[:, None, None]
    wall = sums[:, :, grid.body, 0]
    torch.testing.assert_close(wall[0, :, 1:-1], -1.2 * through.sum(0)[:, 1:-1], rtol=0, atol=1e-12)
    sums[:, :, grid.body, 0] = 0
    assert sums.abs().max() < 1e-12


def test_gradients_of_linear_fields_are_exact():
    x = mesh(1)
    grid = euler_grid.build(x, F64)
    slope = torch.tensor([[2.0, 3.0], [-1.0, 0.5], [0.0, 1.0], [4.0, 0.0]], dtype=F64)
    field = torch.einsum("cd,bijd->cbij", slope, x)
    found = euler_residual._gradient(differences(field), grid)
    expected = slope[:, :, None, None, None].expand_as(found)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def differences(field):
    """Along forward edges of both directions; zero where there is none."""
    jump = torch.zeros(field.shape[0], 2, *field.shape[1:], dtype=F64)
    jump[:, 0, :, :-1] = field[:, :, 1:] - field[:, :, :-1]
    jump[:, 1, ..., :-1] = field[..., 1:] - field[..., :-1]
    return jump


@pytest.mark.parametrize(
    ("node", "neighbours"),
    [
        ((40, 7), [(39, 7), (41, 7), (40, 6), (40, 8)]),
        ((40, 0), [(39, 0), (41, 0), (40, 1)]),  # the wall
        ((10, 0), [(9, 0), (11, 0), (10, 1), (100, 1)]),  # the wake, and its other side
        ((25, 0), [(24, 0), (26, 0), (84, 0), (25, 1), (85, 1)]),  # the trailing edge
        ((0, 25), [(1, 25), (0, 24)]),  # a corner
    ],
)
def test_gradients_are_least_squares_over_the_neighbours(node, neighbours):
    x = mesh()
    field = torch.sin(x[..., 0] + 2 * x[..., 1]).unsqueeze(0).expand(4, -1, -1, -1).clone()
    found = euler_residual._gradient(differences(field), euler_grid.build(x, F64))
    here, values = (0, *node), field[0]
    edges = torch.stack([x[(0, *n)] - x[here] for n in neighbours])
    jumps = torch.stack([values[(0, *n)] - values[here] for n in neighbours])
    expected = torch.linalg.lstsq(edges, jumps.unsqueeze(1)).solution.flatten()
    torch.testing.assert_close(found[0, :, 0, node[0], node[1]], expected)
    mirror = found[0, :, 0, 110 - node[0], node[1]]
    assert node[1] or 25 < node[0] < 85 or torch.equal(mirror, found[0, :, 0, node[0], 0])


def test_both_copies_of_the_wake_hold_the_whole():
    x = mesh()
    grid = euler_grid.build(x, F64)
    field = euler_flux.conserved(states(*x.shape[:3], speed=0.3))
    field[..., -26:, 0] = field[..., :26, 0].flip(-1)
    sums = euler_residual.outflow(field, grid, euler.free_stream(0.8, F64), "minmod")
    assert torch.equal(sums[..., :26, 0], sums[..., -26:, 0].flip(-1))


def smooth_state(x, y):
    """A flow that changes by its own size over some chords, with no extremum near the airfoil."""
    return torch.stack(
        (
            1 + 0.10 * torch.tanh(x / 3 + y / 4),
            0.8 + 0.15 * torch.tanh(y / 3 - x / 5),
            0.3 - 0.10 * torch.tanh(x / 4 + y / 2),
            1 + 0.12 * torch.tanh(x / 5 - y / 3),
        )
    )


def divergence(places):
    """Of the flux, at every place."""

    def fluxes(place):
        conserved = euler_flux.conserved(smooth_state(*place))
        axes = torch.eye(2, dtype=F64)
        return torch.stack([flux(conserved, n) for n in axes], dim=-1)

    slopes = torch.func.vmap(torch.func.jacrev(fluxes))(places)  # (places, 4, axis, direction)
    return slopes.diagonal(dim1=-2, dim2=-1).sum(-1)


@pytest.mark.parametrize(
    ("limiter", "low", "high"), [(None, 0.8, 1.3), ("minmod", 1.7, 2.6), ("van albada", 1.7, 2.6)]
)
def test_order_of_the_scheme(limiter, low, high):
    """Around the body, where the mesh is the same smooth map at any size."""
    errors = []
    for step in (2, 1):
        x = airfoil_mesh.c_mesh(torch.zeros(1, 8, dtype=F64))[:, ::step, ::step]
        grid = euler_grid.build(x, F64)
        field = euler_flux.conserved(smooth_state(*x.movedim(-1, 0)))
        found = euler_residual.outflow(field, grid, euler.free_stream(0.8, F64), limiter)
        found = found / grid.volume
        region = (slice(60 // step, 96 // step + 1), slice(8 // step, 32 // step + 1))
        places = x[0][region][:: 2 // step, :: 2 // step]
        error = found[:, 0][(slice(None), *region)][:, :: 2 // step, :: 2 // step]
        error = error - divergence(places.reshape(-1, 2)).T.reshape(error.shape)
        errors.append(error.square().mean().sqrt().item())
    order = math.log2(errors[0] / errors[1])
    assert low < order < high, (order, errors)


# Between meshes -----------------------------------------------------------------------------------


def axes():
    cpu = torch.device("cpu")
    return Axis([25, 60, 25], F64, cpu), Axis([13], F64, cpu)


def test_coarse_meshes_keep_ends_and_corners_and_are_symmetric():
    along, across = axes()
    kept = along.kept.tolist()
    assert {0, 25, 85, 110} <= set(kept)
    assert kept == [110 - node for node in reversed(kept)]
    assert len(kept) == sum(along.parts) + 1 == 13 + 30 + 13 + 1
    assert max(b - a for a, b in itertools.pairwise(kept)) == 2
    assert across.kept.tolist()[0] == 0
    assert across.kept.tolist()[-1] == 13


def test_restriction_is_the_transpose_of_prolongation():
    pair = axes()
    random = torch.Generator().manual_seed(0)
    fine = torch.rand(2, 111, 14, generator=random, dtype=F64)
    coarse = torch.rand(2, 57, 8, generator=random, dtype=F64)
    up, down = (fine * prolongate(coarse, pair)).sum(), (restrict(fine, pair) * coarse).sum()
    torch.testing.assert_close(up, down)
    assert torch.equal(inject(prolongate(coarse, pair), pair), coarse)
    torch.testing.assert_close(restrict(fine, pair).sum((1, 2)), fine.sum((1, 2)))


def test_what_flows_out_of_all_cells_is_restricted_as_a_whole():
    hierarchy = Hierarchy(mesh(), euler.free_stream(0.8, F64), Settings())
    fine, coarse = hierarchy.levels[:2]
    fine.state.copy_(euler_flux.conserved(states(*fine.state.shape[1:], speed=0.3)))
    copies = fine.grid.wake + 1
    fine.state[..., -copies:, 0] = fine.state[..., :copies, 0].flip(-1)
    before = fine.residual()
    after = hierarchy._restricted(fine, coarse, hierarchy.axes[0])
    totals = []
    for sums, wake in ((before, fine.grid.wake), (after, coarse.grid.wake)):
        sums[..., -1 - wake :, 0] = 0  # the second copies
        totals.append(sums.sum((-2, -1)))
    torch.testing.assert_close(*totals)


def test_prolongation_keeps_what_is_linear_in_the_index():
    pair = axes()
    line = 2 * torch.arange(111, dtype=F64)[:, None] - 3 * torch.arange(14, dtype=F64)
    torch.testing.assert_close(prolongate(inject(line, pair), pair), line)


# Meshes that are none -----------------------------------------------------------------------------


def test_a_mesh_without_a_wake_is_refused():
    x = mesh(5)
    x[:, 0, 0] += 1e-3
    with pytest.raises(ValueError, match="two copies differ"):
        euler_grid.build(x, F64)


def test_a_mesh_that_folds_over_is_refused_by_its_number():
    x = mesh(5)
    x[1, 20, 3] = x[1, 20, 8]
    with pytest.raises(ValueError, match=r"meshes \[1\] fold over"):
        euler_grid.build(x, F64)
    with pytest.raises(ValueError, match=r"meshes \[0, 1\] fold over, or run the wrong way"):
        euler_grid.build(mesh(5).flip(1), F64)
