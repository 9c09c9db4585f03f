"""The stand-in: windows, calendar, members and the statistics that it is made for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ipot.data import views
from ipot.data.store import Store
from ipot.errors import DataError
from ipot.problems import era5, era5_synthetic
from ipot.problems.era5_synthetic import FIRST_WINDOW, MEMBER, PROBLEM
from ipot.solvers import weather

CPU = torch.device("cpu")
SMALL = PROBLEM.small()
QUICK = replace(SMALL, history=1, steps=1, every=1, spin_up=1)
"""A member of 53 days."""


def generate(problem, indices, split="train", seed=0, resolution=18):
    fields = problem.generate(split, indices, seed=seed, device=CPU, resolution=resolution)
    return fields["temperature"]


def anomalies(problem, days):
    """The anomalies of one member on the solver's grid, and the transform that goes with it."""
    sphere = weather.transform(problem.degree)
    record = problem._follow("train", range(1), [0], days, seed=0, device=CPU)[0]
    return sphere, sphere.synthesis(record)


def correlation(sphere, field, lag):
    """Of the anomalies of two days, over the sphere and over time."""
    field = field - field.mean(0)
    product = sphere.mean(field[lag:] * field[:-lag]).mean()
    return (product / sphere.mean(field**2).mean()).item()


def test_it_never_pretends_to_be_measured():
    for text in (PROBLEM.about, PROBLEM.source, era5_synthetic.__doc__):
        assert "synthetic" in text.lower()
    assert "not ERA5" in era5_synthetic.__doc__
    assert PROBLEM.generated


def test_samples_look_like_those_of_era5():
    real = era5.PROBLEM
    theirs, ours = replace(real.spec, name=""), replace(PROBLEM.spec, name="")
    assert theirs == ours
    assert real.sizes == PROBLEM.sizes
    assert torch.equal(real.coordinates(90), PROBLEM.coordinates(90))
    assert torch.equal(real.weights(90), PROBLEM.weights(90))
    assert set(real.masks) == set(PROBLEM.masks)
    assert real.resolutions() == PROBLEM.resolutions()


def test_windows_in_a_row_overlap():
    """What window i is to predict is what window i + 1 sees."""
    windows = generate(SMALL, range(3))
    assert windows.shape == (3, 14, 18, 36)
    assert torch.equal(windows[0, 7:], windows[1, :7])
    assert torch.equal(windows[1, 7:], windows[2, :7])


def test_a_member_ends_and_the_next_begins():
    last = MEMBER - 1
    windows = generate(QUICK, range(last - 1, last + 2))
    assert torch.equal(windows[0, 1], windows[1, 0])
    # The calendar goes on; the weather is another.
    assert 0.5 < (windows[1, 1] - windows[2, 0]).abs().max() < 40
    alone = generate(QUICK, range(MEMBER, MEMBER + 1))
    torch.testing.assert_close(alone[0], windows[2], rtol=0, atol=1e-3)
    # Its first two days, on the two days of the calendar that follow the first member's windows.
    waves = QUICK._follow("train", range(1, 2), [MEMBER], 2, seed=0, device=CPU)[0]
    expected = QUICK._view(18, CPU)(waves, torch.tensor([MEMBER, MEMBER + 1]))
    assert torch.equal(alone[0], expected)
    other = QUICK._follow("train", range(1), [MEMBER], 2, seed=0, device=CPU)[0]
    assert (other - waves).norm() > 0.1 * waves.norm()


def test_a_longer_horizon_continues_the_same_weather():
    near, far = (generate(SMALL.with_steps(n), range(1)) for n in (2, 4))
    assert torch.equal(near, far[:, :9])


def test_splits_begin_where_the_real_ones_do():
    days = era5.PROBLEM.windows(torch.arange(1916).numpy())
    assert {name: w.start for name, w in days.items()} == FIRST_WINDOW


def test_a_split_has_the_season_of_its_dates():
    """Train begins in January, validation in April, test in October."""
    north = slice(12, 16)  # 30 to 60 degrees north at ten degrees
    means = {
        split: generate(replace(QUICK, every=7), range(1), split)[:, :, north].mean().item()
        for split in FIRST_WINDOW
    }
    assert means["train"] < means["validation"] < means["test"]


def test_resolutions_too_coarse_for_the_waves_show_the_same_function():
    _, field = anomalies(QUICK, 2)
    waves = weather.transform(QUICK.degree).analysis(field)
    fine = QUICK._view(36, CPU)(waves, torch.arange(2))
    for resolution in (6, 9, 12):
        coarse = QUICK._view(resolution, CPU)(waves, torch.arange(2))
        torch.testing.assert_close(coarse, QUICK.thin(fine, resolution), rtol=0, atol=1e-4)


def test_coasts_show_in_the_seasons():
    """Half the range of a year of the usual temperature: large on land, small at sea."""
    show = PROBLEM._view(90, CPU)
    calm = torch.zeros(12, PROBLEM.degree + 1, PROBLEM.degree + 1, dtype=torch.complex128)
    year = show(calm, torch.linspace(0, 365, 12).round())
    amplitude = (year.max(0).values - year.min(0).values) / 2
    points = PROBLEM.coordinates(90)
    land = PROBLEM.masks["land"]((points - torch.tensor([-0.5, 0.0])) / torch.tensor([1.0, 2.0]))
    land, far = land.view(90, 180), points[:, 0].view(90, 180).abs() * 180 > 45
    assert 8 < amplitude[land & far].min() < amplitude[land & far].max() < 20.1
    assert amplitude[~land & far].max() < 3.1
    assert 180 < year.min() < year.max() < 320


def test_masks_are_those_of_era5():
    points = PROBLEM.coordinates(90).float()
    unit = (points - torch.tensor([-0.5, 0.0])) / torch.tensor([1.0, 2.0])
    assert int(PROBLEM.masks["land"](unit).sum()) == 5371
    assert int(PROBLEM.masks["sea"](unit).sum()) == 10829


def test_it_loads_masked_and_at_another_resolution(tmp_path):
    data = SMALL.load("test", 2, store=Store(tmp_path), query_resolution=36)
    seen = views.mask(data, "sea", SMALL.spec, dict(SMALL.masks)).data
    assert seen.values.shape[1] < 18 * 36
    assert seen.targets.shape == (2, 7, 36 * 72, 1)


def test_anomalies_last_for_days_and_no_longer():
    """The small version; `test_the_statistics_of_a_season` has the bounds of the full one."""
    sphere, field = anomalies(replace(SMALL, spin_up=20), 40)
    assert 0.75 < correlation(sphere, field, 1) < 0.92
    assert correlation(sphere, field, 7) < 0.3
    assert 2 < sphere.mean(field**2).mean().sqrt() < 6


@pytest.mark.slow
@pytest.mark.parametrize(("degree", "days"), [(31, 120), (63, 60)])
def test_the_statistics_of_a_season(degree, days):
    """Lag-1 correlation 0.75 to 0.85; persistence gets worse for a week; no pile-up of waves."""
    problem = replace(PROBLEM, degree=degree, spin_up=30)
    sphere, field = anomalies(problem, days)
    assert 0.75 < correlation(sphere, field, 1) < 0.85
    errors = [
        sphere.mean((field[k:] - field[:-k]) ** 2).mean().sqrt().item() for k in (1, 2, 3, 5, 7)
    ]
    assert errors == sorted(errors)
    spectrum = sphere.analysis(field).abs().square().sum((0, 1))
    assert spectrum[-3:].max() < 2e-3 * spectrum.max()


@pytest.mark.parametrize("settings", [{"degree": 11}, {"spin_up": -1}, {"steps": 0}])
def test_settings_that_make_no_sense(settings):
    with pytest.raises(DataError, match=r"at least"):
        replace(PROBLEM, **settings)
