"""Single settings of a model and its training among the words of a command: `--model.width 64`.

`ipot train` knows all settings before its flags are parsed, and shows them. Those of a fit follow
from the data, so that only what is said is kept, and the rest is left to be chosen.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import tyro

from ipot.errors import UnknownName, shown


def settings_said(
    arguments: Sequence[str], kinds: Mapping[str, type], command: str, owner: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The settings that are said, by group (`model`, `training`), and the other words.

    `kinds` are the classes of the groups' settings, and `owner` is the model that those of the
    group `model` are of.
    """
    words, rest = [], []
    said: dict[str, dict[str, Any]] = {group: {} for group in kinds}
    left = list(arguments)
    while left:
        word = left.pop(0)
        group, dot, key = word.removeprefix("--").partition(".")
        if not (word.startswith("--") and dot and group in kinds):
            rest.append(word)
            continue
        key, equals, _ = key.partition("=")
        hints = get_type_hints(kinds[group])
        name = _known(key, hints, kinds[group], group, owner)
        said[group][name] = hints[name]
        words.append(word)
        count = 0 if equals else _words(hints[name])
        while left and count and not left[0].startswith("--"):
            words.append(left.pop(0))
            count -= 1
    if not words:
        return said, rest
    groups = []
    for group, keys in said.items():
        entries = [_entry(name, hint) for name, hint in keys.items()]
        if entries:
            groups.append((group, make_dataclass(group.title(), entries, kw_only=True)))
    found = tyro.cli(make_dataclass("Settings", groups), args=words, prog=f"ipot {command}")
    for group, keys in said.items():
        for name in keys:
            keys[name] = getattr(getattr(found, group), name)
    return said, rest


def _known(key: str, hints: Mapping[str, Any], kind: type, group: str, owner: str) -> str:
    """The setting that is meant, refused where there is none."""
    names = [f.name for f in fields(kind)]
    name = key.replace("-", "_")
    off = name.removeprefix("no_")
    if name not in names and off in names and hints[off] is bool:
        return off
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean --{group}.{close[0].replace('_', '-')}?" if close else ""
    whose = f"the model {owner}" if group == "model" else f"the {group}"
    raise UnknownName(
        f"--{group}.{key}: {whose} has no setting {shown(name)}.{hint} Known: {', '.join(names)}"
    )


def _entry(name: str, hint: Any) -> tuple:
    # A switch is one of two flags, which takes a default, and any other setting has its value.
    return (name, hint, field(default=False)) if hint is bool else (name, hint, field())


def _words(hint: Any) -> int:
    """How many words at the most belong to a setting of some type."""
    if hint is bool:
        return 0
    several = get_origin(hint) is tuple
    if get_origin(hint) in (Union, types.UnionType):
        several = any(get_origin(part) is tuple for part in get_args(hint))
    return 1000 if several else 1
