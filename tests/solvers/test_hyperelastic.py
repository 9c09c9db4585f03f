"""The material, the assembly and Newton's method, against exact solutions."""

import itertools
import math

import pytest
import torch

from ipot.solvers import cyclic, fem, hyperelastic, unit_cell

RUBBER = hyperelastic.MooneyRivlin()
SOFT = hyperelastic.MooneyRivlin(c1=1.0, c2=0.3)
SHEAR = 2 * (RUBBER.c1 + RUBBER.c2)


def strains(size, count=12):
    random = torch.Generator().manual_seed(4)
    return size * torch.randn(count, 2, 2, generator=random, dtype=torch.float64)


def derivative(function, x):
    """Of a function of rows (n, ..) in all its entries: (n, *out, *in)."""
    x = x if x.requires_grad else x.clone().requires_grad_()
    out = function(x)
    entries = out.reshape(len(x), -1).unbind(1)
    columns = [torch.autograd.grad(e.sum(), x, create_graph=True)[0] for e in entries]
    return torch.stack(columns, 1).view(*out.shape, *x.shape[1:])


def circle(sectors, layers, radius=0.3, batch=1):
    return unit_cell.ring(torch.full((batch, 2 * sectors), radius, dtype=torch.float64), layers)


def boundary(nodes):
    """The nodes of the cavity and of the square."""
    fixed = torch.zeros(nodes.shape[1:3], dtype=torch.bool)
    fixed[:, [0, -1]] = True
    return fixed


def gauss_values(nodes, field):
    """A field of the nodes at the Gauss points."""
    values, _ = fem.shapes(fem.gauss()[0])
    return values @ fem.elements(field)


# Material ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-4, 0.1, 0.25])
def test_stress_is_the_derivative_of_the_energy(size):
    h = strains(size)
    expected = derivative(SOFT.energy, h).detach()
    torch.testing.assert_close(SOFT.stress(h), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("size", [0.0, 0.1, 0.25])
def test_tangent_is_the_derivative_of_the_stress(size):
    h = strains(size)
    expected = derivative(SOFT.stress, h).detach().flatten(-2).flatten(1, 2)
    torch.testing.assert_close(SOFT.tangent(h), expected, rtol=1e-10, atol=1e-12)


def test_the_sheet_is_the_incompressible_solid_without_stress_across():
    """In three dimensions: F33 from det F = 1, the pressure from S33 = 0."""
    h = strains(0.2)
    f = torch.zeros(len(h), 3, 3, dtype=torch.float64)
    f[:, :2, :2] = torch.eye(2, dtype=torch.float64) + h
    f[:, 2, 2] = 1 / torch.linalg.det(f[:, :2, :2])
    torch.testing.assert_close(torch.linalg.det(f), torch.ones(len(h), dtype=torch.float64))
    c, one = f.mT @ f, torch.eye(3, dtype=torch.float64)
    i1 = c.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
    s = 2 * SOFT.c1 * one + 2 * SOFT.c2 * (i1 * one - c)
    inverse = torch.linalg.inv(c)
    s = s - (s[:, 2, 2] / inverse[:, 2, 2])[:, None, None] * inverse
    torch.testing.assert_close((f @ s)[:, :2, :2], SOFT.stress(h))
    i2 = (i1.flatten() ** 2 - (c @ c).diagonal(dim1=-2, dim2=-1).sum(-1)) / 2
    energy = SOFT.c1 * (i1.flatten() - 3) + SOFT.c2 * (i2 - 3)
    torch.testing.assert_close(SOFT.energy(h), energy)
    # And the equivalent stress of all nine components is that of the three in the plane.
    shear = s[:, 0, 1] ** 2 + s[:, 1, 2] ** 2 + s[:, 0, 2] ** 2
    d = s.diagonal(dim1=-2, dim2=-1)
    squares = (d - d.roll(1, -1)).square().sum(-1) / 2 + 3 * shear
    torch.testing.assert_close(SOFT.von_mises(h), squares.sqrt())


def test_small_strains_have_the_moduli_of_an_incompressible_solid():
    """Pulled along x by σ, the strains are σ/E and -σ/2E, with E = 6 (C1 + C2)."""
    tangent = RUBBER.tangent(torch.zeros(2, 2, dtype=torch.float64))
    young = 6 * (1.863e5 + 9.79e3)
    strain = torch.tensor([1.0, 0.0, 0.0, -0.5], dtype=torch.float64) / young
    pulled = tangent @ strain
    torch.testing.assert_close(pulled, torch.tensor([1.0, 0, 0, 0], dtype=torch.float64))


def test_a_rotation_costs_nothing():
    c, s = math.cos(0.7), math.sin(0.7)
    h = torch.tensor([[c - 1, -s], [s, c - 1]], dtype=torch.float64)
    assert SOFT.energy(h).abs() < 1e-14
    assert SOFT.stress(h).abs().max() < 1e-14


def test_tiny_strains_keep_their_digits():
    """The stress of a strain of 1e-9 is good to ten digits, where F = I + H has eight of H."""
    h = strains(1e-9)
    linear = (SOFT.tangent(torch.zeros(2, 2, dtype=torch.float64)) @ h.flatten(1).T).T
    torch.testing.assert_close(SOFT.stress(h).flatten(1), linear, rtol=1e-7, atol=1e-17)


# Assembly ------------------------------------------------------------------------------------


def test_stiffness_is_the_derivative_of_the_forces():
    body = hyperelastic.Body(circle(8, 2), SOFT)
    random = torch.Generator().manual_seed(5)
    u, v = 0.01 * torch.randn(2, 1, 16, 5, 2, generator=random, dtype=torch.float64)
    free = torch.zeros(16, 5, dtype=torch.bool)
    eps = 1e-6
    difference = (body.forces(u + eps * v) - body.forces(u - eps * v)) / (2 * eps)
    sectors = body.stiffness(u, free)
    strips = torch.cat((v, v[:, :1]), 1).flatten(2).unfold(1, 3, 2).transpose(2, 3).flatten(2)
    first, middle, last = (sectors @ strips.unsqueeze(-1)).view(1, 8, 3, -1).unbind(2)
    product = torch.stack((first + last.roll(1, 1), middle), 2).view_as(v)
    torch.testing.assert_close(product, difference, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(sectors, sectors.mT)


def test_forces_are_the_derivative_of_the_energy():
    nodes = circle(8, 1)
    body = hyperelastic.Body(nodes, SOFT)
    random = torch.Generator().manual_seed(6)
    u = (0.01 * torch.randn(nodes.shape, generator=random, dtype=torch.float64)).requires_grad_()
    total = (SOFT.energy(body.gradient(u)) * body.weights).sum()
    (expected,) = torch.autograd.grad(total, u)
    torch.testing.assert_close(body.forces(u.detach()), expected)


def test_an_element_that_is_turned_inside_out_is_refused():
    nodes = circle(8, 1, batch=3)
    nodes[1, 4, 0] = nodes[1, 4, -1] + 0.1
    with pytest.raises(ValueError, match=r"inside out in samples \[1\]"):
        hyperelastic.Body(nodes, SOFT)
    with pytest.raises(ValueError, match=r"inside out in samples \[0, 1, 2\]"):
        hyperelastic.Body(nodes * math.nan, SOFT)


# Equilibrium ---------------------------------------------------------------------------------


def test_patch_test():
    """On a distorted mesh a linear boundary displacement, here a large one, goes on inside."""
    nodes = circle(8, 2)
    random = torch.Generator().manual_seed(7)
    shift = 0.01 * torch.randn(1, 16, 3, 2, generator=random, dtype=torch.float64)
    nodes[:, :, 1:-1] += shift
    matrix = torch.tensor([[0.2, 0.1], [-0.05, -0.1]], dtype=torch.float64)
    exact, fixed = nodes @ matrix.T, boundary(nodes)
    body = hyperelastic.Body(nodes, SOFT)
    start = exact.clone()
    start[:, :, 1:-1] += 0.2 * shift.flip(1)
    u = hyperelastic.solve(body, torch.zeros(16, 5, 2).double(), fixed, start=start)
    torch.testing.assert_close(u, exact, rtol=0, atol=1e-10)
    stress = SOFT.stress(body.gradient(u))
    torch.testing.assert_close(stress, SOFT.stress(matrix).expand_as(stress), rtol=0, atol=1e-9)


def manufactured(x):
    """A displacement with gradients of up to 0.12."""
    a, b = x.unbind(-1)
    return 0.04 * torch.stack(((3 * a).sin() * (2 * b).cos(), (2 * a + b).cos() * b), -1)


def body_force(x):
    """b = -div P of the manufactured displacement, at places (n, 2)."""

    both = derivative(lambda y: SOFT.stress(derivative(manufactured, y)), x)  # P_ij,k
    return -both.detach().diagonal(dim1=-2, dim2=-1).sum(-1)


def test_order_is_three_in_displacement_and_two_in_its_gradient():
    errors, steep = [], []
    for sectors, layers in ((8, 1), (16, 2), (32, 4)):
        nodes = circle(sectors, layers)
        body, fixed, exact = hyperelastic.Body(nodes, SOFT), boundary(nodes), manufactured(nodes)
        places = gauss_values(nodes, nodes)
        force = body_force(places.flatten(0, 3)).view_as(places) * body.weights.unsqueeze(-1)
        values, _ = fem.shapes(fem.gauss()[0])
        load = fem.scatter(values.mT @ force)
        u = hyperelastic.solve(body, load, fixed, start=exact)
        gap = (gauss_values(nodes, u) - manufactured(places)).square().sum(-1)
        errors.append((gap * body.weights).sum().sqrt().item())
        slope = derivative(manufactured, places.flatten(0, 3)).detach()
        gap = (body.gradient(u) - slope.view(*places.shape, 2)).square().sum((-2, -1))
        steep.append((gap * body.weights).sum().sqrt().item())
    orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert all(2.8 < order < 3.3 for order in orders), (errors, orders)
    orders = [math.log2(a / b) for a, b in itertools.pairwise(steep)]
    assert all(1.85 < order < 2.3 for order in orders), (steep, orders)


def kirsch(x, radius, stress):
    """Displacement of an infinite plate with a round hole, pulled along x; ν = 1/2."""
    a, kappa = radius, (3 - 0.5) / (1 + 0.5)
    x = x - 0.5
    r, t = x.norm(dim=-1), torch.atan2(x[..., 1], x[..., 0])
    near, nearer = 2 * a / r, 2 * a**3 / r**3
    u = r / a * (kappa + 1) * t.cos() + near * ((1 + kappa) * t.cos() + (3 * t).cos())
    v = r / a * (kappa - 3) * t.sin() + near * ((1 - kappa) * t.sin() + (3 * t).sin())
    both = torch.stack((u - nearer * (3 * t).cos(), v - nearer * (3 * t).sin()), -1)
    return stress * a / (8 * SHEAR) * both


def test_the_stress_at_a_round_hole_is_three_times_that_far_away():
    sectors, layers, radius = 48, 12, 0.2
    nodes = circle(sectors, layers, radius)
    exact, fixed = kirsch(nodes, radius, 1.0), boundary(nodes)
    fixed[:, 0] = False  # the hole is free
    start = torch.where(fixed.unsqueeze(-1), exact, 0.0)
    body = hyperelastic.Body(nodes, RUBBER)
    u = hyperelastic.solve(body, torch.zeros(nodes.shape[1:]).double(), fixed, start=start)
    assert ((u - exact).norm() / exact.norm()).item() < 1e-4
    # At the first node of the first line of sectors that begin at 90° and at 0°.
    local = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)
    for sector, expected in ((3 * sectors // 8, 3.0), (sectors // 8, -1.0)):
        corners, moved = (fem.elements(field)[0, sector, 0] for field in (nodes, u))
        slopes, _ = fem.gradients(corners, fem.shapes(local)[1])
        hoop = RUBBER.stress(moved.mT @ slopes)[0]
        along = hoop[0, 0] if expected > 0 else hoop[1, 1]
        assert along.item() == pytest.approx(expected, abs=0.03)


def pull(traction, material=SOFT, batch=1, **settings):
    nodes = circle(8, 1, batch=batch)
    body = hyperelastic.Body(nodes, material)
    load = traction * unit_cell.top_shares(16, 3)
    return body, load, hyperelastic.solve(body, load, unit_cell.bottom(16, 3), **settings)


def test_no_load_moves_nothing():
    assert not pull(0.0)[2].any()


def test_newton_converges_quadratically():
    """At a load that stretches the sheet by a tenth, from one tenth of the solution away."""
    body, load, u = pull(0.4)
    assert u.abs().max() > 0.1
    fixed = unit_cell.bottom(16, 3)
    free = ~fixed.unsqueeze(-1)
    guess, errors = 0.9 * u, []
    for _ in range(6):
        errors.append((guess - u).norm().item())
        residual = torch.where(free, load - body.forces(guess), 0)
        factor = cyclic.factorize(body.stiffness(guess, fixed))
        guess = guess + factor.solve(residual.flatten(2)).view_as(guess)
    pairs = [(before, after) for before, after in itertools.pairwise(errors) if before > 1e-6]
    assert len(pairs) >= 3, errors
    assert all(after < 10 * before**2 for before, after in pairs), errors
    assert errors[-1] < 1e-10


def test_the_residual_is_what_was_asked_for():
    body, load, u = pull(100.0, RUBBER, tolerance=1e-12)
    free = ~unit_cell.bottom(16, 3).unsqueeze(-1)
    residual = torch.where(free, load - body.forces(u), 0)
    assert residual.norm() <= 1e-12 * load.norm()


def test_a_sample_does_not_depend_on_its_company():
    """Nor on the steps that others still take, which a loose tolerance would show."""
    nodes = torch.cat([circle(8, 1, r) for r in (0.2, 0.3, 0.4)])
    body, fixed = hyperelastic.Body(nodes, SOFT), unit_cell.bottom(16, 3)
    load = torch.stack([t * unit_cell.top_shares(16, 3) for t in (0.001, 0.0, 0.05)])
    together = hyperelastic.solve(body, load, fixed, tolerance=1e-2)
    for row in range(3):
        alone = hyperelastic.Body(nodes[row : row + 1], SOFT)
        u = hyperelastic.solve(alone, load[row : row + 1], fixed, tolerance=1e-2)
        torch.testing.assert_close(together[row : row + 1], u, rtol=0, atol=1e-13)
    exact = hyperelastic.solve(body, load, fixed)
    assert (together - exact)[0].abs().max() > 1e-10


def test_samples_that_failed_are_named():
    nodes = circle(8, 1, batch=2)
    load = torch.stack([t * unit_cell.top_shares(16, 3) for t in (1e-6, 0.4)])
    with pytest.raises(RuntimeError, match=r"after 3 steps: samples \[1\].*Load less"):
        hyperelastic.solve(hyperelastic.Body(nodes, SOFT), load, unit_cell.bottom(16, 3), steps=3)
