"""What an attack is: cases drawn from a seed, each of which ends in a verdict.

A case is plain JSON and determines all that is tried, so that it can be kept in a file, shrunk, and
replayed as a regression test.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, ClassVar

Case = dict[str, Any]
MIB = 1 << 20


class Verdict(StrEnum):
    """How a case ended. The first two are as it should be."""

    SURVIVED = "survived"
    REFUSED = "refused"
    """An error of ipot's own."""
    LOST = "lost"
    """Something was lost, or the answer was wrong."""
    FOREIGN = "foreign"
    """An exception that is none of ipot's."""
    MEMORY = "memory"
    """More memory than the data need and a constant."""
    HUNG = "hung"
    CRASHED = "crashed"

    @property
    def good(self) -> bool:
        """Whether nothing has to be mended."""
        return self in (Verdict.SURVIVED, Verdict.REFUSED)


class Lost(Exception):
    """Raised by an attack where something was lost or an answer was wrong.

    Findings of one `kind` count as alike; without one, those raised at the same place do.
    """

    def __init__(self, said: str, kind: str = "") -> None:
        super().__init__(said)
        self.kind = kind


@dataclass(frozen=True)
class Place:
    """Where an attack works."""

    shared: Path
    """What `prepare` wrote; cases only read it."""
    scratch: Path
    """An empty folder for one case."""


class Attack(ABC):
    """Cases of one kind.

    A case survives when `run` returns, is refused when it raises an `IpotError`, and lost when it
    raises `Lost`. Every other exception is a finding too.
    """

    name: str
    """Like `files: vtu`; unique."""
    counted: ClassVar[str]
    """What one case is, in the plural: `kills`, `mutated files`."""
    share: float = 1.0
    """Its part of the campaign's time, beside the others'."""
    least: ClassVar[float] = 0.0
    """Seconds below which it is left out: a short campaign would only prepare it."""
    seconds: ClassVar[float] = 10.0
    """How long a case may take before it counts as hung."""
    memory: ClassVar[int] = 256 * MIB
    """How far the process may grow in a case, beside what `run` says that the data need."""
    limited: ClassVar[bool] = True
    """Whether address space is limited; off for attacks whose children need their own."""

    def possible(self) -> str | None:
        """Why it cannot run on this machine; None where it can."""
        return None

    def left_out(self) -> dict[str, str]:
        """What of it cannot be tried on this machine, by its name in a case, and why."""
        return {}

    def warm(self) -> None:  # noqa: B027 (most attacks need nothing)
        """Import what is slow to import, in the process that all cases are forked from.

        It must start no thread.
        """

    def prepare(self, shared: Path) -> None:  # noqa: B027 (most attacks need nothing)
        """Make what all cases read, once for each campaign."""

    def load(self, shared: Path) -> None:  # noqa: B027 (most attacks need nothing)
        """Read what `prepare` made, once for each process that cases are forked from."""

    def start(self) -> None:  # noqa: B027 (most attacks need nothing)
        """Begin a process that prepares or tries cases: it has one thread and has read nothing."""

    @abstractmethod
    def draw(self, random: Random) -> Case:
        """A case; all chance comes from `random`."""

    @abstractmethod
    def run(self, case: Case, place: Place) -> int | None:
        """Try a case; returns the bytes that its data need, if those are many."""

    def needs(self, case: Case) -> int:
        """Bytes that the data of a case need even where it is refused."""
        return 0

    def smaller(self, case: Case) -> Iterator[Case]:
        """Simpler cases, the simplest first; by default with parts of `changes` left out."""
        changes = case.get("changes")
        if not isinstance(changes, list):
            return
        size = len(changes) // 2
        while size:
            for start in range(0, len(changes), size):
                yield case | {"changes": changes[:start] + changes[start + size :]}
            size //= 2


def all_attacks() -> dict[str, Attack]:
    """Every attack by its name, in the order of their files."""
    package = importlib.import_module("campaign.attacks")
    found: dict[str, Attack] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        if module.startswith("_"):
            continue
        for attack in importlib.import_module(f"campaign.attacks.{module}").ATTACKS:
            if attack.name in found:
                raise ValueError(f"two attacks are called {attack.name!r}")
            found[attack.name] = attack
    return found


def nth_case(attack: Attack, seed: int, index: int) -> Case:
    """The case of a number; the same on every machine."""
    return attack.draw(Random(f"{seed}/{attack.name}/{index}"))
