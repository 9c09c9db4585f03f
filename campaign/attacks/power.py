"""Power is lost at any point of an operation: with what the disk may then hold it must go on.

What is assumed of disks stands in `_disk.py`. A record of everything that an operation asked of the
disk is replayed up to a point, and chance decides what of the unsynced rest is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from campaign.attack import Attack, Case, Place
from campaign.attacks import _prepared, _recording
from campaign.attacks._disk import ORDERS

WEIGHTS = {"train": 6, "fit": 5, "save": 4, "generate": 4}


class Power(Attack):
    """A point of the record, an order of names, and the chance that decides the rest."""

    name = "power"
    counted = "power losses"
    share = 5.0
    seconds = 60.0
    limited = False

    def possible(self) -> str | None:
        """The library that listens is compiled, for Linux."""
        if not Path("/proc/self/fd").exists():
            return "there is no /proc"
        return None if shutil.which("cc") or shutil.which("gcc") else "there is no C compiler"

    def warm(self) -> None:
        """What operations import."""
        _prepared.warm()

    def prepare(self, shared: Path) -> None:
        """Record all operations, where that has not been done for these sources."""
        _prepared.link(shared / "records", _prepared.cached("records", _recording.make))

    def draw(self, random: Random) -> Case:
        """Going on takes longest, and is only done now and then."""
        known = _prepared.operations()
        names = [name for name in _recording.RECORDED if name in known]
        return {
            "operation": random.choices(names, [WEIGHTS.get(name, 1) for name in names])[0],
            "at": round(random.random(), 4),
            "order": random.choices(ORDERS, [3, 1, 1])[0],
            "chance": random.randrange(1 << 30),
            "go on": random.random() < 0.35,
        }

    def run(self, case: Case, place: Place) -> None:
        """Lost where the readers see neither old nor new, or going on ends otherwise."""
        work = _prepared.Work(case["operation"], place.shared, place.scratch)
        record = _recording.load((place.shared / "records").resolve() / case["operation"])
        number = int(case["at"] * (record.length + 1)) - 1
        record.make(number, case["order"], Random(case["chance"]), work.folder)
        work.look()
        if case["go on"]:
            work.go_on()

    def smaller(self, case: Case) -> Iterator[Case]:
        """Without going on, in the order of a journal, at earlier points."""
        if case["go on"]:
            yield case | {"go on": False}
        if case["order"] != "journal":
            yield case | {"order": "journal"}
        for at in (0.25, 0.5, 0.75):
            if round(case["at"] * at, 4) != case["at"]:
                yield case | {"at": round(case["at"] * at, 4)}


ATTACKS = (Power(),)
