"""Processes that are killed at the worst moments: what they did must go on to the same bits."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from random import Random
from typing import Any

from campaign.attack import Case, Lost, Place
from campaign.attacks import _prepared
from campaign.attacks._interrupted import Interrupted, draw_kill, draw_operation
from campaign.attacks._operations import HERE, Train
from campaign.attacks._victim import Ended, Hurt, Victim, finish
from ipot.data.store import Store
from ipot.recipes.running import resume, run

DAY = 86400.0


class Kills(Interrupted):
    """One operation, killed once or several times before it may end."""

    name = "kills"
    counted = "kills"
    share = 6.0

    def draw(self, random: Random) -> Case:
        """An operation and its kills; sometimes the clock is another when it goes on."""
        kills = 1 if random.random() < 0.75 else random.randint(2, 5)
        changes = [draw_kill(random) for _ in range(kills)]
        if random.random() < 0.1:
            changes[-1]["aged"] = random.choice([-400, -1, 1, 400])
        return {"operation": draw_operation(random), "changes": changes}

    def run(self, case: Case, place: Place) -> None:
        """Lost where going on does not end as if nothing had happened."""
        work = _prepared.Work(case["operation"], place.shared, place.scratch)
        work.start()
        for hurt in case["changes"]:
            work.met(hurt)
            work.look()
            if days := hurt.get("aged"):
                _age(work.folder, days * DAY)
        work.go_on()


def _age(folder: Path, seconds: float) -> None:
    """Let all that lies there be of another time, as after a jump of the clock."""
    when = time.time() - seconds
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (when, when), follow_symlinks=False)


class Pairs(Interrupted):
    """Two processes at once in one folder: one may be refused or wait, and nothing is damaged."""

    name = "kills: pairs"
    counted = "kills"
    share = 1.5

    def draw(self, random: Random) -> Case:
        """What they do, how much later the second begins, whether a run is there already, and how
        the first is killed."""
        return {
            "operation": draw_operation(random, without=("compare", "train command")),
            "later": round(random.choice([0.0, random.random()]), 3),
            "changes": [
                *([{"begun": draw_kill(random)}] if random.random() < 0.4 else []),
                *([{"first": draw_kill(random)}] if random.random() < 0.4 else []),
            ],
        }

    def run(self, case: Case, place: Place) -> None:
        """Lost where something is damaged."""
        work = _prepared.Work(case["operation"], place.shared, place.scratch)
        work.start()
        hurts: dict[str, Any] = {k: v for change in case["changes"] for k, v in change.items()}
        if "begun" in hurts:
            work.victim(hurts["begun"]).wait()
        first = work.victim(hurts.get("first"))
        time.sleep(case["later"] * work.measured["seconds"])
        second = work.victim()
        ends = [_prepared.ours(ended) for ended in (first.wait(), second.wait())]
        if "first" not in hurts and all(ended.how != "done" for ended in ends):
            raise Lost(f"neither of two processes came to its end: {[e.said for e in ends]}")
        work.look()
        work.go_on()


class Together(Interrupted):
    """Two processes of one training, as `torchrun` starts them: one dies, all are started anew."""

    name = "kills: together"
    counted = "kills"
    share = 1.0
    seconds = 120.0

    def left_out(self) -> dict[str, str]:
        """Training in two processes needs no library of its own."""
        return {}

    def prepare(self, shared: Path) -> None:
        """A reference of two processes."""
        _prepared.link(shared / "together", _prepared.cached("together", _make_together))

    def draw(self, random: Random) -> Case:
        """Which of them dies, and when."""
        kill = draw_kill(random, sized=False)
        rank = random.randrange(2)
        # The second process writes nothing, so it has no events to be killed at.
        return {"changes": [kill | {"rank": rank} | ({"by": "time"} if rank else {})]}

    def run(self, case: Case, place: Place) -> None:
        """Lost where they do not go on to the same end."""
        shared, folder = place.shared / "together", place.scratch / "work"
        folder.mkdir()
        measured = _prepared.read(shared / _prepared.KEPT)
        for hurt in case["changes"]:
            victims = _started(folder, shared, hurt, measured)
            struck, other = victims[hurt["rank"]], victims[1 - hurt["rank"]]
            struck.wait()
            # As torchrun does with those that are left.
            other.send(signal.SIGTERM)
            time.sleep(0.05)
            other.send(signal.SIGKILL)
            other.wait()
            _prepared.look(Train(), folder, shared, None)
        for ended in [victim.wait() for victim in _started(folder, shared, None, measured)]:
            if ended.how != "done":
                raise _prepared.Refused(ended)
        _prepared.compare(Train(), folder, measured)


def _started(folder: Path, shared: Path, hurt: Hurt | None, measured: dict) -> list[Victim]:
    """Both processes, of which one is hurt."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def work(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        out, store = folder / "run", Store(shared / "train" / "store")
        if begun:
            resume(out, store=store, **HERE)
        else:
            run(Train.settings, out, store=store, **HERE)

    begun = (folder / "run" / "config.json").exists()
    return [
        Victim(
            lambda r=rank: work(r),
            folder,
            hurt if hurt and hurt["rank"] == rank else None,
            measured,
        )
        for rank in range(2)
    ]


def _make_together(folder: Path) -> None:
    (folder / "train").mkdir()
    finish(lambda: Train().prepare(folder / "train"), folder)
    (folder / "work").mkdir()
    ends: list[Ended] = [v.wait() for v in _started(folder / "work", folder, None, {})]
    if any(ended.how != "done" for ended in ends):
        raise RuntimeError(f"two processes fail undisturbed: {[e.said for e in ends]}")
    found = _prepared.facts(Train(), folder / "work", ends[0])
    (folder / _prepared.KEPT).write_text(json.dumps(found))


ATTACKS = (Kills(), Pairs(), Together())
