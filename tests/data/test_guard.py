"""Each check of a header by itself, on files whose other parts are right."""

import json
import struct

import numpy as np
import pytest
from scipy.io import netcdf_file

from ipot.data.guard import grib, netcdf, zarr
from ipot.errors import DataError

# ---- GRIB

SECTIONS = {1: 21, 3: 72, 4: 34, 5: 21, 6: 6, 7: 9}
"""Numbers and lengths of the sections of a message of the second edition."""


def second(sections=SECTIONS, **changes):
    """A message of ten values; changes are those of single bytes by section and place."""
    body = b""
    for number, length in sections.items():
        section = bytearray(struct.pack(">IB", length, number).ljust(length, b"\0"))
        if number in (3, 5):
            at = 6 if number == 3 else 5
            section[at : at + 4] = struct.pack(">I", 10)
        for place, content in changes.get(f"s{number}", ()):
            section[place : place + len(content)] = content
        body += section
    return b"GRIB\0\0\0\2" + struct.pack(">Q", 16 + len(body) + 4) + body + b"7777"


def first(wide=5, high=2, length=32, data=11):
    """A message of the first edition, with a grid of its own."""
    parameters = bytearray((28).to_bytes(3, "big").ljust(28, b"\0"))
    parameters[7] = 128
    grid = bytearray(length.to_bytes(3, "big").ljust(32, b"\0"))
    grid[6:10] = struct.pack(">HH", wide, high)
    body = bytes(parameters + grid) + data.to_bytes(3, "big").ljust(11, b"\0")
    return b"GRIB" + (8 + len(body) + 4).to_bytes(3, "big") + b"\1" + body + b"7777"


def whole(number):
    return struct.pack(">I", number)


DAMAGED = {
    "no length": second(s4=[(0, whole(0))]),
    "a length within the head": second(s4=[(0, whole(4))]),
    "a length behind the end": second(s4=[(0, whole(2**31))]),
    "no such section": second(s4=[(4, b"\x09")]),
    "sections in another order": second(s4=[(4, b"\5")], s5=[(4, b"\4")]),
    "a last section that is too short": second(s7=[(0, whole(8))]),
    "a last section without length": second(s7=[(0, whole(0))]),  # which may be repeated
    "no values": second({n: SECTIONS[n] for n in range(1, 7) if n in SECTIONS}),
    "no length of a grid": first(length=0),
    "no length of data": first(data=0),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_sections_that_lead_nowhere(tmp_path, case):
    path = tmp_path / "a.grib"
    path.write_bytes(DAMAGED[case])
    with pytest.raises(DataError, match="does not lead to its end"):
        grib.check(path)


@pytest.mark.parametrize(
    "content",
    [second(s3=[(6, whole(2**31))]), second(s5=[(5, whole(2**31))]), first(60000, 60000)],
)
def test_values_that_a_message_does_not_hold(tmp_path, content):
    path = tmp_path / "a.grib"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"claims \d+ values in \d+ bytes"):
        grib.check(path)


def test_messages_that_add_up(tmp_path):
    path = tmp_path / "a.grib"
    path.write_bytes(second() + b"\0\0" + first() + first(65535, 65535) + second())
    grib.check(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="has no beginning"):
        grib.check(path)


# ---- netCDF-3


def classic(path, change=lambda content: None):
    """A file with a dimension and a variable, and a dimension without end that none has."""
    with netcdf_file(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createDimension("unused", 7)
        file.createVariable("a", "f8", ("x",))[:] = np.arange(3.0)
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    return path


def put(place, content):
    """A change of what lies so many bytes behind some others, or from the beginning."""

    def change(whole):
        mark, behind = place
        at = (whole.index(mark) if mark else 0) + behind
        whole[at : at + 4] = struct.pack(">I", content)

    return change


LIES = {
    "a variable behind the end": (put((b"a\0\0\0", 28), 2**30), "its variables reach to byte"),
    "a variable in the header": (put((b"a\0\0\0", 28), 8), "begins within its header"),
    "records without variables": (put((b"", 4), 2**30), r"it claims \d+ records"),
    "a dimension without variables": (put((b"unused", 8), 2**31 - 1), "a dimension has the length"),
    "a list of dimensions": (put((b"", 12), 2**28), "a list in its header claims"),
    "another list": (put((b"", 8), 11), "begins with 11, not with 10"),
    "a name": (put((b"", 16), 2**20), "goes on behind its end"),
    "many dimensions": (put((b"a\0\0\0", 4), 5000), "a variable has 5000 dimensions"),
    "no such dimension": (put((b"a\0\0\0", 8), 9), "a dimension that is none of the 3"),
    "a type": (put((b"a\0\0\0", 20), 77), "of an unknown type"),
}


@pytest.mark.parametrize("case", LIES)
def test_headers_that_claim_too_much(tmp_path, case):
    change, said = LIES[case]
    with pytest.raises(DataError, match=said):
        netcdf.check(classic(tmp_path / "a.nc", change))


def test_a_header_that_adds_up(tmp_path):
    netcdf.check(classic(tmp_path / "a.nc"))


# ---- Zarr


def store(path, entry="a", **changes):
    """An array of four numbers in two chunks."""
    folder = path / entry
    folder.mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    told = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<f8", "order": "C"}
    told |= {"compressor": None, "filters": None, "fill_value": 0.0}
    (folder / ".zarray").write_text(json.dumps(told | changes))
    for i in range(2):
        (folder / str(i)).write_bytes(bytes(16))
    return path


SHARDS = {"configuration": {"codecs": [{"name": "pickle"}], "index_codecs": [], "chunk_shape": [1]}}
STORES = {
    "objects": ({"dtype": "|O"}, "holds Python objects"),
    "a codec": ({"compressor": {"id": "pickle"}}, "'pickle', which is not opened"),
    "a filter": ({"filters": [{"id": "pickle"}]}, "'pickle', which is not opened"),
    "a codec of shards": (
        {"filters": [{"name": "sharding_indexed", **SHARDS}]},
        "'pickle', which is not opened",
    ),
    "codecs without end": ({"filters": [{"id": "delta"}] * 99}, "more codecs than any"),
    "names of chunks": ({"dimension_separator": "/../"}, "between numbers of chunks"),
    "its size": ({"shape": [10**10], "chunks": [10**10]}, r"it claims 80000000000 bytes"),
    "a chunk": ({"shape": [0], "chunks": [10**10]}, "a chunk claims 80000000000 bytes"),
    "many chunks": ({"shape": [10**6], "chunks": [1]}, "claims 1000000 chunks, and 2 are there"),
    "empty chunks": ({"chunks": [0]}, "chunks of the shape"),
    "chunks of other axes": ({"chunks": [2, 2]}, "chunks of the shape"),
    "a shape that is none": ({"shape": [True]}, "is no size"),
    "missing chunks": ({"shape": [4, 1, 1], "chunks": [1, 1, 1]}, "4 of 4 chunks of a are missing"),
}


@pytest.mark.parametrize("case", STORES)
def test_stores_that_claim_too_much(tmp_path, case):
    changes, said = STORES[case]
    with pytest.raises(DataError, match=said):
        zarr.check(store(tmp_path / "a.zarr", **changes))


def test_a_store_that_adds_up(tmp_path):
    assert zarr.check(store(tmp_path / "a.zarr")) > 32


def test_a_copy_of_the_metadata_is_not_read(tmp_path):
    """It could name arrays that lie elsewhere, and nobody has looked at those."""
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    from ipot.data.gridded import _opened

    path = store(tmp_path / "a.zarr")
    (path / "a" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["x"]}')
    told = json.loads((path / "a" / ".zarray").read_text())
    copy = {".zgroup": {"zarr_format": 2}, "a/.zattrs": {"_ARRAY_DIMENSIONS": ["x"]}}
    copy["a/.zarray"] = told | {"shape": [2]}
    (path / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": copy}))
    assert _opened(path, "Zarr", None)["a"].shape == (4,)
