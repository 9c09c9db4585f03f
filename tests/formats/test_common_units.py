"""Cases and trajectories of other units than those before them, or than those of a model."""

import warnings
from dataclasses import replace

import h5py
import numpy as np
import pytest
from own import files, tiny
from surrogate.test_encoded import surrogate_of

from ipot.errors import DataError
from ipot.formats import Case, read_cases, write_case
from ipot.formats.cases import dataset_of
from ipot.formats.the_well import write_well
from ipot.formats.trajectories import as_trained, windows_of
from ipot.surrogate.cases import predict_case


def case(i, unit="K", **changes):
    """Temperatures of about 300 K in a unit, a wind, and a number."""
    points = np.random.default_rng(i).random((6 + i, 2))
    points[:2] = [[0, 0], [1, 1]]  # all lie in one box
    kelvin = 300 + 10 * np.sin(points[:, 0] + i)
    shift, scale = {"K": (0.0, 1.0), "degC": (273.15, 1.0), "Pa": (0.0, 1.0), "": (0.0, 1.0)}[unit]
    fields = {"T": (kelvin - shift) / scale, "u": points**2}
    units = {"T": unit, "u": "m/s", "re": "1"} | changes
    return Case(points=points, fields=fields, parameters={"re": np.array([2.0])}, units=units)


def folder(path, *cases, suffix=".vtu"):
    for i, one in enumerate(cases):
        points = np.pad(one.points, ((0, 0), (0, 1))) if suffix == ".vtu" else one.points
        write_case(path / f"case{i}{suffix}", replace(one, points=points))
    return read_cases(path)


ASKED = {"inputs": ["T"], "targets": ["u"], "parameters": ["re"]}


@pytest.mark.parametrize("suffix", [".vtu", ".h5", ".parquet"])
def test_files_of_a_folder_are_brought_to_the_units_of_the_first(suffix, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    alike = folder(tmp_path / "a", *(case(i) for i in range(4)), suffix=suffix)
    mixed = [case(0), case(1, "degC"), case(2, "degC", u="m s**-1"), case(3, "")]
    mixed = folder(tmp_path / "b", *mixed, suffix=suffix)
    with pytest.warns(UserWarning, match="converted") as seen:
        found = dataset_of(mixed, **ASKED)
    assert [str(w.message) for w in seen] == [
        f"{tmp_path}/b/case1{suffix} and 1 more: T is converted from degC to K, its unit in other "
        "cases"
    ]
    for one, other in zip(found, dataset_of(alike, **ASKED), strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-6)
        np.testing.assert_array_equal(one.truth, other.truth)
    assert (found.spec.input_units, found.spec.units) == (("K",), ("m/s", "m/s"))
    assert found.spec.parameter_units == ("1",)


def test_other_quantities_in_a_folder_are_refused_by_file(tmp_path):
    with pytest.raises(DataError, match=r"case1.h5: T is in Pa, and in other cases in K: neither"):
        dataset_of(folder(tmp_path, case(0), case(1, "Pa"), suffix=".h5"), **ASKED)


def test_fields_that_nobody_asked_for_are_left_alone(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset_of(folder(tmp_path, case(0), case(1, "Pa"), suffix=".h5"), targets=["u"])


@pytest.mark.parametrize("wanted", ["u", "u_x"])
def test_components_have_the_unit_of_their_field(wanted, tmp_path):
    slow = case(1)
    slow = replace(slow, fields={**slow.fields, "u": slow.fields["u"] * 3.6}, units={"u": "km/h"})
    with pytest.warns(UserWarning, match="u is converted from km/h to m/s"):
        found = dataset_of([case(0), slow], inputs=["T"], targets=[wanted])
    width = 2 if wanted == "u" else 1
    np.testing.assert_allclose(found[1].truth[0], case(1).fields["u"][:, :width], rtol=1e-6)
    assert found.spec.units == ("m/s",) * width


def test_a_case_is_answered_in_the_units_of_training():
    model = surrogate_of(dataset_of([case(i) for i in range(4)], **ASKED))
    expected = predict_case(model, case(5)).fields["u_x"]
    with pytest.warns(UserWarning, match="T is converted from degC to K, its unit in the model"):
        found = predict_case(model, case(5, "degC"))
    np.testing.assert_allclose(found.fields["u_x"], expected, rtol=1e-4, atol=1e-5)
    assert found.units["T"] == "degC"  # the file's own field stays as it is
    np.testing.assert_array_equal(found.fields["T"], case(5, "degC").fields["T"])
    with pytest.raises(DataError, match="T is in Pa, and in the model in K"):
        predict_case(model, replace(case(5, "Pa"), source="new.vtu"))


def table(path, unit, shift, cases=range(3)):
    rows = [f"case,x,y,T [{unit}],u"]
    for i in cases:
        one = case(i)
        for (x, y), t, u in zip(one.points, one.fields["T"], one.fields["u"], strict=True):
            rows.append(f"{i},{x},{y},{t - shift},{u[0]}")
    path.write_text("\n".join(rows) + "\n")
    return read_cases(path)


def test_names_of_columns_that_differ_in_their_unit(tmp_path):
    asked = {"inputs": ["T [K]"], "targets": ["u"]}
    data = dataset_of(table(tmp_path / "a.csv", "K", 0), **asked)
    assert data.spec.input_units == ("K",)
    model = surrogate_of(data)
    expected = predict_case(model, table(tmp_path / "b.csv", "K", 0, [7])[0])
    celsius = table(tmp_path / "c.csv", "degC", 273.15, [7])[0]
    with pytest.warns(UserWarning, match=r"T \[K\] is converted from degC to K"):
        found = predict_case(model, celsius)
    name = next(n for n in found.fields if n.startswith("u_"))
    np.testing.assert_allclose(found.fields[name], expected.fields[name], rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match="neither can be converted"):
        predict_case(model, table(tmp_path / "d.csv", "Pa", 0, [7])[0])


def test_files_of_trajectories_are_brought_to_the_units_of_the_first(tmp_path):
    one = files.trajectories(count=2)
    stored = one.fields["h"]

    def centimetres(trajectory, times):
        return 100 * stored.pieces(trajectory, times)

    fields = {**one.fields, "h": replace(stored, pieces=centimetres)}
    other = replace(one, fields=fields, units={**one.units, "h": "cm"})
    write_well(tmp_path / "a" / "0.hdf5", one)
    write_well(tmp_path / "a" / "1.hdf5", other)
    with pytest.warns(UserWarning, match="h is converted from cm to m"):
        joined = read_cases(tmp_path / "a")
    np.testing.assert_allclose(joined.fields["h"].read(3), stored.read(1), rtol=1e-5)
    windows = windows_of(one, targets=["h"], history=2, lead=1)
    assert windows.data.spec.input_units == ("m", "m")
    with pytest.warns(UserWarning, match="h is converted from cm to m, its unit in the model"):
        found = as_trained(other, windows.columns, windows.data.spec)
    assert found.units["h"] == "m"
    np.testing.assert_allclose(found.fields["h"].read(1), stored.read(1), rtol=1e-6)


def test_files_of_arrays_are_brought_to_the_units_of_the_first(tmp_path):
    for i, (unit, shift) in enumerate((("K", 0.0), ("degC", 273.15))):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            for name, array in tiny.arrays("own meshes", 2).items():
                file[name] = array[0] - (shift if name == "targets" else 0)
            file["targets"].attrs["units"] = unit
    with pytest.warns(UserWarning, match="1.h5: targets is converted from degC to K"):
        found = read_cases(tmp_path)
    np.testing.assert_allclose(found.targets[1], found.targets[0], atol=1e-9)
