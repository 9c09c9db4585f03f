"""Files outside of every case's folder that no door may read, import or unpack."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import h5py
import numpy as np

from campaign.attacks._mutate_text import CANARY
from campaign.attacks._seeds import SECRET

BOMB = 72 * 2**20
"""Bytes that the bomb unpacks to, from about a thousandth of them."""


def make_secrets(folder: Path) -> None:
    """Arrays of one number in every format, a module that must not be imported, and a bomb."""
    folder.mkdir(parents=True)
    np.save(folder / "secret.npy", np.full((9, 2), SECRET))
    (folder / "secret.raw").write_bytes(np.full(4096, SECRET, "<f4").tobytes())
    (folder / "secret.txt").write_text(f"{SECRET} " * 9)
    rows = "\n".join(f"{i},{i % 3},{i / 9},{SECRET},{SECRET}" for i in range(9))
    (folder / "secret.csv").write_text(f"case,x,y,a,u\n{rows}\n")
    with h5py.File(folder / "secret.h5", "w") as file:
        for rank in range(5):
            file[f"{rank}d"] = np.full((9, 2, 2, 2)[:rank], SECRET)
    _vtk(folder)
    package, module = CANARY.split(".")
    (folder / "modules" / package).mkdir(parents=True)
    (folder / "modules" / package / "__init__.py").write_text("")
    (folder / "modules" / package / f"{module}.py").write_text("def hit(): return 1\n")
    _bomb(folder / "bomb.deflate")


def _bomb(file: Path) -> None:
    """An array of zeros in deflate's format, with its size and checksum in front."""
    head, zeros = _npy_head(BOMB), bytes(1 << 20)
    crc = zlib.crc32(head)
    for _ in range(BOMB // len(zeros)):
        crc = zlib.crc32(zeros, crc)
    # Behind a full flush a block stands for itself, so that one of them will do for all.
    blocks = []
    for data in (head, zeros):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        blocks.append(packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH))
    packed = blocks[0] + blocks[1] * (BOMB // len(zeros)) + b"\3\0"
    file.write_bytes(struct.pack("<QI", BOMB + len(head), crc) + packed)


def _npy_head(size: int) -> bytes:
    text = repr({"descr": "|u1", "fortran_order": False, "shape": (size,)}).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


def _vtk(folder: Path) -> None:
    """A mesh whose fields and names are those of the seeds."""
    head = '<?xml version="1.0"?>\n<VTKFile type="{0}" version="1.0" byte_order="LittleEndian">'
    head += "\n<{0}{1}>"
    fields = "".join(
        f'<DataArray type="Float64" Name="{name}" format="ascii">{f"{SECRET} " * 8}</DataArray>'
        for name in ("a", "u")
    )
    x = '<Points><DataArray type="Float64" NumberOfComponents="3" format="ascii">' + " ".join(
        f"{i & 1} {i >> 1 & 1} {i >> 2}" for i in range(8)
    )
    points = f"<PointData>{fields}</PointData>{x}</DataArray></Points>"

    def integers(kind: str, name: str, text: str) -> str:
        return f'<DataArray type="{kind}" Name="{name}" format="ascii">{text}</DataArray>'

    grid = "<Cells>" + integers("Int64", "connectivity", "0 1 2 3 4 5 6 7")
    grid += integers("Int64", "offsets", "8") + integers("UInt8", "types", "11") + "</Cells>"
    verts = "<Verts>" + integers("Int64", "connectivity", "0 1 2 3 4 5 6 7")
    verts += integers("Int64", "offsets", "1 2 3 4 5 6 7 8") + "</Verts>"
    for suffix, kind, counts, cells in (
        ("vtu", "UnstructuredGrid", 'NumberOfPoints="8" NumberOfCells="1"', grid),
        ("vtp", "PolyData", 'NumberOfPoints="8" NumberOfVerts="8"', verts),
    ):
        body = f"<Piece {counts}>{points}{cells}</Piece></{kind}></VTKFile>"
        (folder / f"secret.{suffix}").write_text(head.format(kind, "") + body)
    image = (
        f"<Piece Extent='0 1 0 1 0 1'><PointData>{fields}</PointData></Piece></ImageData></VTKFile>"
    )
    whole = " WholeExtent='0 1 0 1 0 1' Origin='0 0 0' Spacing='1 1 1'"
    (folder / "secret.vti").write_text(head.format("ImageData", whole) + image)
