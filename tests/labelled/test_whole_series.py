"""A whole series at once: an answer from every time, and the forecasts a model is held against."""

import json

import numpy as np
import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

import ipot  # noqa: E402
from ipot import cli  # noqa: E402
from ipot.errors import DataError, Unsupported  # noqa: E402
from ipot.formats.series.cycle import Cycle, learn_cycle  # noqa: E402
from ipot.formats.series.samples import from_xarray  # noqa: E402
from ipot.own import sizing  # noqa: E402
from labelled.labelled_data import days, grid, stations  # noqa: E402


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Models of a fraction of a second."""
    budget = sizing.Budget(16, 8, 1, 2, 2, 1024, 512, 8, 3e-3)
    monkeypatch.setattr(sizing, "BUDGETS", {"cpu": budget, "cuda": budget})
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)


def year():
    """Fourteen months of a field that is the season alone, and a day's noise that is not."""
    times = days(430)
    angle = 2 * np.pi * np.arange(430) / 365.25
    place = np.linspace(1, 2, 3)[:, None] + np.linspace(0, 1, 4)
    field = np.cos(angle)[:, None, None] * place + np.sin(2 * angle)[:, None, None]
    noise = 0.3 * np.random.default_rng(0).normal(size=field.shape)
    data = grid(430, times=times)
    return data.assign(t2m=(data.t2m.dims, 5 + field + noise))


def fitted(data, **options):
    return ipot.fit(data, epochs=1, device="cpu", quiet=True, **options)


def test_as_many_maps_come_out_as_times_of_stations_go_in(tmp_path):
    seen = stations(40)
    seen["t2m"][7] = np.nan  # nothing is known then
    model = fitted(seen, inputs="t2m", targets=grid(40))
    maps = model.predict(seen, all_times=True)
    assert maps.t2m.dims == ("time", "latitude", "longitude")
    assert np.array_equal(maps.time.values, seen.time.values)
    assert np.isnan(maps.t2m.values[7]).all()
    assert np.isnan(maps.t2m.values).sum() == maps.t2m[0].size
    for last in (3, 39):
        one = model.predict(seen.isel(time=slice(0, last + 1)))
        np.testing.assert_allclose(maps.t2m.values[last], one.values[0], rtol=1e-6)
    seen.to_netcdf(tmp_path / "stations.nc")
    model.save(tmp_path / "model")
    words = (
        "predict",
        "model",
        "stations.nc",
        "--all-times",
        "--out",
        "maps.nc",
        "--device",
        "cpu",
    )
    words = [str(tmp_path / w) if w == "model" or w.endswith(".nc") else w for w in words]
    assert cli.main(words) == 0
    with xr.open_dataset(tmp_path / "maps.nc") as written:
        np.testing.assert_allclose(written.t2m.values, maps.t2m.values, rtol=1e-6)
        assert written.t2m.attrs == maps.t2m.attrs
        assert np.array_equal(written.time.values, seen.time.values)


def test_forecasts_from_every_time_have_steps_and_bounds(tmp_path):
    data = grid(60)
    model = fitted(data, inputs="t2m", targets="t2m", history=2, lead=3)
    gap = data.isel(time=[0, 1, 2, 4, 5])  # from day 4 on there is no day before
    found = model.predict(gap, all_times=True)
    assert found.t2m.dims == ("time", "step", "latitude", "longitude")
    assert np.array_equal(found.time.values, data.time.values[[1, 2, 5]])
    assert np.array_equal(found.step.values.astype("m8[D]").astype(int), [1, 2, 3])
    assert found.valid_time.values[0, 2] == data.time.values[4]
    one = model.predict(gap.isel(time=slice(0, 3)))
    np.testing.assert_allclose(found.t2m.values[1], one.values, rtol=1e-6)
    written = model.predict(gap, all_times=True, out=tmp_path / "f.nc")
    assert set(written.t2m.coords) == set(found.t2m.coords)
    np.testing.assert_allclose(written.t2m.values, found.t2m.values)
    written.close()
    with pytest.raises(DataError, match="no time has its history"):
        model.predict(gap.isel(time=[0, 3]), all_times=True)
    with pytest.raises(Unsupported, match="all_times is for labelled arrays"):
        model.predict(np.zeros((3, 2)), np.zeros(3), all_times=True)


def test_every_time_looks_for_its_own_history():
    data = grid(60)
    model = fitted(data, inputs="t2m", targets="t2m", history=2, lead=1)
    hours = np.array([0] * 5 + [6] * 5).astype("m8[h]")
    for late in (hours, hours[::-1], np.array([12] + [0] * 9).astype("m8[h]")):
        times = data.time.values[:10] + late
        found = model.predict(
            data.isel(time=slice(0, 10)).assign_coords(time=times), all_times=True
        )
        has_one = [t - np.timedelta64(1, "D") in times for t in times]
        assert np.array_equal(found.time.values, times[has_one])
        assert not np.isnan(found.t2m.values).any()
    same = model.predict(data.isel(time=slice(5, 10)), all_times=True)  # though of other hours
    kept = model.predict(
        data.isel(time=slice(0, 10)).assign_coords(time=data.time.values[:10] + hours),
        all_times=True,
    )
    np.testing.assert_allclose(kept.t2m.values[-4:], same.t2m.values)


def test_answers_are_never_written_over_their_inputs(tmp_path):
    data, file = grid(40), tmp_path / "series.nc"
    model = fitted(data, inputs="t2m", targets="t2m", history=2, lead=1)
    data.to_netcdf(file)
    before = file.read_bytes()
    with xr.open_dataset(file) as opened, xr.open_dataarray(file) as array:
        for given in (file, opened, array, opened[["t2m"]]):
            with pytest.raises(DataError, match=r"series\.nc is among the inputs"):
                model.predict(given, all_times=True, out=tmp_path / "." / "series.nc")
        with pytest.raises(DataError, match=r"series\.nc is among the inputs"):
            model.predict(data, on=opened, all_times=True, out=file)
    assert file.read_bytes() == before


def test_persistence_and_the_season_stand_beside_a_forecast(tmp_path, capsys):
    data = year()
    model = ipot.fit(
        data,
        inputs="t2m",
        targets="t2m",
        history=2,
        lead=2,
        epochs=1,
        device="cpu",
        out=tmp_path / "m",
    )
    said = capsys.readouterr().err
    assert "  persistence " in said
    assert "  climatology " in said
    assert {"persistence", "climatology"} < set(model.scores["baselines"])
    later = data.isel(time=slice(-20, None))
    scores = ipot.load(tmp_path / "m", device="cpu").evaluate(later)
    fields = later.t2m.values.astype(np.float32).reshape(20, -1)
    errors = []
    for last in range(1, 18):
        ahead = fields[last + 1 : last + 3]
        errors.append(np.linalg.norm(fields[last] - ahead) / np.linalg.norm(ahead))
    assert scores.references["persistence"].relative_l2 == pytest.approx(np.mean(errors), rel=1e-4)
    # The season has no part in a day's noise, and persistence has twice.
    best = scores.references["climatology"].relative_l2
    assert best < 0.85 * scores.references["persistence"].relative_l2
    later.to_netcdf(tmp_path / "later.nc")
    words = ["evaluate", str(tmp_path / "m"), str(tmp_path / "later.nc"), "--device", "cpu"]
    assert cli.main(words) == 0
    assert "climatology" in capsys.readouterr().out
    assert cli.main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["references"]
    assert told["climatology"]["relative_l2"] == pytest.approx(best)


def test_without_a_year_there_is_no_season_and_without_a_lead_no_persistence():
    data, _ = from_xarray(grid(300), inputs="t2m", targets="t2m")
    assert learn_cycle(data, data) is None
    data, _ = from_xarray(grid(366), inputs="t2m", targets="t2m")
    assert len(learn_cycle(data, data).waves) == 5
    assert len(learn_cycle(data, data.select(range(290))).waves) == 3
    model = fitted(stations(60), inputs="t2m", targets=grid(60))
    assert model.evaluate(stations(60), targets=grid(60)).references == {}


def test_the_season_is_kept_as_it_is_and_refused_where_it_is_damaged():
    waves = np.arange(30.0, dtype=np.float32).reshape(3, 5, 2)
    cycle = Cycle(waves, np.zeros((5, 2), np.float32))
    plain = cycle.as_dict()
    assert np.array_equal(Cycle.from_dict(json.loads(json.dumps(plain))).waves, waves)
    np.testing.assert_allclose(cycle.at(np.zeros(1))[0], waves[0] + waves[1])
    for wrong in ({"waves": [3, 5, 3]}, {"waves": [3, 6, 2]}, {"data": "eJwDAAAAAAE="}):
        with pytest.raises(ValueError, match="season"):
            Cycle.from_dict(plain | wrong)
