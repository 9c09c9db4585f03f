"""The flags of `ipot era5`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipot.commands.flags import File


@dataclass(kw_only=True)
class Check:
    """Say what to download for the problem era5, or check files that are there.

    usage: ipot era5 [PATH] [flags], for instance

        ipot era5 > download.py            the request, ready to run
        ipot era5 era5_t2m_2018.grib       what is in a file, or why it will not do
        ipot era5 'data/*.nc' --problem.hour 12

    PATH is a file (GRIB, netCDF or Zarr), a folder of files or a pattern. All values of the frames
    that the problem would use are read.
    """

    usual: ClassVar = ("json", "out")

    json: bool = False
    """Print the result as JSON."""
    out: File = None
    """Where the result goes: a file, as JSON."""
    overwrite: bool = False
    """Write over what is there already."""


FLAGS = Check
