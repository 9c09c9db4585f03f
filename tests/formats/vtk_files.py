"""Small files of VTK's kind, written plainly and in every way, to be read and to be damaged."""

import base64
import lzma
import zlib

import numpy as np

KINDS = {"i": "Int", "u": "UInt", "f": "Float"}
MODES = ("ascii", "binary", "raw", "base64")
COMPRESSORS = {
    "": None,
    "vtkZLibDataCompressor": zlib.compress,
    "vtkLZMADataCompressor": lambda data: lzma.compress(data, preset=0),
}

POINTS = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 1 / 3]], np.float64)
PRESSURE = np.array([0.1, -2.5, 3e-7, 4e9, np.nan])
VELOCITY = np.arange(15, dtype=np.float32).reshape(5, 3) / 7
MARK = np.array([3, 250], np.uint8)


class File:
    """Puts a file together; `replaced` overrides the bytes that stand for an array."""

    def __init__(self, mode="ascii", compressor="", *, header="u4", order="<", block=16):
        self.mode, self.compressor = mode, compressor
        self.header, self.order, self.block = header, order, block
        self.appended = b""
        self.replaced: dict[str, bytes] = {}

    def array(self, name, values, extra=""):
        values = np.asarray(values)
        kind = f"{KINDS[values.dtype.kind]}{8 * values.dtype.itemsize}"
        width = f' NumberOfComponents="{values.shape[1]}"' if values.ndim == 2 else ""
        head = f'<DataArray type="{kind}" Name="{name}"{width} {extra}'
        if self.mode == "ascii":
            text = " ".join(repr(value) for value in values.ravel().tolist())
            return f'{head} format="ascii">\n{text}\n</DataArray>'
        stored = self.replaced.get(name)
        if stored is None:
            stored = self.pack(values.astype(values.dtype.newbyteorder(self.order)).tobytes())
        if self.mode == "binary":
            return f'{head} format="binary">\n  {stored.decode()}\n</DataArray>'
        place, self.appended = len(self.appended), self.appended + stored
        return f'{head} format="appended" offset="{place}"/>'

    def numbers(self, *values):
        return np.array(values, self.order + self.header).tobytes()

    def pack(self, data):
        encode = bytes if self.mode == "raw" else base64.b64encode
        compress = COMPRESSORS[self.compressor]
        if compress is None:
            return encode(self.numbers(len(data)) + data)
        blocks = [compress(data[k : k + self.block]) for k in range(0, len(data), self.block)]
        head = self.numbers(len(blocks), self.block, len(data) % self.block, *map(len, blocks))
        return encode(head) + encode(b"".join(blocks))

    def wrap(self, inner, kind="UnstructuredGrid"):
        order = "LittleEndian" if self.order == "<" else "BigEndian"
        header = {"u4": "UInt32", "u8": "UInt64"}[self.header]
        compressor = f' compressor="{self.compressor}"' if self.compressor else ""
        text = (
            f'<?xml version="1.0"?>\n<VTKFile type="{kind}" version="1.0" byte_order="{order}" '
            f'header_type="{header}"{compressor}>\n<{kind}>\n{inner}\n</{kind}>\n'
        )
        if self.mode in ("raw", "base64"):
            head = f'<AppendedData encoding="{self.mode}">\n   _'.encode()
            return text.encode() + head + self.appended + b"\n</AppendedData>\n</VTKFile>\n"
        return text.encode() + b"</VTKFile>\n"

    def cells(self, connectivity, offsets, types):
        return "\n".join(
            [
                "<Cells>",
                self.array("connectivity", np.array(connectivity, np.int32)),
                self.array("offsets", np.array(offsets, np.int32)),
                self.array("types", np.array(types, np.uint8)),
                "</Cells>",
            ]
        )


def pyramid(mode="ascii", compressor="", *, replaced=None, **how):
    """Five points, a quadrilateral and a pyramid, with data of all kinds: the bytes of a file."""
    file = File(mode, compressor, **how)
    file.replaced = replaced or {}
    inner = [
        "<FieldData>",
        file.array("Mach", np.array([0.3]), 'NumberOfTuples="1"'),
        file.array("TimeValue", np.array([2.5])),
        "</FieldData>",
        '<Piece NumberOfPoints="5" NumberOfCells="2"><PointData>',
        file.array("p", PRESSURE),
        file.array("U", VELOCITY),
        "</PointData><CellData>",
        file.array("mark", MARK),
        "</CellData><Points>",
        file.array("Points", POINTS),
        "</Points>",
        file.cells([0, 1, 2, 3, 0, 1, 2, 3, 4], [4, 9], [9, 14]),
        "</Piece>",
    ]
    return file.wrap("\n".join(inner))
