"""Cases for tests, and whether two are the same to the last bit."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ipot.formats import Case, Mesh

DTYPES = ("float16", "float32", "float64", "int8", "uint16", "int32", "int64", "uint64", "bool")


def same(one, other):
    """Arrays of one shape and type with the same bits."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
    )


def assert_same(one, other):
    """Cases with the same content in the same order."""
    assert same(one.points, other.points)
    for name in ("fields", "cell_fields", "parameters"):
        left, right = getattr(one, name), getattr(other, name)
        assert list(left) == list(right)
        for key in left:
            assert same(left[key], right[key]), f"{name}/{key}"
    assert dict(one.units) == dict(other.units)
    assert (one.mesh is None) == (other.mesh is None)
    if one.mesh is not None:
        assert (one.mesh.kind, one.mesh.counts) == (other.mesh.kind, other.mesh.counts)
        for name in ("connectivity", "offsets", "types"):
            assert same(getattr(one.mesh, name), getattr(other.mesh, name))


def triangles():
    """A square of two triangles."""
    return Mesh(
        kind="UnstructuredGrid",
        connectivity=np.array([0, 1, 2, 1, 3, 2]),
        offsets=np.array([3, 6]),
        types=np.array([5, 5], np.uint8),
    )


def square(**changes):
    """A small case with all that a case can have."""
    random = np.random.default_rng(0)
    made = {
        "points": np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float32),
        "fields": {"a": random.random(4), "v": random.random((4, 2)).astype(np.float32)},
        "mesh": triangles(),
        "cell_fields": {"p": np.array([1.5, -2.0])},
        "parameters": {"re": np.array([100])},
        "units": {"a": "Pa", "re": "1"},
    }
    return Case(**made | changes)


def arrays(rows, *, finite, columns=True):
    """Arrays of any type with so many rows."""
    shapes = st.just((rows,))
    if columns:
        shapes |= st.integers(1, 3).map(lambda k: (rows, k))
    terms = {"allow_nan": False, "allow_infinity": False} if finite else {}
    return st.tuples(st.sampled_from(DTYPES), shapes).flatmap(
        lambda found: hnp.arrays(
            found[0],
            found[1],
            elements=hnp.from_dtype(np.dtype(found[0]), **terms),
        )
    )


@st.composite
def cases(draw, *, finite, mesh):
    """Cases with odd names, of any types."""
    n, names = draw(st.integers(1, 5)), st.text(max_size=6)
    d = draw(st.integers(1, 4))
    points = hnp.arrays(
        draw(st.sampled_from(("float32", "float64"))),
        (n, d),
        elements=st.floats(-1e6, 1e6, width=32),
    )
    fields = draw(st.dictionaries(names, arrays(n, finite=finite), max_size=4))
    numbers = arrays(draw(st.integers(1, 3)), finite=finite, columns=False)
    units = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
    more = {}
    if mesh and n >= 4 and draw(st.booleans()):
        more = {
            "mesh": triangles(),
            "cell_fields": draw(st.dictionaries(names, arrays(2, finite=finite), max_size=2)),
        }
    return Case(
        points=draw(points),
        fields=fields,
        parameters=draw(st.dictionaries(names, numbers, max_size=2)),
        units=draw(st.dictionaries(names | st.sampled_from(list(fields) or ["a"]), units)),
        **more,
    )
