"""How VTK's files pack the values of an array: as text, base64 or bytes, compressed or not.

Nothing is allocated before the size that a file claims was compared with the bytes that are there
and with the number of values that are expected.
"""

from __future__ import annotations

import binascii
import importlib
import lzma
import math
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from xml.etree.ElementTree import Element

import numpy as np

from ipot.errors import DataError, shown
from ipot.formats.limits import check_memory

TYPES = {
    **{f"Int{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{f"UInt{8 * size}": np.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    "Float32": np.dtype("f4"),
    "Float64": np.dtype("f8"),
    "Bit": np.dtype("i1"),
}
"""By VTK's name; bits are unpacked to bytes, as VTK hands them to NumPy."""

FREE = 1 << 28
"""So many bytes may come out of any file."""

EXPANSION = 8
"""Beyond those, so many times the size of the file: text is wordy, and arrays may share bytes."""

COMPRESSION = 200
"""The same where arrays are compressed."""

_BLOCK = 1 << 20

_WHITE = b" \t\r\n"


class Source:
    """Where the arrays of one file lie, and how they are packed."""

    def __init__(
        self,
        where: str,
        attributes: Mapping[str, str],
        appended: memoryview,
        encoding: str,
        size: int,
    ) -> None:
        self.where = where
        order = attributes.get("byte_order", "LittleEndian")
        header = attributes.get("header_type", "UInt32")
        if order not in ("LittleEndian", "BigEndian") or header not in ("UInt32", "UInt64"):
            raise DataError(
                f"{where}: byte_order must be LittleEndian or BigEndian and header_type UInt32 or "
                f"UInt64, got {shown(order)} and {shown(header)}"
            )
        self.swapped = (order == "LittleEndian") != (sys.byteorder == "little")
        self.header = self._stored(TYPES[header])
        compressor = attributes.get("compressor", "")
        self.unpack = decompressor(compressor, where) if compressor else None
        self.appended = appended
        self.encoding = encoding
        self.left = max(FREE, (COMPRESSION if compressor else EXPANSION) * size)

    def values(self, element: Element, count: int | None) -> np.ndarray:
        """All values of a DataArray in a row; `count`, if known, is how many there must be."""
        label = f"{self.where}: {element.get('Name') or 'an array'}"
        kind = element.get("type", "")
        if kind not in TYPES:
            raise DataError(f"{label} has type {shown(kind)}, expected one of {', '.join(TYPES)}")
        dtype = TYPES[kind]
        form = element.get("format", "ascii")
        if form == "ascii":
            found = _from_text(_text(element), dtype, label)
            self._spend(found.nbytes, label)
        elif form in ("binary", "appended"):
            stored = None
            if count is not None:
                stored = -(-count // 8) if kind == "Bit" else count * dtype.itemsize
            found = self._from_bytes(self._stream(element, form, label), dtype, stored, label)
            if kind == "Bit":
                found = np.unpackbits(found.view(np.uint8))[:count].view(np.int8)
        else:
            raise DataError(f"{label} has format {shown(form)}, expected ascii, binary or appended")
        if count is not None and len(found) != count:
            raise DataError(
                f"{label} must have {count} values by the numbers of points, cells and components, "
                f"but has {len(found)}: the file was cut short or is damaged"
            )
        return found

    def _stored(self, dtype: np.dtype) -> np.dtype:
        return dtype.newbyteorder("S") if self.swapped else dtype

    def _stream(self, element: Element, form: str, label: str) -> _Stream:
        if form == "binary":
            text = _text(element).encode("ascii", "replace").translate(None, _WHITE)
            return _Stream(memoryview(text), 0, base64=True, label=label)
        offset = whole(element.get("offset"), f"{label}: offset")
        if offset > len(self.appended):
            raise _short(label)
        return _Stream(self.appended, offset, base64=self.encoding == "base64", label=label)

    def _from_bytes(
        self, stream: _Stream, dtype: np.dtype, stored: int | None, label: str
    ) -> np.ndarray:
        if self.unpack is None:
            size = int(np.frombuffer(stream.peek(self.header.itemsize), self.header)[0])
            self._agree(size, stored, dtype, label)
            data = stream.behind_header(self.header.itemsize, size)
        else:
            data = self._inflate(stream, stored, dtype, label)
        # The copy is what makes the array writable, aligned and of this machine's byte order.
        return np.frombuffer(data, self._stored(dtype)).astype(dtype)

    def _inflate(
        self, stream: _Stream, stored: int | None, dtype: np.dtype, label: str
    ) -> bytes | bytearray:
        """Compressed arrays begin: blocks, bytes of each, of the last, bytes of each compressed."""
        assert self.unpack is not None
        width = self.header.itemsize
        blocks = int(np.frombuffer(stream.peek(width), self.header)[0])
        if blocks == 0:
            self._agree(0, stored, dtype, label)
            return b""
        head = np.frombuffer(stream.take((3 + blocks) * width), self.header)
        _, each, last, *sizes = (int(number) for number in head)
        lengths = [each] * (blocks - 1) + [last or each]
        total = sum(lengths)
        self._agree(total, stored, dtype, label)
        packed = stream.take(sum(sizes))
        data = bytearray(total)
        begin = end = 0
        for length, size in zip(lengths, sizes, strict=True):
            block = self.unpack(packed[begin : begin + size], length)
            if block is None or len(block) != length:
                raise DataError(f"{label} cannot be decompressed: the file is damaged")
            data[end : end + length] = block
            begin, end = begin + size, end + length
        return data

    def _agree(self, size: int, stored: int | None, dtype: np.dtype, label: str) -> None:
        if (stored is not None and size != stored) or size % dtype.itemsize:
            raise DataError(
                f"{label} claims {size} bytes"
                + ("" if stored is None else f", but its points or cells need {stored}")
                + ": the file is damaged, or its byte order or header_type is not what it says"
            )
        self._spend(size, label)

    def _spend(self, size: int, label: str) -> None:
        check_memory(label, size)
        self.left -= size
        if self.left < 0:
            raise DataError(
                f"{label} would make the file unpack to far more than its own size; it looks made "
                "to exhaust memory. Write it again without compression if it is honest"
            )


class _Stream:
    """Bytes from a place on, as they are or in base64."""

    def __init__(self, data: memoryview, position: int, *, base64: bool, label: str) -> None:
        self.data, self.position, self.base64, self.label = data, position, base64, label

    @property
    def available(self) -> int:
        left = len(self.data) - self.position
        return left * 3 // 4 if self.base64 else left

    def peek(self, count: int) -> memoryview:
        return self._read(count)[0]

    def take(self, count: int) -> memoryview:
        """The next bytes; in base64 those of a stream of their own, padded to its end."""
        data, self.position = self._read(count)
        return data

    def behind_header(self, header: int, count: int) -> memoryview:
        """Uncompressed bytes: in base64 one stream with their header, or, from some, another."""
        if self.base64 and count and self._padded(header):
            self.take(header)
            return self.take(count)
        return self.take(header + count)[header:]

    def _padded(self, count: int) -> bool:
        end = self.position + 4 * math.ceil(count / 3)
        padding = -count % 3
        return padding > 0 and bytes(self.data[end - padding : end]) == b"=" * padding

    def _read(self, count: int) -> tuple[memoryview, int]:
        if count > self.available:
            raise _short(self.label)
        if not self.base64:
            end = self.position + count
            return self.data[self.position : end], end
        end = self.position + 4 * math.ceil(count / 3)
        try:
            found = binascii.a2b_base64(self.data[self.position : end], strict_mode=True)
        except binascii.Error as error:
            raise DataError(f"{self.label} is not base64 ({error}): the file is damaged") from None
        if len(found) < count:
            raise _short(self.label)
        return memoryview(found)[:count], end


def packed(array: np.ndarray, *, compress: bool) -> list[bytes | memoryview]:
    """What `Source` reads, for appending: little-endian, with headers of 64 bits."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    data = little.view(np.uint8).data if little.size else memoryview(b"")
    if not compress:
        return [np.array([len(data)], "<u8").tobytes(), data]
    blocks = [zlib.compress(block) for block in _blocks(data)]
    sizes = [len(blocks), _BLOCK, len(data) % _BLOCK, *map(len, blocks)]
    return [np.array(sizes, "<u8").tobytes(), *blocks]


def whole(text: str | None, label: str) -> int:
    """A count or a position that a file gives as text."""
    try:
        number = int(text or "")
    except ValueError:
        number = -1
    if number < 0:
        raise DataError(f"{label} must be a whole number, 0 or more, got {shown(text or '')}")
    return number


def _text(element: Element) -> str:
    """What an element says itself; remarks on it may be its children."""
    return (element.text or "") + "".join(child.tail or "" for child in element)


def _from_text(text: str, dtype: np.dtype, label: str) -> np.ndarray:
    if not text.strip():
        return np.empty(0, dtype)
    wide = np.dtype({"f": "f8", "i": "i8", "u": "u8"}[dtype.kind])
    try:
        # Text that does not parse is a warning in some releases of NumPy and an error in others.
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            found = np.fromstring(text, wide, sep=" ")
    except (DeprecationWarning, ValueError):
        raise DataError(f"{label} holds text that is not {dtype.name}: it is damaged") from None
    if wide.kind != "f" and len(found):
        bounds = np.iinfo(dtype)
        if found.min() < bounds.min or found.max() > bounds.max:
            raise DataError(f"{label} holds values that are too large for {dtype.name}")
    with np.errstate(over="ignore"):
        return found.astype(dtype)


def _blocks(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), _BLOCK):
        yield data[start : start + _BLOCK]


def _short(label: str) -> DataError:
    return DataError(f"{label} is not all there: the file was cut short or is damaged")


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
