"""What all attacks on operations share: which operation, when it is hurt, and how it is forked."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from random import Random

from campaign.attack import Attack
from campaign.attacks import _prepared
from campaign.attacks._victim import Hurt

WEIGHTS = {"train": 6, "fit": 5, "save": 5, "generate": 5, "seeds": 2}
"""How often each is drawn; the quick ones more often, all others once."""


class Interrupted(Attack):
    """Operations in processes of their own, which the case starts, hurts and judges."""

    seconds = 60.0
    limited = False

    def warm(self) -> None:
        """What operations import."""
        _prepared.warm()

    def left_out(self) -> dict[str, str]:
        """Operations whose libraries cannot be imported."""
        return _prepared.left_out()


def draw_operation(random: Random, without: Iterable[str] = ()) -> str:
    """The name of an operation."""
    names = [name for name in _prepared.operations() if name not in without]
    return random.choices(names, [WEIGHTS.get(name, 1) for name in names])[0]


def draw_kill(random: Random, *, sized: bool = True) -> Hurt:
    """A moment and a signal; moments between events are rarer, since less happens there.

    Some end where a file would become larger than a size, if `sized`.
    """
    number = random.choices([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], [6, 2, 2])[0]
    by = random.choices(["event", "time", "size"], [6, 2, 2 if sized else 0])[0]
    if by == "size":
        return {"by": by, "at": int(2 ** random.uniform(0, 17))}
    return {"by": by, "at": round(random.random(), 4), "signal": int(number)}
