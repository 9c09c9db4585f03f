"""Questions in any form that arrays come in, and answers in the same."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own import tiny
from own.tiny import CURVED, GRID, KINDS, X, fitted

import ipot
from ipot.data.own import Layout
from ipot.errors import DataError, Unsupported
from ipot.surrogate.inputs import request

RANDOM = tiny.random(5)
Y = RANDOM.random((7, 2))


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_trained_on_can_be_asked(kind):
    """The same arrays without the targets; each sample alone is answered as among the others."""
    given = tiny.arrays(kind)
    targets = given.pop("targets")
    for name in ("times", "geographic"):
        given.pop(name, None)
    model = fitted(kind)
    answer = model.predict(**given)
    assert isinstance(answer, type(targets))
    for found, wanted in zip(answer, targets, strict=True):
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        assert found.shape == wanted.shape
    shared = {n for n in ("points", "queries") if n in given and len(given[n]) != len(targets)}
    one = {n: a if n in shared else a[3] for n, a in given.items()}
    close(model.predict(**one), answer[3])


def test_the_answers_are_those_of_the_model():
    """What `predict` does with shapes, by the model itself on a sample of the data."""
    for kind in ("channels", "times", "all", "uneven", "far away"):
        model, sample = fitted(kind), tiny.data(kind)[2]
        (wanted,) = model.answers([sample])
        given = tiny.arrays(kind)
        one = {n: given[n][2] for n in ("values", "parameters") if n in given}
        one |= {n: given[n] if kind != "uneven" else given[n][2] for n in ("points",)}
        if "queries" in given:
            one["queries"] = given["queries"] if kind != "uneven" else given["queries"][2]
        close(model.predict(**one).ravel(), wanted.numpy().ravel())


FORMS = {
    "numpy": np.asarray,
    "float64": lambda a: np.asarray(a, np.float64),
    "float16": lambda a: np.asarray(a, np.float16).astype(np.float64),
    "torch": lambda a: torch.tensor(np.asarray(a)),
    "nested lists": lambda a: np.asarray(a).tolist(),
    "backwards": lambda a: np.asarray(a)[::-1][::-1],
    "fortran": np.asfortranarray,
}


@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_any_kind(form):
    model, (a, _) = fitted("mesh"), tiny.waves(3, X, seed=1)
    x, y = X, Y
    if form == "float16":
        a, x, y = (np.asarray(v, np.float16).astype(np.float64) for v in (a, x, y))
    wanted = model.predict(points=x, values=a, queries=y)
    make = FORMS[form]
    found = model.predict(points=make(x), values=make(a), queries=make(y))
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, wanted)


def test_one_number_of_numpy_is_no_list_of_samples():
    model = fitted("parameters")
    numbers = [np.float32(0.1), np.float64(0.2), 0.3]
    assert model.predict(parameters=numbers, queries=Y).shape == (7,)
    assert fitted("one number").predict(parameters=np.float32(0.1), queries=Y).shape == (7,)
    assert fitted("one number").predict(parameters=[0.1, 0.2], queries=Y).shape == (2, 7)


def test_lists_in_lists_out():
    model = fitted("mesh")
    values = [RANDOM.random(n) for n in (3, 5)]
    points = [RANDOM.random((n, 2)) for n in (3, 5)]
    found = model.predict(points=points, values=values)
    assert [f.shape for f in found] == [(3,), (5,)]
    found = model.predict(points=points, values=values, queries=Y)
    assert isinstance(found, list)
    assert [f.shape for f in found] == [(7,), (7,)]
    found = model.predict(points=X, values=list(RANDOM.random((2, 12))), queries=[Y, Y[:2]])
    assert [f.shape for f in found] == [(7,), (2,)]


def test_grids_keep_their_axes():
    model = fitted("mesh")
    a = RANDOM.random((3, 4, 5))
    assert model.predict(points=GRID, values=a[0]).shape == (4, 5)
    assert model.predict(points=GRID, values=a).shape == (3, 4, 5)
    assert model.predict(points=X, values=RANDOM.random((4, 12)), queries=GRID).shape == (4, 4, 5)
    rows = model.predict(points=GRID.reshape(-1, 2), values=a.reshape(3, -1))
    close(model.predict(points=GRID, values=a).reshape(3, -1), rows)
    # Unrolled values on a grid of places, as training takes them.
    close(model.predict(points=GRID, values=a.reshape(3, -1)).reshape(3, -1), rows)
    close(model.predict(points=GRID, values=a[0].ravel()).ravel(), rows[0])


def test_as_many_samples_as_lines_is_still_a_grid():
    model, a = fitted("mesh"), RANDOM.random((4, 4, 5))
    found = model.predict(points=GRID, values=a)
    close(found[1], model.predict(points=GRID, values=a[1]))


def test_a_curved_grid_is_one_sample_for_a_model_of_curved_grids():
    a = RANDOM.random((4, 5))
    flat = fitted("curved").predict(points=CURVED.reshape(-1, 2), values=a.ravel())
    close(fitted("curved").predict(points=CURVED, values=a).ravel(), flat)
    # To others they are four samples of five points.
    close(
        fitted("mesh").predict(points=CURVED, values=a)[1],
        fitted("mesh").predict(points=CURVED[1], values=a[1]),
    )


def test_queries_of_every_sample():
    model, a = fitted("mesh"), RANDOM.random((3, 12))
    queries = RANDOM.random((3, 6, 2))
    found = model.predict(points=X, values=a, queries=queries)
    assert found.shape == (3, 6)
    for i in range(3):
        close(found[i], model.predict(points=X, values=a[i], queries=queries[i]))
    on_grids = RANDOM.random((3, 2, 4, 2))
    assert model.predict(points=X, values=a, queries=on_grids).shape == (3, 2, 4)


def test_steps():
    model, a = fitted("times"), RANDOM.random(12)
    assert fitted("times").layout.times == (0.5, 1.0, 2.0)
    whole = model.predict(points=X, values=a)
    assert whole.shape == (3, 12)
    longer = model.predict(points=X, values=a, steps=6)
    assert longer.shape == (6, 12)
    close(longer[[0, 1, 3]], whole)


@pytest.mark.plain
def test_steps_that_cannot_be():
    model, a = fitted("times"), RANDOM.random(12)
    assert model.predict(points=X, values=a, steps=np.int64(2)).shape == (2, 12)
    for steps in (0, -1, 1.5, True, "2"):
        with pytest.raises(DataError, match="steps must be a whole number"):
            model.predict(points=X, values=a, steps=steps)
    with pytest.raises(Unsupported, match="steps: the model was trained on targets without times"):
        fitted("mesh").predict(points=X, values=a, steps=2)


@st.composite
def questions(draw):
    """Any sizes in any of the forms."""
    samples, n, m = (draw(st.integers(1, 4)) for _ in range(3))
    many = draw(st.sampled_from(["one", "stacked", "list"]))
    some = tiny.random(draw(st.integers(0, 99)))
    lead = () if many == "one" else (samples,)

    def rows(count, *shape):
        if many == "list":
            return [some.random((count + i % 2, *shape)) for i in range(samples)]
        return some.random((*lead, count, *shape))

    own = draw(st.booleans())
    points = rows(n, 2) if own or many == "list" else some.random((n, 2))
    queries = rows(m, 2) if draw(st.booleans()) else some.random((m, 2))
    if draw(st.booleans()):
        queries = None
    return many, points, rows(n, 2), queries


@given(questions())
def test_any_sizes(drawn):
    many, points, values, queries = drawn
    model = fitted("channels")
    found = model.predict(points=points, values=values, queries=queries)
    places = points if queries is None else queries
    for i in range(1 if many == "one" else len(values)):
        own = [isinstance(p, list) or p.ndim == 3 for p in (points, places)]
        x, y = (p[i] if o else p for p, o in zip((points, places), own, strict=True))
        one, a = (found, values) if many == "one" else (found[i], values[i])
        assert one.shape == (len(y), 3)
        np.testing.assert_allclose(
            one, model.predict(points=x, values=a, queries=y), rtol=1e-4, atol=1e-2
        )


@pytest.fixture(scope="module")
def with_axis():
    """A model whose one channel had an axis in training; `fitted("mesh")` is one that had none."""
    given = tiny.arrays("mesh")
    return tiny.quick(tiny.data("mesh", values=given["values"][..., None]), epochs=1)


MESHES = tiny.random(6).random((3, 12, 2))
ONE_CHANNEL = {
    "one sample": {"points": X, "values": (12,)},
    "samples": {"points": X, "values": (3, 12)},
    "as many samples as points": {"points": X, "values": (12, 12)},
    "samples on meshes of their own": {"points": MESHES, "values": (3, 12)},
    "a grid": {"points": GRID, "values": (4, 5)},
    "samples on a grid": {"points": GRID, "values": (3, 4, 5)},
    "samples on the rows of a grid": {"points": GRID, "values": (3, 20)},
    "samples at one point": {"points": X[:1], "values": (3, 1)},
    "a list": {"points": [X[:5], X], "values": [(5,), (12,)]},
}


@pytest.mark.parametrize("form", ONE_CHANNEL)
@pytest.mark.parametrize("trained", ["with", "without"])
def test_the_axis_of_one_channel_may_be_there_or_not(with_axis, trained, form):
    model = with_axis if trained == "with" else fitted("mesh")
    points, shape = ONE_CHANNEL[form].values()
    if isinstance(shape, list):
        bare = [tiny.random(7).random(one) for one in shape]
        wide = [one[:, None] for one in bare]
    else:
        bare = tiny.random(7).random(shape)
        wide = bare[..., None]
    one, other = (model.predict(points=points, values=v, queries=Y) for v in (bare, wide))
    assert type(one) is type(other)
    for mine, theirs in zip(one, other, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_array_equal(mine, theirs)


def test_at_one_point_an_axis_is_what_it_was_in_training(with_axis):
    """There (1, 1) may be one sample of a set, or one with an axis for its channel."""
    one = np.array([[0.5]])
    assert with_axis.predict(points=X[:1], values=one).shape == (1,)
    assert with_axis.predict(points=X[:1], values=one[0]).shape == (1,)
    assert fitted("mesh").predict(points=X[:1], values=one).shape == (1, 1)
    assert fitted("mesh").predict(points=X[:1], values=one[0]).shape == (1,)


def test_a_model_of_the_package_takes_values_without_an_axis():
    model = ipot.load("darcy", device="cpu")
    places = RANDOM.random((50, 2))
    values = np.where(RANDOM.random(50) < 0.5, 3.0, 12.0)
    wanted = model.predict(points=places, values=values[:, None])
    np.testing.assert_array_equal(model.predict(points=places, values=values), wanted)
    with pytest.raises(DataError, match=r"values must have shape \(50, 1\), got \(49,\)"):
        model.predict(points=places, values=values[1:])


A = RANDOM.random(12)
BAD = {
    "no values": ("mesh", {"points": X}, "values are needed at the points: value"),
    "no points": ("mesh", {"values": A}, "values are given without points"),
    "no points at all": ("geometry", {}, "points are needed"),
    "values too few": ("mesh", {"points": X, "values": A[:5]}, "values must have shape (12,)"),
    "values without channels": (
        "channels",
        {"points": X, "values": A},
        "values must have shape (12, 2), got (12,)",
    ),
    "values of two channels where there is one": (
        "mesh",
        {"points": X, "values": RANDOM.random((12, 2))},
        "values have 2 rows and points 12",
    ),
    "values of other channels": (
        "channels",
        {"points": X, "values": RANDOM.random((12, 3))},
        "values must have shape (12, 2), got (12, 3)",
    ),
    "one sample of other size": (
        "mesh",
        {"points": [X, X], "values": [A, A[:4]]},
        "values[1] must have shape (12,), got (4,)",
    ),
    "points of three coordinates": (
        "mesh",
        {"points": RANDOM.random((12, 3)), "values": A},
        "points must have 2 coordinates in its last axis, got shape (12, 3)",
    ),
    "queries of one coordinate": (
        "mesh",
        {"points": X, "values": A, "queries": [0.1, 0.2]},
        "queries must have 2 coordinates",
    ),
    "no rows": (
        "mesh",
        {"points": X, "values": A, "queries": np.zeros((0, 2))},
        "queries holds no row",
    ),
    "no samples": ("mesh", {"points": X, "values": np.zeros((0, 12))}, "values holds no sample"),
    "counts": (
        "all",
        {"points": X, "values": RANDOM.random((3, 12)), "parameters": RANDOM.random((2, 3))},
        "disagree on the number of samples: 2 in parameters, 3 in values",
    ),
    "NaN in values": (
        "mesh",
        {"points": X, "values": np.where(np.arange(12) == 4, np.nan, A)},
        "values holds nan at (4,)",
    ),
    "NaN in queries": (
        "mesh",
        {"points": X, "values": A, "queries": [[0.1, np.inf]]},
        "queries holds inf at (0, 1)",
    ),
    "NaN in one of several": (
        "mesh",
        {"points": X, "values": [A, A * np.nan]},
        "values[1] holds nan",
    ),
    "masked": (
        "mesh",
        {"points": X, "values": np.ma.masked_less(A, 0.5)},
        "values has masked values",
    ),
    "words": ("mesh", {"points": X, "values": ["a"] * 12}, "values must hold real numbers"),
    "complex": ("mesh", {"points": X, "values": A * 1j}, "values must hold real numbers"),
    "lists of other lengths": (
        "mesh",
        {"points": [[0.1, 0.2], [0.3]], "values": A},
        "points is not an array of numbers",
    ),
    "more than float32": (
        "mesh",
        {"points": X, "values": A + 1e300},
        "more than float32 can: choose other units",
    ),
    "no parameters": ("all", {"points": X, "values": A}, "parameters are needed: parameter_0"),
    "parameters for none": (
        "mesh",
        {"points": X, "values": A, "parameters": [1.0]},
        "parameters are given, and the model was trained without any",
    ),
    "too few parameters": (
        "parameters",
        {"queries": Y, "parameters": [1.0, 2.0]},
        "parameters must be 3 numbers",
    ),
    "values for none": (
        "geometry",
        {"points": X, "values": A},
        "values are given, and the model was trained without any",
    ),
    "points for numbers alone": (
        "parameters",
        {"points": X, "parameters": [1.0, 2.0, 3.0]},
        "trained on parameters alone: say where to answer with queries=...",
    ),
    "no queries for numbers": (
        "parameters",
        {"parameters": [1.0, 2.0, 3.0]},
        "queries are needed: the model has no points to answer at",
    ),
    "no points for geometry and numbers": (
        "geometry and numbers",
        {"parameters": [1.0, 2.0, 3.0], "queries": Y},
        "points are needed",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_with_the_name_of_the_argument(case):
    kind, arguments, message = BAD[case]
    with pytest.raises(DataError) as caught:
        fitted(kind).predict(**arguments)
    assert message in str(caught.value)


def test_queries_with_other_coordinates_than_points_must_be_given():
    x, y = RANDOM.random((6, 4, 1)), RANDOM.random((5, 2))
    model = tiny.quick(
        tiny.Dataset.from_arrays(
            points=x[0], values=RANDOM.random((6, 4)), queries=y, targets=RANDOM.random((6, 5))
        )
    )
    assert model.predict(points=x[0], values=A[:4], queries=y).shape == (5,)
    with pytest.raises(DataError, match="queries are needed: they have 2 coordinates"):
        model.predict(points=x[0], values=A[:4])


def test_one_mesh_for_all_is_converted_once():
    model = fitted("mesh")
    question = request(model.spec, model.layout, points=X, values=RANDOM.random((3, 12)), queries=Y)
    assert len({id(s.points) for s in question.samples}) == 1
    assert len({id(s.queries) for s in question.samples}) == 1
    alone = request(model.spec, model.layout, points=X, values=A).samples[0]
    assert alone.queries is alone.points


def test_a_layout_comes_back_from_json_or_is_refused():
    layout = fitted("times").layout
    assert Layout.from_dict(layout.as_dict()) == layout
    for bad, message in (
        ({"timed": 1}, "timed must be true or false"),
        ({"origin": "ab"}, "origin must be a list of numbers"),
        ({"times": [True]}, "times must be a list of numbers"),
        ({"colour": 1}, "unknown colour"),
    ):
        with pytest.raises(DataError, match=message):
            Layout.from_dict(bad)
