"""Disks that are full, fail, are read-only or vanish; clocks that jump.

An operation that meets a fault ends in an error of ipot's own, with the old state intact, and goes
on to the same bits when the fault is gone.
"""

from __future__ import annotations

import errno
from functools import cache
from random import Random

from campaign.attack import Case, Lost, Place
from campaign.attacks import _mounts, _prepared, _seccomp
from campaign.attacks._interrupted import Interrupted, draw_kill, draw_operation
from campaign.attacks._victim import Ended, Foreign, Hurt, Victim

NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
HOUR = 3600.0
MOUNTED = ("tmpfs", "read-only")
"""Faults that need a disk of their own: one that is nearly full, one that nobody may write to."""


class Disks(Interrupted):
    """One operation meets one or several faults, one after another."""

    name = "faults: disks"
    counted = "faults"
    share = 3.5

    def draw(self, random: Random) -> Case:
        """An operation and its faults."""
        count = 1 if random.random() < 0.8 else random.randint(2, 3)
        return {
            "operation": draw_operation(random),
            "changes": [_draw_fault(random) for _ in range(count)],
        }

    def run(self, case: Case, place: Place) -> None:
        """Lost where the old state is damaged, or going on ends otherwise."""
        work = _prepared.Work(case["operation"], place.shared, place.scratch)
        if any(fault["by"] in MOUNTED for fault in case["changes"]):
            if _mounts.why_not() is None:
                _heard(Victim(lambda: _own_disk(work, case["changes"]), place.scratch).wait())
            return
        work.start()
        for fault in case["changes"]:
            _meet(work, fault)
        work.go_on()


def _draw_fault(random: Random) -> Hurt:
    """What goes wrong, and when."""
    moment = {"by": "event", "at": round(random.random(), 4)}
    kinds = {"size": 3, "once": 4, "on": 6, "vanish": 1, "tmpfs": 2, "read-only": 1}
    match random.choices(list(kinds), list(kinds.values()))[0]:
        case "size":
            return {"by": "size error", "at": int(2 ** random.uniform(0, 17))}
        case "once":
            return moment | {"errno": random.choice(NUMBERS), "once": True}
        case "on":
            return moment | {"errno": random.choice(NUMBERS)}
        case "vanish":
            return moment | {"vanish": random.choice(["removed", "a file"])}
        case "read-only":
            return {"by": "read-only"}
    return {"by": "tmpfs", "at": int(2 ** random.uniform(12, 19))}


def _meet(work: _prepared.Work, fault: Hurt) -> None:
    """Let an operation meet a fault, and look at what it leaves."""
    if "errno" in fault and not fault.get("once") and not _filters():
        fault = fault | {"once": True}
    ended = work.met(fault)
    if ended.how == "killed":
        raise Lost(f"it died of a fault of the disk: {ended.said}")
    if "vanish" in fault:
        # Nothing is left to be intact: it begins anew.
        _prepared.removed(work.folder)
        work.start()
        return
    work.look()


@cache
def _filters() -> bool:
    return _seccomp.why_not() is None


def _own_disk(work: _prepared.Work, faults: list[Hurt]) -> None:
    """Try faults on a disk of its own, in a process that alone can see it."""
    disk = work.folder.parent / "disk"
    disk.mkdir()
    _mounts.mount(disk)
    work.folder = disk / work.folder.name  # which may vanish: a disk cannot
    work.start()
    for fault in faults:
        if fault["by"] == "tmpfs":
            _mounts.leave(disk, fault["at"])
            _meet(work, {"by": "none"})
            _mounts.leave(disk, 1 << 26)
        elif fault["by"] == "read-only":
            _mounts.read_only(disk, on=True)
            _meet(work, {"by": "none"})
            _mounts.read_only(disk, on=False)
        else:
            _meet(work, fault)
    work.go_on()


def _heard(ended: Ended) -> None:
    """What the process with a disk of its own found."""
    kind = ended.where.split(" ")[0]
    if ended.how == "foreign" and kind in ("Lost", "Refused"):
        raise Lost(ended.said)
    if ended.how != "done":
        raise Foreign(ended)


class Clocks(Interrupted):
    """The wall clock jumps by hours and days while an operation runs, and is perhaps killed."""

    name = "faults: clocks"
    counted = "faults"
    share = 2.0

    def draw(self, random: Random) -> Case:
        """An operation, and by how much the clock jumps at which of its readings."""
        jumps = [
            [
                random.randrange(40),
                round(random.choice([-1, 1]) * HOUR * 10 ** random.uniform(0, 4)),
            ]
            for _ in range(random.randint(1, 4))
        ]
        killed = draw_kill(random) if random.random() < 0.3 else {"by": "none"}
        return {"operation": draw_operation(random), "changes": jumps, "hurt": killed}

    def run(self, case: Case, place: Place) -> None:
        """Lost where it does not end as with a steady clock."""
        work = _prepared.Work(case["operation"], place.shared, place.scratch)
        work.start()
        hurt = case["hurt"] | {"clock": case["changes"]}
        ended = work.met(hurt)
        if hurt["by"] == "none" and ended.how != "done":
            raise Lost(f"it did not come to its end when the clock jumped: {ended.said}")
        work.look()
        work.go_on()


ATTACKS = (Disks(), Clocks())
