"""Tables of points that others wrote, as text and as Parquet."""

import numpy as np
import pytest

from ipot.errors import DataError
from ipot.formats import Case, inspect, read_cases, write_case
from ipot.formats.parquet import read_parquet


@pytest.fixture
def read(tmp_path):
    """The cases of a table with this text."""

    def read(text, name="some.csv", **terms):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_cases(path)

    return read


def test_a_plain_table(read):
    (case,) = read("X, y ,p\n0,1,2\n3,4,5.5\n")
    np.testing.assert_array_equal(case.points, [[0, 1], [3, 4]])
    np.testing.assert_array_equal(case.fields["p"], [2, 5.5])
    assert list(case.fields) == ["p"]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffx;y;p\r\n0;1;2\r\n3;4;5.5\r\n",
        "x\ty\tp\n0\t1\t2\n\n3\t4\t5.5",
        "# made by hand\nx,y,p\n# half way\n0,1,2\n3,4,5.5\n",
        "# x,y,p\n0,1,2\n3,4,5.5\n",
        '"x","y","p"\n"0","1","2"\n3,4, 5.5 \n',
        "x,y,p\r0,1,2\r3,4,5.5\r",
        "p,y,x\n2,1,0\n5.5,4,3\n",
        "p,Points:0,Points:1\n2,0,1\n5.5,3,4\n",
        "lat,lon,p\n1,0,2\n4,3,5.5\n",
    ],
)
def test_how_others_write_the_same(read, text):
    (case,) = read(text)
    np.testing.assert_array_equal(case.points, [[0, 1], [3, 4]])
    assert {n: a.tolist() for n, a in case.fields.items()} == {"p": [2, 5.5]}


def test_components_as_paraview_writes_them(read):
    (case,) = read('"U:0","U:1","U:2","p:0",x,y\n1,2,3,9,0,0\n4,5,6,8,1,1\n')
    np.testing.assert_array_equal(case.fields["U"], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(case.fields["p:0"], [9, 8])


@pytest.mark.parametrize("name", ["case", "Sample", "id", "case_id"])
def test_rows_of_a_case_may_lie_anywhere(read, name):
    found = read(f"{name},x,p\nb,0,1\na,1,2\nb,2,3\n'q\"',5,6\n")
    assert found.names == ("b", "a", "'q\"'")
    assert [c.points[:, 0].tolist() for c in found] == [[0, 2], [1], [5]]
    assert [c.fields["p"].tolist() for c in found] == [[1, 3], [2], [6]]
    assert found[1].source.endswith("case a")


def test_an_id_of_points_is_no_case(read):
    found = read("id,x,p\n1,0,1\n2,1,2\n")
    assert len(found) == 1
    assert "numbers points" in found.notes[0]
    found = read("case,x,p\n1,0,1\n2,1,2\n")
    assert len(found) == 2
    assert "every row is a case" in found.notes[0]


def test_many_rows_go_in_pieces(read, monkeypatch):
    monkeypatch.setattr("ipot.formats.csv_table.AT_ONCE", 7)
    rows = "".join(f"{i % 3},{i},{i * i}\n" for i in range(100))
    found = read(f"case,x,p\n{rows}")
    assert [len(c.points) for c in found] == [34, 33, 33]
    np.testing.assert_array_equal(found[1].fields["p"], np.arange(1, 100, 3) ** 2)
    with pytest.raises(DataError, match="'q' in column p of line 101 "):
        read(f"case,x,p\n{rows[:-5]}q\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n\n", "holds no table"),
        ("# only\n", "holds no table"),
        ("x,p\n", "a header and no rows"),
        ("1,2\n3,4\n", "line 1 holds numbers.*names of the 2 columns"),
        ("a,b\n1,2\n", "where the points are.*it has a, b"),
        ("x,p\n1,2\n3\n", "line 3 has 1 cells and the header 2"),
        ("x,p\n1,2\n3,4,5\n", "line 3 has 3 cells"),
        ("x,p\n1,2\n#\n3,\n", "p is missing in line 4"),
        ("x,p\n1,NA\n", "p is missing in line 2"),
        ("x,p\n1,nan\n", "p is missing in line 2"),
        ("x,p\n1,inf\n", "'inf' in column p of line 2 is no finite number"),
        ("x;p\n1,5;2\n", "'1,5' in column x of line 2.*with a point"),
        ("x,p\n1,wing\n", "'wing' in column p of line 2"),
        ("x,p,p\n1,2,3\n", "two columns are called 'p'"),
        ("x,,p\n1,2,3\n", "column 2 has no name"),
        ("case,x,p\n,1,2\n", "line 2 does not say which case"),
        ('x,p\n1,"2\n', "cannot be read as a table"),
        ('x,p\n1,"2"3\n', "cannot be read as a table"),
        (b"x,p\n1,\xff\n", "no text in UTF-8"),
        (b"x,p\n1,\x00\n", "in column p of line 2"),
        (",".join(f"c{i}" for i in range(20_000)), "20000 columns; 10000 are the most"),
        ("x,p\n" + "1," * 3_000_000, "line 2 has over 4194304 characters"),
        ("x,p\n1," + "2" * 200_000, "cannot be read as a table"),
    ],
)
def test_what_is_wrong_is_refused_by_its_line(read, text, said):
    with pytest.raises(DataError, match=f"(?s)some.csv.*{said}"):
        read(text)


def test_a_look_at_a_table_counts_what_is_missing(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("x,p\n1,2\n3,\n4,NaN\n5,inf\n")
    found = inspect(path)
    (p,) = (v for v in found.variables if v.name == "p")
    assert (p.missing, p.low, p.high) == (3, 2, 2)
    assert any("p: 3 missing values, the first in line 3" in note for note in found.notes)


def test_memory_is_checked(read, monkeypatch):
    monkeypatch.setattr("ipot.formats.limits.SMALL", 10)
    monkeypatch.setattr("ipot.formats.limits.free_memory", lambda: 100)
    with pytest.raises(DataError, match="takes 160 bytes and 100 bytes of memory are free"):
        read("x\n" + "1\n" * 10)


class TestParquet:
    @pytest.fixture
    def write(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")

        def write(**columns):
            pq.write_table(pa.table(columns), tmp_path / "some.parquet")
            return tmp_path / "some.parquet"

        return write

    def test_a_plain_table(self, write):
        path = write(case=["a", "b", "a"], x=[0, 1, 2], y=[1.5, 2.5, 3.5], p=[True, False, True])
        found = read_cases(path)
        assert found.names == ("a", "b")
        np.testing.assert_array_equal(found[0].points, [[0, 1.5], [2, 3.5]])
        np.testing.assert_array_equal(found[0].fields["p"], [True, True])

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"x": [1.0, None], "p": [1, 2]}, "x: 1 missing values, the first in row 1"),
            ({"x": [1.0, float("nan")], "p": [1, 2]}, "x in row 1 .* no finite number"),
            ({"x": [1, 2], "p": ["a", "b"]}, "column p holds string and no numbers"),
            ({"x": [1, 2], "p": [[1], [2]]}, "column p holds list"),
            ({"a": [1, 2], "p": [1, 2]}, "where the points are"),
            ({"case": ["a", None], "x": [1, 2]}, "case: 1 missing"),
        ],
    )
    def test_refused(self, write, columns, said):
        with pytest.raises(DataError, match=said):
            read_cases(write(**columns))

    def test_a_look_counts_what_is_missing(self, write):
        found = inspect(write(x=[1.0, 2.0, 3.0], p=[1, None, 4]))
        (p,) = (v for v in found.variables if v.name == "p")
        assert (p.missing, p.low, p.high) == (1, 1, 4)

    def test_claims_are_checked_before_reading(self, write, monkeypatch):
        path = write(x=np.zeros(10**6), p=np.zeros(10**6))
        monkeypatch.setattr("ipot.formats.limits.free_memory", lambda: 10**6)
        monkeypatch.setattr("ipot.formats.limits.SMALL", 10)
        with pytest.raises(DataError, match=r"takes 30.5 MiB and 977 KiB"):
            read_cases(path)

    def test_damaged(self, write):
        path = write(x=np.arange(50.0), p=np.arange(50.0))
        whole = path.read_bytes()
        for cut in range(4, len(whole), 97):
            path.write_bytes(whole[:cut])
            with pytest.raises(DataError, match=r"some\.parquet"):
                read_cases(path)

    def test_without_pyarrow(self, tmp_path, monkeypatch):
        (tmp_path / "some.parquet").write_bytes(b"PAR1")
        monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
        with pytest.raises(DataError, match=r"pip install 'ipot\[table\]'"):
            read_parquet(tmp_path / "some.parquet")


@pytest.mark.plain
@pytest.mark.parametrize(
    "points",
    [
        *(np.full((2, 2), b"0.5"), np.full((2, 2), 1j), np.full((2, 2), np.nan)),
        np.broadcast_to(0.5, (2, 10**12)),
    ],
    ids=["text", "complex", "NaN", "columns without end"],
)
def test_points_that_no_table_can_hold_are_not_written(tmp_path, points):
    file = tmp_path / "case.csv"
    with pytest.raises(DataError, match="points"):
        write_case(file, Case(points=points, fields={"u": np.zeros(2)}))
    assert not file.exists()
