"""Places and times of labelled arrays are found, whatever they are called."""

import numpy as np
import pytest
import torch

from ipot.formats.series.clock import Clock
from ipot.formats.series.latest_frames import to_batch
from ipot.formats.series.samples import from_xarray
from ipot.spec import Need

from .labelled_data import forecast, grid, stations, truth, unit_vectors, xr


class TestPlaces:
    @pytest.mark.parametrize("start", [0, 150, 180, 340, -10, -180, 355])
    def test_longitudes_of_every_dialect_are_the_same_places_in_one_piece(self, start):
        east = start + 10.0 * np.arange(5)
        expected = unit_vectors(np.stack([np.tile(east, 3), np.repeat([60, 50, 40], 5)], 1))
        for longitudes in (east, east % 360, (east + 180) % 360 - 180):
            dataset, series = forecast(grid(4, longitudes=longitudes))
            np.testing.assert_allclose(unit_vectors(dataset[0].points), expected, atol=1e-6)
            west, far = dataset.spec.domain[0]
            assert far - west == 40
            assert -180 <= west < 180
            assert not series.wraps

    @pytest.mark.parametrize("signed", [False, True])
    def test_the_globe_wraps_and_a_repeated_meridian_is_one(self, signed):
        longitudes = np.arange(0, 361, 30.0) - (180 if signed else 0)
        dataset, series = forecast(grid(4, longitudes=longitudes))
        assert series.wraps
        assert dataset[0].grid == (3, 12)
        assert len({tuple(p) for p in unit_vectors(dataset[0].points).round(5)}) == 36
        assert any("meridian" in n for n in series.notes) is False

    @pytest.mark.parametrize(
        "names", [("time", "lat", "lon"), ("valid_time", "latitude", "longitude")]
    )
    def test_common_names(self, names):
        dataset, series = forecast(grid(4, names=names))
        assert series.time == names[0]
        assert series.columns == (names[2], names[1])
        assert dataset.spec.geographic

    def test_coordinates_known_by_their_units_alone(self):
        data = grid(4, names=("when", "rows", "columns"))
        data["rows"].attrs["units"] = "degrees_north"
        data["columns"].attrs["units"] = "degrees_east"
        dataset, series = forecast(data)
        assert series.columns == ("columns", "rows")
        assert dataset.spec.geographic

    def test_plain_coordinates_keep_the_order_of_the_grid_and_lose_a_far_origin(self):
        data = grid(4, (6.0e6, 6.1e6), (5e5, 6e5, 7e5), names=("time", "y", "x"))
        dataset, series = forecast(data)
        assert not dataset.spec.geographic
        assert series.columns == ("y", "x")
        assert dataset[0].points[:2].tolist() == [[6.0e6, 5e5], [6.0e6, 6e5]]
        far = data.assign_coords(x=[5e5, 5.00001e5, 5.00002e5])
        near, _ = forecast(far)
        assert near.layout.origin == (0.0, 500001.0)
        assert near[0].points[:3, 1].tolist() == [-1.0, 0.0, 1.0]

    def test_stations_have_their_places_beside_them(self):
        data = stations(6)
        dataset, series = forecast(data, history=2)
        expected = np.stack([data.lon, data.lat], 1)
        np.testing.assert_allclose(dataset[0].points, expected, rtol=1e-6)
        assert dataset[0].grid is None
        assert series.columns == ("lon", "lat")
        np.testing.assert_array_equal(dataset[2].values, data.t2m.values[2:4].T)

    def test_one_station_is_a_place_too(self):
        dataset, _ = forecast(stations(6, number=1))
        assert dataset[0].points.shape == (1, 2)

    @pytest.mark.filterwarnings("ignore:clat is in radian")
    def test_curved_grids_and_radians(self):
        flat = grid(4)
        lat, lon = np.meshgrid(flat.latitude, flat.longitude, indexing="ij")
        data = xr.Dataset(
            {"t2m": (("time", "y", "x"), flat.t2m.values)},
            coords={
                "time": flat.time,
                "clat": (("y", "x"), np.radians(lat), {"units": "radian"}),
                "clon": (("y", "x"), np.radians(lon), {"units": "radian"}),
            },
        )
        with pytest.warns(UserWarning, match="clon is in radian, and is converted to degrees"):
            dataset, _ = forecast(data)
        straight, _ = forecast(flat)
        assert dataset[0].grid is None
        torch.testing.assert_close(dataset[0].points, straight[0].points)
        assert torch.equal(dataset[0].values, straight[0].values)

    def test_levels_are_a_third_coordinate(self):
        data = xr.concat([grid(4), grid(4) + 1], dim="level").assign_coords(level=[500.0, 850.0])
        data = data.transpose("time", "level", ...)
        dataset, series = forecast(data)
        assert series.columns == ("longitude", "latitude", "level")
        assert dataset[0].points[[0, 12]].tolist() == [[0, 60, 500], [0, 60, 850]]
        alone, _ = forecast(data.isel(level=[0]))
        assert alone[0].points.shape[1] == 2

    def test_dimensions_without_coordinates_are_counted(self):
        data = grid(4, names=("time", "y", "x")).drop_vars(["x", "y"])
        dataset, _ = forecast(data)
        assert dataset[0].points[:5].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0]]

    def test_area_weights_are_the_cosine_of_the_latitude_on_grids_alone(self):
        dataset, _ = forecast(grid(4))
        cosine = np.repeat(np.cos(np.radians([60, 50, 40])), 4)
        np.testing.assert_allclose(dataset[0].weights, cosine / cosine.mean(), rtol=1e-6)
        assert forecast(stations(6))[0][0].weights is None

    def test_stations_in_grid_out(self):
        seen, field = stations(10), grid(10).rename(t2m="temperature")
        dataset, series = from_xarray(seen, inputs="t2m", target_source=field, history=2, lead=0)
        assert series.targets == ("temperature",)
        assert dataset.spec.outputs == ("temperature",)
        np.testing.assert_array_equal(dataset[3].values, seen.t2m.values[3:5].T)
        np.testing.assert_array_equal(
            dataset[3].truth[0, :, 0], field.temperature.values[4].ravel()
        )
        assert dataset[0].query_grid == (3, 4)
        assert Need.SAME_POINTS not in dataset.spec.provides

    def test_targets_at_other_times_are_matched_by_time(self):
        field = grid(
            40, times=np.datetime64("2020-01-03", "ns") + np.arange(40) * np.timedelta64(6, "h")
        )
        dataset, series = from_xarray(stations(10), inputs="t2m", target_source=field, lead=1)
        # Inputs on days 0 to 9 at midnight, targets from day 2 at midnight on.
        assert series.starts.tolist() == list(range(1, 10))
        np.testing.assert_array_equal(dataset[0].truth[0, :, 0], field.t2m.values[0].ravel())
        np.testing.assert_array_equal(dataset[1].truth[0, :, 0], field.t2m.values[4].ravel())


class TestClocks:
    def test_months_are_steps_however_long(self):
        times = np.arange("2019-01", "2021-01", dtype="datetime64[M]").astype("datetime64[ns]")
        dataset, series = forecast(grid(times=times), history=3)
        assert len(dataset) == 21
        assert series.clock.unit == "months"
        assert series.notes == ()

    @pytest.mark.parametrize(
        ("last", "months", "expected"),
        [
            ("2020-01-31", 1, "2020-02-29"),  # the end of a month stays one
            ("2020-04-30", 1, "2020-05-31"),
            ("2020-01-30", 1, "2020-02-29"),
            ("2020-01-15T12", 13, "2021-02-15T12"),
            ("2020-03-31", -1, "2020-02-29"),
        ],
    )
    def test_months_on(self, last, months, expected):
        clock = Clock("dates", "months", 1.0)
        found = clock.after(np.datetime64(last, "ns"), months)
        assert found == np.datetime64(expected, "ns")
        cftime = pytest.importorskip("cftime")
        other = cftime.datetime(*np.datetime64(last, "h").item().timetuple()[:4])
        then = Clock("cftime", "months", 1.0).after(other, months)
        assert then.isoformat()[:13] == str(np.datetime64(expected, "h"))

    @pytest.mark.parametrize("calendar", ["noleap", "360_day", "standard"])
    def test_other_calendars(self, calendar):
        pytest.importorskip("cftime")
        times = xr.date_range(
            "2000-02-25", periods=12, freq="D", calendar=calendar, use_cftime=True
        ).values
        dataset, series = forecast(grid(times=times), history=2, season=True)
        assert len(dataset) == 10
        assert series.clock.calendar == calendar

    def test_times_that_are_numbers_or_nothing(self):
        dataset, series = forecast(grid(times=0.1 * np.arange(12)), history=2)
        assert len(dataset) == 10
        assert series.clock.step == pytest.approx(0.1)
        dataset, series = forecast(grid(12).drop_vars("time"), history=2)
        assert len(dataset) == 10
        assert series.clock.kind == "none"

    def test_values_are_those_of_the_function(self):
        dataset, _ = forecast(grid(5))
        lon, lat = dataset[2].points.double().numpy().T
        np.testing.assert_allclose(dataset[2].values[:, 0], truth([2], lat, lon)[0], rtol=1e-6)

    def test_single_members_and_levels_say_no_place(self):
        data = grid(5).expand_dims(member=1, surface=1).transpose("time", "member", "surface", ...)
        dataset, _ = forecast(data)
        plain, _ = forecast(grid(5))
        assert torch.equal(dataset[1].points, plain[1].points)
        assert torch.equal(dataset[1].values, plain[1].values)


def plain(data, names):
    renamed = data.rename(dict(zip(names, "yx", strict=True)))
    bare = {n: (renamed[n].dims, renamed[n].values) for n in "xy"}
    return renamed.assign_coords(bare)


def test_grids_and_stations_have_their_coordinates_in_one_order():
    """Those of a grid come in the order of its dimensions, y first; those of stations x first."""
    on_grid = plain(grid(12), ("latitude", "longitude"))
    scattered = plain(stations(12), ("lat", "lon"))
    dataset, series = forecast(scattered, target_source=on_grid, lead=0)
    assert (series.columns, series.target_columns) == (("x", "y"), ("x", "y"))
    assert dataset[0].points[:, 1].min() > 35 < dataset[0].queries[:, 1].min()
    dataset, series = forecast(on_grid, lead=1)
    (found,) = to_batch(series, scattered)
    east, north = (
        found.points[:, series.columns.index("x")],
        found.points[:, series.columns.index("y")],
    )
    np.testing.assert_allclose(east, scattered.x)
    np.testing.assert_allclose(north, scattered.y)
