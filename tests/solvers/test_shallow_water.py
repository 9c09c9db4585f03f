import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import torch

from ipot.solvers import shallow_water as sw
from ipot.solvers.sphere import Transform

HOUR, DAY = 3600.0, 86400.0
IDEAL = dataclasses.replace(sw.EARTH, hyperdiffusion=0.0)


def last(state, time, **settings):
    return list(sw.solve(state, times=[time], **settings))[-1]


def lopsided(lmax):
    """Two flows without any symmetry: the jets with a wrapped bump, turned, in the north alone."""
    state = sw.unstable_jets(torch.tensor([60.0, 80.0]), lmax)
    sphere = Transform(lmax, lmax + 1)
    north = (sphere.latitudes > 0).double()[:, None]
    bump = north * sw.bump(sphere.latitudes, sphere.longitudes, wrap=True)
    state[2] += sphere.analysis(torch.stack((bump, 2 * bump.roll(3, -1))))
    return state


def distance(a, b):
    """The largest relative difference of the three fields, in the norm of the sphere."""
    norms = [x.flatten(1).norm(dim=1) for x in (a - b, b)]
    return float((norms[0] / norms[1]).max())


def signs(lmax):
    """What the reflection about the equator multiplies scalars by."""
    n = torch.arange(lmax + 1)
    return 1.0 - 2.0 * ((n[:, None] + n) % 2).double()


def test_steady_zonal_flow():
    """Test 2 of Williamson et al., J. Comput. Phys. 102 (1992): nothing happens for five days."""
    sphere = Transform(15, 24)
    speed = 2 * math.pi * sw.RADIUS / (12 * DAY)
    mu = sphere.latitudes.sin()[:, None].expand(24, 48)
    drop = (sw.RADIUS * sw.OMEGA * speed + speed**2 / 2) / sw.GRAVITY
    fields = torch.stack((2 * speed / sw.RADIUS * mu, 0 * mu, -drop * mu**2))
    state = sphere.analysis(fields[:, None])
    planet = dataclasses.replace(IDEAL, depth=2.94e4 / sw.GRAVITY)
    after = last(state, 5 * DAY, planet=planet)
    assert distance(after[::2], state[::2]) < 1e-12
    assert after[1].abs().max() < 1e-12 * state[0].abs().max()


def test_gravity_waves_have_their_speed():
    """Small waves on water at rest without rotation: h_lm cos ωt, ω² = g H l(l + 1) / a²."""
    lmax, depth, time = 8, 5000.0, 5 * HOUR
    planet = dataclasses.replace(IDEAL, depth=depth, rotation=0.0)
    state = torch.zeros(3, 1, lmax + 1, lmax + 1, dtype=torch.complex128)
    state[2, 0, 3, 7], state[2, 0, 0, 2] = 1e-6 + 2e-6j, 3e-6
    after = last(state, time, planet=planet, dt=120.0)
    n = torch.arange(lmax + 1).double()
    omega = (sw.GRAVITY * depth * n * (n + 1)).sqrt() / sw.RADIUS
    scale = state.abs().max()
    height = state[2] * torch.cos(omega * time)
    # From δ = -h_t / H.
    divergence = state[2] * omega * torch.sin(omega * time) / depth
    torch.testing.assert_close(after[2], height, rtol=0, atol=2e-6 * scale)
    torch.testing.assert_close(after[1], divergence, rtol=0, atol=2e-6 * scale * 1e-6)
    assert after[0].abs().max() < 1e-20


def test_hyperdiffusion_is_exact():
    """A flow too weak to carry itself decays at once, however long the step."""
    planet = sw.Planet(rotation=0.0, hyperdiffusion=1e4 * sw.RADIUS**2)
    n = torch.arange(22).double()
    state = torch.zeros(3, 1, 22, 22, dtype=torch.complex128)
    state[0, 0] = 1e-20 * torch.ones(22, 22).triu()
    state[0, 0, 0, 0] = 0
    rate = 1e4 / sw.RADIUS**2 * (n * (n + 1) - 1) ** 2
    expected = state[0] * torch.exp(-rate * DAY)
    assert 0.001 < float(torch.exp(-rate[-1] * DAY)) < 0.9
    torch.testing.assert_close(last(state, DAY, planet=planet)[0], expected, rtol=1e-12, atol=0)


def test_the_laplacian_of_a_vector_has_the_eigenvalues_that_are_damped():
    """Componentwise in space, ΔU = (∇²u - u) + a normal part, for a field tangent to the sphere."""
    sphere, wide = Transform(9, 16), Transform(10, 16)
    c = torch.randn(2, 10, 10, dtype=torch.complex128).triu()
    c[:, 0] = c[:, 0].real + 0j
    c[:, 0, 0] = 0
    latitude, longitude = sphere.latitudes[:, None], sphere.longitudes
    sin, cos = latitude.sin(), latitude.cos()
    zero = 0 * latitude * longitude
    east = torch.stack((zero - longitude.sin(), zero + longitude.cos(), zero))
    north = torch.stack((-sin * longitude.cos(), -sin * longitude.sin(), zero + cos))
    u, v = sphere.velocity(*c)
    cartesian = wide.analysis(u * east + v * north)
    bent = wide.synthesis(wide.laplacian * cartesian)
    expected = sphere.velocity(*((sphere.laplacian + 1) * c))
    torch.testing.assert_close((bent * east).sum(0) + u, expected[0], rtol=0, atol=1e-10)
    torch.testing.assert_close((bent * north).sum(0) + v, expected[1], rtol=0, atol=1e-10)


def test_water_over_a_mountain_stays_at_rest():
    sphere = Transform(20, 32)
    mountain = (
        2000
        * torch.exp(-8 * (sphere.latitudes[:, None] - 0.5) ** 2)
        * (1 + sphere.longitudes.cos())
    )
    state = torch.zeros(3, 1, 21, 21, dtype=torch.complex128)
    after = last(state, DAY, mountain=sphere.analysis(mountain))
    assert not after.abs().any()


def test_a_mountain_is_felt_as_less_depth():
    """A flat mountain is the same as shallower water."""
    state = lopsided(21)
    flat = torch.zeros(22, 22, dtype=torch.complex128)
    flat[0, 0] = 3000 * math.sqrt(4 * math.pi)
    shallow = dataclasses.replace(sw.EARTH, depth=7000.0)
    over = last(state, 2 * HOUR, mountain=flat, dt=600.0)
    assert distance(over, last(state, 2 * HOUR, planet=shallow, dt=600.0)) < 1e-12
    assert distance(over, last(state, 2 * HOUR, dt=600.0)) > 1e-2


def test_jets_are_where_they_should_be():
    degrees = torch.tensor([-90.0, -45.0, 0.0, 25.0, 45.0, 64.0, 65.0]).double()
    wind = sw.jets(torch.deg2rad(degrees), torch.tensor([60.0, 80.0]).double())
    torch.testing.assert_close(wind[1], wind[0] * 80 / 60)
    assert wind[0, [0, 1, 2, 3, 4, 6]].tolist() == pytest.approx([0, 60, 0, 0, 60, 0])
    assert 0 < wind[0, 5] < 1e-5


def test_the_height_balances_the_jets():
    """Against g h' = -(2 Ω sin φ + u tan φ / a) u a, integrated along a meridian."""
    sphere = Transform(85, 128)
    speed = torch.tensor([80.0]).double()
    wind = sw.jets(sphere.latitudes, speed)[:, :, None].expand(1, 128, 256)
    vorticity, _ = sphere.rotation(wind / sw.RADIUS, 0 * wind)
    height = sphere.synthesis(sw.balanced_height(vorticity))[0, :, 0].numpy()

    fine = torch.linspace(-math.pi / 2, math.pi / 2, 20001, dtype=torch.float64)
    u = sw.jets(fine, speed)[0]
    slope = -(2 * sw.OMEGA * sw.RADIUS * fine.sin() + u * fine.tan()) * u / sw.GRAVITY
    along = scipy.integrate.cumulative_simpson(slope.numpy(), x=fine.numpy(), initial=0)
    expected = np.interp(sphere.latitudes.numpy(), fine.numpy(), along)
    weights = sphere.weights.numpy() / 2
    expected = expected - expected @ weights
    assert np.ptp(expected) > 1000
    np.testing.assert_allclose(height, expected, rtol=0, atol=0.05)
    assert height @ weights == pytest.approx(0, abs=1e-9)


def test_balanced_jets_stay_as_they_are():
    state = sw.unstable_jets(torch.tensor([60.0, 80.0]), 31)
    state[2] = sw.balanced_height(state[0])
    after = last(state, 12 * HOUR, planet=IDEAL)
    assert distance(after[::2], state[::2]) < 1e-11
    # Without the balance, gravity waves tear them apart.
    state[2] *= 0.9
    assert distance(last(state, 3 * HOUR, planet=IDEAL)[::2], state[::2]) > 0.02


def test_mass_is_kept_to_the_last_bit():
    state = lopsided(31)
    assert torch.equal(last(state, 6 * HOUR)[:, :, 0, 0], state[:, :, 0, 0])


def test_energy_is_kept_but_for_what_is_damped():
    """Up to the truncation: energy is cubic, so it is not kept exactly by any quadratic scheme."""
    state = lopsided(31)
    before = sw.energy(state)
    kept = sw.energy(last(state, 6 * HOUR, planet=IDEAL, dt=600.0)) / before - 1
    assert kept.abs().max() < 2e-6
    damped = sw.energy(last(state, 6 * HOUR, dt=600.0)) / before - 1
    assert (damped < -1e-4).all()


def test_order_in_time_is_four():
    planet = dataclasses.replace(sw.EARTH, hyperdiffusion=1e4 * sw.EARTH.hyperdiffusion)
    state = lopsided(10)
    steps = (900.0, 450.0, 225.0, 112.5)
    coarse_to_fine = [last(state, 3 * HOUR, planet=planet, dt=dt) for dt in steps]
    gaps = [distance(a, b) for a, b in itertools.pairwise(coarse_to_fine)]
    slopes = [math.log2(a / b) for a, b in itertools.pairwise(gaps)]
    assert all(3.7 < slope < 4.4 for slope in slopes), (gaps, slopes)


def test_the_default_step_costs_a_thousandth_of_what_is_seen():
    """Vorticity and height; most of the divergence is short gravity waves, which are damped."""
    state = lopsided(31)
    coarse, fine = (last(state, 6 * HOUR, dt=dt) for dt in (None, 300.0))
    assert distance(coarse[:1], fine[:1]) < 1e-3
    assert distance(coarse[2:], fine[2:]) < 5e-3


def test_commutes_with_turns_and_reflection():
    lmax = 21
    state, after = lopsided(lmax), last(lopsided(lmax), 6 * HOUR)
    turn = torch.exp(-0.7j * torch.arange(lmax + 1).double())[:, None]
    assert distance(last(state * turn, 6 * HOUR), after * turn) < 1e-12
    mirror = torch.stack((-signs(lmax), signs(lmax), signs(lmax)))[:, None]
    assert distance(last(state * mirror, 6 * HOUR), after * mirror) < 1e-12
    assert distance(mirror * after, after) > 0.01


def test_the_two_hemispheres_stay_mirror_images():
    lmax = 31
    after = last(sw.unstable_jets(torch.tensor([70.0]), lmax), 12 * HOUR)
    mirror = torch.stack((-signs(lmax), signs(lmax), signs(lmax)))[:, None]
    assert distance(after * mirror, after) < 1e-12


def test_a_bump_without_wrap_is_its_eastern_half():
    sphere = Transform(31, 32)
    whole, half = (sw.bump(sphere.latitudes, sphere.longitudes, wrap=w) for w in (True, False))
    torch.testing.assert_close(whole[:, :32], half[:, :32])
    torch.testing.assert_close(whole[:, 1:], whole[:, 1:].flip(-1))
    assert half[:, 33:].abs().max() < 1e-30
    peak = sw.bump(torch.tensor([-math.pi / 4]), torch.tensor([0.0]), wrap=False)
    assert float(peak) == pytest.approx(120 * math.cos(math.pi / 4))


def test_times_do_not_change_the_way():
    """A recorded state is a copy, and zero is a time."""
    state = lopsided(21)
    frames = list(sw.solve(state, times=[0.0, 1800.0, 3600.0], dt=600.0))
    assert torch.equal(frames[0], state)
    assert distance(frames[2], last(state, 3600.0, dt=600.0)) < 1e-13
    assert distance(frames[1], frames[2]) > 1e-3


def test_a_sample_does_not_depend_on_its_company():
    state = lopsided(21)
    assert distance(last(state[:, 1:], HOUR), last(state, HOUR)[:, 1:]) < 1e-13


def test_nonsense_is_refused():
    state = lopsided(5)
    for times in ([3.0, 1.0], [-1.0]):
        with pytest.raises(ValueError, match="increasing and not negative"):
            list(sw.solve(state, times=times))
    state[2, 1, 0, 2] = math.nan
    with pytest.raises(RuntimeError, match=r"not finite at t = 600 s in samples \[1\]"):
        list(sw.solve(state, times=[600.0]))
