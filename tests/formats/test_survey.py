"""What a look at a file says."""

import numpy as np
import pytest

from formats.making import square
from ipot.formats import Case, inspect, write_case, write_cases

random = np.random.default_rng(0)


def test_a_file_with_everything(tmp_path):
    write_cases(tmp_path / "all.h5", [square(parameters={"re": np.array([i])}) for i in range(3)])
    found = inspect(tmp_path / "all.h5")
    assert (found.cases, found.points, found.kind) == (3, (4, 4), "HDF5 file of cases")
    by_name = {v.name: v for v in found.variables}
    case = square()
    assert list(by_name) == ["points", "a", "v", "p", "re"]
    assert by_name["points"].role == "places"
    a, v, p, re = (by_name[n] for n in ("a", "v", "p", "re"))
    assert (a.role, a.shape, a.dtype, a.units) == (
        *("input or target", "3 cases x 4 points", "float64"),
        "Pa",
    )
    assert (a.low, a.high) == (case.fields["a"].min(), case.fields["a"].max())
    assert a.mean == pytest.approx(case.fields["a"].mean())
    assert (v.shape, v.dtype) == ("3 cases x 4 points x 2", "float32")
    assert (p.role, p.shape) == ("input or target, on cells", "3 cases x 2 cells")
    assert (re.role, re.shape, re.low, re.high) == ("parameter", "3 cases", 0, 2)
    assert found.notes == ()


def test_our_own_arrays(tmp_path):
    targets = random.random((6, 10, 2))
    targets[2, 3, 1] = np.nan
    np.savez(
        tmp_path / "a.npz", points=random.random((10, 2)), targets=targets, values=np.ones((6, 10))
    )
    found = inspect(tmp_path / "a.npz")
    assert (found.cases, found.points) == (6, (10, 10))
    by_name = {v.name: v for v in found.variables}
    assert by_name["targets"].role == "target"
    assert by_name["targets"].shape == "6 x 10 x 2"
    assert by_name["targets"].missing == 1
    assert by_name["targets"].high == np.nanmax(targets)
    assert any("targets: 1 values are NaN" in n for n in found.notes)
    assert any("values is 1 everywhere" in n for n in found.notes)
    assert found.suggestion == ""  # it would be refused


def small(n=5, **fields):
    points = np.stack([np.arange(n), np.arange(n) ** 2.0], 1)
    return Case(points=points, fields={"a": random.random(n), **fields})


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ([small(b=np.ones(5))], "b is 1 everywhere"),
        ([small(b=np.array([1, 2, np.nan, np.inf, 3]))], "b: 2 values are NaN or infinite"),
        ([small(b=np.array([1, 2, 3, 4, -9e33]))], "b reaches -9e[+]33"),
        ([small(), small(b=random.random(5))], "b is missing in 1 cases: 0"),
        ([small(b=random.random(5)), small()], "b is missing in 1 cases: 1"),
        ([small(b=random.random(5)), small(b=random.random((5, 2)))], "1 to 2 components"),
        (
            [Case(points=np.zeros((3, 2)), fields={"a": np.arange(3)})],
            "points are there twice in 1",
        ),
        ([square()] * 2, "cases 0 and 1 are the same"),
        (
            [Case(points=np.array([[0, 1.0], [1, 1.0]]), fields={"a": np.arange(2)})],
            "last coordinate is the same",
        ),
        ([small(), small(0)], "cases without points"),
    ],
)
def test_what_looks_odd_is_noted(cases, said, tmp_path):
    write_cases(tmp_path / "a.h5", cases)
    with_it = inspect(tmp_path / "a.h5").notes
    assert any(__import__("re").search(said, note) for note in with_it), with_it


def test_nothing_is_noted_where_all_is_well(tmp_path):
    write_cases(tmp_path / "a.h5", [small(), small(7)])
    found = inspect(tmp_path / "a.h5")
    assert found.notes == ()
    assert found.points == (5, 7)
    assert found.variables[1].shape == "2 cases x 5 to 7 points"


def test_a_column_that_is_the_same_in_a_case_is_a_parameter(tmp_path):
    rows = "".join(f"{c},{i},{10 * c},{i * c}\n" for c in (1, 2) for i in range(4))
    (tmp_path / "a.csv").write_text(f"case,x,speed,u\n{rows}")
    found = inspect(tmp_path / "a.csv")
    by_name = {v.name: v.role for v in found.variables}
    assert by_name["speed"] == "parameter (the same at all points of a case)"
    assert by_name["u"] == "input or target"
    assert found.suggestion.endswith("--parameters speed --targets u --out surrogate")


def test_of_very_much_a_part_is_read(tmp_path, monkeypatch):
    write_cases(tmp_path / "a.h5", [small(b=random.random(5) + i) for i in range(50)])
    monkeypatch.setattr("ipot.formats.inspection.AT_MOST", 10 * 5 * 4 * 8)
    found = inspect(tmp_path / "a.h5")
    assert found.cases == 50
    assert found.notes == ("ranges are those of 10 of 50 cases, evenly chosen",)
    (b,) = (v for v in found.variables if v.name == "b")
    assert b.low < 1
    assert b.high > 49


def test_pieces_add_up(tmp_path, monkeypatch):
    case = small(100, b=random.random(100))
    write_case(tmp_path / "a.npz", case)
    whole = inspect(tmp_path / "a.npz").variables
    monkeypatch.setattr("ipot.formats.inventory.AT_ONCE", 7)
    for one, other in zip(whole, inspect(tmp_path / "a.npz").variables, strict=True):
        assert (one.low, one.high, one.missing) == (other.low, other.high, other.missing)
        assert one.mean == pytest.approx(other.mean)


def test_a_suggestion_of_fields_that_can_be_learned_from(tmp_path):
    write_cases(tmp_path / "a.h5", [small(u=random.random(5)), small(u=random.random(5))])
    assert "--inputs a --targets u" in inspect(tmp_path / "a.h5").suggestion
    write_cases(tmp_path / "a.h5", [small(u=random.random(5), w=random.random(5))] * 2)
    assert "--inputs a --targets w" in inspect(tmp_path / "a.h5").suggestion
    gap = np.array([1, 2, 3, 4, np.nan])
    odd = [small(u=random.random(5), v=gap, w=np.ones(5)) for _ in "ab"]
    write_cases(tmp_path / "a.h5", [*odd, small(u=random.random(5), b=random.random(5))])
    assert "--inputs a --targets u " in inspect(tmp_path / "a.h5").suggestion
    write_cases(tmp_path / "a.h5", [small(u=random.random(5))])
    assert inspect(tmp_path / "a.h5").suggestion == ""
