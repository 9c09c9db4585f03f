import math

import numpy as np
import pytest
import torch
from scipy.special import sph_harm_y

from ipot.solvers.sphere import Transform


def coefficients(lmax, *batch, mean=True):
    """Random ones of a real field."""
    random = torch.Generator().manual_seed(lmax)
    shape = (*batch, lmax + 1, lmax + 1)
    c = torch.randn(shape, generator=random, dtype=torch.complex128).triu()
    c[..., 0, :] = c[..., 0, :].real + 0j
    if not mean:
        c[..., 0, 0] = 0
    return c


def single(lmax, m, degree):
    c = torch.zeros(lmax + 1, lmax + 1, dtype=torch.complex128)
    c[m, degree] = 1
    return c


def mesh(t):
    return t.latitudes[:, None], t.longitudes[None]


def close(got, expected, atol):
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(("lmax", "rows", "columns"), [(0, 1, 1), (21, 22, 43), (85, 128, 256)])
def test_analysis_undoes_synthesis(lmax, rows, columns):
    t = Transform(lmax, rows, columns)
    c = coefficients(lmax, 2, 3)
    field = t.synthesis(c)
    assert field.shape == (2, 3, rows, columns)
    close(t.analysis(field), c, 1e-13)
    close(t.synthesis(t.analysis(field)), field, 1e-11)


def test_float32_costs_its_rounding():
    t = Transform(21, 32, dtype=torch.float32)
    c = coefficients(21).to(torch.complex64)
    assert t.synthesis(c).dtype == torch.float32
    close(t.analysis(t.synthesis(c)), c, 1e-5)


@pytest.mark.parametrize(
    ("m", "degree"), [(0, 0), (0, 7), (1, 1), (1, 5), (2, 3), (20, 21), (21, 21)]
)
def test_harmonics_are_those_of_scipy_without_the_sign(m, degree):
    t = Transform(21, 32)
    latitude, longitude = (a.numpy() for a in mesh(t))
    y = (-1) ** m * sph_harm_y(degree, m, np.pi / 2 - latitude, longitude)
    expected = torch.from_numpy((y if m == 0 else 2 * y).real)
    close(t.synthesis(single(21, m, degree)), expected.broadcast_to(32, 64), 5e-14)


def test_norms_are_kept():
    t = Transform(15, 32)
    c = coefficients(15)
    power = c[0].abs().square().sum() + 2 * c[1:].abs().square().sum()
    torch.testing.assert_close(4 * math.pi * t.mean(t.synthesis(c) ** 2), power, rtol=1e-13, atol=0)
    expected = c[0, 0].real / math.sqrt(4 * math.pi)
    torch.testing.assert_close(t.mean(t.synthesis(c)), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("rows", [1, 2, 7, 128])
def test_weights_integrate_polynomials_to_degree_2n_minus_1(rows):
    t = Transform(0, rows)
    mu = t.latitudes.sin()
    assert (t.weights > 0).all()
    for degree in {0, 1, 2 * rows - 2, 2 * rows - 1}:
        exact = 2 / (degree + 1) if degree % 2 == 0 else 0.0
        assert float((t.weights * mu**degree).sum()) == pytest.approx(exact, rel=1e-12, abs=1e-14)
    beyond = float((t.weights * mu ** (2 * rows)).sum())
    if rows < 10:
        assert beyond != pytest.approx(2 / (2 * rows + 1), rel=1e-6)


def test_lines_run_from_north_to_south_and_eastward():
    t = Transform(3, 6, 10)
    assert (t.latitudes.diff() < 0).all()
    close(t.latitudes, -t.latitudes.flip(0), 1e-15)
    close(t.longitudes, 2 * math.pi * torch.arange(10).double() / 10, 1e-15)
    latitude, longitude = mesh(t)
    # x = cos φ cos λ and z = sin φ have a single coefficient each.
    c = t.analysis(latitude.cos() * longitude.cos() + 2 * latitude.sin() + 0 * longitude)
    expected = single(3, 1, 1) * math.sqrt(2 * math.pi / 3)
    expected += single(3, 0, 1) * math.sqrt(16 * math.pi / 3)
    close(c, expected, 1e-14)


def test_the_gradient_of_known_functions():
    t = Transform(8, 12)
    latitude, longitude = mesh(t)
    x, y, z = latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()
    # f = x z² + y: f_x = z², f_y = 1, f_z = 2 x z, along the unit vectors east and north.
    east, north = t.gradient(t.analysis(x * z**2 + y))
    close(east, -longitude.sin() * z**2 + longitude.cos(), 1e-13)
    slope = -z * longitude.cos() * z**2 - z * longitude.sin() + latitude.cos() * 2 * x * z
    close(north, slope, 1e-13)


def test_laplacian_is_the_divergence_of_the_gradient():
    t = Transform(30, 46)
    c = coefficients(30, 2)
    close(t.rotation(*t.gradient(c))[1], t.laplacian * c, 1e-10)
    vorticity, _ = t.rotation(*t.gradient(c))
    close(vorticity, 0 * c, 1e-10)
    without_mean = coefficients(30, mean=False)
    close(t.inverse_laplacian * t.laplacian * without_mean, without_mean, 1e-14)
    assert t.inverse_laplacian[0] == 0


def test_velocity_and_rotation_are_inverse():
    t = Transform(30, 31, 61)
    vorticity, divergence = coefficients(30, 2, 2, mean=False)
    u, v = t.velocity(vorticity, divergence)
    again = t.rotation(u, v)
    close(again[0], vorticity, 1e-13)
    close(again[1], divergence, 1e-13)


def test_solid_rotation():
    """u = cos φ turns eastward: its vorticity is 2 sin φ and it has no divergence."""
    t = Transform(5, 8)
    latitude, longitude = mesh(t)
    u = latitude.cos() + 0 * longitude
    vorticity, divergence = t.rotation(u, 0 * u)
    close(t.synthesis(vorticity), 2 * latitude.sin() + 0 * longitude, 1e-14)
    close(divergence, 0 * divergence, 1e-14)


def test_products_are_free_of_aliasing_on_three_halves_of_the_rows():
    lmax = 20
    enough, plenty = Transform(lmax, 3 * lmax // 2 + 1, 3 * lmax + 1), Transform(lmax, 80)
    c, d = coefficients(lmax, 2)

    def product(t):
        return t.analysis(t.synthesis(c) * t.synthesis(d))

    def flux(t):
        u, v = t.velocity(c, d)
        weight = t.synthesis(c + d)
        return torch.stack(t.rotation(weight * u, weight * v))

    close(product(enough), product(plenty), 1e-11)
    close(flux(enough), flux(plenty), 1e-10)
    assert (product(Transform(lmax, lmax + 1)) - product(plenty)).abs().max() > 0.1


def test_lines_of_ones_own_show_the_same_function():
    t = Transform(12, 20, 30)
    c = coefficients(12)
    same = Transform(12, 3, 30, latitudes=t.latitudes[[4, 0, 11]])
    close(same.synthesis(c), t.synthesis(c)[[4, 0, 11]], 1e-13)
    close(same.gradient(c)[1], t.gradient(c)[1][[4, 0, 11]], 1e-11)
    poles = Transform(12, 2, 30, latitudes=math.pi * torch.tensor([0.5, -0.5]).double())
    at_pole = poles.synthesis(c)
    close(at_pole, at_pole[:, :1].expand(2, 30), 1e-13)


@pytest.mark.plain
def test_what_cannot_be_done_is_refused():
    lines = Transform(4, 2, 10, latitudes=torch.tensor([math.pi / 2, 0.0], dtype=torch.float64))
    for call in (lambda: lines.analysis(torch.zeros(2, 10).double()), lambda: lines.weights):
        with pytest.raises(ValueError, match=r"no quadrature.*leave `latitudes` out"):
            call()
    with pytest.raises(ValueError, match="no meaning at a pole"):
        lines.gradient(single(4, 1, 1))
    with pytest.raises(ValueError, match="more than 8 columns, got 8"):
        Transform(4, 8, 8)
    with pytest.raises(ValueError, match="need more than 4 rows, got 4"):
        Transform(4, 4, 20)
    with pytest.raises(ValueError, match="expected 3 latitudes"):
        Transform(4, 3, 10, latitudes=torch.zeros(2))
    with pytest.raises(ValueError, match="radians"):
        Transform(4, 1, 10, latitudes=torch.tensor([45.0]))
