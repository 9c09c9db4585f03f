"""The last frames go in, a labelled array comes out, with coordinates, units and times."""

import numpy as np
import pytest
import torch

from ipot.errors import DataError
from ipot.formats.series.latest_frames import to_batch
from ipot.formats.series.samples import from_xarray
from ipot.surrogate.forecast import asked_places, to_xarray
from ipot.version import __version__

from .labelled_data import days, grid, stations, truth, xr


def learnt(data, **options):
    return from_xarray(data, **{"inputs": "t2m", "targets": "t2m", "history": 3, **options})


def answered(series, data, on=None):
    """The true field of the next frames, as if a model had said it: times numbered by their day."""
    frames = to_batch(series, data)[0]
    places = asked_places(series, on, frames)
    lon, lat = places.queries(series.west).T
    first = (frames.last - days(1)[0]) // np.timedelta64(1, "D") + 1
    said = truth(first + np.arange(max(series.lead, 1)), lat, lon)
    return to_xarray(series, said[..., None], places, frames.last)


class TestFrames:
    def test_the_last_frames_are_those_of_training(self):
        data = grid(10)
        dataset, series = learnt(data)
        for last in (3, 7):
            frames = to_batch(series, data.isel(time=slice(None, last)))[0]
            sample = dataset[last - 3]
            np.testing.assert_array_equal(frames.values, sample.values)
            np.testing.assert_allclose(frames.points, sample.points)
            assert frames.last == data.time.values[last - 1]

    def test_steps_between_frames_static_season_and_scalars(self):
        data = grid(30).assign(co2=("time", np.arange(30.0)))
        data["height"] = (("latitude", "longitude"), np.arange(12.0).reshape(3, 4))
        dataset, series = from_xarray(
            data,
            inputs=("t2m", "co2"),
            targets="t2m",
            static="height",
            history=3,
            every=4,
            season=True,
        )
        # Frames 0 4 8 | 12, 4 8 12 | 16, ...: the third window ends with frame 16.
        frames = to_batch(series, data.isel(time=slice(5, 17)))[0]
        np.testing.assert_array_equal(frames.values, dataset[2].values)
        np.testing.assert_allclose(frames.parameters, dataset[2].parameters, rtol=1e-6)
        assert frames.parameters[:3].tolist() == [8.0, 12.0, 16.0]

    def test_unsorted_frames_and_no_name(self):
        data = grid(10)
        dataset, series = learnt(data)
        array = data.t2m.isel(time=[5, 3, 4]).rename(None)
        np.testing.assert_array_equal(to_batch(series, array)[0].values, dataset[3].values)
        with pytest.raises(DataError):  # another name is another field
            to_batch(series, array.rename("rain"))

    def test_other_places_and_other_longitudes(self):
        _, series = learnt(grid(10))
        moved = grid(5, longitudes=(355.0, 5.0), names=("time", "lat", "lon"))
        assert to_batch(series, moved)[0].points[:2].tolist() == [[-5.0, 60.0], [5.0, 60.0]]

    def test_places_without_values_are_left_out(self):
        data = grid(10)
        _, series = learnt(data)
        data["t2m"][8, 0, 0] = np.nan
        frames = to_batch(series, data)[0]
        assert len(frames.points) == len(frames.values) == 11
        assert [0.0, 60.0] not in frames.points.tolist()

    def test_every_sample_is_a_question(self):
        data = xr.concat([grid(8), grid(8) + 1], dim="run").assign_coords(run=[7, 9])
        _, series = learnt(data)
        first, second = to_batch(series, data)
        np.testing.assert_allclose(second.values, first.values + 1, rtol=1e-6)
        assert len(to_batch(series, data.isel(run=0))) == 1
        steady = data.isel(time=0).rename(t2m="a").assign(u=data.t2m.isel(time=1))
        _, series = from_xarray(steady, inputs="a", targets="u", sample="run")
        assert [int(f.last) for f in to_batch(series, steady[["a"]])] == [7, 9]
        assert len(to_batch(series, steady.isel(run=1))) == 1

    def test_frames_that_are_not_there_are_named(self):
        data = grid(10)
        _, series = learnt(data)
        with pytest.raises(DataError, match=r"3 frames.*2020-01-08.* is missing"):
            to_batch(series, data.isel(time=[5, 6, 8, 9]))
        with pytest.raises(DataError, match="missing"):
            to_batch(series, data.isel(time=slice(-2, None)))
        with pytest.raises(DataError, match=r"isel\(time=\[-1\]\)"):
            to_batch(series, data.isel(time=-1))
        with pytest.raises(DataError, match="longitude, latitude"):
            to_batch(series, data.rename(latitude="y", longitude="x"))
        with pytest.raises(DataError, match="t2m"):
            to_batch(series, data.rename(t2m="a").assign(b=data.t2m))
        with pytest.raises(DataError, match="no finite value"):
            to_batch(series, data * np.nan)
        with pytest.raises(DataError, match="time must hold times"):
            to_batch(series, data.assign_coords(time=list("abcdefghij")))


class TestPlaces:
    def test_where_the_targets_were_unless_said(self):
        data = grid(10)
        _, series = learnt(data, lead=2)
        out = answered(series, data)
        assert out.dims == ("time", "latitude", "longitude")
        for name in ("latitude", "longitude"):
            np.testing.assert_array_equal(out[name], data[name])
        expected = truth([10, 11], *np.meshgrid(data.latitude, data.longitude, indexing="ij"))
        np.testing.assert_allclose(out.values, expected, rtol=1e-6)

    @pytest.mark.parametrize("kind", ["dataset", "array", "coordinates", "dict", "other names"])
    def test_a_finer_grid(self, kind):
        fine = grid(2, np.linspace(60, 40, 5), np.linspace(-5, 30, 6))
        on = {
            "dataset": fine,
            "array": fine.t2m,
            "coordinates": fine.coords,
            "dict": {"latitude": fine.latitude.values, "longitude": fine.longitude.values},
            "other names": {"lat": fine.latitude.values, "lon": list(fine.longitude.values)},
        }[kind]
        data = grid(10)
        _, series = learnt(data)
        out = answered(series, data, on)
        assert out.shape == (1, 5, 6)
        assert out[out.dims[2]].values.tolist() == fine.longitude.values.tolist()
        lat, lon = np.meshgrid(fine.latitude, fine.longitude, indexing="ij")
        np.testing.assert_allclose(out.values, truth([10], lat, lon), rtol=1e-6)
        assert out[out.dims[1]].attrs["standard_name"] == "latitude"

    def test_stations_and_single_places(self):
        data, places = grid(10), stations(2, 4)
        _, series = learnt(data)
        out = answered(series, data, places)
        assert out.dims == ("time", "station")
        assert out.station.values.tolist() == ["S0", "S1", "S2", "S3"]
        np.testing.assert_allclose(
            out.values, truth([10], places.lat.values, places.lon.values), rtol=1e-6
        )
        assert answered(series, data, {"lat": 50.0, "lon": 3.0}).shape == (1,)
        along = {"lat": ("track", [40.0, 50.0]), "lon": ("track", [0.0, 1.0])}
        assert answered(series, data, along).dims == ("time", "track")

    def test_stations_in_grid_out(self):
        seen = stations(10)
        _, series = from_xarray(seen, inputs="t2m", target_source=grid(10), history=1, lead=0)
        out = answered(series, seen)
        assert out.dims == ("time", "latitude", "longitude")
        assert out.time.values[0] == seen.time.values[-1]

    def test_land_stays_empty(self):
        data = grid(10)
        data["t2m"][:, 1, 1:3] = np.nan
        _, series = learnt(data)
        out = answered(series, data)
        assert out.shape == (1, 3, 4)
        np.testing.assert_array_equal(np.isnan(out.values[0]), np.isnan(data.t2m.values[0]))

    def test_what_on_lacks_is_named(self):
        _, series = learnt(grid(10))
        with pytest.raises(DataError, match="on must say longitude; it has lat"):
            asked_places(series, {"lat": [1.0]})
        with pytest.raises(DataError, match=r"on\['lat'\] has 2 axes"):
            asked_places(series, {"lat": np.zeros((2, 2)), "lon": [0.0]})
        with pytest.raises(DataError, match="between -90 and 90"):
            asked_places(series, {"lat": [95.0], "lon": [0.0]})
        with pytest.raises(DataError, match="not finite"):
            asked_places(series, {"lat": [np.nan], "lon": [0.0]})
        with pytest.raises(DataError, match="on must be"):
            asked_places(series, 3)


class TestArrays:
    def test_units_times_and_history(self):
        data = grid(10)
        data.t2m.attrs |= {"long_name": "temperature", "standard_name": "unknown", "other": 1}
        _, series = learnt(data, lead=2, every=2, history=2)
        out = answered(series, data)
        assert out.name == "t2m"
        assert out.attrs["units"] == "K"
        assert out.attrs["long_name"] == "temperature"
        assert "standard_name" not in out.attrs
        assert __version__ in out.attrs["history"]
        assert (
            out.time.values.tolist()
            == days(2, "2020-01-12").tolist()[:1] + days(1, "2020-01-14").tolist()
        )
        assert out.forecast_reference_time.values == data.time.values[-1]

    def test_several_targets_are_a_data_set(self):
        data = grid(8, variables=("u", "v"))
        _, series = from_xarray(data, inputs=("u", "v"), targets=("u", "v"))
        frames = to_batch(series, data)[0]
        said = np.arange(24.0).reshape(1, 12, 2)
        out = to_xarray(series, said, asked_places(series), frames.last)
        np.testing.assert_array_equal(out.v.values.ravel(), said[0, :, 1])
        assert out.attrs["Conventions"].startswith("CF")

    def test_longer_predictions_go_on_in_time(self):
        _, series = learnt(grid(10))
        out = to_xarray(series, np.zeros((5, 12, 1)), asked_places(series), days(10)[-1])
        assert out.time.values.tolist() == days(5, "2020-01-11").tolist()

    def test_samples_without_time_have_none(self):
        data = xr.concat([grid(2), grid(2)], dim="case").assign_coords(case=["a", "b"])
        data = data.isel(time=0, drop=True)
        _, series = from_xarray(data, inputs="t2m", targets="t2m")
        places = asked_places(series)
        assert to_xarray(series, np.zeros((1, 12, 1)), places).dims == ("latitude", "longitude")
        both = to_xarray(series, np.zeros((2, 1, 12, 1)), places, ["a", "b"])
        assert both.dims == ("case", "latitude", "longitude")
        assert both.case.values.tolist() == ["a", "b"]

    def test_wrong_shapes_are_refused(self):
        _, series = learnt(grid(10))
        with pytest.raises(DataError, match="11 places and 1 variables; there are 12"):
            to_xarray(series, np.zeros((1, 11, 1)), asked_places(series), days(1)[0])
        with pytest.raises(DataError, match="last is needed"):
            to_xarray(series, np.zeros((1, 12, 1)), asked_places(series))
        with pytest.raises(DataError, match=r"\(T, M, K\)"):
            to_xarray(series, np.zeros(12), asked_places(series))

    @pytest.mark.parametrize("kind", ["days", "months", "noleap", "360_day", "numbers", "counted"])
    def test_written_and_read_back_with_every_kind_of_time(self, tmp_path, kind):
        pytest.importorskip("netCDF4")
        times, after = {
            "days": (days(8), "2020-01-09"),
            "months": (
                np.arange("2020-01", "2020-09", dtype="datetime64[M]").astype("datetime64[ns]"),
                "2020-09-01",
            ),
            "noleap": (None, "2000-03-01"),
            "360_day": (None, "2000-02-29"),
            "numbers": (0.5 * np.arange(8), "4.0"),
            "counted": (None, "8"),
        }[kind]
        if kind in ("noleap", "360_day"):
            pytest.importorskip("cftime")
            times = xr.date_range(
                "2000-02-21", periods=8, freq="D", calendar=kind, use_cftime=True
            ).values
        data = grid(8, times=times)
        if kind == "counted":
            data = data.drop_vars("time")
        _, series = learnt(data, lead=2)
        frames = to_batch(series, data)[0]
        said = np.random.default_rng(0).random((2, 12, 1)).astype(np.float32)
        out = to_xarray(series, said, asked_places(series), frames.last)
        assert str(out.time.values[0]).startswith(after)
        path = tmp_path / "forecast.nc"
        out.to_netcdf(path, engine="netcdf4")
        with xr.open_dataarray(path) as back:
            xr.testing.assert_identical(back.load().drop_vars("time"), out.drop_vars("time"))
            assert [str(t) for t in back.time.values] == [str(t) for t in out.time.values]
            assert back.latitude.encoding.get("_FillValue") is None


def test_points_and_origin_are_those_of_the_data_set():
    data = grid(10, (0.0, 1.0), (5e5, 5.00001e5), names=("time", "y", "x"))
    dataset, series = learnt(data)
    frames = to_batch(series, data.isel(time=slice(0, 3)))[0]
    moved = torch.from_numpy(frames.points - np.array(dataset.layout.origin)).float()
    assert torch.equal(moved, dataset[0].points)
