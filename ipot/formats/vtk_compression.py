"""What undoes the compression of arrays in VTK's files, block by block.

Each takes a block and the length that must come out. No more than that is ever unpacked, and None
is returned where something else comes out.
"""

from __future__ import annotations

import importlib
import lzma
import zlib
from collections.abc import Callable

from ipot.errors import DataError, shown

Unpack = Callable[[memoryview, int], bytes | None]


class NeedsVtk(Exception):
    """An honest file that only VTK's own library can read; the message says why.

    `suffix` is what such a file is called, where the file at hand may be called otherwise.
    """

    def __init__(self, reason: str, suffix: str = "") -> None:
        super().__init__(reason)
        self.suffix = suffix


def decompressor(name: str, where: str) -> Unpack:
    """What undoes VTK's compressor of that name; `where` is the file's name, for messages."""
    if name == "vtkZLibDataCompressor":
        return _unzip
    if name == "vtkLZMADataCompressor":
        return _unlzma
    if name == "vtkLZ4DataCompressor":
        return _lz4()
    raise DataError(f"{where}: no compressor is called {shown(name)}: the file is damaged")


def _unzip(block: memoryview, length: int) -> bytes | None:
    machine = zlib.decompressobj()
    try:
        found = machine.decompress(block, length + 1)
    except zlib.error:
        return None
    return found if machine.eof else None


def _unlzma(block: memoryview, length: int) -> bytes | None:
    machine = lzma.LZMADecompressor(memlimit=1 << 29)
    try:
        found = machine.decompress(block, length + 1)
    except lzma.LZMAError:
        return None
    return found if machine.eof else None


def _lz4() -> Unpack:
    try:
        codec = importlib.import_module("lz4.block")
    except ImportError:
        raise NeedsVtk("it is compressed by LZ4, and the package lz4 is not installed") from None

    def unpack(block: memoryview, length: int) -> bytes | None:
        try:
            return codec.decompress(block, uncompressed_size=length)
        except (codec.LZ4BlockError, ValueError):
            return None

    return unpack
