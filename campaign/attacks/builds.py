"""Processes that are killed while they compile at first use: the next one has its library."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from random import Random

from campaign.attack import Attack, Case, Lost, Place
from campaign.attacks import _builds, _compiling, _prepared
from campaign.attacks._interrupted import Interrupted, draw_kill
from campaign.attacks._victim import Victim


class Builds(Attack):
    """A compiler that takes its time: it copies a library in halves."""

    name = "kills: builds"
    counted = "kills"
    share = 1.0
    seconds = 60.0
    limited = False

    def possible(self) -> str | None:
        """A library must be made once by a true compiler."""
        return None if shutil.which("cc") or shutil.which("gcc") else "there is no C compiler"

    def prepare(self, shared: Path) -> None:
        """A library to be copied slowly, and how long that takes."""
        _prepared.link(shared / "builds", _prepared.cached("builds", _builds.make))

    def compiler(self, place: Place) -> Path | None:
        """What compiles; the machine's own where it is None."""
        return place.shared / "builds" / "compiler"

    def draw(self, random: Random) -> Case:
        """One to three kills, perhaps of two processes that compile at once."""
        kills = [draw_kill(random, sized=False) for _ in range(random.choice([1, 1, 2, 3]))]
        for kill in kills:
            kill["two"] = random.random() < 0.3
        return {"changes": kills}

    def run(self, case: Case, place: Place) -> None:
        """Lost where a process that nobody disturbs is left without a library, or dies of one."""
        measured = _builds.measured(place.shared / "builds")
        cache = place.scratch / "cache"
        work = _builds.work(self.compiler(place), cache)
        for hurt in case["changes"]:
            victims = [Victim(work, place.scratch, hurt, measured)]
            if hurt.get("two"):
                victims.append(Victim(work, place.scratch))
            for victim in victims:
                _prepared.ours(victim.wait())
        time.sleep(0.1)  # compilers whose process was killed come to their own end
        ended = Victim(work, place.scratch).wait()
        if ended.how != "done":
            raise Lost(f"no library after a kill: {ended.how}: {ended.said}")
        _builds.left_behind(cache, measured["names"])


class TrueBuilds(Builds):
    """The compiler of this machine, which goes on for a while when its process is killed."""

    name = "kills: true builds"
    share = 0.5
    seconds = 600.0
    least = 60.0

    def possible(self) -> str | None:
        """The package must be able to compile here."""
        name = os.environ.get("CXX", "g++")
        return None if shutil.which(name) else f"there is no C++ compiler ({name})"

    def prepare(self, shared: Path) -> None:
        """How long it takes."""
        _prepared.link(shared / "builds", _prepared.cached("true-builds", _builds.measure))

    def compiler(self, place: Place) -> None:
        """That of the machine."""


class Compiling(Interrupted):
    """`torch.compile` at first use: the next process has what it makes, or makes it again."""

    name = "kills: torch.compile"
    counted = "kills"
    share = 0.5
    seconds = 1800.0
    least = 200.0

    def possible(self) -> str | None:
        """It needs the same compiler."""
        return TrueBuilds().possible()

    def left_out(self) -> dict[str, str]:
        """It needs no other library."""
        return {}

    def prepare(self, shared: Path) -> None:
        """Data, and how it ends undisturbed."""
        _prepared.link(shared / "compiling", _prepared.cached("compiling", _compiling.make))

    def draw(self, random: Random) -> Case:
        """One or two kills, most of them while it compiles: its own files come before and after."""
        kills = [draw_kill(random, sized=False) for _ in range(random.choice([1, 1, 2]))]
        return {"changes": [kill | {"by": "time"} for kill in kills]}

    def run(self, case: Case, place: Place) -> None:
        """Lost where going on does not end as if nothing had happened."""
        shared, folder = place.shared / "compiling", place.scratch / "work"
        folder.mkdir()
        measured = _prepared.read(shared / _prepared.KEPT)
        work = _compiling.work(folder, shared, place.scratch / "cache")
        for hurt in case["changes"]:
            _prepared.ours(Victim(work, folder, hurt, measured).wait())
            _prepared.look(_compiling.Compiled(), folder, shared, measured["content"])
        ended = _prepared.ours(Victim(work, folder).wait())
        if ended.how != "done":
            raise _prepared.Refused(ended)
        _prepared.compare(_compiling.Compiled(), folder, measured)


ATTACKS = (Builds(), TrueBuilds(), Compiling())
