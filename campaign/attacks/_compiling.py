"""A training whose step `torch.compile` makes at its first use, with a cache of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from campaign.attacks import _prepared
from campaign.attacks._operations import Train, tiny
from campaign.attacks._victim import finish


class Compiled(Train):
    """`ipot train --training.step compiled`."""

    name = "train compiled"
    settings = tiny("burgers", epochs=1, step="compiled")


def make(folder: Path) -> None:
    """The data, and how it ends undisturbed."""
    finish(lambda: Compiled().prepare(folder), folder)
    (folder / "work").mkdir()
    ended = finish(work(folder / "work", folder, folder / "cache"), folder)
    if ended.how != "done":
        raise RuntimeError(f"a training that is compiled fails undisturbed: {ended.said}")
    found = _prepared.facts(Compiled(), folder / "work", ended)
    (folder / _prepared.KEPT).write_text(json.dumps(found))


def work(folder: Path, shared: Path, cache: Path) -> Callable[[], None]:
    """Begin, or go on, with what was compiled kept in a folder."""

    def act() -> None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes that outlive this one
        Compiled().act(folder, shared)

    return act
