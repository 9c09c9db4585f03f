"""Folders with one file each, and what a path is."""

import gzip
import pickle

import numpy as np
import pytest
import torch

from formats.making import assert_same, square
from ipot.errors import DataError
from ipot.formats import Arrays, inspect, kind_of, read_cases, write_case, write_cases
from ipot.formats.numpy_files import read_arrays


def numbered(i, **changes):
    return square(fields={"a": np.full(4, float(i))}, **changes)


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".vtu"])
def test_one_file_for_each_case_in_natural_order(suffix, tmp_path):
    bare = {"mesh": None, "cell_fields": {}} if suffix == ".csv" else {}
    for i in range(12):
        write_case(tmp_path / f"case{i}{suffix}", numbered(i, **bare))
    (tmp_path / "README.txt").write_text("notes")
    (tmp_path / ".hidden").write_text("x")
    found = read_cases(tmp_path)
    assert found.names == tuple(f"case{i}" for i in range(12))
    assert [c.fields["a"][0] for c in found] == list(range(12))
    assert found[3].source == str(tmp_path / f"case3{suffix}")
    assert found.notes[0] == "passed over, being of another kind: README.txt"
    looked = inspect(tmp_path)
    assert (looked.cases, looked.points) == (12, (4, 4))
    assert "README.txt" in looked.notes[0]
    if suffix in (".npz", ".h5"):
        assert_same(found[2], numbered(2, **bare))


def test_files_are_read_when_they_are_asked_for(tmp_path):
    for i in range(3):
        write_case(tmp_path / f"{i}.npz", numbered(i))
    found = read_cases(tmp_path)
    write_case(tmp_path / "2.npz", numbered(99))
    assert found[2].fields["a"][0] == 99


def test_a_broken_file_is_refused_by_name(tmp_path):
    for i in range(3):
        write_case(tmp_path / f"{i}.npz", numbered(i))
    whole = (tmp_path / "1.npz").read_bytes()
    (tmp_path / "1.npz").write_bytes(whole[:-30])
    found = read_cases(tmp_path)
    assert found[0].fields["a"][0] == 0
    with pytest.raises(DataError, match=r"1\.npz"):
        found[1]
    with pytest.raises(DataError, match=r"1\.npz"):
        inspect(tmp_path)


def test_two_kinds_are_not_guessed_from(tmp_path):
    for i in range(3):
        write_case(tmp_path / f"{i}.npz", numbered(i))
    write_case(tmp_path / "a.csv", numbered(0, mesh=None, cell_fields={}))
    assert len(read_cases(tmp_path)) == 3
    write_case(tmp_path / "b.csv", numbered(0, mesh=None, cell_fields={}))
    with pytest.raises(DataError, match="3 of kind npz and 2 of kind table"):
        read_cases(tmp_path)


def test_arrays_of_our_layout_in_every_file(tmp_path):
    sizes = (5, 7, 6)
    for i, n in enumerate(sizes):
        np.savez(
            tmp_path / f"{i}.npz",
            points=np.ones((n, 2)),
            values=np.full((n, 1), i),
            targets=np.full((n, 3), i),
            parameters=np.array(float(i)),
        )
    found = read_cases(tmp_path)
    assert isinstance(found, Arrays)
    assert [len(p) for p in found.points] == list(sizes)
    assert [t[0, 0] for t in found.targets] == [0, 1, 2]
    assert [float(p) for p in found.parameters] == [0, 1, 2]
    looked = inspect(tmp_path)
    assert (looked.cases, looked.points) == (3, (5, 7))
    np.savez(tmp_path / "9.npz", points=np.ones((3, 2)), targets=np.ones((3, 3)))
    with pytest.raises(DataError, match=r"9\.npz has no values, and others have"):
        read_cases(tmp_path)
    np.savez(tmp_path / "9.npz", points=np.ones((3, 2)), a=np.ones(3))
    with pytest.raises(DataError, match=r"9\.npz has no targets"):
        read_cases(tmp_path)


def test_times_must_agree(tmp_path):
    for i in range(2):
        times = np.array([1.0, 2.0 + i])
        np.savez(
            tmp_path / f"{i}.npz", points=np.ones((3, 2)), targets=np.ones((2, 3)), times=times
        )
    with pytest.raises(DataError, match=r"1\.npz has other times than .*0\.npz"):
        read_cases(tmp_path)


def test_folders_of_npy(tmp_path):
    for i in range(3):
        (tmp_path / f"case{i}").mkdir()
        np.save(tmp_path / f"case{i}" / "points.npy", np.ones((4 + i, 2)))
        np.save(tmp_path / f"case{i}" / "a.npy", np.full(4 + i, i))
    found = read_cases(tmp_path)
    assert [len(c.points) for c in found] == [4, 5, 6]
    assert [c.fields["a"][0] for c in found] == [0, 1, 2]


def test_many_cases_in_a_file_of_a_folder(tmp_path):
    write_cases(tmp_path / "a.h5", [square(), square()])
    assert len(read_cases(tmp_path)) == 2
    write_case(tmp_path / "b.h5", square())
    with pytest.raises(DataError, match=r"a\.h5 holds 2 cases; .*each must hold one"):
        read_cases(tmp_path)


def test_many_cases_in_an_archive_of_a_folder(tmp_path):
    np.savez(tmp_path / "a.npz", points=np.ones((4, 2)), a=np.ones((7, 4)))
    assert len(read_cases(tmp_path)) == 7
    np.savez(tmp_path / "b.npz", points=np.ones((4, 2)), a=np.ones(4))
    with pytest.raises(DataError, match=r"a\.npz is one case of a folder.*a \(7, 4\).*by its own"):
        read_cases(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match="holds nothing, and no file of a known kind"):
        read_cases(tmp_path)
    (tmp_path / "a.pt").write_text("x")
    with pytest.raises(DataError, match=r"holds a\.pt, and no file of a known kind"):
        read_cases(tmp_path)
    with pytest.raises(DataError, match="is not there"):
        read_cases(tmp_path / "none.npz")
    with pytest.raises(DataError, match="is not there"):
        read_cases("a\0b.npz")
    for name in ("a.nc", "b.nc"):
        (tmp_path / name).write_bytes(b"CDF\x01")
    with pytest.raises(DataError, match=r"holds netCDF files.*xarray"):
        read_cases(tmp_path)


@pytest.mark.parametrize("content", ["objects", "pickle"])
def test_a_pickle_among_arrays_is_named(tmp_path, content):
    """Beside sound arrays, in a folder of cases, and where a prediction reads it."""
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        np.save(folder / "points.npy", np.zeros((3, 2)))
        np.save(folder / "targets.npy", np.zeros(3))
    bad = tmp_path / "a" / "targets.npy"
    if content == "objects":
        np.save(bad, np.array([[1], [1, 2]], dtype=object), allow_pickle=True)
    else:
        bad.write_bytes(pickle.dumps([1]))
    said = rf"{bad} holds Python objects, which are a pickle.*numpy\.save"
    for read in (read_cases, read_arrays):
        with pytest.raises(DataError, match=said):
            read(tmp_path / "a")
    with pytest.raises(DataError, match=said):
        read_cases(tmp_path)


def test_kinds_by_content(tmp_path):
    def put(name, content):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    assert kind_of(put("a.bin", b"PAR1....")) == "parquet"
    assert kind_of(put("a.nc", b"CDF\x01....")) == "netCDF"
    assert kind_of(put("a.dat", b"GRIB....")) == "GRIB"
    assert kind_of(put("a.vtu", b"<VTKFile>")) == "vtk"
    assert kind_of(put("mesh", b"<?xml version='1.0'?>\n<VTKFile>")) == "vtk"
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".zgroup").write_text("{}")
    assert kind_of(tmp_path / "store") == "Zarr"
    write_case(tmp_path / "a.npz", square())
    assert kind_of((tmp_path / "a.npz").rename(tmp_path / "a.other")) == "npz"
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    for path, said in (
        (tmp_path / "a.pt", "a file of torch.*never opened"),
        (put("a.pkl", pickle.dumps([1])), "a pickle.*never opened"),
        (put("a.csv.gz", gzip.compress(b"x,y\n1,2\n")), "unpack it first"),
        (put("a.mat", b"MATLAB 7.3 MAT-file"), "a file of MATLAB"),
        (put("b.h5", b"garbage garbage"), "should be hdf5 by its name, and begins with b'garbage "),
        (put("b.npz", b"garbage garbage"), "should be npz"),
        (put("b.xyz", b"garbage"), "of no kind that is known"),
        (put("c.npz", b""), "is empty"),
        (put("d.npz", b"PK\x03\x04garbage"), "cannot be opened"),
    ):
        with pytest.raises(DataError, match=said):
            kind_of(path)
