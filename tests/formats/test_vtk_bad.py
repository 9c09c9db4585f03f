"""Files that are damaged, cut short or made to hurt."""

import base64
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipot.errors import DataError, IpotError
from ipot.formats import inspect
from ipot.formats.vtk import encoding as vtk_encoding
from ipot.formats.vtk import read_vtk
from ipot.formats.vtk import xml as vtk_xml

from .vtk_files import COMPRESSORS, MODES, POINTS, File, pyramid

FILES = {
    (mode, compressor): pyramid(mode, compressor)
    for mode in MODES
    for compressor in COMPRESSORS
    if mode != "ascii" or not compressor
}


def read(tmp_path, content, name="a.vtu"):
    path = tmp_path / name
    path.write_bytes(content)
    return read_vtk(path)


@settings(max_examples=150)
@given(which=st.sampled_from(sorted(FILES)), at=st.floats(0, 1, exclude_max=True))
def test_a_cut_anywhere_is_told(tmp_path_factory, which, at):
    content = FILES[which]
    cut = content[: int(at * len(content))]
    folder = tmp_path_factory.mktemp("cut")
    if cut == content.rstrip():
        read(folder, cut)
    else:
        with pytest.raises(DataError, match=r"a\.vtu"):
            read(folder, cut)


@settings(max_examples=150)
@given(
    which=st.sampled_from(sorted(FILES)),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    end=st.floats(0, 1),
)
def test_damage_never_surprises(tmp_path_factory, which, changes, end):
    """Whatever bytes change, a file is read or refused; nothing else comes out."""
    content = bytearray(FILES[which])
    begin = int(end * len(content))
    for at, byte in changes:
        content[begin + int(at * (len(content) - begin)) - (begin == len(content))] = byte
    path = tmp_path_factory.mktemp("damage") / "a.vtu"
    path.write_bytes(content)
    for act in (read_vtk, inspect):
        try:
            act(path)
        except IpotError as error:
            assert "a.vtu" in str(error)  # noqa: PT017 (it may also be read)


LAUGHS = '<!DOCTYPE VTKFile [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
EXTERNAL = '<!DOCTYPE VTKFile [<!ENTITY i SYSTEM "file:///etc/passwd">'


@pytest.mark.parametrize("doctype", [f"{LAUGHS}]>", f"{EXTERNAL}]>", "<!DOCTYPE VTKFile>"])
@pytest.mark.parametrize("before", ["", "<!-- <VTKFile> -->", "<!--" + "x" * 70_000 + "-->"])
@pytest.mark.parametrize("suffix", [".vtu", ".vts"])
def test_entities_are_refused_unread(tmp_path, doctype, before, suffix):
    text = pyramid().decode().replace('Name="p"', 'Name="&i;"')
    text = text.replace("<VTKFile", f"{before}{doctype}<VTKFile", 1)
    with pytest.raises(DataError, match=r"DOCTYPE|no <VTKFile> at its beginning"):
        read(tmp_path, text.encode(), f"a{suffix}")
    if "]" in doctype:
        with pytest.raises(DataError):
            read(tmp_path, text.encode("utf-16"), f"a{suffix}")


def test_no_parser_sees_a_doctype(tmp_path, monkeypatch):
    monkeypatch.setattr(vtk_xml.expat, "ParserCreate", None)
    with pytest.raises(DataError, match="DOCTYPE"):
        read(tmp_path, pyramid().replace(b"<VTKFile", f"{LAUGHS}]><VTKFile".encode(), 1))


def test_a_doctype_in_another_encoding_is_refused(tmp_path):
    text = b'<?xml version="1.0" encoding="cp037"?>' + pyramid()[21:]
    assert read(tmp_path, text).fields  # the encoding it names is not used
    hidden = b'<?xml version="1.0" encoding="cp037"?>' + EXTERNAL.encode("cp037")
    with pytest.raises(DataError, match="cannot be read as XML"):
        read(tmp_path, hidden + text[38:])


def test_trees_that_are_too_large_are_refused(tmp_path, monkeypatch):
    for inner in ("<a>" * 5000 + "</a>" * 5000, "<a/>" * 3000):
        monkeypatch.setattr(vtk_xml, "MAX_ELEMENTS", 2000)
        with pytest.raises(DataError, match="elements"):
            read(tmp_path, File().wrap(inner))


def lie(tmp_path, before, after, mode="raw", **how):
    content = pyramid(mode, **how)
    assert before in content
    return read(tmp_path, content.replace(before, after, 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_numbers_that_lie_are_refused_before_anything_is_allocated(tmp_path, mode, compressor):
    for before, after in (
        (b'NumberOfPoints="5"', b'NumberOfPoints="4"'),
        (b'NumberOfPoints="5"', b'NumberOfPoints="1000000000000000000000"'),
        (b'NumberOfCells="2"', b'NumberOfCells="100000000000"'),
        (b'NumberOfComponents="3"', b'NumberOfComponents="999999999"'),
        (b'NumberOfTuples="1"', b'NumberOfTuples="123456789012"'),
    ):
        content = pyramid(mode, compressor)
        assert before in content
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match=r"a\.vtu"):
                read(tmp_path, content.replace(before, after, 1))
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()


def test_numbers_that_are_none_are_refused(tmp_path):
    for text in (b"-5", b"five", b"", b"5.0", b"9" * 5000):
        with pytest.raises(DataError, match="NumberOfPoints must be a whole number"):
            lie(tmp_path, b'NumberOfPoints="5"', b'NumberOfPoints="%s"' % text)


def test_an_offset_behind_the_end(tmp_path):
    content = pyramid("raw")
    begin = content.index(b'offset="', content.index(b'Name="Points"'))
    end = content.index(b"/>", begin)
    for offset in (b"500", b"99999", b"9" * 30):
        with pytest.raises(DataError, match="Points"):
            read(tmp_path, content[:begin] + b'offset="%s"' % offset + content[end:])


@pytest.mark.parametrize("mode", ["binary", "raw", "base64"])
@pytest.mark.parametrize("size", [0, 119, 121, 2**31, 2**32 - 1])
def test_sizes_that_lie(tmp_path, mode, size):
    file = File(mode)
    data = file.pack(POINTS.tobytes())
    if mode == "raw":
        replaced = file.numbers(size) + data[4:]
    else:
        replaced = base64.b64encode(file.numbers(size) + POINTS.tobytes())
    with pytest.raises(DataError, match=f"Points claims {size} bytes, but .* need 120"):
        read(tmp_path, pyramid(mode, replaced={"Points": replaced}))


def test_a_bomb_does_not_go_off(tmp_path):
    """Blocks that hold more than they say, or say more than they hold."""
    file = File("raw", "vtkZLibDataCompressor")
    bomb = zlib.compress(bytes(2**26), 9)
    unchecked = zlib.compress(POINTS.tobytes())[:-4]  # without the checksum at its end
    for blocks in (
        file.numbers(1, 120, 0, len(bomb)) + bomb,
        file.numbers(1, 2**26, 0, len(bomb)) + bomb,
        file.numbers(1, 120, 0, 8) + zlib.compress(b"")[:8],
        file.numbers(2**32 - 1, 2**32 - 1, 0, 5),
        file.numbers(1, 120, 0, len(unchecked)) + unchecked,
        file.numbers(1, 120, 0, 2**32 - 1) + bomb,
    ):
        content = pyramid("raw", "vtkZLibDataCompressor", replaced={"Points": blocks})
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match="Points"):
                read(tmp_path, content)
            assert tracemalloc.get_traced_memory()[1] < 2**22
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("compressor", ["", "vtkZLibDataCompressor"])
def test_a_file_may_not_unpack_without_end(tmp_path, monkeypatch, compressor):
    """Many arrays that point at the same bytes, or a consistent bomb."""
    monkeypatch.setattr(vtk_encoding, "FREE", 1000)
    monkeypatch.setattr(vtk_encoding, "EXPANSION", 2)
    monkeypatch.setattr(vtk_encoding, "COMPRESSION", 2)
    file = File("raw", compressor, block=2**15)
    points = np.zeros((1000, 3))
    shared = file.array("Points", points)
    fields = "".join(
        f'<DataArray type="Float64" Name="f{k}" NumberOfComponents="3" format="appended" '
        'offset="0"/>'
        for k in range(100)
    )
    inner = (
        f'<Piece NumberOfPoints="1000" NumberOfCells="0"><PointData>{fields}</PointData>'
        f"<Points>{shared}</Points></Piece>"
    )
    with pytest.raises(DataError, match="far more than its own size"):
        read(tmp_path, file.wrap(inner))


@pytest.mark.parametrize(
    ("connectivity", "offsets", "types", "words"),
    [
        ([0, 1, 2, 3], [4, 3], [9, 9], "must have 3 values|must not decrease|but .* need 12"),
        ([0, 1, 2, 3], [-1, 4], [9, 9], "must not decrease"),
        ([0, 1, 2, 3], [4, 2, 4], [9, 9, 9], "must not decrease"),
        ([0, 1, 2, 5], [4], [9], "join points 0 to 5; there are 5"),
        ([0, 1, 2, -1], [4], [9], "join points -1 to 2"),
        ([0, 1], [-2], [9], "connectivity"),
        ([0, 1], [2**31 - 1], [9], "connectivity"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_cells_that_do_not_fit(tmp_path, mode, connectivity, offsets, types, words):
    file = File(mode)
    inner = (
        f'<Piece NumberOfPoints="5" NumberOfCells="{len(offsets)}"><Points>'
        f"{file.array('Points', POINTS)}</Points>{file.cells(connectivity, offsets, types)}</Piece>"
    )
    with pytest.raises(DataError, match=words):
        read(tmp_path, file.wrap(inner))


def test_parts_that_are_missing_or_odd_are_named(tmp_path):
    changes = {
        "<Points> must hold the coordinates": (b"<Points>", b"<Points/><Other>"),
        "must come with": (b'Name="offsets"', b'Name="ends"'),
        "two arrays named U": (b'Name="p"', b'Name="U"'),
        "type 'Complex'": (b'type="Float64" Name="p"', b'type="Complex" Name="p"'),
        "format 'morse'": (b'format="ascii"', b'format="morse"'),
        "p must have 5 values": (b"-2.5 ", b""),
        "p holds text": (b"-2.5", b"about two"),
        "mark holds values that are too large": (b"250", b"256"),
        "points must have 3 components": (
            b'Name="Points" NumberOfComponents="3"',
            b'Name="Points" NumberOfComponents="2"',
        ),
        "connectivity of cells must be integers": (
            b'type="Int32" Name="connectivity"',
            b'type="Float32" Name="connectivity"',
        ),
        "byte_order": (b"LittleEndian", b"MiddleEndian"),
        "header_type": (b"UInt32", b"UInt16"),
        "must have an element <UnstructuredGrid>": (b"<UnstructuredGrid>", b"<Nothing>"),
        "holds 'UnstructuredMess'": (b'type="UnstructuredGrid"', b'type="UnstructuredMess"'),
        "no compressor is called 'zip'": (b'header_type="', b'compressor="zip" header_type="'),
        "no <Piece>": (b"<Piece ", b"<Peace "),
    }
    for words, (before, after) in changes.items():
        content = pyramid()
        assert before in content, before
        content = content.replace(before, after, 1)
        for tag in (b"Piece", b"UnstructuredGrid", b"Points"):  # closed as they were opened
            other = {b"Piece": b"Peace", b"UnstructuredGrid": b"Nothing", b"Points": b"Other"}[tag]
            if b"<" + other in content:
                content = content.replace(b"</" + tag, b"</" + other)
        with pytest.raises(DataError, match=words):
            read(tmp_path, content)


def test_what_is_no_file_of_this_kind(tmp_path):
    for content in (b"# nothing", b"<html></html>", b"\x89HDF\r\n", b"\x80\x04N."):
        with pytest.raises(DataError, match=r"a\.vtu is not a VTK file"):
            read(tmp_path, content)
    with pytest.raises(DataError, match="empty"):
        read(tmp_path, b"")
    with pytest.raises(DataError, match="not there"):
        read_vtk(tmp_path / "none.vtu")
    (tmp_path / "folder.vtu").mkdir()
    with pytest.raises(DataError, match="folder"):
        read_vtk(tmp_path / "folder.vtu")
    with pytest.raises(DataError, match="AppendedData must be raw or base64"):
        lie(tmp_path, b'encoding="raw"', b'encoding="rot13"')
