"""A case goes in, and comes back with the answers as fields: by name, on points or on cells."""

from dataclasses import replace

import numpy as np
import pytest
from own import files, tiny
from own.tiny import X, fitted, quick

from ipot.errors import DataError, IpotError
from ipot.formats import Case
from ipot.surrogate.cases import arrays_as_cases, predict_case


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return files.folder(tmp_path_factory.mktemp("cases") / "all", ".vtu", count=31)


def learned(folder, **names):
    return quick(folder, epochs=1, **names)


def test_the_answer_stands_beside_what_was_there(folder):
    model, case = learned(folder, inputs="a", targets="u"), files.case(2)
    case = replace(case, fields={k: v for k, v in case.fields.items() if k != "u"})
    found = predict_case(model, case, interval=0.8)
    assert list(found.fields) == ["a", "wind", "u", "u_low", "u_high"]
    np.testing.assert_array_equal(found.points, case.points)
    assert found.mesh is case.mesh
    assert {n: found.units[n] for n in ("u", "u_low", "u_high", "p")} == {
        **dict.fromkeys(("u", "u_low", "u_high"), "Pa"),
        "p": "K",
    }
    wanted = model.predict(points=case.points[:, :2], values=case.fields["a"][:, None])
    np.testing.assert_allclose(found.fields["u"], wanted[:, 0], rtol=1e-5)
    assert (found.fields["u_low"] <= found.fields["u"]).all()


def test_another_mesh_is_asked_at(folder):
    model, case, other = learned(folder, inputs="a", targets="u"), files.case(2), files.case(0)
    found = predict_case(model, case, other)
    # Nothing else of the other case, which is of another input: neither its fields nor its numbers.
    assert list(found.fields) == ["u"]
    assert not found.cell_fields
    assert found.parameters == case.parameters
    np.testing.assert_array_equal(found.points, other.points)
    wanted = model.predict(
        points=case.points[:, :2], values=case.fields["a"][:, None], queries=other.points[:, :2]
    )
    np.testing.assert_allclose(found.fields["u"], wanted[:, 0], rtol=1e-5)


@pytest.mark.parametrize("inputs", ["q", "a", ()])
def test_answers_on_cells(folder, inputs):
    """Inputs are on cells, at points, or the mesh itself."""
    model, case = learned(folder, inputs=inputs, targets="p"), files.case(1)
    found = predict_case(model, replace(case, cell_fields={"q": case.cell_fields["q"]}))
    assert list(found.cell_fields) == ["q", "p"]
    assert "p" not in found.fields
    centres = case.centres()[:, :2]
    given = {"points": centres if inputs == "q" else case.points[:, :2], "queries": centres}
    if inputs:
        values = case.cell_fields["q"] if inputs == "q" else case.fields["a"]
        given["values"] = values[:, None]
    np.testing.assert_allclose(found.cell_fields["p"], model.predict(**given)[:, 0], rtol=1e-5)


def test_components_of_a_vector(folder):
    model, case = learned(folder, inputs="wind_y", targets="wind"), files.case(1)
    found = predict_case(model, case)
    assert {"wind_x", "wind_y", "wind_z"} <= set(found.fields)


def test_numbers_of_a_case_and_meshes_that_differ(folder):
    """The meshes differ, and so the places are an input beside the number."""
    model, case = learned(folder, parameters="re", targets="u"), files.case(1)
    assert not model.layout.alone
    found = predict_case(model, case)
    wanted = model.predict(points=case.points[:, :2], parameters=case.parameters["re"])
    np.testing.assert_allclose(found.fields["u_predicted"], wanted[:, 0], rtol=1e-5)


def test_numbers_alone(tmp_path):
    model = learned(
        files.folder(tmp_path / "m", ".csv", make=files.on_one_mesh), parameters="re", targets="u"
    )
    assert model.layout.alone
    case = files.on_one_mesh(1)
    found = predict_case(model, case)
    wanted = model.predict(parameters=case.parameters["re"], queries=case.points)
    np.testing.assert_allclose(found.fields["u_predicted"], wanted[:, 0], rtol=1e-5)


def test_what_a_case_lacks(folder):
    model, case = learned(folder, inputs="a", targets="u"), files.case(1)
    with pytest.raises(IpotError, match="no input field 'a'"):
        predict_case(model, replace(case, fields={}))
    with pytest.raises(DataError, match="has 3 coordinates that vary, and the model was trained"):
        predict_case(model, replace(case, points=tiny.random().random((16, 3))))
    with pytest.raises(DataError, match="has 1 coordinates, the model 2"):
        predict_case(model, replace(case, points=case.points[:, :1]))
    cells = learned(folder, inputs="q", targets="p")
    with pytest.raises(DataError, match="has no cells, only points"):
        predict_case(cells, Case(points=case.points, fields=case.fields))


def test_arrays_in_a_file_of_cases():
    """A model of plain arrays finds them under the names of its arguments."""
    a = tiny.random().random(12)
    found = predict_case(fitted("mesh"), Case(points=X, fields={"values": a}))
    np.testing.assert_allclose(found.fields["target"], fitted("mesh").predict(X, a), rtol=1e-5)
    numbers = np.array([0.1, 0.2, 0.3])
    found = predict_case(fitted("parameters"), Case(points=X, parameters={"parameters": numbers}))
    wanted = fitted("parameters").predict(parameters=numbers, queries=X)
    np.testing.assert_allclose(found.fields["target"], wanted, rtol=1e-5)


def test_answers_to_arrays_as_cases():
    model, a = fitted("far away"), tiny.random().random((3, 12))
    points = tiny.arrays("far away")["points"]
    cases = arrays_as_cases(model, {"points": points, "values": a}, interval=None, steps=None)
    assert len(cases) == 3
    np.testing.assert_allclose(cases[1].points, points, atol=1e-5, rtol=0)
    np.testing.assert_array_equal(cases[1].fields["target"], model.predict(points, a)[1])
    timed = arrays_as_cases(
        fitted("times"), {"points": X, "values": a[0]}, interval=None, steps=None
    )
    assert list(timed[0].fields) == ["target_t1", "target_t2", "target_t3"]
    short = arrays_as_cases(fitted("times"), {"points": X, "values": a[0]}, interval=None, steps=2)
    assert list(short[0].fields) == ["target_t1", "target_t2"]


def test_trajectories_are_no_cases(folder, tmp_path):
    model = learned(folder, inputs="a", targets="u")
    with pytest.raises(DataError, match="holds trajectories, and the model was not trained on"):
        model.predict(files.well(tmp_path / "w.h5"))
