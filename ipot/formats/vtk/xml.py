"""The XML of VTK's files, read with suspicion.

Such a file may end in bytes that are no XML at all, so the parser stops where those begin. It also
refuses what no honest file of this kind has: a DOCTYPE, with which a few bytes can be made to
expand without end or to name other files, and trees of absurd depth or number of elements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ipot.errors import DataError, shown

MAX_DEPTH = 32

MAX_ELEMENTS = 500_000

_CHUNK = 1 << 16

_START = 1 << 16
"""The root must begin within so many bytes."""

_MARK = re.compile(rb"<AppendedData[^>]*>\s*_")

_END = re.compile(rb"</AppendedData\s*>\s*</VTKFile\s*>\s*\Z")

_LATIN = re.compile(rb"""encoding\s*=\s*["'](iso-8859-1|latin-?1)["']""", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Document:
    """The elements of a file, and the bytes after them that its arrays may point into."""

    root: Element
    appended: memoryview
    encoding: str
    """Of the bytes appended: raw or base64."""


class _Stop(Exception):
    """The bytes appended begin here."""


def looks_like_vtk(content: bytes) -> bool:
    """Whether these first bytes of a file are the beginning of one of VTK's XML files."""
    return b"<VTKFile" in content[:_START]


def parse(content: bytes, where: str) -> Document:
    """The document, without what it appends. `where` is the file's name, for messages."""
    beginning = content[:_START]
    begin = beginning.find(b"<VTKFile")
    prolog = beginning if begin < 0 else beginning[:begin]
    if b"<!DOCTYPE" in prolog or b"<!ENTITY" in prolog:
        raise _doctype(where)
    if begin < 0:
        raise DataError(f"{where} is not a VTK file in XML: there is no <VTKFile> at its beginning")
    tree = _Tree(where, "iso-8859-1" if _LATIN.search(prolog) else "utf-8")
    try:
        for start in range(0, len(content), _CHUNK):
            tree.parser.Parse(content[start : start + _CHUNK], False)
        tree.parser.Parse(b"", True)
    except _Stop:
        return _with_appended(content, tree, where)
    except expat.ExpatError as error:
        raise DataError(
            f"{where} cannot be read as XML ({error}): it is damaged or was cut short; write or "
            "copy it again"
        ) from None
    return Document(root=tree.builder.close(), appended=memoryview(b""), encoding="raw")


class _Tree:
    """What the parser calls, and the elements it has made so far."""

    def __init__(self, where: str, encoding: str) -> None:
        self.where = where
        self.builder = TreeBuilder()
        self.open: list[str] = []
        self.count = 0
        self.appended: tuple[int, str] | None = None
        # Named here, the encoding cannot be one in which markup looks different from ASCII.
        self.parser = expat.ParserCreate(encoding)
        self.parser.buffer_text = True
        self.parser.buffer_size = 1 << 20
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self.builder.data
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "AppendedData" and len(self.open) == 1:
            encoding = attributes.get("encoding", "base64")
            self.appended = (self.parser.CurrentByteIndex, encoding)
            raise _Stop
        self.open.append(tag)
        self.count += 1
        if len(self.open) > MAX_DEPTH or self.count > MAX_ELEMENTS:
            raise DataError(
                f"{self.where} has more than {MAX_ELEMENTS} elements or elements more than "
                f"{MAX_DEPTH} deep: no mesh needs that, and it is not read"
            )
        self.builder.start(tag, attributes)

    def _end(self, tag: str) -> None:
        self.open.pop()
        self.builder.end(tag)

    def _refuse(self, *_: object) -> None:
        raise _doctype(self.where)


def _with_appended(content: bytes, tree: _Tree, where: str) -> Document:
    assert tree.appended is not None
    begin, encoding = tree.appended
    if encoding not in ("raw", "base64"):
        raise DataError(f"{where}: AppendedData must be raw or base64, got {shown(encoding)}")
    mark = _MARK.match(content, begin)
    end = _END.search(content, max(begin, len(content) - 1024))
    if mark is None or end is None or end.start() < mark.end():
        raise DataError(
            f"{where} does not have the form <AppendedData>_ ... </AppendedData></VTKFile>: it was "
            "cut short or damaged; write or copy it again"
        )
    for tag in reversed(tree.open):
        tree.builder.end(tag)
    body = memoryview(content)[mark.end() : end.start()]
    return Document(root=tree.builder.close(), appended=body, encoding=encoding)


def _doctype(where: str) -> DataError:
    return DataError(
        f"{where} has a DOCTYPE, which files of VTK do not: it is not read, because entities can "
        "expand without end or name other files. Remove it if you trust the file"
    )
