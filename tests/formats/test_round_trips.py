"""What is written is read back to the last bit."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from formats.making import assert_same, cases, same, square
from ipot.errors import DataError
from ipot.formats import read_cases, write_case, write_cases

TREES = (".npz", ".h5", ".hdf5")
TABLES = (".csv", ".tsv", ".parquet")
random = np.random.default_rng(1)
once = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


def there_and_back(path, case):
    write_case(path, case)
    (found,) = read_cases(path)
    return found


@pytest.mark.parametrize("suffix", TREES[:2])
@once
@given(case=cases(finite=False, mesh=True))
def test_trees_are_exact(suffix, case, tmp_path):
    assert_same(there_and_back(tmp_path / f"case{suffix}", case), case)


@once
@given(case=cases(finite=True, mesh=False))
def test_a_described_table_is_exact(case, tmp_path):
    pytest.importorskip("pyarrow")
    assert_same(there_and_back(tmp_path / "case.parquet", case), case)


@once
@given(case=cases(finite=True, mesh=False))
def test_a_plain_table_is_exact_in_the_type_a_column_had_or_is_refused(case, tmp_path):
    path = tmp_path / "case.tsv"
    try:
        write_case(path, case)
    except DataError:
        return  # which are refused, and why, is tested below
    (found,) = read_cases(path)
    # Parameters are columns that are the same in all rows.
    rows = {k: np.tile(v, (len(case.points), 1)) for k, v in case.parameters.items()}
    wanted = {k: v[:, 0] if v.shape[1:] == (1,) else v for k, v in (case.fields | rows).items()}
    assert list(found.fields) == list(wanted)
    assert same(found.points.astype(case.points.dtype), case.points)
    for name, array in wanted.items():
        assert same(found.fields[name].astype(array.dtype), array), name


@pytest.mark.parametrize("name", [";", ",;;;", 'a "b";c', "a\tb;;", "a\rb"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_name_may_hold_what_separates_columns(name, suffix, tmp_path):
    case = square(mesh=None, cell_fields={}, parameters={}, fields={name: np.arange(4.0)})
    write_case(tmp_path / f"case{suffix}", case)
    (found,) = read_cases(tmp_path / f"case{suffix}")
    assert list(found.fields) == [name]
    write_cases(tmp_path / f"cases{suffix}", [case, case], names=[name, "other"])
    assert read_cases(tmp_path / f"cases{suffix}").names == (name, "other")


def test_parquet_keeps_what_is_not_finite_of_our_own(tmp_path):
    pytest.importorskip("pyarrow")
    case = square(mesh=None, cell_fields={}, fields={"a": np.array([np.nan, np.inf, 1, 2])})
    assert_same(there_and_back(tmp_path / "case.parquet", case), case)


@pytest.mark.parametrize("suffix", [*TREES, ".vtu"])
def test_a_mesh_with_everything(suffix, tmp_path):
    case = square()
    if suffix == ".vtu":
        case = square(points=np.hstack([case.points, np.zeros((4, 1), np.float32)]), units={})
    assert_same(there_and_back(tmp_path / f"case{suffix}", case), case)


@pytest.mark.parametrize("suffix", TABLES[:1])
def test_a_table_refuses_what_it_cannot_hold(suffix, tmp_path):
    path = tmp_path / f"case{suffix}"
    with pytest.raises(DataError, match=r"points and no cells.*vtu"):
        write_case(path, square())
    bare = {"mesh": None, "cell_fields": {}}
    with pytest.raises(DataError, match="a holds values that are not finite"):
        write_case(path, square(**bare, fields={"a": np.array([1, 2, 3, np.nan])}))
    with pytest.raises(DataError, match="a must hold real numbers, got complex"):
        write_case(path, square(**bare, fields={"a": np.zeros(4, complex)}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", TREES)
def test_only_real_numbers_are_written(suffix, tmp_path):
    for bad in (np.zeros(4, complex), np.array(["a"] * 4), np.array([None] * 4)):
        with pytest.raises(DataError, match=r"a of .* must hold real numbers"):
            write_case(tmp_path / f"case{suffix}", square(fields={"a": bad}))
    assert not list(tmp_path.iterdir())


def test_many_cases_in_one_file_keep_their_names_and_order(tmp_path):
    some = [square(fields={"a": np.full(4, i)}) for i in range(12)]
    names = [f"wing/{11 - i}." for i in range(12)]
    write_cases(tmp_path / "all.h5", some, names)
    found = read_cases(tmp_path / "all.h5")
    assert found.names == tuple(names)
    for one, other in zip(found, some, strict=True):
        assert_same(one, other)
    assert "case wing/8." in found[3].source
    assert [c.fields["a"][0] for c in found[2:4]] == [2, 3]
    with pytest.raises(DataError, match="as many different names"):
        write_cases(tmp_path / "all.h5", some, ["a"] * 12)
    with pytest.raises(DataError, match=r"written as \.h5"):
        write_cases(tmp_path / "all.vtu", some)


def test_a_suffix_that_is_not_written(tmp_path):
    with pytest.raises(DataError, match=r"written as \.npz, .*got '\.pkl'"):
        write_case(tmp_path / "case.pkl", square())


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_a_failing_write_leaves_the_old_file(suffix, tmp_path, monkeypatch):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    case = square(mesh=None, cell_fields={})
    path = tmp_path / f"case{suffix}"
    write_case(path, case)
    before = path.read_bytes()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(DataError, match="No space left on device"):
        write_case(path, square(mesh=None, cell_fields={}, fields={}))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


UNFIT = {
    "a coordinate": {"x": np.arange(4.0)},
    "one coordinate more": {"z": np.arange(4.0)},
    "a component": {"a": np.zeros((4, 2)), "a:0": np.ones(4)},
    "read as components": {"b:0": np.zeros(4), "b:1": np.zeros(4)},
    "cases": {"case": np.array([1, 1, 2, 2])},
    "a parameter": {"re": np.zeros(4)},
    "no name": {"": np.zeros(4)},
    "blanks": {" a": np.zeros(4)},
    "too large to come back": {"n": np.full(4, 2**53 + 1)},
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_would_not_come_back_from_a_plain_table_is_refused(name, tmp_path):
    case = square(mesh=None, cell_fields={}, fields=UNFIT[name])
    with pytest.raises(DataError, match=rf"{[*UNFIT[name]][-1][:2]}.* \.h5 or \.npz"):
        write_case(tmp_path / "case.csv", case)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", TABLES)
def test_many_cases_in_a_table_keep_their_names(suffix, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    some = [
        square(mesh=None, cell_fields={}, fields={"a": random.random(4)}, parameters={"re": re})
        for re in (np.array([7]), np.array([8]), np.array([9]))
    ]
    path, again = tmp_path / f"all{suffix}", tmp_path / f"one{suffix}"
    write_cases(path, some, ["wing 1", "b", "a"])
    found = read_cases(path)
    assert found.names == ("wing 1", "b", "a")
    for one, other, re in zip(found, some, (7, 8, 9), strict=True):
        np.testing.assert_array_equal(one.fields["a"], other.fields["a"])
        np.testing.assert_array_equal(one.fields["re"], [re] * 4)
    # One of them alone still says which it is.
    write_case(again, found[0])
    assert read_cases(again).names == ("wing 1",)
    if suffix == ".csv":
        assert again.read_text().startswith("case,x,y,a,re\nwing 1,0.0,0.0,")
    for names, said in ((["a", "a", "b"], "different names"), (["#", "a", "b"], "'#' cannot")):
        with pytest.raises(DataError, match=said):
            write_cases(path, some, names)
    with pytest.raises(DataError, match=r"x, y, b, re.* x, y, a, re: a table has the same in all"):
        write_cases(path, [*some, square(mesh=None, cell_fields={}, fields={"b": np.ones(4)})])


@pytest.mark.parametrize("suffix", TABLES)
def test_names_over_several_lines(suffix, tmp_path):
    """A line that begins with # inside of a name is no comment, and blank ones count."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    fields = {"p\n# q": np.arange(4.0), "a\n\nb": np.ones(4), '"a",\t\r"': np.zeros(4)}
    points = square().points.astype(np.float64)
    case = square(points=points, mesh=None, cell_fields={}, fields=fields, parameters={}, units={})
    assert_same(there_and_back(tmp_path / f"case{suffix}", case), case)


def test_a_table_of_text_is_plain(tmp_path):
    """Nothing but a header and numbers, which numpy reads as it reads any other."""
    path = tmp_path / "case.csv"
    write_case(path, square(mesh=None, cell_fields={}))
    found = np.genfromtxt(path, delimiter=",", names=True)
    assert found.dtype.names == ("x", "y", "a", "v0", "v1", "re")
    np.testing.assert_array_equal(found["a"], square().fields["a"])
