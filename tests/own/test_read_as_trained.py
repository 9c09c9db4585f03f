"""Data are read as they were in training, and others are refused or remarked on."""

import numpy as np
import pytest

from ipot.data.layout import Layout
from ipot.data.own import Dataset
from ipot.errors import DataError, RunError
from ipot.surrogate.inputs import request
from own import tiny
from own.tiny import X, quick


@pytest.fixture(scope="module")
def lines():
    """A line of sensors at another height in each sample: straight, and yet no grid."""
    draw = tiny.random(2)
    points = np.zeros((20, 6, 2))
    points[..., 0], points[..., 1] = draw.random((20, 1)), np.linspace(0, 1, 6)
    values = draw.random((20, 6))
    return points, values, quick(Dataset.from_arrays(points=points, values=values, targets=values))


def test_rows_of_samples_on_straight_lines_are_no_grid(lines):
    points, values, model = lines
    arrays = model.predict(points=points[:5], values=values[:5])
    lists = model.predict(points=list(points[:5]), values=list(values[:5]))
    assert arrays.shape == (5, 6)
    np.testing.assert_allclose(arrays, np.stack(lists), rtol=1e-5)
    one = model.predict(points=points[3], values=values[3])
    np.testing.assert_allclose(arrays[3], one, rtol=1e-5, atol=1e-6)


def test_queries_of_samples_are_not_asked_of_all(lines):
    points, values, _ = lines
    data = Dataset.from_arrays(
        points=X, values=tiny.waves(20, X)[0], queries=points, targets=values
    )
    assert data.layout.own_queries
    assert not data.layout.own_points
    found = request(
        data.spec, data.layout, points=X, values=tiny.waves(5, X)[0], queries=points[:5]
    )
    assert [tuple(s.queries.shape) for s in found.samples] == [(6, 2)] * 5


def test_one_mesh_and_grids_are_shared_as_before():
    for kind in ("mesh", "grid", "curved", "uneven"):
        layout = tiny.data(kind).layout
        assert not layout.own_points, kind
        assert not layout.own_queries, kind
    assert Layout.from_dict({"timed": True}) == Layout(timed=True)


@pytest.fixture(scope="module")
def timed():
    a, u = tiny.waves(10, X)
    data = Dataset.from_arrays(
        points=X, values=a, targets=np.stack([u, 2 * u], 1), times=[0.1, 0.2], outputs=["p"]
    )
    return quick(data), a, u


@pytest.mark.parametrize(
    ("targets", "times", "message"),
    [
        (lambda u: u, None, "targets with times, the data are without"),
        (lambda u: np.stack([u, u], 1), [0.13, 0.26], "no multiples of the model's step"),
    ],
)
def test_other_times_are_not_scored(timed, targets, times, message):
    model, a, u = timed
    data = Dataset.from_arrays(points=X, values=a, targets=targets(u), times=times, outputs=["p"])
    with pytest.raises(DataError, match=message):
        model.evaluate(data)


def test_times_beyond_those_of_training_are_remarked_on(timed):
    model, a, u = timed
    data = Dataset.from_arrays(points=X, values=a, targets=np.stack([u, u], 1), times=[0.2, 0.4])
    with pytest.warns(UserWarning, match="go to time 0.4, and the model has seen 0.2"):
        model.evaluate(data)


def test_other_names_are_not_scored(timed):
    model, a, u = timed
    frames = np.stack([u, u], 1)
    for names, refused in ((["q"], True), (["p"], False), (None, False)):
        data = Dataset.from_arrays(
            points=X, values=a, targets=frames, times=[0.1, 0.2], outputs=names
        )
        if refused:
            with pytest.raises(DataError, match=r"1 outputs \(p\), the data 1 \(q\)"):
                model.evaluate(data)
        else:
            model.evaluate(data)


def test_points_far_outside_are_remarked_on(lines):
    points, values, model = lines
    with pytest.warns(UserWarning, match="6 of 6 points lie outside the domain"):
        model.predict(points=1000 + points[0], values=values[0], queries=points[0])


def test_grids_of_points_and_of_queries_may_differ():
    fine = np.stack(np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 1, 6), indexing="ij"), -1)
    a, _ = tiny.waves(10, tiny.GRID)
    _, u = tiny.waves(10, fine)
    data = Dataset.from_arrays(points=tiny.GRID, values=a, queries=fine, targets=u)
    assert (data[0].grid, data[0].query_grid) == ((4, 5), (7, 6))
    (found,) = quick(data).answers([data[0]])
    assert found.shape == (1, 42, 1)


def test_tables_with_named_columns_are_no_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    with pytest.raises(DataError, match=r"parameters=table\[\['a', 'b'\]\].to_numpy\(\)"):
        Dataset.from_arrays(queries=X, parameters=frame, targets=np.zeros((2, len(X))))
    with pytest.raises(DataError, match="points is a table"):
        Dataset.from_arrays(points=[frame, frame], targets=[np.zeros(2)] * 2)


def test_a_run_beside_another_model_is_not_gone_on_with(tmp_path):
    first, other = tiny.data("mesh"), tiny.data("grid")
    quick(first, out=tmp_path / "one")
    model = quick(other, out=tmp_path / "two")
    model.save(tmp_path / "one", overwrite=True)
    with pytest.raises(RunError, match="is not of the run that lies beside it"):
        quick(first, resume=tmp_path / "one")
    quick(other, resume=tmp_path / "two")
