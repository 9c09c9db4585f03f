"""Toy weather against exact solutions, and the climate against what it says of itself."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from ipot.solvers import climate, random_fields, weather

DEGREE = 15


@pytest.fixture(scope="module")
def sphere():
    return weather.transform(DEGREE)


def bell(sphere, latitude=0.0, longitude=3 * math.pi / 2, radius=1.0):
    """Williamson's cosine bell, as its harmonics."""
    phi, lam = sphere.latitudes[:, None], sphere.longitudes
    cosine = phi.sin() * math.sin(latitude)
    cosine = cosine + phi.cos() * math.cos(latitude) * torch.cos(lam - longitude)
    distance = torch.acos(cosine.clamp(-1, 1))
    return sphere.analysis((1 + torch.cos(math.pi * (distance / radius).clamp(max=1))) / 2)


def rotation(sphere, turns_per_day, tilt=0.0):
    """The stream function of a solid-body rotation about an axis tilted by an angle."""
    phi, lam = sphere.latitudes[:, None], sphere.longitudes
    along = phi.sin() * math.cos(tilt) - lam.cos() * phi.cos() * math.sin(tilt)
    return sphere.analysis(-2 * math.pi * turns_per_day * along)


def follow(sphere, start, stream, days, *, steps=12, background=None, **options):
    """The state after some days of a steady stream, one member."""
    air = weather.Air(sphere, 1, steps=steps, **options)
    air.state.copy_(start)
    background = torch.zeros_like(start) if background is None else background
    for _ in range(days):
        air.advance(stream.expand(2 * steps + 1, 1, *stream.shape), background[None])
    return air.state[0]


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("tilt", [0.0, 0.3, math.pi / 2])
def test_a_bell_comes_back_after_a_turn(sphere, tilt):
    """Williamson's first case, over the poles too: the error is that of time alone."""
    start = bell(sphere) * torch.exp(sphere.laplacian / 30)  # short waves would need more steps
    stream = rotation(sphere, 1 / 4, tilt)
    errors = [relative(follow(sphere, start, stream, 4, steps=n), start) for n in (10, 20)]
    assert errors[1] < 2e-3
    assert 3.7 < math.log2(errors[0] / errors[1]) < 4.3


def test_a_bell_moves_eastward(sphere):
    start = bell(sphere)
    quarter = follow(sphere, start, rotation(sphere, 1 / 4), 1, steps=40)
    moved = sphere.synthesis(start).roll(sphere.columns // 4, -1)
    torch.testing.assert_close(sphere.synthesis(quarter), moved, rtol=0, atol=1e-4)


def test_winds_that_change_within_a_day(sphere):
    """A rotation that speeds up and slows down: the angle of a day is the integral, to order 4."""
    start = bell(sphere) * torch.exp(sphere.laplacian / 30)
    turn = torch.exp(-0.5j * math.pi * torch.arange(DEGREE + 1))[:, None]
    errors = []
    for steps in (10, 20):
        time = torch.linspace(0, 1, 2 * steps + 1, dtype=torch.float64)
        pace = 1 + 0.9 * torch.sin(2 * math.pi * time) + 0.5 * (time - 0.5)
        air = weather.Air(sphere, 1, steps=steps)
        air.state.copy_(start)
        air.advance(
            pace[:, None, None, None] * rotation(sphere, 1 / 4), torch.zeros_like(start[None])
        )
        errors.append(relative(air.state[0], turn * start))
    assert errors[1] < 1e-3
    assert 3.6 < math.log2(errors[0] / errors[1]) < 4.5


def test_a_background_is_carried_whole(sphere):
    """A + C moves as one: from A = 0, A becomes the turned C less C."""
    background = bell(sphere, latitude=0.7)
    got = follow(
        sphere,
        torch.zeros_like(background),
        rotation(sphere, 1 / 4),
        1,
        steps=40,
        background=background,
    )
    turn = torch.exp(-0.5j * math.pi * torch.arange(DEGREE + 1))[:, None]
    assert relative(got, (turn - 1) * background) < 5e-5


def test_the_mean_is_kept_under_random_winds(sphere):
    start = bell(sphere, latitude=0.5)
    stream = climate.jets(sphere) + winds(sphere, members=1)[1][-1, 0]
    end = follow(sphere, start, stream, 3)
    assert abs(end[0, 0] - start[0, 0]) < 1e-14 * abs(start[0, 0])
    assert relative(end, start) > 0.1


def test_stirring_keeps_the_variance_until_it_reaches_the_grid():
    sphere = weather.transform(31)
    start = torch.zeros(32, 32, dtype=torch.complex128)
    start[1, 2] = 1
    stream = climate.jets(sphere) + winds(sphere, members=1)[1][-1, 0]
    end = follow(sphere, start, stream, 1, steps=20)
    assert relative(end, start) > 0.1
    assert (end.abs().square().sum() * 2 - end[0].abs().square().sum()).item() == pytest.approx(
        2, rel=1e-4
    )


def test_diffusion_and_damping_are_exponential(sphere):
    start = bell(sphere)
    calm = torch.zeros_like(start)
    end = follow(sphere, start, calm, 2, diffusion=0.002, damping=0.3)
    factor = torch.exp(2 * (0.002 * sphere.laplacian - 0.3))
    torch.testing.assert_close(end, factor * start, rtol=1e-6, atol=1e-12)


def test_damping_acts_where_it_is(sphere):
    """Where it is 2 on one hemisphere and 0 on the other, only one bell fades."""
    south = bell(sphere, -1.0, 1.0)
    north = bell(sphere, 1.0, 1.0)
    map_ = torch.where(sphere.latitudes < 0, 2.0, 0.0)[:, None].expand(-1, sphere.columns)
    end = follow(sphere, south + north, torch.zeros_like(south), 1, damping=map_)
    north_left = (end * north.conj()).sum().abs() / north.norm() ** 2
    south_left = (end * south.conj()).sum().abs() / south.norm() ** 2
    assert north_left.item() == pytest.approx(1, abs=0.02)
    assert south_left.item() == pytest.approx(math.exp(-2), abs=0.02)


def test_members_do_not_meet(sphere):
    """Two members at once are each alone."""
    starts = torch.stack([bell(sphere), bell(sphere, 0.5)])
    streams = winds(sphere, members=2)[1]
    backgrounds = torch.stack([bell(sphere, -0.5), bell(sphere, 0.1)])

    def run(members):
        air = weather.Air(sphere, len(members), steps=6, damping=0.1)
        air.state.copy_(starts[members])
        air.advance(streams[:13, members], backgrounds[members])
        return air.state

    both = run([0, 1])
    for member in range(2):
        torch.testing.assert_close(run([member])[0], both[member], rtol=0, atol=1e-14)


def test_the_default_steps_are_enough():
    """Half as long they change a day by less than a thousandth."""
    sphere = weather.transform(31)
    steps = weather.steps_per_day(31)
    stream = climate.jets(sphere) + winds(sphere, members=1)[1][-1, 0]
    start = bell(sphere, 0.7)
    ends = [follow(sphere, start, stream, 1, steps=n) for n in (steps, 2 * steps)]
    assert relative(*ends) < 1e-3
    assert weather.steps_per_day(63) == 19


def noise(knots, members=1, seed=0):
    shape = (members, 2, len(climate.modes()[0]))
    return random_fields.normal(shape, seed=seed, stream="winds", indices=range(knots))


def winds(sphere, members, days=8):
    """Times and the stream function of the waves."""
    amplitude = climate.amplitudes(noise(climate.KNOTS * days + 1, members))
    times = torch.linspace(0, days, 2 * days + 1, dtype=torch.float64)
    return times, climate.waves(amplitude, times, sphere)


def speed(sphere, stream):
    """East and north in metres per second."""
    east, north = sphere.velocity(sphere.laplacian * stream, torch.zeros_like(stream))
    return torch.stack([east, north]) * climate.RADIUS / 86400


def test_jets_blow_eastward_and_fastest_at_45_degrees():
    sphere = weather.transform(63)
    east, north = speed(sphere, climate.jets(sphere))
    assert north.abs().max() < 1e-10
    assert east.max().item() == pytest.approx(climate.JET, rel=1e-3)
    fastest = sphere.latitudes[east[:, 0].argmax()].abs() * 180 / math.pi
    assert fastest.item() == pytest.approx(45, abs=1.5)
    assert east.min() > -1e-10
    torch.testing.assert_close(east, east.flip(0), rtol=0, atol=1e-10)


def test_waves_have_their_speed_and_no_mean_zonal_wind(sphere):
    stream = winds(sphere, members=40)[1]
    east, north = speed(sphere, stream)
    square = sphere.mean(east**2 + north**2).mean().sqrt()
    # Interpolation between knots takes a hundredth, and draws vary by as much.
    assert square.item() == pytest.approx(climate.WAVES, rel=0.04)
    assert east.mean(-1).abs().max() < 1e-10


def test_amplitudes_forget_as_they_should():
    z = climate.amplitudes(noise(2000, members=4))
    assert z.abs().square().mean().item() == pytest.approx(1, rel=0.03)
    day = climate.KNOTS
    lag = (z[day:] * z[:-day].conj()).mean().real / z.abs().square().mean()
    assert lag.item() == pytest.approx(math.exp(-1 / climate.MEMORY), abs=0.02)


def test_a_longer_record_begins_like_a_short_one(sphere):
    short, long = (climate.amplitudes(noise(n)) for n in (9, 21))
    assert torch.equal(long[:9], short)


def test_waves_drift_as_they_should(sphere):
    """With constant amplitudes, wave (m, l) turns by m (drift - 2Ω / (l(l + 1) + F)) a day."""
    amplitude = torch.ones(9, 1, len(climate.modes()[0]), dtype=torch.complex128)
    now, then = climate.waves(amplitude, torch.tensor([0.0, 0.5]).double(), sphere)[:, 0]
    for m, degree in ((1, 4), (4, 4), (7, 12)):
        rate = climate.DRIFT - 4 * math.pi / (degree * (degree + 1) + climate.DEFORMATION)
        assert (then[m, degree] / now[m, degree]).angle().item() == pytest.approx(-0.5 * m * rate)
    assert not now[0].any()
    assert not now[:, :4].any()


def test_winds_are_continuous(sphere):
    """From one knot to the next there is no jump: half the step, half the change."""
    amplitude = climate.amplitudes(noise(9))
    knot = 1 / climate.KNOTS
    changes = []
    for gap in (1e-2, 5e-3):
        at = torch.tensor([knot - gap, knot + gap], dtype=torch.float64)
        before, after = climate.waves(amplitude, at, sphere)
        changes.append((after - before).norm())
    assert (changes[0] / changes[1]).item() == pytest.approx(2, rel=0.05)


def map_of_seasons(land):
    latitude = torch.arange(-90.0, 91.0, 5.0, dtype=torch.float64)[:, None].expand(-1, 24)
    longitude = torch.arange(0.0, 360.0, 15.0, dtype=torch.float64).expand(37, -1)
    parts = climate.seasons(latitude, longitude, torch.full_like(latitude, land))
    days = torch.arange(0, 365, dtype=torch.float64)
    return latitude[:, 0], torch.einsum("dk,kij->dij", climate.season(days), parts)


def test_seasons_are_those_of_land_and_of_sea():
    for land, polar, lag in ((1.0, 20.0, climate.LAG_LAND), (0.0, 3.0, climate.LAG_SEA)):
        latitude, year = map_of_seasons(land)
        amplitude = (year.max(0).values - year.min(0).values)[:, 0] / 2
        sine = torch.deg2rad(latitude).sin().abs()
        least = polar - 12 * land - (1 - land)
        expected = sine * (least + (polar - least) * sine**2)
        torch.testing.assert_close(amplitude, expected, rtol=0, atol=2e-3)
        north, south = year[:, latitude == 60, 0], year[:, latitude == -60, 0]
        assert north.argmin().item() == round(climate.SOLSTICE + lag)
        assert south.argmax().item() == round(climate.SOLSTICE + lag)


def test_the_mean_climate():
    latitude, year = map_of_seasons(0.0)
    mean = year.mean((0, 2))
    assert mean[latitude == 0].item() == pytest.approx(300, abs=0.1)
    assert mean[latitude == 90].item() == pytest.approx(255, abs=0.1)
    assert mean[latitude == -90].item() == pytest.approx(235, abs=0.3)
    # The time of day: at 00:00 UTC it is three in the afternoon at 225 east.
    _, over_land = map_of_seasons(1.0)
    equator = over_land[0, 18]
    assert equator.argmax().item() == 15
    assert (equator.max() - equator.min()).item() == pytest.approx(6, abs=1e-6)


def test_anomalies_fade_faster_at_sea():
    rates = climate.damping(torch.tensor([0.0, 0.5, 1.0]))
    assert rates.tolist() == pytest.approx([1 / 5, 3 / 20, 1 / 10])
    assert all(a > b for a, b in itertools.pairwise(rates.tolist()))
