"""Files of labelled arrays: opened, looked into, larger than memory; and the real ones."""

import tracemalloc

import numpy as np
import pytest
import torch

from ipot.data import sst
from ipot.errors import DataError
from ipot.formats.inspection import inspect_series
from ipot.formats.series.description import split_series
from ipot.formats.series.frames import Field, memory_left
from ipot.formats.series.samples import from_xarray
from ipot.formats.xarray_files import open_series
from ipot.problems.sst import Sst

from .labelled_data import days, grid, unit_vectors, xr


def write(path, data):
    pytest.importorskip("netCDF4")
    data.to_netcdf(path, engine="netcdf4")
    return path


def write_zarr(path, data, chunk):
    pytest.importorskip("zarr")
    encoding = {name: {"chunks": (chunk, *a.shape[1:])} for name, a in data.data_vars.items()}
    data.to_zarr(path, mode="w", encoding=encoding, zarr_format=3, consolidated=False)
    return path


class TestOpen:
    def test_several_files_are_one_series(self, tmp_path):
        pytest.importorskip("dask")
        data = grid(9)
        for name, part in (("a", data.isel(time=slice(4, None))), ("b", data.isel(time=slice(4)))):
            write(tmp_path / f"{name}.nc", part)
        for where in (tmp_path, tmp_path / "*.nc"):
            found = open_series(where)
            xr.testing.assert_equal(found.compute(), data)
        assert found.t2m.chunks is not None

    def test_files_of_single_times_and_of_other_variables(self, tmp_path):
        data = grid(3, variables=("u", "v"))
        for i in range(3):
            write(tmp_path / f"u{i}.nc", data[["u"]].isel(time=i))
        write(tmp_path / "v.nc", data[["v"]])
        xr.testing.assert_equal(open_series(tmp_path).compute()[["u", "v"]], data)

    def test_files_of_unlike_grids_are_refused(self, tmp_path):
        write(tmp_path / "a.nc", grid(4))
        write(tmp_path / "b.nc", grid(4, (10.0, 20.0), times=days(4, "2021-01-01")))
        with pytest.raises(DataError, match=r"do not go together \(a.nc, b.nc\)"):
            open_series(tmp_path)

    def test_damaged_and_other_files_are_refused(self, tmp_path):
        whole = write(tmp_path / "a.nc", grid(40)).read_bytes()
        broken = tmp_path / "broken.nc"
        broken.write_bytes(whole[: len(whole) // 3])
        with pytest.raises(DataError, match=r"broken\.nc"):
            open_series(broken)
        (tmp_path / "text.nc").write_text("hello")
        with pytest.raises(DataError, match="expected GRIB, netCDF or Zarr"):
            open_series(tmp_path / "text.nc")
        with pytest.raises(DataError, match=r"nothing\.nc is not there"):
            open_series(tmp_path / "nothing.nc")

    def test_a_path_is_a_source(self, tmp_path):
        path = write(tmp_path / "a.nc", grid(6))
        dataset, _ = from_xarray(path, inputs="t2m", targets="t2m")
        plain, _ = from_xarray(grid(6), inputs="t2m", targets="t2m")
        assert torch.equal(dataset[2].values, plain[2].values)


class TestMemory:
    def test_a_store_larger_than_the_memory_allowed(self, tmp_path):
        random = np.random.default_rng(0)
        values = random.random((400, 60, 120), dtype=np.float32)
        data = xr.Dataset(
            {"t2m": (("time", "latitude", "longitude"), values)},
            coords={
                "time": days(400),
                "latitude": np.linspace(88.5, -88.5, 60),
                "longitude": 3.0 * np.arange(120),
            },
        )
        path = write_zarr(tmp_path / "large.zarr", data, 10)
        memory = 2 << 20
        assert data.nbytes > 5 * memory
        source = open_series(path)
        options = {"inputs": "t2m", "targets": "t2m", "history": 2, "lead": 1}
        from_xarray(source.isel(time=slice(0, 20)), **options)  # pays for imports and caches
        tracemalloc.start()
        try:
            dataset, series = from_xarray(source, memory=memory, **options)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1.5 * memory
        assert 5 < len(dataset) < 30
        assert any(f"{len(dataset)} of 398 windows are used, evenly" in n for n in series.notes)
        assert (series.starts[0], series.starts[-1]) == (0, 397)
        i = len(dataset) // 2
        start = series.starts[i]
        expected = values[start : start + 2].reshape(2, -1).T
        np.testing.assert_array_equal(dataset[i].values, expected)

    @pytest.mark.parametrize("lazy", [False, True])
    def test_every_frame_is_read_once(self, monkeypatch, lazy):
        data = grid(12)
        if lazy:
            pytest.importorskip("dask")
            data = data.chunk({"time": 5})
        read, block = [], Field._block

        def counted(self, member, times):
            read.extend(times.tolist())
            return block(self, member, times)

        monkeypatch.setattr(Field, "_block", counted)
        dataset, _ = from_xarray(
            data, inputs="t2m", targets="t2m", history=3, lead=2, memory=1 << 20
        )
        assert sorted(read) == list(range(12))
        np.testing.assert_array_equal(dataset[7].truth[1, :, 0], grid(12).t2m.values[11].ravel())

    def test_some_memory_is_free(self):
        assert memory_left() > 1 << 20


class TestInspect:
    def test_variables_ranges_and_times(self, tmp_path):
        data = grid(10).isel(time=[0, 1, 2, 3, 6, 7, 8, 9]).assign(depth=3.0)
        data["height"] = (("latitude", "longitude"), np.arange(12.0).reshape(3, 4))
        data["t2m"][0, 0, 0] = np.nan
        data["flag"] = ("time", list("abcdefgh"))
        path = write(tmp_path / "some.nc", data)
        found = inspect_series(path)
        by_name = {v.name: v for v in found.variables}
        assert (found.kind, found.cases, found.points) == ("netCDF", 8, (12, 12))
        t2m = by_name["t2m"]
        assert t2m.role == "input or target"
        assert t2m.shape == "8 time x 3 latitude x 4 longitude"
        assert (t2m.missing, t2m.units) == (1, "K")
        values = data.t2m.values[np.isfinite(data.t2m.values)]
        assert (t2m.low, t2m.high) == (values.min(), values.max())
        assert t2m.mean == pytest.approx(values.mean(), rel=1e-6)
        assert by_name["height"].role == "static input"
        assert by_name["latitude"].role == "places"
        assert (by_name["latitude"].low, by_name["latitude"].high) == (40.0, 60.0)
        assert by_name["time"].role == "time"
        assert by_name["flag"].role == by_name["depth"].role == "left alone"
        notes = "\n".join(found.notes)
        assert "8 frames from 2020-01-01 00:00:00 to 2020-01-10 00:00:00, 1 day apart" in notes
        assert "1 gaps (2 frames missing), the first after 2020-01-04" in notes
        assert "1 % of values are missing" in notes
        assert found.suggestion.startswith(f"ipot fit {path} --inputs t2m --targets t2m")

    def test_a_large_variable_is_sampled_and_that_is_said(self, tmp_path, monkeypatch):
        monkeypatch.setattr("ipot.formats.inspection.WHOLE", 1000)
        path = write_zarr(tmp_path / "a.zarr", grid(100), 10)
        assert "t2m: ranges are those of 16 of 100 frames" in inspect_series(path).notes

    def test_what_is_odd_is_said(self, tmp_path):
        data = grid(4).assign_coords(time=days(4)[[0, 2, 2, 1]])
        data["same"], data["none"] = data.t2m * 0 + 2, data.t2m * np.nan
        notes = "\n".join(inspect_series(write(tmp_path / "odd.nc", data)).notes)
        assert "2020-01-03" in notes
        assert "twice" in notes
        assert "same is 2 everywhere" in notes
        assert "none has no value at all" in notes

    def test_samples(self, tmp_path):
        data = xr.Dataset({n: (("sample", "x"), np.eye(5, 7)) for n in "au"})
        found = inspect_series(write(tmp_path / "samples.nc", data))
        assert (found.cases, found.points) == (5, (7, 7))
        assert "--inputs a --targets u" in found.suggestion
        assert "x has no coordinates" in "\n".join(found.notes)


class TestSeaSurfaceTemperature:
    """Through the labelled path, the samples are those of the built-in problem."""

    def compare(self, record, problem):
        data = xr.Dataset(
            {"sst": (("time", "station"), record.sst, {"units": "degC"})},
            coords={
                "time": record.day.astype("datetime64[ns]"),
                "lat": ("station", record.latitude),
                "lon": ("station", record.longitude),
            },
        )
        for split in ("train", "test"):
            weeks = problem.weeks(split, record.day)
            built = problem.dataset(
                problem.read(split, 40, None if problem.files is None else self.place), None, None
            )
            first = weeks[0] - problem.history
            last = first + 39 + problem.history + problem.steps
            dataset, series = from_xarray(
                data.isel(time=slice(first, last)),
                inputs="sst",
                targets="sst",
                history=problem.history,
                lead=problem.steps,
                season=True,
            )
            assert len(dataset) == len(built) == 40
            one, other = dataset.data.data, built.data
            assert torch.equal(one.values, other.values)
            # The built-in one puts its targets together again from cycle and anomaly.
            torch.testing.assert_close(one.targets, other.targets, rtol=0, atol=2e-5)
            torch.testing.assert_close(one.parameters, other.parameters, rtol=0, atol=1e-6)
            assert one.times == other.times
            vectors = unit_vectors(one.points[0])
            np.testing.assert_allclose(vectors, other.points[0], atol=1e-6)
            assert dataset.spec.history == problem.spec.history
            assert dataset.spec.parameters == problem.spec.parameters
            assert series.wraps

    def test_of_the_package(self):
        self.compare(sst.packaged(), Sst(target="temperature"))

    def test_of_the_original_file(self, data_root):
        self.place = data_root / "oisst_weekly"
        self.compare(sst.read(self.place), Sst(target="temperature", files=str(self.place)))


def test_the_real_grib(data_root):
    path = data_root / "era5_uk" / "era5-2mt-2019-03-uk.grib"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    pytest.importorskip("cfgrib")
    source = open_series(path)
    dataset, series = from_xarray(source, inputs="t2m", targets="t2m", history=4, lead=2, every=6)
    assert len(dataset) == 744 // 6 - 5
    assert dataset[0].grid == (33, 49)
    assert dataset.spec.units == ("K",)
    assert dataset.spec.domain == ((-10.0, 2.0), (50.0, 58.0))
    expected = source.t2m.values[6 * 7 + np.array([0, 6, 12, 18])].reshape(4, -1).T
    np.testing.assert_array_equal(dataset[7].values, expected)
    train, validation = split_series(dataset, series)
    assert len(train) + len(validation) == len(dataset) - 5
    assert inspect_series(path).kind == "GRIB"


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
def test_a_matrix_beside_the_fields_is_left_alone(tmp_path):
    data = grid(20)
    data["errors"] = (("latitude", "latitude"), np.eye(data.sizes["latitude"]))
    found = {v.name: v.role for v in inspect_series(write(tmp_path / "a.nc", data)).variables}
    assert found["errors"] == "left alone"
    assert found["t2m"] == "input or target"
