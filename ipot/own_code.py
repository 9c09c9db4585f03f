"""Modules that live outside this package: found, imported, and told apart from what they were.

The command line looks for them in the current folder first (`looking_in`), as `python -m` does. It
stands on Python's path only where such a module was found in it: a folder full of somebody's data
is no place to import other things from.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ipot.errors import UnknownName, shown

_log = logging.getLogger("ipot")
_here: ContextVar[str | None] = ContextVar("here", default=None)
"""The folder that a command was typed in."""


@contextmanager
def looking_in(folder: str | None) -> Iterator[None]:
    """For a while, modules that are asked for by name are looked for in this folder first."""
    before, path = _here.set(folder), list(sys.path)
    try:
        yield
    finally:
        _here.reset(before)
        if folder is not None and folder not in path:
            with suppress(ValueError):
                sys.path.remove(folder)


def is_dotted_path(name: str) -> bool:
    """True if a name can be that of a module inside a package, or of something in a module."""
    parts = name.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def imported(name: str) -> tuple[ModuleType, str | None]:
    """The module of a dotted path, and the name of what is meant in it if it is not all of it."""
    if not is_dotted_path(name):
        raise UnknownName(
            f"{shown(name)} is not the dotted path of a module, like package.module, or of a class "
            "in one, like module.Class"
        )
    home, _, last = name.rpartition(".")
    ours = name.split(".")[0] == "ipot"  # whose names are those of modules
    if name not in sys.modules and home in sys.modules and not ours:
        # What is there already is not looked for in files.
        known = vars(sys.modules[home]).get(last)
        if known is not None and not isinstance(known, ModuleType | FunctionType):
            return sys.modules[home], last
    try:
        with _on_the_path(name):
            return importlib.import_module(name), None
    except ModuleNotFoundError as error:
        around = sys.modules.get(home)
        # A module that is there but for something that it imports itself is another mistake.
        if error.name == name and around is not None and not ours:
            if last in vars(around):
                return around, last
            raise UnknownName(
                f"cannot import {shown(name)}: neither is there such a module, nor has {home} "
                f"({getattr(around, '__file__', None)}) anything called {shown(last)}"
            ) from error
        raise UnknownName(f"cannot import {shown(name)}: {error}{_looked()}") from error


def _looked() -> str:
    here = _here.get()
    return "" if here is None else f". Looked for in {here} and on the path of Python"


@contextmanager
def _on_the_path(name: str) -> Iterator[None]:
    """The folder of the command on Python's path, if a module is there: first for this import, and
    last from then on, for what its functions may import when they are called."""
    here, top = _here.get(), name.split(".")[0]
    if here is None or top in sys.modules or not _is_in(top, here):
        yield
        return
    importlib.invalidate_caches()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def _is_in(top: str, folder: str) -> bool:
    return _searched(top, [folder]) is not None or (Path(folder) / top).is_dir()


def source_of(name: str) -> Path | None:
    """The file that importing a dotted path would run, found without importing anything.

    `importlib.util.find_spec` imports the packages around a module, so folders are looked through
    by hand, in the order of Python: a package, a module, and last a folder without `__init__.py`.
    """
    here = _here.get()
    path = [entry or os.curdir for entry in sys.path]
    return _searched(name, path if here is None else [here, *path])


def file_of(name: str) -> Path | None:
    """The file of a dotted path, which may end in something inside of a module."""
    return _located(name)[1]


def _located(name: str) -> tuple[str, Path | None]:
    """The module that a dotted path means, or goes into, and its file."""
    for part in (name, name.rpartition(".")[0]):
        file = getattr(sys.modules.get(part), "__file__", None)
        found = source_of(part) if file is None else Path(file).absolute()
        if found is not None:
            return part, found
    return name, None


def _searched(name: str, places: Sequence[str]) -> Path | None:
    *packages, last = name.split(".")
    for package in packages:
        inside = [Path(place) / package for place in places]
        whole = next((folder for folder in inside if _module_file(folder / "__init__")), None)
        places = [str(whole)] if whole else [str(f) for f in inside if f.is_dir()]
    for place in places:
        for stem in (Path(place) / last / "__init__", Path(place) / last):
            if found := _module_file(stem):
                return found
    return None


def _module_file(stem: Path) -> Path | None:
    for suffix in importlib.machinery.all_suffixes():
        file = stem.with_name(stem.name + suffix)
        try:
            if file.is_file():
                return file.absolute()
        except (OSError, ValueError):
            continue
    return None


# ---- what a run keeps of the code that it was trained with


def record(name: str) -> dict[str, str] | None:
    """The file of a module outside this package and its hash; None where there is no file."""
    module, file = _located(name)
    if file is None or name.split(".")[0] == "ipot":
        return None
    digest = _digest(file)
    return None if digest is None else {"module": module, "file": str(file), "sha256": digest}


def changes(file: Path, recorded: Any) -> str:
    """How a file differs from the one that a run was trained with, in words; none if it does not,
    or if nothing is known of it."""
    if not _is_record(recorded):
        return ""
    words = []
    if _digest(file) != recorded["sha256"]:
        words.append("which has changed since the model was trained")
    if Path(recorded["file"]) not in (file, Path(file.name)):
        words.append(f"where the model was trained with {shown(recorded['file'])}")
    return " and ".join(words)


def say_changes(name: str, where: Path | str, recorded: Any) -> None:
    """A remark where a module is not what it was when a run was trained with it."""
    file = file_of(name)
    if file is not None and (found := changes(file, recorded)):
        _say(f"{where}: {shown(name)} is the code in {file}, {found}")


@cache
def _say(text: str) -> None:
    """Once: a folder is read several times in a command."""
    _log.warning("%s", text)


def home_of(name: str, recorded: Any) -> Path | None:
    """The folder that a recorded module would be found from, if its file is still there."""
    if not _is_record(recorded) or not os.path.isabs(recorded["file"]):
        return None
    file = Path(recorded["file"])
    if not file.name:  # the root of all folders
        return None
    packages = name.split(".")
    for count in (len(packages), len(packages) - 1):  # of a module, and of something in one
        for stem in (file.with_suffix(""), file.parent if file.stem == "__init__" else None):
            if stem is None or stem.parts[-count:] != tuple(packages[:count]):
                continue
            root = Path(*stem.parts[:-count])
            try:
                return root if _searched(".".join(packages[:count]), [str(root)]) else None
            except (OSError, ValueError):
                return None
    return None


def _is_record(recorded: Any) -> bool:
    """Whether a file says what it should; it may be anybody's."""
    if not isinstance(recorded, dict):
        return False
    return all(isinstance(recorded.get(key), str) for key in ("file", "sha256"))


def _digest(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None
