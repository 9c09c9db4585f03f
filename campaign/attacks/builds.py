"""Processes that are killed while they compile at first use: the next one has its library."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from random import Random

from campaign.attack import Attack, Case, Lost, Place
from campaign.attacks import _builds, _prepared
from campaign.attacks._interrupted import draw_kill
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


ATTACKS = (Builds(), TrueBuilds())
