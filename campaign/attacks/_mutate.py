"""Changes to files: a seed is a tree of files in memory, and a change has a name and a number.

All that a change does follows from its number, so that a case is plain JSON. Changes of bytes are
here; `_mutate_*.py` know what the bytes mean and add their own by `@mutator`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
NUMBERS = (0, 1, -1, 2, 127, 128, 255, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
FOCUS = 512
"""Bytes at both ends of a file that are changed more often: headers and footers are there."""


@dataclass(frozen=True)
class Link:
    """A symbolic link, instead of the bytes of a file."""

    target: str


Tree = dict[str, bytes | Link]
"""The files of a seed by their names inside it; a seed of one file has one of them."""


@dataclass(frozen=True)
class Around:
    """What a change may refer to besides the tree."""

    secrets: Path
    """Files outside of the case's folder, with numbers that can be told from all others."""
    up: str
    """The way to `secrets` from the folder of the case."""
    others: Mapping[str, Tree] = field(default_factory=dict)
    """Other seeds of the same kind, to splice with."""

    def secret(self, random: Random, name: str) -> str:
        """A way to a secret file: absolute, relative, or as an address."""
        ways = (str(self.secrets / name), f"{self.up}/{name}", f"file://{self.secrets / name}")
        return random.choice(ways)


Mutator = Callable[[Tree, Random, Around], None]
MUTATORS: dict[str, Mutator] = {}
NEUTRAL: set[str] = set()
"""Changes after which a file says the same as before."""
GENERIC: list[str] = []
"""Changes of bytes, for files of any kind."""


class Inapplicable(Exception):
    """A change that has nothing to change in this tree."""


def mutator(name: str, *, neutral: bool = False) -> Callable[[Mutator], Mutator]:
    """Register a change of a tree."""

    def register(function: Mutator) -> Mutator:
        MUTATORS[name] = function
        if neutral:
            NEUTRAL.add(name)
        return function

    return register


def file_mutator(
    name: str, *endings: str, neutral: bool = False
) -> Callable[[Callable[[bytes, Random, Around], bytes]], Mutator]:
    """Register a change of one file, whose name ends with one of `endings` where given."""

    def register(function: Callable[[bytes, Random, Around], bytes]) -> Mutator:
        def change(tree: Tree, random: Random, around: Around) -> None:
            chosen = pick_file(tree, random, *endings)
            tree[chosen] = function(content(tree, chosen), random, around)

        return mutator(name, neutral=neutral)(change)

    return register


def pick_file(tree: Tree, random: Random, *endings: str) -> str:
    """A file that is no link."""
    names = [
        n for n, c in sorted(tree.items()) if isinstance(c, bytes) and n.endswith(endings or "")
    ]
    if not names:
        raise Inapplicable
    return random.choice(names)


def content(tree: Tree, name: str) -> bytes:
    """The bytes of a file."""
    found = tree[name]
    if isinstance(found, Link):
        raise Inapplicable
    return found


def mutated(tree: Tree, changes: list[list], around: Around) -> Tree:
    """A tree with changes; one that cannot be made to what others have left is passed over."""
    tree = dict(tree)
    for name, number in changes:
        try:
            MUTATORS[name](tree, Random(number), around)
        except Exception:  # whatever a change stumbles over in a damaged file
            continue
    return tree


def write_tree(tree: Tree, folder: Path) -> None:
    """Put the files of a tree into a folder."""
    made = set()
    for name, data in tree.items():
        path = folder / name
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        if isinstance(data, Link):
            path.symlink_to(data.target)
        else:
            path.write_bytes(data)


def read_tree(path: Path) -> Tree:
    """The files of a folder, or a file by its own name."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {
        str(Path(path.name) / p.relative_to(path)): p.read_bytes()
        for p in sorted(path.rglob("*"))
        if p.is_file()
    }


def place_in(data: bytes, random: Random) -> int:
    """A place in a file, more often near its ends."""
    if not data:
        raise Inapplicable
    kind = random.random()
    if kind < 0.5:
        return random.randrange(min(FOCUS, len(data)))
    if kind < 0.7:
        return len(data) - 1 - random.randrange(min(FOCUS, len(data)))
    return random.randrange(len(data))


def interesting_number(random: Random, size: int) -> bytes:
    """A number at the edge of what so many bytes hold, in either byte order."""
    number = random.choice(NUMBERS) % (1 << 8 * size)
    return number.to_bytes(size, random.choice(("little", "big")))


def _generic(name: str) -> Callable[[Callable[[bytes, Random, Around], bytes]], Mutator]:
    GENERIC.append(name)
    return file_mutator(name)


@_generic("flip bits")
def _flip(data: bytes, random: Random, around: Around) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        out[place_in(data, random)] ^= 1 << random.randrange(8)
    return bytes(out)


@_generic("set a byte")
def _set(data: bytes, random: Random, around: Around) -> bytes:
    out = bytearray(data)
    out[place_in(data, random)] = random.choice((*INTERESTING, random.randrange(256)))
    return bytes(out)


@_generic("set an integer")
def _integer(data: bytes, random: Random, around: Around) -> bytes:
    size = random.choice((2, 4, 4, 8))
    place = place_in(data, random)
    place -= place % random.choice((1, size))
    return data[:place] + interesting_number(random, size) + data[place + size :]


@_generic("count up or down")
def _count(data: bytes, random: Random, around: Around) -> bytes:
    place, out = place_in(data, random), bytearray(data)
    out[place] = (out[place] + random.choice((-16, -1, 1, 16))) % 256
    return bytes(out)


@_generic("set a real number")
def _real(data: bytes, random: Random, around: Around) -> bytes:
    value = random.choice((float("nan"), float("inf"), -0.0, 1e308, 1e-310, -1e30))
    packed = struct.pack(random.choice(("<d", ">d")), value)
    place = place_in(data, random) // 8 * 8
    return data[:place] + packed + data[place + 8 :]


@_generic("truncate")
def _truncate(data: bytes, random: Random, around: Around) -> bytes:
    return data[: place_in(data, random)]


@_generic("delete bytes")
def _delete(data: bytes, random: Random, around: Around) -> bytes:
    place = place_in(data, random)
    return data[:place] + data[place + random.choice((1, 2, 4, 8, 64, 512)) :]


@_generic("insert bytes")
def _insert(data: bytes, random: Random, around: Around) -> bytes:
    place, size = place_in(data, random), random.choice((1, 2, 4, 8, 64, 4096))
    filling = random.choice((bytes(size), b"\xff" * size, random.randbytes(size)))
    return data[:place] + filling + data[place:]


@_generic("repeat a block")
def _repeat(data: bytes, random: Random, around: Around) -> bytes:
    start, size = place_in(data, random), random.choice((4, 16, 64, 1024))
    return (
        data[: start + size]
        + data[start : start + size] * random.choice((1, 1, 3))
        + (data[start + size :])
    )


@_generic("swap blocks")
def _swap(data: bytes, random: Random, around: Around) -> bytes:
    size = random.choice((1, 4, 8, 64, 512))
    one, two = sorted((place_in(data, random), place_in(data, random)))
    size = min(size, two - one)
    middle = data[one + size : two]
    return (
        data[:one] + data[two : two + size] + middle + data[one : one + size] + data[two + size :]
    )


@_generic("blank a block")
def _blank(data: bytes, random: Random, around: Around) -> bytes:
    start, size = place_in(data, random), random.choice((4, 16, 256))
    size = min(size, len(data) - start)
    return data[:start] + random.choice((b"\0", b"\xff")) * size + data[start + size :]


@_generic("splice")
def _splice(data: bytes, random: Random, around: Around) -> bytes:
    tree = around.others[random.choice(sorted(around.others))]
    other = content(tree, pick_file(tree, random))
    return data[: place_in(data, random)] + other[place_in(other, random) :]


@_generic("append")
def _append(data: bytes, random: Random, around: Around) -> bytes:
    return data + random.choice((b"\0", b"\n", data, random.randbytes(64)))


@file_mutator("aligned header words")
def _words(data: bytes, random: Random, around: Around) -> bytes:
    """Headers of netCDF-3 and MATLAB are words of four bytes."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(max(1, min(600, len(data)) // 4)) * 4
        out[place : place + 4] = interesting_number(random, 4)
    return bytes(out)


@mutator("same", neutral=True)
def _same(tree: Tree, random: Random, around: Around) -> None:
    """The files as they were."""
