"""From the words of a command to its flags.

Words are first brought to today's spelling (`of_today`): an old name of a flag works for one
release after it was replaced, and says the new one. To rename a flag is one line in `RENAMED`; to
end its old name is to remove that line. `parse` then fills the dataclass of a command in
`ipot/commands/flags`. Single settings of a problem, a model or its training (`--model.width 64`)
are flags too: `parse_with_settings` where all are known before (`ipot train`), `settings_said`
where they follow from the data and only what is said is kept (`ipot fit`). Torch is not imported
here, so that help is quick.
"""

from __future__ import annotations

import difflib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from inspect import cleandoc
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

from ipot import registry
from ipot.commands.help import screen
from ipot.errors import DataError, UnknownName, Unsupported, shown
from ipot.training.settings import Training

if TYPE_CHECKING:
    from ipot.recipes.experiment import Experiment

Flags = TypeVar("Flags")


def parse(kind: type[Flags], arguments: Sequence[str], command: str) -> Flags:
    """The flags of a command from its dataclass; wrong usage exits with status 2."""
    if "--help-all" in arguments:
        print(cleandoc(kind.__doc__ or "") + "\n")
        arguments = ["--help"]
    return tyro.cli(kind, args=list(arguments), prog=f"ipot {command}", description="")


def split_names(
    arguments: list[str], wanted: list[str], kind: type, command: str
) -> tuple[dict[str, str], list[str]]:
    """The leading words of a command (its problem, its model), and the flags after them."""
    words = []
    while arguments and not arguments[0].startswith("-") and len(words) < len(wanted):
        words.append(arguments[0])
        arguments = arguments[1:]
    names = dict(zip(wanted, words, strict=False))
    if not names:
        if "--help-all" in arguments:
            parse(kind, arguments, command)
        known = ", ".join(registry.names("problems"))
        more = f"The problem comes first: {known}."
        print(f"{screen(kind, command)}\n\n{more}", file=sys.stderr)
        raise SystemExit(2)
    return names, arguments


FLAGS = {"problem": "problem", "model": "model", "training": "training", "data": "count"}
"""The parts of an experiment and what their flags begin with."""
SHORT = ("minutes", "epochs", "augment", "seed")
"""Flags of a command that are short for those of the training."""


def parse_with_settings(
    base: Experiment,
    flags: type,
    arguments: list[str],
    command: str,
    *,
    parts: tuple[str, ...] = tuple(FLAGS),
) -> tuple[Experiment, Any]:
    """`--problem.x`, `--model.x`, `--training.x`, `--count.x`, and the flags of the command.

    The defaults shown by --help are those of the preset.
    """
    values = {part: getattr(base, part) for part in parts}
    entries = [(FLAGS[part], type(value), field(default=value)) for part, value in values.items()]
    if "training" in parts:
        hints = get_type_hints(Training)
        entries += [(n, hints[n], field(default=getattr(base.training, n))) for n in SHORT]
    combined = make_dataclass(flags.__name__, entries, bases=(flags,), kw_only=True)
    combined.__doc__ = flags.__doc__
    found = parse(combined, arguments, command)
    changes = {part: getattr(found, FLAGS[part]) for part in parts}
    if "training" in parts:
        changes["training"] = _with_short(base.training, changes["training"], found)
    return replace(base, **changes), found


def _with_short(base: Training, said: Training, found: Any) -> Training:
    """The settings of the training, where some may have been said by their short flags."""
    for name in SHORT:
        short, long, unsaid = getattr(found, name), getattr(said, name), getattr(base, name)
        if short == unsaid:
            continue
        if long not in (unsaid, short):
            raise Unsupported(
                f"--{name} {short} and --training.{name} {long} are the same setting: leave one of "
                "them out"
            )
        said = replace(said, **{name: short})
    return said


def flag_value(arguments: list[str], name: str, default: str) -> str:
    """A flag that must be known before the others can be parsed (the preset)."""
    for place, word in enumerate(arguments):
        if word == name and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return default


# ---- old spellings, and lists with commas


def _names_a_file(word: str) -> bool:
    """True for `numbers.json`, and not for the problem that comes behind a switch."""
    if word.endswith(".json") or "/" in word:
        return True
    key = word.replace("-", "_").lower()
    return "." not in word and key not in (*registry.names("problems"), "all")


@dataclass(frozen=True)
class Renamed:
    """A flag that has another name now; its value, if it has one, follows the last new word."""

    command: str
    old: str
    new: str
    where: Callable[[str], bool] | None = None
    """Of a flag that is a switch now: whether the next word is the value that it had before."""


RENAMED = (
    Renamed("predict", "--output", "--out"),
    Renamed("export", "--output", "--out"),
    Renamed("bench", "--json", "--overwrite --out", _names_a_file),
    Renamed("bench", "--plot", "--overwrite --out"),
    Renamed("bench", "--queries", "--query-points"),
    Renamed("problems", "--gallery", "--gallery --out", lambda word: True),
    Renamed("reproduce", "--ledger", "--record"),
)

ENDS = "the old spelling ends with the next release"

LISTS = ("--models", "--against", "--seeds", "--splits", "--kind", "--periodic")
"""Flags whose words may have commas between them instead of spaces. Names of fields may not: a
comma can be part of such a name."""


def of_today(command: str, arguments: list[str]) -> list[str]:
    """The arguments of a command as they are spelled now; each old flag is told of once."""
    renamed = {entry.old: entry for entry in RENAMED if entry.command == command}
    words: list[str] = []
    told: list[str] = []
    rest = list(arguments)
    while rest:
        flag, equal, value = rest.pop(0).partition("=")
        entry = renamed.get(flag)
        following = value if equal else _value(rest)
        if entry is not None and (
            entry.where is None or (following is not None and (equal or entry.where(following)))
        ):
            told += [flag] if flag not in told else []
            *before, last = entry.new.split()
            words += [*before, f"{last}={value}" if equal else last]
        elif flag in LISTS and following is not None and "," in following:
            if not equal:
                rest.pop(0)
            words += _spaced(flag, following, rest)
        else:
            words.append(flag + equal + value)
    for old in told:
        line = f"{old} is now {renamed[old].new}; {ENDS}"
        print(f"ipot {command}: {line}", file=sys.stderr)
    return words


def _value(rest: list[str]) -> str | None:
    return rest[0] if rest and not rest[0].startswith("--") else None


def _spaced(flag: str, value: str, rest: list[str]) -> list[str]:
    """A list with commas as one with spaces.

    Such a list was one word, which a problem or an item could follow: they go before the flag.
    """
    words, behind = [flag], []
    while True:
        words += [word.strip() for word in value.split(",") if word.strip()]
        open_end, following = value.endswith(","), _value(rest)
        if following is None:
            return behind + words
        value = rest.pop(0)
        if not open_end and "," not in value:
            behind, value = [*behind, value], ""


def without_old_input(arguments: Sequence[str], command: str) -> tuple[list[str], Path | None]:
    """Arguments without `--input DATA`, which is how the data behind the model were given before,
    and these data."""
    rest, old = list(arguments), None
    for place, word in enumerate(rest):
        name, is_joined, value = word.partition("=")
        if name == "--input" and (is_joined or place + 1 < len(rest)):
            old = Path(value if is_joined else rest[place + 1])
            del rest[place : place + (1 if is_joined else 2)]
            line = f"--input is now the second word: ipot {command} MODEL {old}; {ENDS}"
            print(f"ipot {command}: {line}", file=sys.stderr)
            break
    return rest, old


def data_given(new: Path | None, old: Path | None) -> Path | None:
    """The data behind the model, given once, in the one spelling or the other."""
    if new is not None and old is not None:
        raise DataError(f"the data are given twice, as {new} and as --input {old}: give one")
    return old if new is None else new


# ---- single settings of a model and its training, of which only what is said is kept


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
    """How many words at most belong to a setting of some type."""
    if hint is bool:
        return 0
    several = get_origin(hint) is tuple
    if get_origin(hint) in (Union, types.UnionType):
        several = any(get_origin(part) is tuple for part in get_args(hint))
    return 1000 if several else 1
