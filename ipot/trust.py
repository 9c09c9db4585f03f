"""Code that a file names: what may be imported for it, and whether it is what it was in training.

A run folder or a saved model may name a problem or a model outside this package. Loading it would
run that code, so it is refused unless the caller trusts the folder, or has imported the code.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

from ipot.errors import RunError, UnknownName, Untrusted, shown
from ipot.registry import digest, has_imported, is_dotted_path, located, module, searched

_log = logging.getLogger("ipot")


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
    if not (trusted or has_imported(kind, name)):
        _refuse_untrusted(kind, name, where, recorded)
    try:
        module(kind, name)
    except UnknownName as error:
        home = home_of(name, recorded)
        more = "" if home is None else f". It was trained with {recorded['file']}: put {home} into "
        more += "" if home is None else "PYTHONPATH, or call from there"
        raise RunError(f"{where}: {str(error).rstrip('.')}{more}.") from error
    say_changes(name, where, recorded)
    return name


def _refuse_untrusted(kind: str, name: str, where: Path | str, recorded: Any) -> None:
    file, home = located(name)[1], None
    if file is not None:
        place = f"the file {file}"
        if found := changes(file, recorded):
            place += f", {found}"
    else:
        place = "a module that is not found on the path of Python"
        home = home_of(name, recorded)
        place += "" if home is None else f"; it was trained with {recorded['file']}"
    raise Untrusted(
        f"{where}: its {kind[:-1]} is {shown(name)}, a module outside ipot. Loading would import "
        f"it and run its code, from {place}. Pass trusted=True (--trust on the command line) if "
        "you know that code and where the folder comes from.",
        home,
    )


def changes(file: Path, recorded: Any) -> str:
    """How a file differs from the one that a run was trained with, in words; none if it does not,
    or if nothing is known of it."""
    if not _is_record(recorded):
        return ""
    words = []
    if digest(file) != recorded["sha256"]:
        words.append("which has changed since the model was trained")
    if Path(recorded["file"]) not in (file, Path(file.name)):
        words.append(f"where the model was trained with {shown(recorded['file'])}")
    return " and ".join(words)


def say_changes(name: str, where: Path | str, recorded: Any) -> None:
    """A remark where a module is not what it was when a run was trained with it."""
    file = located(name)[1]
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
                return root if searched(".".join(packages[:count]), [str(root)]) else None
            except (OSError, ValueError):
                return None
    return None


def _is_record(recorded: Any) -> bool:
    """Whether a file says what it should; it may be anybody's."""
    if not isinstance(recorded, dict):
        return False
    return all(isinstance(recorded.get(key), str) for key in ("file", "sha256"))
