"""Changes to the structure of archives and of the arrays in them: zip and npy."""

from __future__ import annotations

import ast
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from campaign.attacks._mutate import (
    NUMBERS,
    Around,
    Inapplicable,
    file_mutator,
)
from campaign.attacks._mutate_text import CANARY

PICKLE = f"c{CANARY}\nhit\n(tR.".encode()
"""A pickle that imports the canary."""
LARGEST = 1 << 20
"""Bytes of an archive that are unpacked to be changed."""


@dataclass
class Member:
    """A file of an archive, as it is written: headers may say other than what is there."""

    name: bytes
    stored: bytes
    method: int
    crc: int
    size: int


def members_of(data: bytes) -> list[Member]:
    """The files of an archive, unpacked."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(i.file_size for i in archive.infolist()) > LARGEST:  # a bomb: leave it packed
            raise Inapplicable
        return [
            Member(i.filename.encode(), (raw := archive.read(i)), 0, zlib.crc32(raw), len(raw))
            for i in archive.infolist()
        ]


def zipped(members: list[Member], lie: Callable[[str, list], None] | None = None) -> bytes:
    """An archive; `lie` may change the numbers of its headers."""
    out, central = b"", b""
    for m in members:
        packed = m.stored
        if m.method == 8:
            packer = zlib.compressobj(6, zlib.DEFLATED, -15)
            packed = packer.compress(m.stored) + packer.flush()
        numbers = [20, 0, m.method, 0, 33, m.crc, len(packed), m.size, len(m.name), 0]
        local, listed = list(numbers), [20, *numbers, 0, 0, 0, 0, len(out)]
        if lie is not None:
            lie("local", local)
            lie("central", listed)
        out += b"PK\3\4" + _packed("<5H3I2H", local) + m.name + packed
        central += b"PK\1\2" + _packed("<6H3I5H2I", listed) + m.name
    end = [0, 0, len(members), len(members), len(central), len(out), 0]
    if lie is not None:
        lie("end", end)
    return out + central + b"PK\5\6" + _packed("<4H2IH", end)


def _packed(form: str, numbers: list[int]) -> bytes:
    """Numbers in few bytes, whatever their size."""
    kinds = "".join(k * int(n or 1) for n, k in _counted(form[1:]))
    sizes = {"H": 16, "I": 32}
    return struct.pack(
        "<" + kinds, *(int(n) % (1 << sizes[k]) for n, k in zip(numbers, kinds, strict=True))
    )


def _counted(form: str) -> list[tuple[str, str]]:
    found, digits = [], ""
    for letter in form:
        if letter.isdigit():
            digits += letter
        else:
            found.append((digits, letter))
            digits = ""
    return found


@file_mutator("zip headers", ".npz", ".zip")
def _zip_headers(data: bytes, random: Random, around: Around) -> bytes:
    members, where = members_of(data), random.choice(("local", "central", "end"))
    count, number, chance = random.choice((1, 2)), random.choice(NUMBERS), random.random()

    def lie(kind: str, numbers: list) -> None:
        if kind == where and (chance < 0.5 or random.random() < 0.5):
            for _ in range(count):
                numbers[random.randrange(len(numbers))] = number

    return zipped(members, lie)


@file_mutator("zip members", ".npz", ".zip")
def _zip_members(data: bytes, random: Random, around: Around) -> bytes:
    members = members_of(data)
    one = random.choice(members)
    kind = random.randrange(7)
    if kind == 0:
        names = (b"../../x.npy", b"/tmp/x.npy", b"", b"a\0b.npy", b"\xff.npy", b"x" * 3000, b"a/b")
        one.name = random.choice(names)
    elif kind == 1:
        other = one.stored[:-8] + bytes(8)
        members.append(Member(one.name, other, 0, zlib.crc32(other), len(other)))
    elif kind == 2:
        members.remove(one)
    elif kind == 3:
        one.stored, random.choice(members).stored = random.choice(members).stored, one.stored
        for m in members:
            m.crc, m.size = zlib.crc32(m.stored), len(m.stored)
    elif kind == 4:
        one.name = random.choice(members).name
    elif kind == 5:
        members.append(Member(b"more.npy", PICKLE, 8, zlib.crc32(PICKLE), len(PICKLE)))
    else:
        one.method, one.size = random.choice((1, 8, 9, 12, 14, 93, 99)), one.size
    return zipped(members)


@file_mutator("zip bomb", ".npz", ".zip")
def _bomb(data: bytes, random: Random, around: Around) -> bytes:
    """An array that is small in the file alone; `bomb.deflate` was packed beforehand."""
    packed = (around.secrets / "bomb.deflate").read_bytes()
    size, crc = struct.unpack("<QI", packed[:12])
    members = members_of(data)
    one = random.choice(members)
    claimed = random.choice((size, one.size, 2**31 - 1, 2**32 - 1))
    one.stored, one.method, one.crc, one.size = packed[12:], 0, crc, claimed

    def lie(kind: str, numbers: list) -> None:
        place = {"local": 5, "central": 6}.get(kind)
        if place is not None and numbers[place] == crc:
            numbers[place - 3] = 8

    return zipped(members, lie)


@file_mutator("zip packed otherwise", ".npz", neutral=True)
def _repacked(data: bytes, random: Random, around: Around) -> bytes:
    members = members_of(data)
    for m in members:
        m.method = random.choice((0, 8))
    return zipped(members)


SHAPES: tuple[Any, ...] = (
    *((), (0,), (1,), (-1,), (2**31,), (2**62, 4), (2**32, 2**32), (3, 0), (1,) * 40, (10**30,)),
    *((True,), (1.5,), ("a",), None, 5, [3, 2]),
)
DTYPES: tuple[Any, ...] = (
    *(
        "|O",
        "<f2",
        ">f8",
        "<f4",
        "<i8",
        "|u1",
        "|b1",
        "<U4",
        "|S8",
        "<c16",
        "<M8[ns]",
        "<m8",
        "|V8",
    ),
    *("<f16", "|V0", "", "x", "O", [("a", "<f8")], [("a", "|O")], "<f8,<f8", [("a", "<f4", (2,))]),
    *("<U100000000", "|V2000000000", None, 5),
)


def changed_npy(data: bytes, random: Random) -> bytes:
    """An array whose header says something else."""
    length = struct.unpack("<H", data[8:10])[0]
    header, rest = ast.literal_eval(data[10 : 10 + length].decode()), data[10 + length :]
    kind = random.randrange(9)
    if kind == 0:
        header["shape"] = random.choice(SHAPES)
    elif kind == 1:
        shape = list(header["shape"]) or [1]
        i = random.randrange(len(shape))
        shape[i] = random.choice((shape[i] + 1, shape[i] - 1, -shape[i], shape[i] * 2, 0, 2**40))
        header["shape"] = tuple(shape)
    elif kind == 2:
        header["shape"] = tuple(reversed(header["shape"]))
    elif kind == 3:
        header["descr"] = random.choice(DTYPES)
        if "O" in str(header["descr"]):
            rest = PICKLE
    elif kind == 4:
        header["fortran_order"] = random.choice((not header["fortran_order"], 2, "yes", None))
    elif kind == 5:
        header[random.choice(("more", "shape ", 5))] = 1
    elif kind == 6:
        header.pop(random.choice(sorted(header)))
    text = repr(header)
    if kind == 7:
        text = random.choice(
            ("(" * 5000, "[" * 90 + "]" * 90, text * 400, "__import__('x')", "{}", text[:-2], "\0")
        )
    version = (
        random.choice((b"\1\0", b"\2\0", b"\3\0", b"\0\0", b"\x09\0")) if kind == 8 else b"\1\0"
    )
    body = text.encode("utf-8", errors="replace") + b"\n"
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(body) % 65536)
    return b"\x93NUMPY" + version + size + body + rest


@file_mutator("npy header", ".npy")
def _npy(data: bytes, random: Random, around: Around) -> bytes:
    return changed_npy(data, random)


@file_mutator("npy header in zip", ".npz")
def _npz(data: bytes, random: Random, around: Around) -> bytes:
    members = members_of(data)
    one = random.choice(members)
    one.stored, one.method = changed_npy(one.stored, random), random.choice((0, 8))
    one.crc, one.size = zlib.crc32(one.stored), len(one.stored)
    return zipped(members)
