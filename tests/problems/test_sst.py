"""Sea-surface temperature: the record, its splits, and the forecasts that stand beside a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ipot.data import sst, views
from ipot.data.climatology import Climatology, harmonics, phase
from ipot.data.store import Store
from ipot.errors import DataError, Unsupported
from ipot.evaluation.evaluate import score_references
from ipot.problems.sst import PROBLEM, STARTS, Sst

LEADS = (1, 2, 4, 8)
TARGETS = ("temperature", "anomaly", "departure")
# Area-weighted errors in kelvin at the leads, over every week of the test years.
PUBLISHED = {
    "persistence": (0.429, 0.682, 1.139, 1.999),
    "climatology": (0.731, 0.731, 0.731, 0.731),
    "damped persistence": (0.342, 0.449, 0.541, 0.618),
}


def load(problem: Sst, split="test", count=3):
    return problem.load(split, count, store=Store("never used"))


def windows(problem: Sst, split: str) -> list[set[int]]:
    """The weeks that every window of a split touches."""
    day = sst.packaged().day
    return [
        set(range(first - problem.history, first + problem.steps))
        for first in problem.weeks(split, day)
    ]


def arrays(points=slice(0, 2040, 40)) -> dict[str, np.ndarray]:
    """Some points of the record, as the original file holds them."""
    record = sst.packaged()
    return {
        "sst": record.sst[:, points],
        "date": record.day.astype("S10"),
        "lat": record.latitude[points],
        "lon": record.longitude[points],
    }


@pytest.fixture
def original(tmp_path):
    """Writes a file with the original's name; keywords replace its arrays."""

    def write(**changes) -> Path:
        content = {k: v for k, v in (arrays() | changes).items() if v is not None}
        np.savez(tmp_path / sst.ORIGINAL, **content)
        return tmp_path

    return write


def test_the_record_is_what_it_says():
    record = sst.packaged()
    assert record.sst.shape == (1412, 2040)
    assert (record.day[0], record.day[-1]) == (
        np.datetime64("1990-01-17"),
        np.datetime64("2017-02-01"),
    )
    assert (np.diff(record.day) == np.timedelta64(7, "D")).all()
    assert record.latitude.min() > -62
    assert record.latitude.max() < 58
    assert len({*zip(record.latitude, record.longitude, strict=True)}) == 2040
    hundredths = record.sst.astype(np.float64) * 100
    assert np.abs(hundredths - hundredths.round()).max() < 1e-3
    tropics = np.abs(record.latitude) < 15
    assert 26 < record.sst[:, tropics].mean() < 28.5
    # Sea water freezes at -1.8 degrees.
    assert record.sst.min() > -1.9


def test_the_record_is_the_original_to_half_a_hundredth(data_root):
    ours, theirs = sst.packaged(), sst.read(data_root / "oisst_weekly")
    assert np.abs(ours.sst.astype(np.float64) - theirs.sst).max() <= 0.005 + 2e-6
    for name in ("day", "latitude", "longitude"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_compact_is_exact_to_its_rounding_for_any_numbers():
    random = np.random.default_rng(0)
    day = np.datetime64("2000-01-05") + 7 * np.arange(30)
    wild = random.uniform(-80, 80, (30, 11)).astype(np.float32)
    places = random.random((2, 11), dtype=np.float32)
    record = sst.Record(wild, day, *places)
    again = sst.expand(sst.compact(record))
    np.testing.assert_allclose(again.sst, wild, atol=0.005 + 1e-5)
    np.testing.assert_array_equal(again.day, day)
    np.testing.assert_array_equal(sst.expand(sst.compact(again)).sst, again.sst)


def test_the_published_baselines_are_reproduced():
    """Every week of the test years is forecast from the week that lies the lead before it."""
    record = sst.packaged()
    start = int(np.searchsorted(record.day, np.datetime64("2010-01-01")))
    climate = Climatology(record.sst, record.day, start)
    area = np.cos(np.radians(record.latitude.astype(np.float64)))

    def error(difference: np.ndarray) -> float:
        return float(np.sqrt((np.square(difference) * area).mean() / area.mean()))

    weeks = np.arange(start, len(record.day))
    for place, lead in enumerate(LEADS):
        now, then = climate.anomaly[weeks - lead], climate.anomaly[weeks]
        found = {
            "persistence": error(record.sst[weeks] - record.sst[weeks - lead]),
            "climatology": error(then),
            "damped persistence": error(then - climate.damping(lead) * now),
        }
        assert found == pytest.approx({k: v[place] for k, v in PUBLISHED.items()}, abs=5e-4)


def test_a_cycle_is_found_and_only_known_weeks_are_learnt_from():
    random = np.random.default_rng(1)
    day = np.datetime64("1993-02-03") + 7 * np.arange(400)
    waves = harmonics(day, 3)
    assert waves.shape == (400, 7)
    truth = waves @ random.normal(size=(7, 5))
    climate = Climatology(truth, day, 250)
    np.testing.assert_allclose(climate.cycle, truth, atol=1e-10)
    later = truth.copy()
    later[250:] += random.normal(size=(150, 5))
    changed = Climatology(later, day, 250)
    np.testing.assert_allclose(changed.cycle, truth, atol=1e-10)
    noisy = truth + random.normal(size=truth.shape)
    for lead in (1, 3):
        early, whole = (
            Climatology(x, day, 250).damping(lead)
            for x in (noisy, np.concatenate([noisy[:250], later[250:]]))
        )
        np.testing.assert_array_equal(early, whole)


def test_damping_is_the_share_that_is_left():
    random = np.random.default_rng(2)
    share, anomaly = np.array([0.9, 0.5, 0.0]), np.zeros((20_000, 3))
    for week in range(1, len(anomaly)):
        anomaly[week] = share * anomaly[week - 1] + random.normal(size=3)
    day = np.datetime64("1600-01-01") + 7 * np.arange(len(anomaly))
    climate = Climatology(anomaly, day, len(day))
    np.testing.assert_allclose(climate.damping(1), share, atol=0.03)
    np.testing.assert_allclose(climate.damping(3), share**3, atol=0.03)


def test_a_year_is_one_turn_of_the_phase():
    days = np.array(["1990-01-01", "1994-01-01", "1992-07-02"], "datetime64[D]")
    np.testing.assert_allclose(phase(days) / (2 * np.pi), [0, 4, 2.5], atol=2e-3)


@pytest.mark.parametrize("problem", [PROBLEM, Sst(history=3, steps=20), Sst(history=20, steps=1)])
def test_splits_share_no_week_and_hold_what_there_is(problem):
    record = sst.packaged()
    train, validation, test = (windows(problem, split) for split in STARTS)
    assert set.union(*train).isdisjoint(set.union(*validation))
    assert set.union(*validation).isdisjoint(
        week for window in test for week in sorted(window)[problem.history :]
    )
    assert set.union(*train).isdisjoint(set.union(*test))
    assert min(set.union(*train)) == 0
    assert max(set.union(*test)) == len(record.day) - 1
    for split, year in (("validation", 2007), ("test", 2010)):
        first = record.day[problem.weeks(split, record.day)[0]]
        assert np.datetime64(f"{year}-01-01") <= first < np.datetime64(f"{year}-01-08")
    for split in ("train", "validation"):
        assert max(set.union(*windows(problem, split))) < 1042


def test_sizes_are_all_windows():
    day = sst.packaged().day
    assert {split: len(PROBLEM.weeks(split, day)) for split in STARTS} == PROBLEM.sizes


@pytest.mark.parametrize("target", TARGETS)
def test_a_sample_is_cut_from_the_record(target):
    record = sst.packaged()
    problem = Sst(target=target, history=5, steps=3)
    sample = load(problem, "validation", 7)[6]
    first = problem.weeks("validation", record.day)[6]
    start = int(np.searchsorted(record.day, np.datetime64("2010-01-01")))
    climate = Climatology(record.sst, record.day, start)
    past = (record.sst if target == "temperature" else climate.anomaly)[first - 5 : first]
    np.testing.assert_allclose(sample.values, past.T, atol=2e-6)
    expected = record.sst[first : first + 3].astype(np.float64)
    if target != "temperature":
        expected = expected - climate.cycle[first : first + 3]
    if target == "departure":
        for lead in (1, 2, 3):
            expected[lead - 1] -= climate.damping(lead) * climate.anomaly[first - 1]
    np.testing.assert_allclose(sample.targets[..., 0], expected, atol=4e-6)
    season = phase(record.day[first - 1 : first])
    np.testing.assert_allclose(sample.parameters, [np.cos(season[0]), np.sin(season[0])], atol=1e-6)
    assert problem.spec.outputs == (target,)
    assert problem.spec.history == (0 if target == "departure" else 5)


def test_places_are_unit_vectors_and_weights_are_areas():
    record, sample = sst.packaged(), load(PROBLEM)[0]
    np.testing.assert_allclose(sample.points.norm(dim=1), 1, atol=1e-6)
    x, y, z = sample.points.numpy().T
    north, east = np.degrees(np.arcsin(z)), np.degrees(np.arctan2(y, x)) % 360
    np.testing.assert_allclose(north, record.latitude, atol=1e-4)
    np.testing.assert_allclose(east, record.longitude, atol=1e-4)
    assert sample.weights.mean().item() == pytest.approx(1, abs=1e-6)
    ratio = sample.weights / torch.from_numpy(record.latitude).deg2rad().cos()
    assert ratio.std() < 1e-5 * ratio.mean()


def test_references_score_the_same_in_the_terms_of_any_target():
    rows = []
    for target in TARGETS:
        problem = Sst(target=target)
        data = load(problem, "validation", 20)
        references = problem.references(data, "validation")
        assert set(references) == set(PUBLISHED)
        assert all(f.shape == (20, 8, 2040, 1) for f in references.values())
        scores = score_references(references, data)
        rows.append([x for name in PUBLISHED for x in scores[name].rmse_per_time])
        if target == "departure":
            assert not references["damped persistence"].any()
            assert scores["damped persistence"].relative_l2 == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-4)
    np.testing.assert_allclose(rows[0], rows[2], rtol=1e-4)


def test_references_over_the_test_windows_are_close_to_those_over_all_weeks():
    """A window needs all of its weeks, so the first and last weeks of the years count less."""
    data = load(PROBLEM, "test", PROBLEM.sizes["test"])
    for name, scores in score_references(PROBLEM.references(data, "test"), data).items():
        found = [scores.rmse_per_time[lead - 1] for lead in LEADS]
        assert found == pytest.approx(PUBLISHED[name], abs=2.5e-3), name


def test_persistence_is_the_last_input():
    problem = Sst(target="temperature", steps=2)
    data = load(problem)
    last = data.data.values[..., -1]
    found = problem.references(data, "test")["persistence"][..., 0]
    for step in range(2):
        torch.testing.assert_close(found[:, step], last, atol=1e-5, rtol=0)


def test_without_all_inputs_only_climatology_is_left():
    data = load(PROBLEM)
    spec = PROBLEM.spec
    assert set(PROBLEM.references(views.keep(data, 0.5), "test")) == {"climatology"}
    assert set(PROBLEM.references(views.mask(data, "left", spec), "test")) == {"climatology"}
    whole = PROBLEM.references(data, "test")["climatology"]
    torch.testing.assert_close(
        PROBLEM.references(views.keep(data, 0.5), "test")["climatology"], whole
    )


def test_a_horizon_may_be_as_long_as_the_record_allows():
    problem = PROBLEM.with_steps(26)
    data = load(problem)
    assert data[0].times[-1] == 26
    assert problem.references(data, "test")["persistence"].shape[1] == 26
    with pytest.raises(DataError, match=r"test split has 345 windows of 8 \+ 26 weeks, and 363"):
        load(problem, count=363)


@pytest.mark.parametrize("name", [sst.ORIGINAL, ""], ids=["file", "folder"])
def test_the_original_file_gives_the_same_samples(original, name):
    problem = replace(PROBLEM, files=str(original() / name))
    ours, theirs = load(PROBLEM, "train", 4), load(problem, "train", 4)
    assert len(theirs[0].points) == 51
    rows = torch.arange(0, 2040, 40)
    assert torch.equal(ours[3].points[rows], theirs[3].points)
    torch.testing.assert_close(ours[3].values[rows], theirs[3].values)
    torch.testing.assert_close(ours[3].targets[:, rows], theirs[3].targets)
    same = (PROBLEM.references(ours, "train"), problem.references(theirs, "train"))
    for one, other in zip(*(r.values() for r in same), strict=True):
        torch.testing.assert_close(one[:, :, rows], other)


def test_what_is_tested_on_is_not_learnt_from(original):
    before = load(replace(PROBLEM, files=str(original())), "train", 50)
    other = arrays()["sst"].copy()
    other[1042:] += np.random.default_rng(0).normal(size=other[1042:].shape).astype(np.float32)
    after = load(replace(PROBLEM, files=str(original(sst=other))), "train", 50)
    assert torch.equal(before.data.values, after.data.values)
    assert torch.equal(before.data.truth, after.data.truth)


HOLE = arrays()["sst"].copy()
HOLE[7, 3] = np.nan
SKIPPED = arrays()["date"].copy()
SKIPPED[5:] = SKIPPED[4:-1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lat": None}, "lacks lat; it has sst, date, lon"),
        ({"sst": HOLE}, "1 values that are not finite"),
        ({"sst": HOLE[:-1]}, r"sst must be real numbers of shape \(1412, 51\).*\(1411, 51\)"),
        ({"lon": np.zeros(50, np.float32)}, r"lon must be .* \(51,\).* got float32 \(50,\)"),
        ({"sst": np.ones((1412, 51), int)}, "real numbers.* got int64"),
        ({"date": SKIPPED}, "a week apart"),
        ({"date": np.full(1412, b"yesterday")}, "YYYY-MM-DD"),
        ({"sst": arrays()["sst"] + 273.15}, "degrees Celsius"),
        ({"date": np.array([object()] * 1412)}, "cannot be read"),
        ({"date": np.array(b"1990-01-07")}, "must list the weeks"),
        ({"lat": arrays()["lon"], "lon": arrays()["lat"]}, "Exchanged, or in radians"),
        ({"lat": np.radians(arrays()["lat"])}, "Exchanged, or in radians"),
        ({k: arrays()[k][500:] for k in ("sst", "date")}, None),
        ({k: arrays()[k][-450:] for k in ("sst", "date")}, "two years of weeks before 2010"),
    ],
)
def test_wrong_files_are_refused(original, changes, said):
    problem = replace(PROBLEM, files=str(original(**changes)))
    if said is None:
        assert len(load(problem, "train")) == 3
        return
    with pytest.raises(DataError, match=said):
        load(problem)


def test_missing_and_damaged_files_are_refused(original, tmp_path):
    problem = replace(PROBLEM, files=str(tmp_path / "elsewhere.npz"))
    with pytest.raises(DataError, match=rf"elsewhere.npz is not there.*{sst.ORIGINAL}"):
        load(problem)
    path = original() / sst.ORIGINAL
    problem = replace(PROBLEM, files=str(path))
    for spoilt in (path.read_bytes()[:-3000], b"", b"no archive"):
        path.write_bytes(spoilt)
        with pytest.raises(DataError, match=rf"{sst.ORIGINAL} cannot be read"):
            load(problem)


def test_what_cannot_be_is_refused():
    with pytest.raises(DataError, match=r"test split has 363 windows.*400 were asked"):
        load(PROBLEM, count=400)
    for wrong in ({"history": 0}, {"steps": -1}):
        with pytest.raises(DataError, match="1 at least"):
            Sst(**wrong)
    with pytest.raises(Unsupported, match="measured"):
        PROBLEM.generate("train", range(1), seed=0, device=torch.device("cpu"), resolution=None)
    with pytest.raises(Unsupported, match="one resolution"):
        PROBLEM.load("test", 1, store=Store("never used"), resolution=32)
