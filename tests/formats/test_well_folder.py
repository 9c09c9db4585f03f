"""Several files of The Well are one set, where they agree."""

from dataclasses import replace

import numpy as np
import pytest
from own import files

from ipot.errors import DataError
from ipot.formats import Trajectories, inspect, read_cases
from ipot.formats.the_well import write_well


@pytest.fixture
def folder(tmp_path):
    files.well(tmp_path / "part_2.hdf5", count=2)
    files.well(tmp_path / "part_10.hdf5", count=3)
    return tmp_path


def test_trajectories_follow_one_another_in_the_order_of_names(folder):
    found = read_cases(folder)
    assert isinstance(found, Trajectories)
    assert len(found) == 5
    two, three = (read_cases(folder / f"part_{n}.hdf5") for n in (2, 10))
    np.testing.assert_array_equal(
        found.parameters["speed"], np.r_[two.parameters["speed"], three.parameters["speed"]]
    )
    for name in ("h", "wind", "ground"):
        field = found.fields[name]
        assert field.shape[0] == 5
        for i, (part, j) in enumerate([(two, 0), (two, 1), (three, 0), (three, 1), (three, 2)]):
            np.testing.assert_array_equal(field.read(i), part.fields[name].read(j))
    np.testing.assert_array_equal(field.read(4, slice(2, 3)), field.read(4)[2:3])
    assert "2 files with 5 trajectories in all" in found.notes
    assert inspect(folder).cases == 5


UNLIKE = {
    r"other grids \(4 x 4 and not 4 x 3\)": lambda: files.trajectories(grid=(4, 4)),
    r"other times \(7 from 0 to 3 and not 9 from 0 to 4\)": lambda: files.trajectories(frames=7),
    r"other fields \(.*ground.*\)": lambda: files.trajectories(steady=False),
    "other coordinates": lambda: _with(points=1 + files.trajectories().points),
    r"other parameters \(speed\)": lambda: _with(parameters={}),
    r"other boundaries \(periodic or not\)": lambda: _with(periods=(None, None)),
}


def _with(**changes):
    return replace(files.trajectories(), **changes)


@pytest.mark.parametrize("said", UNLIKE)
def test_files_that_disagree_are_refused_by_name(folder, said):
    write_well(folder / "part_11.hdf5", UNLIKE[said]())
    with pytest.raises(DataError, match=rf"part_11\.hdf5 has {said} than .*part_2\.hdf5"):
        read_cases(folder)


def test_a_file_of_another_layout_is_refused_by_name(folder):
    files.hdf5(folder / "part_11.h5", count=1)
    with pytest.raises(DataError, match=r"part_11\.h5 is not of The Well's layout"):
        read_cases(folder)
