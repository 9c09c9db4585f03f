"""Series in other units than those before them, or than those of a model."""

import warnings

import numpy as np
import pytest
from surrogate.test_encoded import surrogate_of

import ipot
from ipot.errors import DataError
from ipot.formats.series.description import Series
from ipot.formats.series.latest_frames import to_batch
from ipot.formats.series.samples import from_xarray
from ipot.formats.xarray_files import open_series

from .labelled_data import forecast, grid, stations, xr

pytest.importorskip("netCDF4")


def celsius(data, name="t2m"):
    return data.assign({name: (data[name] - 273.15).assign_attrs(units="degC")})


def files(path, *parts):
    path.mkdir()
    for i, part in enumerate(parts):
        part.to_netcdf(path / f"{i}.nc", engine="netcdf4")
    return path


def halves(count=20):
    data = grid(count)
    return data.isel(time=slice(0, count // 2)), data.isel(time=slice(count // 2, None))


def test_files_are_brought_to_the_units_of_the_first(tmp_path):
    first, second = halves()
    path = files(tmp_path / "years", first, celsius(second))
    with pytest.warns(UserWarning, match="1.nc: t2m is converted from degC to K") as seen:
        joined = open_series(path)
    assert len(seen) == 1
    np.testing.assert_allclose(joined.t2m, grid(20).t2m, atol=1e-4)
    assert joined.t2m.attrs["units"] == "K"


def test_files_of_other_quantities_are_refused_by_name(tmp_path):
    first, second = halves()
    second = second.assign(t2m=second.t2m.assign_attrs(units="Pa"))
    path = files(tmp_path / "years", first, second)
    with pytest.raises(DataError, match=r"1.nc: t2m is in Pa, and in the files before it in K"):
        open_series(path)


@pytest.mark.filterwarnings("ignore:.* converted from")
def test_coordinates_of_files_are_brought_together(tmp_path):
    def at(part, levels, unit):
        part = part.expand_dims(level=len(levels))
        return part.assign_coords(level=("level", np.array(levels), {"units": unit}))

    first, second = halves()
    radians = np.deg2rad(second.latitude.values)
    second = second.assign_coords(latitude=("latitude", radians, {"units": "radian"}))
    first = first.assign_coords(latitude=first.latitude.assign_attrs(units="degrees_north"))
    path = files(
        tmp_path / "years", at(first, [500.0, 850.0], "hPa"), at(second, [5e4, 8.5e4], "Pa")
    )
    with pytest.warns(UserWarning, match="level is converted from Pa to hPa"):
        joined = open_series(path)
    assert joined.level.values.tolist() == [500, 850]
    assert joined.latitude.values.tolist() == [60, 50, 40]
    assert not np.isnan(joined.t2m).any()


def trained(data, **options):
    dataset, series = forecast(data, **options)
    return surrogate_of(dataset, series=series)


def test_inputs_and_coordinates_keep_their_units():
    model = trained(grid(12), history=2, lead=1)
    assert (model.spec.input_units, model.spec.units) == (("K", "K"), ("K",))
    assert model.series.units == {"t2m": "K"}
    again = Series.from_dict(model.series.as_dict())
    assert again.units == {"t2m": "K"}


def test_frames_are_taken_in_the_units_of_training():
    data = grid(12)
    model = trained(data, history=2, lead=1)
    expected = model.predict(data)
    with pytest.warns(UserWarning, match="t2m is converted from degC to K, its unit in the model"):
        found = model.predict(celsius(data))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert found.attrs["units"] == "K"
    with pytest.raises(DataError, match="the frames given: t2m is in Pa, and in the model in K"):
        model.predict(data.assign(t2m=data.t2m.assign_attrs(units="Pa")))


def test_a_large_file_is_not_read_to_be_converted(tmp_path):
    celsius(grid(12)).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    model = trained(grid(12), history=2, lead=1)
    data = open_series(tmp_path / "a.nc")
    with pytest.warns(UserWarning, match="converted from degC"):
        (found,) = to_batch(model.series, data)
    np.testing.assert_allclose(found.values[:, 1], grid(12).t2m[-1].values.ravel(), atol=1e-4)
    assert not data.t2m.variable._in_memory


@pytest.mark.filterwarnings("ignore:.* converted from")
def test_a_model_is_scored_in_its_own_units():
    model = trained(grid(12), history=2, lead=1)
    expected = model.evaluate(forecast(grid(12), history=2, lead=1)[0]).rmse_per_time
    with pytest.warns(UserWarning, match=r"t2m\(t-1\) is converted from degC to K"):
        found = model.evaluate(forecast(celsius(grid(12)), history=2, lead=1)[0]).rmse_per_time
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def metres(data, names, unit="km", scale=1.0):
    renamed = data.rename(dict(zip(names, "yx", strict=True)))
    return renamed.assign_coords(
        {n: (renamed[n].dims, renamed[n].values * scale, {"units": unit}) for n in "xy"}
    )


@pytest.mark.filterwarnings("ignore:.* converted from")
def test_places_of_targets_are_in_the_units_of_those_of_inputs():
    given = metres(stations(12), ("lat", "lon"))
    told = metres(grid(12), ("latitude", "longitude"), "m", 1000.0)
    asked = {"inputs": "t2m", "targets": "t2m", "lead": 0}
    with pytest.warns(UserWarning, match="x is converted from m to km, its unit in the inputs"):
        dataset, series = from_xarray(given, target_source=told, **asked)
    assert dataset.spec.domain[0] == pytest.approx((0, 30), abs=1)
    assert dataset.spec.domain[1] == pytest.approx((40, 60), abs=1)
    assert series.units == {"t2m": "K", "x": "km", "y": "km"}
    model = surrogate_of(dataset, series=series)
    expected = model.predict(given)
    with pytest.warns(UserWarning, match="the frames given: x is converted from m to km"):
        found = model.predict(metres(stations(12), ("lat", "lon"), "m", 1000.0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    with pytest.warns(UserWarning, match="on: x is converted from m to km"):
        found = model.predict(given, on=told)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_saved_model_says_its_units(tmp_path):
    data = grid(12)
    made = xr.Dataset({"t": data.t2m, "p": (data.t2m * 100).assign_attrs(units="hPa")})
    model = surrogate_of(*[from_xarray(made, inputs="t", targets="p")[0]])
    model.save(tmp_path / "model")
    again = ipot.load(tmp_path / "model")
    assert (again.spec.input_units, again.spec.units) == (("K",), ("hPa",))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| input | t(t) | K |" in card
    assert "| output | p | hPa |" in card


def test_where_no_unit_is_said_nothing_is_converted():
    data = grid(12)
    model = trained(data, history=2, lead=1)
    bare = data.assign(t2m=data.t2m.assign_attrs(units=""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(bare), model.predict(data))
