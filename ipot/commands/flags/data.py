"""The flags of `ipot data inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from ipot.commands.flags import File

ABOUT = """
usage: ipot data inspect PATH [--json]    (ipot data inspect --help tells more)

  inspect   what is in a file or a folder: names, sizes, ranges, missing values
"""


@dataclass
class Inspect:
    """Say what is in a file or a folder, and what could be inputs and targets.

        ipot data inspect cases/
        ipot data inspect era5.nc

    Reads .npz, .npy, CSV, Parquet, HDF5 (also of The Well), VTU and VTP, netCDF, Zarr and GRIB, and
    folders of such files with a case in each.
    """

    usual: ClassVar = ("path", "json", "out")

    path: Annotated[Path, tyro.conf.Positional]
    """File or folder of cases, or a series in netCDF, Zarr or GRIB."""
    json: bool = False
    """Print the result as JSON."""
    out: File = None
    """Where the result goes: a file, as JSON."""
    overwrite: bool = False
    """Write over what is there already."""


FLAGS = {"inspect": Inspect}
