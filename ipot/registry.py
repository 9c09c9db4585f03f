"""From a name to a module. The files of a folder are the registry: a new file is a new entry.

A name that a user types or passes may be the dotted path of any module, which is then imported:
his own words are trust. A name that stands in a file is somebody else's: `named_in_file` imports
nothing but entries of this package, unless the caller trusts the file.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
import os
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ipot.errors import RunError, UnknownName, shown

# The name that a module of each kind must define.
ATTRIBUTES = {"problems": "PROBLEM", "models": "MODEL"}


def names(kind: str) -> list[str]:
    """The entries of `ipot/problems` or `ipot/models`, found without importing them."""
    package = importlib.import_module(f"ipot.{kind}")
    found = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    return sorted(name for name in found if name != "base")


def module(kind: str, name: str) -> ModuleType:
    """Import an entry by its name, or any module by its dotted path."""
    if "." in name:
        if not is_dotted_path(name):
            raise UnknownName(
                f"{shown(name)} is not the dotted path of a module, like package.module"
            )
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UnknownName(f"cannot import {shown(name)}: {error}") from error
    key = name.replace("-", "_").lower()
    if key not in names(kind):
        close = difflib.get_close_matches(key, names(kind), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownName(
            f"unknown {kind[:-1]} {shown(name)}.{hint} Known: {', '.join(names(kind))}; "
            "or give the dotted path of a module."
        )
    return importlib.import_module(f"ipot.{kind}.{key}")


def find(kind: str, name: str) -> Any:
    """The `PROBLEM` or `MODEL` of an entry."""
    found, attribute = module(kind, name), ATTRIBUTES[kind]
    if not hasattr(found, attribute):
        raise UnknownName(f"{found.__name__} defines no {attribute}; see docs/extend.md")
    return getattr(found, attribute)


def named_in_file(kind: str, name: Any, where: Path | str, *, trusted: bool) -> str:
    """The name of a problem or model that a file gives, once it is known to be safe to import.

    Entries of this package are. A module outside it is refused unless the file is `trusted`, or
    the program has imported that very module before: then none of its code is run by loading.
    """
    key = f"{kind[:-1]}.name"
    if not isinstance(name, str):
        raise RunError(f"{where}: {key} must be a text, got {shown(str(name))}")
    ours = name.removeprefix(f"ipot.{kind}.")
    if "." not in ours:
        try:
            module(kind, ours)
        except UnknownName as error:
            raise RunError(
                f"{where}: {str(error).rstrip('.')}. Put back the name that was written."
            ) from error
        return ours
    if not is_dotted_path(name) or name.split(".")[0] == "ipot":
        raise RunError(
            f"{where}: {key} is {shown(name)}, which is neither a {kind[:-1]} of ipot nor the "
            "dotted path of a module outside ipot. Put back the name that was written."
        )
    if trusted or _has_imported(kind, name):
        return name
    file = source_of(name)
    place = f"the file {file}" if file else "a module that is not found on the path of Python"
    raise RunError(
        f"{where}: its {kind[:-1]} is {shown(name)}, a module outside ipot. Loading would import "
        f"it and run its code, from {place}. Pass trusted=True (--trust on the command line) if "
        "you know that code and where the folder comes from."
    )


def is_dotted_path(name: str) -> bool:
    """True if a name can be that of a module inside a package."""
    parts = name.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def source_of(name: str) -> Path | None:
    """The file that importing a dotted path would run, found without importing anything.

    `importlib.util.find_spec` imports the packages around a module, so folders are looked through
    by hand, in the order of Python: a package, a module, and last a folder without `__init__.py`.
    """
    places = [entry or os.curdir for entry in sys.path]
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


def _has_imported(kind: str, name: str) -> bool:
    """True if the program has imported a module that defines a problem or a model; runs nothing."""
    found = sys.modules.get(name)
    return isinstance(found, ModuleType) and ATTRIBUTES[kind] in vars(found)
