"""netCDF files that would keep the library busy."""

import contextlib

import h5py
import pytest

from ipot.data.guard import hdf5, netcdf
from ipot.errors import DataError


@pytest.mark.parametrize("soft", [False, True])
def test_a_group_that_holds_itself_is_refused(tmp_path, soft):
    """The library goes around in it until memory is exhausted."""
    path = tmp_path / "loop.nc"
    with h5py.File(path, "w") as file:
        file["a"] = [1.0, 2.0]
        file["b"] = file["a"]
        file["c"] = h5py.SoftLink("/a")
        file["d"] = h5py.SoftLink("/nowhere")
    netcdf.check(path)  # arrays under several names, and links that lead nowhere, do no harm
    with h5py.File(path, "a") as file:
        file["loop"] = h5py.SoftLink("/") if soft else file["/"]
    with pytest.raises(DataError, match=r"loop\.nc: the group loop is in the file twice"):
        netcdf.check(path)
    hdf5.check(path)  # readers of HDF5 alone see every group once


@pytest.mark.parametrize("damage", [MemoryError, OSError])
@pytest.mark.parametrize("module", [hdf5, netcdf])
def test_a_first_reading_tells_exhausted_memory_from_damage(tmp_path, monkeypatch, module, damage):
    """The file is refused for the first; the reader that follows meets the second again."""

    def read(*_):
        raise damage

    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        file["a"] = [1.0, 2.0]
    name = "_read_through" if module is hdf5 else "_read_group"
    if module is netcdf:
        pytest.importorskip("netCDF4")
    monkeypatch.setattr(module, name, read)
    with pytest.raises(MemoryError) if damage is MemoryError else contextlib.nullcontext():
        module.look(str(path))


def test_an_array_that_was_never_written_claims_no_memory(tmp_path):
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.create_dataset("t", (2**20, 2**20), "f8", chunks=(1024, 1024))
    with pytest.raises(DataError, match=r"/t of .* claims 8 TiB and the file holds 0 bytes"):
        netcdf.check(tmp_path / "a.nc")
