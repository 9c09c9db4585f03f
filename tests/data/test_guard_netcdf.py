"""netCDF files that would keep the library busy."""

import h5py
import pytest

from ipot.data.guard import hdf5, netcdf
from ipot.errors import DataError


def test_a_group_that_holds_itself_is_refused(tmp_path):
    """The library goes around in it until memory is exhausted."""
    path = tmp_path / "loop.nc"
    with h5py.File(path, "w") as file:
        file["a"] = [1.0, 2.0]
        file["b"] = file["a"]
        file["loop"] = file["/"]
    with pytest.raises(DataError, match=r"loop\.nc: the group loop is in the file twice"):
        netcdf.check(path)
    hdf5.check(path)  # readers of HDF5 alone see every group once
