"""A folder with one file for each case."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data.guard.paths import refuse_leaving
from ipot.data.quantities import Agreement, turned
from ipot.errors import DataError
from ipot.formats.detect import EXPECTED, KNOWN, LABELLED, VTK
from ipot.formats.fields import Arrays, Case, CaseReader, Trajectories
from ipot.formats.named_arrays import OWN, sorted_out
from ipot.formats.numpy_files import read_folder_of_arrays
from ipot.formats.the_well import join_trajectories

Found = CaseReader | Arrays | Trajectories

Read = Callable[[Path, bool], Found]
"""Opens a file; the flag says that it is one case among others."""

TEXTS = (".txt", ".dat")
"""Suffixes of tables that may as well be notes: in a folder they are passed over."""


def read_folder(path: Path, read: Read) -> Found:
    """The cases of a folder, in the order of their names; `read` opens one file.

    A folder of .npy files is arrays by name. Files of another kind than most are passed over.
    """
    entries = [p for p in path.iterdir() if not p.name.startswith(".")]
    kinds = Counter(kind for p in entries if p.is_file() and (kind := _kind(p)))
    if not kinds:
        folders = [p for p in entries if p.is_dir() and any(p.glob("*.npy"))]
        if not folders:
            there = ", ".join(sorted(p.name for p in entries)[:5]) or "nothing"
            raise DataError(
                f"{path} holds {there}, and no file of a known kind. Known are {KNOWN}."
                f"{_inside(entries)}"
            )
        for folder in folders:
            refuse_leaving(path, folder)
        return _gathered(path, folders, lambda p, one: _arrays(p, one=one), [], "folders of .npy")
    (kind, count), *others = kinds.most_common()
    if others and 2 * others[0][1] >= count:
        said = " and ".join(f"{n} of kind {k}" for k, n in kinds.most_common(3))
        raise DataError(
            f"{path} holds {said}: one kind of file is expected, with one case in each. Put the "
            "others elsewhere."
        )
    if kind in LABELLED:
        raise DataError(f"{path} holds {kind} files, {not_cases(kind)}")
    chosen = [p for p in entries if p.is_file() and _kind(p) == kind]
    for file in chosen:
        refuse_leaving(path, file)
    left = sorted(p.name for p in entries if p not in chosen)
    notes = []
    if left:
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        notes.append(f"passed over, being of another kind: {', '.join(left[:8])}{more}")
    if kind == "npy":
        found = _arrays(path, one=False)
        return _noted(found, notes)
    return _gathered(path, chosen, read, notes, f"folder of {kind} files")


def _inside(entries: list[Path]) -> str:
    """A folder among these that has what is missing here, as the end of a message."""
    for folder in sorted(p for p in entries if p.is_dir()):
        if any(_kind(p) for p in folder.iterdir() if p.is_file() and p.name[0] != "."):
            return f" Did you mean {folder}?"
    return ""


def not_cases(kind: str) -> str:
    """Why a file that xarray reads is none of cases."""
    return (
        f"which have named dimensions and are no files of cases: open {kind} with xarray, or "
        "train on it with `ipot fit` and --history and --lead"
    )


def natural(path: Path) -> tuple[Any, ...]:
    """A key by which case 9 comes before case 10."""
    parts = re.split(r"(\d+)", path.name)
    # Words stand at even places and numbers at odd ones, so that no two are compared across.
    return (*((int(p), p) if i % 2 else p.lower() for i, p in enumerate(parts)), path.name)


def _kind(path: Path) -> str | None:
    """By name, since a folder may hold a million."""
    suffix = path.suffix.lower()
    if suffix in TEXTS:
        return None
    if suffix in VTK:
        return suffix
    return EXPECTED.get(suffix)


def _arrays(path: Path, *, one: bool) -> CaseReader | Arrays:
    return sorted_out(read_folder_of_arrays(path), str(path), "folder of .npy arrays", one=one)


def _gathered(path: Path, files: list[Path], read: Read, notes: list[str], kind: str) -> Found:
    files = sorted(files, key=natural)
    first = read(files[0], len(files) > 1)
    if len(files) == 1:
        return _noted(first, notes)
    if isinstance(first, Arrays):
        return _joined(path, files, read, notes, kind)
    if isinstance(first, Trajectories):
        return _noted(_trajectories(path, files, first, read), notes)

    def one(i: int) -> Case:
        found = read(files[i], True)
        if not isinstance(found, CaseReader) or len(found) != 1:
            held = "trajectories" if isinstance(found, Trajectories) else "cases"
            raise DataError(
                f"{files[i]} holds {len(found)} {held}; in a folder of {len(files)} "
                "files each must hold one. Give this file by its own name."
            )
        return replace(found[0], source=str(files[i]))

    one(0)
    return CaseReader(one, [f.stem for f in files], kind=kind, notes=[*notes, *first.notes])


def _trajectories(path: Path, files: list[Path], first: Trajectories, read: Read) -> Trajectories:
    """Files of The Well, which are one set."""
    parts = [first]
    for file in files[1:]:
        found = read(file, True)
        if not isinstance(found, Trajectories):
            raise DataError(
                f"{file} is not of The Well's layout, and {files[0]} is: all files of a folder "
                "must be, or none"
            )
        parts.append(found)
    return join_trajectories(parts, str(path))


def _noted(found: Found, notes: list[str]) -> Found:
    """What was found, with more notes."""
    if isinstance(found, CaseReader):
        found.notes += tuple(notes)
        return found
    return replace(found, notes=(*found.notes, *notes))


def _joined(path: Path, files: list[Path], read: Read, notes: list[str], kind: str) -> Arrays:
    """Files with `targets` and the like, one case in each."""
    each: list[Arrays] = []
    for file in files:
        found = read(file, True)
        if not isinstance(found, Arrays):
            raise DataError(f"{file} has no targets, and {files[0]} has: all or none must")
        each.append(found)
    content: dict[str, Any] = {}
    units, agreed = dict(each[0].units), Agreement(str(files[0]))
    for name in OWN:
        have = [getattr(a, name) for a in each]
        there = [a is not None for a in have]
        if any(there) and not all(there):
            raise DataError(f"{files[there.index(False)]} has no {name}, and others have")
        if not any(there):
            continue
        if name != "times":
            content[name] = have
            for i, one in enumerate(each):
                given, wanted = one.units.get(name, ""), units.get(name, "")
                if found := agreed.change(name, given, wanted, source=str(files[i])):
                    content[name][i] = turned(have[i], found)
                elif given:
                    units.setdefault(name, given)
            continue
        for file, times in zip(files, have, strict=True):
            if not np.array_equal(times, have[0]):
                raise DataError(f"{file} has other times than {files[0]}")
        content[name] = have[0]
    agreed.say()
    told = {"units": units, "kind": kind, "source": str(path), "files": tuple(map(str, files))}
    return replace(each[0], **content, **told, notes=(*notes, *each[0].notes))
