"""Small files that would keep a library busy, crash it or take all memory: refused by name."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io
from data import weather_files as made

from ipot.data import gridded, readers
from ipot.data.guard import trial
from ipot.errors import DataError
from ipot.formats import inspect, read_cases
from ipot.formats.numpy_files import read_archive, read_arrays
from ipot.formats.open_data import open_data
from ipot.formats.series.windows import Axis, clock_of, plan


@pytest.mark.parametrize("length", [0, 4, 2**31])
def test_a_grib_section_that_leads_nowhere(tmp_path, length):
    path = made.write_grib(tmp_path / "a.grib", days=2)
    content = bytearray(path.read_bytes())
    edition = content[7]
    place, width = (16, 4) if edition == 2 else (8, 3)
    content[place : place + width] = (length % 2 ** (8 * width)).to_bytes(width, "big")
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.grib: the GRIB message at byte 0 has a section"):
        inspect(path)


def netcdf3(path, change):
    data = made.dataset(days=3)
    data.to_netcdf(path, engine="netcdf4", format="NETCDF3_64BIT", unlimited_dims=["time"])
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    return path


def records(content):
    content[4:8] = struct.pack(">I", 2**30)


def dimension(content):
    place = content.index(b"latitude") + 8
    content[place : place + 4] = struct.pack(">I", 2**31 - 1)


def entries(content):
    content[12:16] = struct.pack(">I", 2**31 - 1)


@pytest.mark.parametrize("change", [records, dimension, entries])
def test_a_netcdf3_header_that_claims_too_much(tmp_path, change):
    path = netcdf3(tmp_path / "a.nc", change)
    with pytest.raises(DataError, match=r"a\.nc: it cannot be opened as netCDF.* bytes"):
        inspect(path)


def test_a_netcdf3_file_as_it_is(tmp_path):
    assert inspect(netcdf3(tmp_path / "a.nc", lambda content: None)).cases == 3


def test_windows_are_counted_by_frames_and_not_by_steps():
    axis = Axis("time", np.array([0.0, 1.0, 2.0, 3.0, 1e12]))
    found = plan(axis, axis, clock_of(axis), history=2, lead=1, every=1, stride=1, members=1)
    assert found.starts.tolist() == [0, 1]


def npy(shape, dtype="<f8", data=b""):
    buffer = io.BytesIO()
    told = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, told)
    return buffer.getvalue() + data


def archive(path, *members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def overlapping(path):
    """Two names for the same bytes, as a bomb has a thousand."""
    archive(path, ("a.npy", npy((3,), data=bytes(24))), ("b.npy", npy((3,), data=bytes(24))))
    raw = bytearray(path.read_bytes())
    second = raw.rindex(b"PK\1\2")
    raw[second + 42 : second + 46] = bytes(4)
    raw[26 + 4 : 26 + 5] = raw[30:31]
    path.write_bytes(raw)


def bzip2(path):
    archive(path, ("a.npy", npy((10**7,), data=bytes(8 * 10**7))), method=zipfile.ZIP_BZIP2)


def lzma(path):
    archive(path, ("a.npy", npy((10**6,), data=bytes(8 * 10**6))), method=zipfile.ZIP_LZMA)


def lying(path):
    """The directory and the member's own header differ."""
    archive(path, ("a.npy", npy((3,), data=bytes(24))))
    raw = bytearray(path.read_bytes())
    raw[22:26] = struct.pack("<I", 99)
    path.write_bytes(raw)


def short(path):
    """A member that claims 80 MB, within what deflate can do, and holds a tenth of it."""
    archive(path, ("a.npy", npy((10**7,), data=bytes(8 * 10**6) + os.urandom(2 * 10**5))))
    raw, size = bytearray(path.read_bytes()), 8 * 10**7 + 128
    place = raw.rindex(b"PK\1\2")
    raw[22:26] = raw[place + 24 : place + 28] = struct.pack("<I", size)
    path.write_bytes(raw)


@pytest.mark.parametrize("make", [overlapping, bzip2, lzma, lying, short])
@pytest.mark.parametrize("read", [read_cases, read_arrays])
def test_archives_that_lie_about_their_members(tmp_path, make, read):
    make(tmp_path / "x.npz")
    said = "overlaps|packed by the method|in its own header|and holds|two arrays|damaged"
    with pytest.raises(DataError, match=rf"x\.npz.*({said})"):
        read(tmp_path / "x.npz")


def test_an_array_whose_name_is_damaged_is_not_left_out_in_silence(tmp_path):
    whole, more = tmp_path / "a.npz", {"\u00e9": np.ones(3)}  # beyond ASCII, in another coding
    np.savez(whole, points=np.zeros((3, 2)), targets=np.ones((2, 3)), **more)
    assert set(read_archive(whole)) == {"points", "targets", *more}
    content = whole.read_bytes()
    before, _, after = content.rpartition(b"targets.npy")  # of the directory, which comes last
    whole.write_bytes(before + b"targets.npx" + after)
    for read in (read_archive, read_cases):
        with pytest.raises(DataError, match=r"targets\.npx has another name .*\(targets\.npy\)"):
            read(whole)


@pytest.mark.parametrize("name", ["x.npy", "sst.npy"])
def test_an_npy_file_shorter_than_it_says_takes_no_memory(tmp_path, name):
    (tmp_path / name).write_bytes(npy((10**15,), data=bytes(100)))
    for read in (readers.read_npy, read_arrays):
        with pytest.raises(DataError, match=r"claims the shape \(1000000000000000,\)"):
            read(tmp_path / name)


def test_an_npy_header_that_is_no_python(tmp_path):
    raw = npy((3,), data=bytes(24)).replace(b"'shape': (3,)", b"'shape': (3, ")
    (tmp_path / "x.npy").write_bytes(raw)
    for read in (readers.read_npy, read_arrays):
        with pytest.raises(DataError, match=r"x\.npy"):
            read(tmp_path / "x.npy")


def test_a_parquet_table_of_very_many_rows(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = pa.array(np.zeros(2**21, np.int8))
    table = pa.table(dict.fromkeys(("x", *(f"f{i}" for i in range(99))), values))
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"claims 2097152 rows of 100 columns"):
        read_cases(tmp_path / "t.parquet")


def test_a_parquet_column_that_is_shorter_than_the_others(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [0.0, 1, 2], "u": [3.0, 4, 5]}), tmp_path / "t.parquet")
    read = pq.ParquetFile.read

    def short(self, columns):
        return read(self, columns=columns).slice(0, 2 if columns == ["u"] else 3)

    monkeypatch.setattr(pq.ParquetFile, "read", short)  # as a damaged footer makes it
    with pytest.raises(DataError, match=r"t\.parquet claims 3 rows, and its column u holds 2"):
        read_cases(tmp_path / "t.parquet")


@pytest.mark.parametrize("suffix", [".nc", ".h5", ".npz", ".npy", ".csv", ".vtu", ".grib", ".ply"])
def test_pipes_and_other_strange_files_are_refused(tmp_path, suffix):
    pipe, loop = tmp_path / f"pipe{suffix}", tmp_path / f"loop{suffix}"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for path, said in (
        (pipe, "is a named pipe"),
        (loop, "symbolic links"),
        (tmp_path / ("n" * 300 + suffix), "too long"),
        (tmp_path / f"a\0b{suffix}", "is not there"),
        (tmp_path / f"a\nb{suffix}", "is not there"),
        (f"/dev/zero{'' if suffix == '.nc' else '/'}", "is a device|is not there"),
    ):
        for read in (inspect, open_data):
            with pytest.raises(DataError, match=said):
                read(path)


def test_pipes_in_a_folder_are_no_files(tmp_path):
    np.savez(tmp_path / "a.npz", points=np.random.default_rng(0).random((4, 2)), u=np.arange(4.0))
    os.mkfifo(tmp_path / "b.npz")
    assert len(read_cases(tmp_path)) == 1
    os.mkfifo(tmp_path / "points.npy")
    with pytest.raises(DataError, match="is a named pipe"):
        read_arrays(tmp_path)


@pytest.fixture
def badly(tmp_path, monkeypatch):
    """A module of readers that do not come back, and a file for them."""
    (tmp_path / "badly.py").write_text(
        "import os, signal, time\nfrom ipot.errors import DataError\n"
        "def crash(path): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "def leave(path): os._exit(3)\n"
        "def loop(path):\n    while True: pass\n"
        "def sleep(path): time.sleep(60)\n"
        "def eat(path): bytearray(2**34)\n"
        "def refuse(path): raise DataError('no')\n"
        "def stumble(path): raise KeyError('mine')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(trial, "SECONDS", 0.1)
    trial._stop()
    yield tmp_path / "badly.py"
    trial._stop()


def test_a_reader_that_does_not_come_back_is_survived(badly):
    for name, said in {
        "crash": "SIGSEGV",
        "leave": "makes the library that reads it fail",
        "loop": "of processor time",
        "sleep": "of processor time",
        "eat": "takes more memory than",
        "refuse": "no",
    }.items():
        with pytest.raises(DataError, match=said):
            trial.tried(f"badly:{name}", badly)
    trial.tried("badly:stumble", badly)  # the caller will meet it again


def test_a_library_that_is_half_there_is_no_reason_to_refuse_other_files(tmp_path, badly):
    (tmp_path / "halfthere.py").write_text("raise RuntimeError('no shared library')\n")
    content = badly.read_text()
    badly.write_text(content + "PRELOAD = ('halfthere', 'xml')\ndef fine(path): pass\n")
    trial.tried("badly:fine", badly)
    with pytest.raises(DataError, match="no"):
        trial.tried("badly:refuse", badly)


def test_a_mat_file_that_claims_memory_is_met_by_the_child(tmp_path):
    path = tmp_path / "u.mat"
    scipy.io.savemat(path, {"u": np.ones((5, 4))}, do_compression=True)
    raw = path.read_bytes()
    inside = bytearray(zlib.decompress(raw[136:]))
    place = len(inside) - 5 * 4 * 8 - 4
    assert inside[place : place + 4] == struct.pack("<I", 160)  # bytes of numbers
    inside[place : place + 4] = struct.pack("<I", 2**31 - 8)
    packed = zlib.compress(bytes(inside))
    path.write_bytes(raw[:128] + struct.pack("<2I", 15, len(packed)) + packed)
    with pytest.raises(DataError, match=r"u\.mat takes more memory than its \d+ bytes"):
        readers.read_mat(path, ["u"])


class Greedy:
    """A variable of a file that takes all memory."""

    nbytes = 8

    def to_numpy(self):
        raise MemoryError


@pytest.mark.parametrize("when", ["opened", "read"])
def test_memory_that_a_grib_file_exhausts_is_told_by_the_child(monkeypatch, when):
    def opened(*given):
        if when == "opened":
            raise MemoryError
        return SimpleNamespace(variables={"t": Greedy()})

    monkeypatch.setattr(gridded, "_opened", opened)
    with pytest.raises(MemoryError):
        gridded.look("a.grib", "GRIB", None)


def test_a_mesh_that_crashes_vtk_is_refused(tmp_path):
    pv = pytest.importorskip("pyvista")
    path = tmp_path / "s.ply"
    pv.Sphere(theta_resolution=5, phi_resolution=5).save(path)
    content = path.read_bytes()
    assert inspect(path).points == (17, 17)
    path.write_bytes(content.replace(b"element vertex 17", b"element vertex 3"))
    with pytest.raises(DataError, match=r"s\.ply"):
        inspect(path)
    assert zlib.crc32(path.read_bytes())  # and we are still here
