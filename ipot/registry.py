"""From a name to a module. The files of a folder are the registry: a new file is a new entry.

A name that a user types or passes may be the dotted path of any module, or of a class in one, which
is then imported: his own words are trust. A name that stands in a file is somebody else's:
`named_in_file` imports nothing but entries of this package, unless the caller trusts the file.
`ipot.own_code` is what finds and imports such modules.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from ipot import own_code
from ipot.errors import RunError, UnknownName, Untrusted, shown
from ipot.own_code import is_dotted_path

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
        return own_code.imported(name)
    key = name.replace("-", "_").lower()
    if key not in names(kind):
        close = difflib.get_close_matches(key, names(kind), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        file = own_code.source_of(name) if name.isidentifier() else None
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


def code_of(**given: str) -> dict[str, Any]:
    """The code outside this package that names (`problem=`, `model=`) stand for, as a run keeps
    it: module, file and hash."""
    found = {what: own_code.record(name) for what, name in given.items() if "." in name}
    return {what: known for what, known in found.items() if known is not None}


def named_in_file(
    kind: str, name: Any, where: Path | str, *, trusted: bool, recorded: Any = None
) -> str:
    """The name of a problem or model that a file gives, once it is known to be safe to import.

    Entries of this package are. A module outside it is refused unless the file is `trusted`, or
    the program has imported that very module before: then none of its code is run by loading.
    `recorded` is what the file says of that module (`code_of`), for saying what has changed since.
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
    if not (trusted or _has_imported(kind, name)):
        _refuse_untrusted(kind, name, where, recorded)
    try:
        module(kind, name)
    except UnknownName as error:
        home = own_code.home_of(name, recorded)
        more = "" if home is None else f". It was trained with {recorded['file']}: put {home} into "
        more += "" if home is None else "PYTHONPATH, or call from there"
        raise RunError(f"{where}: {str(error).rstrip('.')}{more}.") from error
    own_code.say_changes(name, where, recorded)
    return name


def _refuse_untrusted(kind: str, name: str, where: Path | str, recorded: Any) -> None:
    file, home = own_code.file_of(name), None
    if file is not None:
        place = f"the file {file}"
        if changes := own_code.changes(file, recorded):
            place += f", {changes}"
    else:
        place = "a module that is not found on the path of Python"
        home = own_code.home_of(name, recorded)
        place += "" if home is None else f"; it was trained with {recorded['file']}"
    raise Untrusted(
        f"{where}: its {kind[:-1]} is {shown(name)}, a module outside ipot. Loading would import "
        f"it and run its code, from {place}. Pass trusted=True (--trust on the command line) if "
        "you know that code and where the folder comes from.",
        home,
    )


def _has_imported(kind: str, name: str) -> bool:
    """True if the program has imported a module that defines a problem or a model; runs nothing."""
    found = sys.modules.get(name)
    if isinstance(found, ModuleType):
        return ATTRIBUTES[kind] in vars(found)
    home, _, attribute = name.rpartition(".")
    around = sys.modules.get(home)
    return isinstance(around, ModuleType) and _is_one(kind, vars(around).get(attribute))
