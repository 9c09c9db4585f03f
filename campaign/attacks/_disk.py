"""What a disk may hold after power is lost, by the record of what was asked of it.

What is assumed, and no more: syncing a file makes its content and size last; syncing a folder makes
the names in it last, and what was done to them before; a rename happens or does not. Whatever was
not synced may have reached the disk or not. Of a file's content: nothing, a part, all, or its new
size with zeros or old content in any of the blocks that changed. Of names: either all up to some
moment, as journals of ext4 and xfs have it, or so in each folder by itself, or any of them without
the others.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

BLOCK = 4096
ORDERS = ("journal", "folder", "any")
"""In which order names may reach the disk; see above."""


@dataclass(eq=False)
class File:
    """A file's changes by their number in the record, and when it was synced."""

    content: bytes = b""
    changes: list[tuple[int, int | None, bytes]] = field(default_factory=list)
    """(number, where, data); without a where, the size or the whole content is replaced."""
    synced: list[int] = field(default_factory=list)

    def after(self, number: int, *, start: bytes | None = None, behind: int = -1) -> bytes:
        """The content behind some change."""
        content = bytearray(self.content if start is None else start)
        for when, where, data in self.changes:
            if behind < when <= number:
                _change(content, where, data)
        return bytes(content)

    def survives(self, number: int, random: Random) -> bytes:
        """Content that may be found after power was lost behind a change."""
        last = max((when for when in self.synced if when <= number), default=-1)
        pending = [c for c in self.changes if last < c[0] <= number]
        old = self.after(last)
        if not pending:
            return old
        new = self.after(number)
        match random.choice(["none", "all", "part", "blocks", "zeros"]):
            case "none":
                return old
            case "all":
                return new
            case "part":
                return self._part(old, pending, random)
            case "blocks":
                cut = any(where is None for _, where, _ in pending)
                return _blocks(old, new, random, cut)
        return old[: len(new)] + bytes(max(0, len(new) - len(old)))

    def _part(self, old: bytes, pending: list, random: Random) -> bytes:
        content = bytearray(old)
        some = random.randrange(len(pending))
        for _, where, data in pending[:some]:
            _change(content, where, data)
        _, where, data = pending[some]
        if where is not None:
            _change(content, where, data[: random.randint(0, len(data))])
        return bytes(content)


def _change(content: bytearray, where: int | None, data: bytes) -> None:
    if where is None:
        content[:] = data
        return
    content.extend(bytes(max(0, where - len(content))))
    content[where : where + len(data)] = data


def _blocks(old: bytes, new: bytes, random: Random, cut: bool) -> bytes:
    """The new size, and in each block the new content or what was there before.

    Behind the old end that is zeros; where the file had been cut before it was written anew, its
    blocks are others, and zeros may be in any of them.
    """
    content = bytearray(new)
    for start in range(0, len(new), BLOCK):
        end = min(len(new), start + BLOCK)
        before = bytes(end - start) if cut else old[start:end].ljust(end - start, b"\0")
        content[start:end] = random.choice([new[start:end], before])
    return bytes(content)


@dataclass(eq=False)
class Folder:
    """A folder's entries in the end; what they were before follows from the record."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    synced: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Naming:
    """A change of names that happens as a whole."""

    number: int
    sets: tuple[tuple[Folder, str, File | Folder | None], ...]

    def lasts(self, number: int) -> bool:
        """Whether one of its folders was synced behind it."""
        return any(
            self.number < when <= number for folder, _, _ in self.sets for when in folder.synced
        )


class Record:
    """What a process did to one folder."""

    def __init__(self, before: Path, inodes: dict[str, int], log: Path, root: str) -> None:
        self.root = root
        self.top = Folder()
        self.files: dict[int, File] = {}
        self.namings: list[Naming] = []
        self.length = 0
        self._start(before, inodes)
        self.initial = _copied(self.top)
        for kind, inode, number, data, paths in _records(log):
            if "/tensorboard" not in paths[0]:
                self._take(kind, inode, number, data, paths)

    def _start(self, before: Path, inodes: dict[str, int]) -> None:
        for path in sorted(before.rglob("*")):
            name = str(path.relative_to(before))
            folder, last = self._at(f"{self.root}/{name}")
            if path.is_dir():
                folder.entries[last] = Folder()
            else:
                made = File(path.read_bytes())
                folder.entries[last] = self.files[inodes[name]] = made

    def _at(self, path: str) -> tuple[Folder, str]:
        """The folder that holds a path, as it is now, and the name in it."""
        *folders, name = os.path.relpath(path, self.root).split("/")
        here = self.top
        for part in folders:
            found = here.entries[part]
            assert isinstance(found, Folder)
            here = found
        return here, name

    def _take(self, kind: str, inode: int, number: int, data: bytes, paths: list[str]) -> None:
        """Take in a record; those of files without a name have no say."""
        now = self.length
        self.length += 1
        file = self.files.get(inode)
        if kind in "CMRXUL":
            self._name(kind, inode, paths)
        elif kind == "D":
            folder = self.top
            if paths[0] != self.root:
                here, name = self._at(paths[0])
                found = here.entries[name]
                assert isinstance(found, Folder)
                folder = found
            folder.synced.append(now)
        elif file is None:
            return
        else:
            self._infer(file, paths[0])
            self._write(file, kind, number, data)

    def _infer(self, file: File, path: str) -> None:
        """Some libraries rename by calls that cannot be heard: the file then has another name."""
        there, name = self._at(path)
        if there.entries.get(name) is not file and (known := _found(self.top, file)):
            sets = ((*known, None), (there, name, file))
            self.namings.append(Naming(self.length - 1, sets))
            _apply(self.namings[-1], {})

    def _write(self, file: File, kind: str, number: int, data: bytes) -> None:
        now = self.length - 1
        if kind == "W":
            file.changes.append((now, number, data))
        elif kind == "T":
            content = file.after(now)[:number]
            file.changes.append((now, None, content.ljust(number, b"\0")))
        else:
            if file.after(now) != data:  # it was changed otherwise, by mapped memory for instance
                file.changes.append((now, None, data))
            if kind == "S":
                file.synced.append(now)

    def _name(self, kind: str, inode: int, paths: list[str]) -> None:
        (here, name), *more = [self._at(path) for path in paths]
        match kind:
            case "C":
                self.files[inode] = File()
                sets = [(here, name, self.files[inode])]
            case "M":
                sets = [(here, name, Folder())]
            case "U":
                sets = [(here, name, None)]
            case "L":
                sets = [(*more[0], here.entries[name])]
            case "R":
                sets = [(here, name, None), (*more[0], here.entries[name])]
            case _:
                there, other = more[0]
                sets = [(here, name, there.entries[other]), (there, other, here.entries[name])]
        naming = Naming(self.length - 1, tuple(sets))
        self.namings.append(naming)
        _apply(naming, {})

    def make(self, number: int, order: str, random: Random, target: Path) -> None:
        """Lay out what may be found if power was lost behind the change of that number."""
        entries = {folder: dict(content) for folder, content in self.initial.items()}
        for naming in self._survive(
            [n for n in self.namings if n.number <= number], number, order, random
        ):
            _apply(naming, entries)
        _write(self.top, entries, target, lambda file: file.survives(number, random))

    def _survive(
        self, namings: list[Naming], number: int, order: str, random: Random
    ) -> list[Naming]:
        pending = [n for n in namings if not n.lasts(number)]
        if order == "any":
            gone = {n.number for n in pending if random.random() < 0.5}
        elif order == "journal":
            first = max((n.number for n in namings if n.lasts(number)), default=-1)
            upto = random.choice([first, *(n.number for n in pending if n.number > first)])
            gone = {n.number for n in pending if n.number > upto}
        else:
            gone, until = set(), {}
            for n in pending:
                folders = [folder for folder, _, _ in n.sets]
                stopped = any(until.get(folder, False) for folder in folders)
                if stopped or random.random() < 0.2:
                    gone.add(n.number)
                    until |= dict.fromkeys(folders, True)
        return [n for n in namings if n.number not in gone]

    def final(self, target: Path) -> None:
        """Lay out what is there in the end, if power is never lost."""
        entries: dict[Folder, dict] = {}
        _write(self.top, entries, target, lambda file: file.after(self.length))


def _apply(naming: Naming, entries: dict[Folder, dict]) -> None:
    for folder, name, what in naming.sets:
        here = entries.setdefault(folder, {}) if entries else folder.entries
        if what is None:
            here.pop(name, None)
        else:
            here[name] = what


def _found(folder: Folder, file: File) -> tuple[Folder, str] | None:
    """Where a file is now."""
    for name, what in folder.entries.items():
        if what is file:
            return folder, name
        if isinstance(what, Folder) and (inside := _found(what, file)):
            return inside
    return None


def _copied(top: Folder) -> dict[Folder, dict]:
    """The entries of all folders as they are now."""
    found = {top: dict(top.entries)}
    for what in top.entries.values():
        if isinstance(what, Folder):
            found |= _copied(what)
    return found


def _write(folder: Folder, entries: dict[Folder, dict], target: Path, content) -> None:
    target.mkdir(exist_ok=True)
    here = entries.get(folder, {}) if entries else folder.entries
    for name, what in here.items():
        if isinstance(what, Folder):
            _write(what, entries, target / name, content)
        else:
            (target / name).write_bytes(content(what))


def _records(log: Path):
    """The records of a log, one after another."""
    with log.open("rb") as file:
        while line := file.readline():
            kind, inode, number, size, paths = line.decode().rstrip("\n").split(" ", 4)
            yield kind, int(inode), int(number), file.read(int(size)), paths.split("\t")
