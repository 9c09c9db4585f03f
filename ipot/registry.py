"""From a name to a module. The files of a folder are the registry: a new file is a new entry."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from types import ModuleType
from typing import Any

from ipot.errors import UnknownName

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
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UnknownName(f"cannot import {name!r}: {error}") from error
    key = name.replace("-", "_").lower()
    if key not in names(kind):
        close = difflib.get_close_matches(key, names(kind), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownName(
            f"unknown {kind[:-1]} {name!r}.{hint} Known: {', '.join(names(kind))}; "
            "or give the dotted path of a module."
        )
    return importlib.import_module(f"ipot.{kind}.{key}")


def find(kind: str, name: str) -> Any:
    """The `PROBLEM` or `MODEL` of an entry."""
    found, attribute = module(kind, name), ATTRIBUTES[kind]
    if not hasattr(found, attribute):
        raise UnknownName(f"{found.__name__} defines no {attribute}; see docs/extend.md")
    return getattr(found, attribute)
