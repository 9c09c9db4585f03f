"""Checksums of the files of a saved model: an edit or a mix-up is noticed at loading.

config.json holds a sha256 of each part of the settings that decides an answer (`SETTINGS`) and of
the files of weights and bounds. What people may put in their own words (about, scores, license,
the card) has none. A checksum tells of accidents; it is no signature: whoever means harm can
compute it anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipot.errors import RunError
from ipot.safe_read import regular_file
from ipot.typed_json import with_leaves

KEY = "checksums"
SETTINGS = ("model", "spec", "layout", "series")
"""Entries of config.json that answers depend on."""
IF_THERE = ("experiment",)
"""Such entries that not every config.json has."""
_log = logging.getLogger("ipot")


def checksums(content: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, str]:
    """Of the settings in a config.json, and of files by their names."""
    names = (*SETTINGS, *(name for name in IF_THERE if content.get(name) is not None))
    found = {name: _of_settings(content.get(name)) for name in names}
    return found | {name: _of_file(path) for name, path in files.items()}


def refuse_changed(content: Mapping[str, Any], files: Mapping[str, Path], where: Path) -> None:
    """Refuse settings or files that are not those that were saved; `where` is the config.json.

    A folder of before there were checksums is let through with a remark.
    """
    told = content.get(KEY)
    if told is None:
        _log.warning(
            "%s was saved before there were checksums, so that edits are not noticed: "
            "load and save it to add them",
            where.parent,
        )
        return
    found = checksums(content, files)
    changed = [name for name, digest in found.items() if told.get(name) != digest]
    if changed:
        raise RunError(
            f"{where}: {', '.join(changed)} changed after the model was saved (another sha256). "
            "Put back what was saved, or copy or download the folder again; if the change is "
            "yours, ipot.load(path, edited=True) takes it (--edited on the command line), and "
            "saving the model anew makes it the model's own."
        )


def _of_settings(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """One way to write a value: programs differ in whether 1.0 is written as 1."""
    return with_leaves(value, lambda x: int(x) if isinstance(x, float) and x.is_integer() else x)


def _of_file(path: Path) -> str:
    regular_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
