"""Flags as they are spelled today: old names, and lists with commas.

An old spelling works for one release after it was replaced, and says the new one. To rename a flag
is one line in `RENAMED`; to end its old name is to remove that line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ipot import registry
from ipot.errors import DataError


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
