"""From a name to a problem or a model. The files of a folder are the registry: a new file is a new
entry.

A name that a user types or passes may also be the dotted path of a module elsewhere, or of a class
in one, which is then imported: his own words are trust. (A name that stands in a file is somebody
else's: see `ipot.trust`.) The command line looks for such modules in the current folder first
(`looking_in`), as `python -m` does. That folder stands on Python's path only where such a module
was found in it: a folder full of somebody's data is no place to import other things from.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.machinery
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import is_dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

from ipot.errors import UnknownName, shown

_here: ContextVar[str | None] = ContextVar("here", default=None)
"""The folder that a command was typed in."""

# The name that a module of each kind must define, and the class that is or makes an entry.
ATTRIBUTES = {"problems": "PROBLEM", "models": "MODEL"}
BASES = {"problems": "Problem", "models": "Operator"}


def names(kind: str) -> list[str]:
    """The entries of `ipot/problems` or `ipot/models`, found without importing them."""
    package = importlib.import_module(f"ipot.{kind}")
    found = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    return sorted(name for name in found if name != "base")


def module(kind: str, name: str) -> ModuleType:
    """Import an entry by its name, or the module of a dotted path."""
    return _entry(kind, name)[0]


def find(kind: str, name: str) -> Any:
    """The `PROBLEM` or `MODEL` of an entry, or the class that a dotted path ends in."""
    found, attribute = _entry(kind, name)
    if attribute is not None:
        return _made(kind, name, vars(found).get(attribute))
    if not hasattr(found, ATTRIBUTES[kind]):
        raise UnknownName(
            f"{found.__name__} defines no {ATTRIBUTES[kind]}{_instead(kind, found)}; see "
            "docs/extend.md"
        )
    return getattr(found, ATTRIBUTES[kind])


def config_of(name: str) -> Any:
    """The class of a model's settings: that of its constructor, or `Config` of its module."""
    found, attribute = _entry("models", name)
    config = None if attribute is None else config_class(find("models", name))
    return config or getattr(found, "Config", None)


def default_config(name: str) -> Any:
    """The settings of a model as they are where nothing is said."""
    kind = config_of(name)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise UnknownName(
            f"{name} has no Config, a dataclass of its settings beside it; see docs/extend.md"
        )
    try:
        return kind()
    except TypeError as error:
        raise UnknownName(
            f"the Config of {name} cannot be made without arguments ({error}): give each of its "
            "fields a default"
        ) from error


def config_class(model: type) -> Any:
    """The class of settings that a model's constructor says it takes, or that of its module."""
    try:
        said = get_type_hints(model.__init__).get("config")
    except Exception:  # words of a module of somebody's own, which may mean nothing
        said = None
    beside = getattr(sys.modules.get(model.__module__), "Config", None)
    if isinstance(said, type) and is_dataclass(said):
        narrower = isinstance(beside, type) and issubclass(beside, said)
        return beside if narrower else said
    return beside


def name_of(model: type) -> str:
    """What a model's class is found by: a name of ours, or the dotted path of one elsewhere."""
    home, name = model.__module__, model.__qualname__
    if home.startswith("ipot.models.") or "<locals>" in name:
        return home.removeprefix("ipot.models.")
    main = vars(sys.modules[home]).get("MODEL") if home in sys.modules else None
    alone = "." in home and getattr(main, "__qualname__", None) == name
    return home if alone else f"{home}.{name}"


def _entry(kind: str, name: str) -> tuple[ModuleType, str | None]:
    """A module, and what is meant of it where the path does not end in the module itself."""
    if "." in name:
        return imported(name)
    key = name.replace("-", "_").lower()
    if key not in names(kind):
        close = difflib.get_close_matches(key, names(kind), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        file = source_of(name) if name.isidentifier() else None
        if file is not None and file.parent == Path.cwd():
            hint = f" {file.name} is here: {name}.{ATTRIBUTES[kind]} would be what it defines."
        raise UnknownName(
            f"unknown {kind[:-1]} {shown(name)}.{hint} Known: {', '.join(names(kind))}; "
            "or give the dotted path of a module, or of a class in one."
        )
    return importlib.import_module(f"ipot.{kind}.{key}"), None


def _made(kind: str, name: str, found: Any) -> Any:
    """The entry that an object in a module is: a problem, a problem's class, or a model's."""
    if not _is_one(kind, found):
        where = sys.modules[name.rpartition(".")[0]]
        raise UnknownName(
            f"{name} is no {kind[:-1]}: a class that derives from ipot.{kind}.base."
            f"{BASES[kind]} is needed{_instead(kind, where)}; see docs/extend.md"
        )
    if kind == "models" or not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        raise UnknownName(
            f"{name} cannot be made without arguments ({error}): give each of its fields a default"
        ) from error


def _is_one(kind: str, found: Any) -> bool:
    """Whether an object is a problem, the class of one, or the class of a model."""
    base = getattr(importlib.import_module(f"ipot.{kind}.base"), BASES[kind])
    if isinstance(found, type):
        return issubclass(found, base) and found.__module__.split(".")[0] != "ipot"
    return kind == "problems" and isinstance(found, base)


def _instead(kind: str, where: ModuleType) -> str:
    """What a module has that would do."""
    found = [n for n, v in vars(where).items() if n != ATTRIBUTES[kind] and _is_one(kind, v)]
    return f" (there are {', '.join(f'{where.__name__}.{n}' for n in found)})" if found else ""


def has_imported(kind: str, name: str) -> bool:
    """True if the program has imported a module that defines a problem or a model; runs nothing."""
    found = sys.modules.get(name)
    if isinstance(found, ModuleType):
        return ATTRIBUTES[kind] in vars(found)
    home, _, attribute = name.rpartition(".")
    around = sys.modules.get(home)
    return isinstance(around, ModuleType) and _is_one(kind, vars(around).get(attribute))


# ---- modules outside the package


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
    return searched(top, [folder]) is not None or (Path(folder) / top).is_dir()


def source_of(name: str) -> Path | None:
    """The file that importing a dotted path would run, found without importing anything.

    `importlib.util.find_spec` imports the packages around a module, so folders are looked through
    by hand, in the order of Python: a package, a module, and last a folder without `__init__.py`.
    """
    here = _here.get()
    path = [entry or os.curdir for entry in sys.path]
    return searched(name, path if here is None else [here, *path])


def located(name: str) -> tuple[str, Path | None]:
    """The module that a dotted path means, or goes into, and its file."""
    for part in (name, name.rpartition(".")[0]):
        file = getattr(sys.modules.get(part), "__file__", None)
        found = source_of(part) if file is None else Path(file).absolute()
        if found is not None:
            return part, found
    return name, None


def searched(name: str, places: Sequence[str]) -> Path | None:
    """The file of a dotted path in the first of some folders that has it."""
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


def code_of(**given: str) -> dict[str, Any]:
    """The code outside this package that names (`problem=`, `model=`) stand for, as a run keeps
    it: module, file and hash."""
    found = {what: _record(name) for what, name in given.items() if "." in name}
    return {what: known for what, known in found.items() if known is not None}


def _record(name: str) -> dict[str, str] | None:
    """The file of a module outside this package and its hash; None where there is no file."""
    module, file = located(name)
    if file is None or name.split(".")[0] == "ipot":
        return None
    found = digest(file)
    return None if found is None else {"module": module, "file": str(file), "sha256": found}


def digest(file: Path) -> str | None:
    """The hash of a file; None where it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None
