"""What is written is read back to the last bit."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from formats.making import assert_same, cases, square
from ipot.errors import DataError
from ipot.formats import inspect, read_cases, write_case, write_cases

TREES = (".npz", ".h5", ".hdf5")
TABLES = (".csv", ".tsv", ".parquet")
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


@pytest.mark.parametrize("suffix", TABLES[1:])
@once
@given(case=cases(finite=True, mesh=False))
def test_tables_are_exact(suffix, case, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    assert_same(there_and_back(tmp_path / f"case{suffix}", case), case)


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
        write_cases(tmp_path / "all.csv", some)


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


def test_names_that_collide_as_columns(tmp_path):
    """A field x beside the coordinate, and a:0 beside the components of a."""
    fields = {
        "x": np.arange(4.0),
        "a": np.arange(8.0).reshape(4, 2),
        "a:0": np.ones(4),
        "case": np.array([1, 1, 2, 2]),
    }
    case = square(mesh=None, cell_fields={}, fields=fields)
    assert_same(there_and_back(tmp_path / "case.csv", case), case)
    assert inspect(tmp_path / "case.csv").cases == 1


@pytest.mark.parametrize("suffix", TABLES)
def test_names_over_several_lines(suffix, tmp_path):
    """A line that begins with # inside of a name is no comment, and blank ones count."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    fields = {"p\n# q": np.arange(4.0), "\n\n": np.ones(4), ' "a",\t\r': np.zeros(4, np.int8)}
    case = square(mesh=None, cell_fields={}, fields=fields)
    assert_same(there_and_back(tmp_path / f"case{suffix}", case), case)


def test_an_edited_table_is_read_by_its_columns(tmp_path):
    """A description that no longer fits is left aside."""
    path = tmp_path / "case.csv"
    write_case(path, square(mesh=None, cell_fields={}))
    description = path.read_text().splitlines()[0]
    path.write_text(f"{description}\nx,y,w\n0,0,5\n1,1,6\n")
    (found,) = read_cases(path)
    assert list(found.fields) == ["w"]
    assert found.parameters == {}
