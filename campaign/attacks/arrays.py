"""Arrays of every dtype, shape, scale and oddity, through every door that arrays come in by."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from random import Random
from typing import ClassVar

from campaign.attack import Attack, Case, Lost, Place
from campaign.attacks import _array_bases as bases
from campaign.attacks import _array_doors as doors
from campaign.attacks import _array_other_doors as others
from campaign.attacks._array_cases import Given, draw_changes, fingerprint, given

DOORS: dict[str, doors.Door] = {
    door.name: door
    for door in (
        *(doors.Arrays(), doors.Choice(), doors.Prediction(), doors.Evaluation(), doors.Run()),
        *(others.Samples(), others.Labelled(), others.Table(), others.Score()),
    )
}
WARM = ("ipot.api", "ipot.formats.series.samples", "ipot.formats.csv_table", "pandas", "xarray")
LONGEST = 2000
"""Characters of a refusal that somebody still reads."""


class OddArrays(Attack):
    """Calls that are right but for one to three arguments."""

    name = "arrays: doors"
    counted = "odd arrays"
    share = 7.0
    seconds = 20.0  # of milliseconds: on a machine that others use as well nothing else is sure
    doors: ClassVar[dict[str, doors.Door]] = DOORS

    def warm(self) -> None:
        """Import the front doors and what they import when they are used."""
        # pandas imports pyarrow, whose allocator starts a thread; a fork must find none.
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
        for module in WARM:
            importlib.import_module(module)

    def prepare(self, shared: Path) -> None:
        """Fit the models that are asked."""
        bases.fit_all(shared)

    def load(self, shared: Path) -> None:
        """Load them."""
        for base in (*bases.BASES, "series"):
            bases.model(shared, base)

    def draw(self, random: Random) -> Case:
        """A door, a call that is right, and changes to its arguments."""
        found = list(self.doors.values())
        door = random.choices(found, [d.weight for d in found])[0]
        base = random.choice(door.bases)
        arguments = [n for n in door.base(base) if n not in door.options]
        return {
            "door": door.name,
            "base": base,
            "changes": draw_changes(random, arguments, door.options),
            "also": random.choice(door.also),
        }

    def run(self, case: Case, place: Place) -> None:
        """Try a call, and hold what comes back against what must be."""
        door = self.doors[case["door"]]
        try:
            self._tried(door, case, place)
        except Lost as lost:
            # Findings of one door that begin alike are alike.
            kind = " ".join([f"{door.name}:", *str(lost).split()[:3]])
            raise Lost(str(lost), kind) from lost

    def _tried(self, door: doors.Door, case: Case, place: Place) -> None:
        from ipot.errors import IpotError

        base = case["base"]
        asked = given(door.base(base), case["changes"], door.options, place.scratch)
        before = {n: fingerprint(v) for n, v in asked.values.items()}
        try:
            result = door.call(base, asked.values, place.shared)
        except IpotError as error:
            _refuse_silence(str(error), door, asked)
            if door.open_to_guises and asked.families == {"kept"}:
                raise Lost(
                    f"plain arrays of another dtype or layout are refused: {error}"
                ) from error
            raise
        for name, print_ in before.items():
            if fingerprint(asked.values[name]) != print_:
                raise Lost(f"{name} was written to")
        if result is None:
            return
        wrong = {n for n in asked.must_refuse if not door.takes(n, asked.values[n])}
        if wrong:
            raise Lost(f"what holds no numbers is taken for {', '.join(sorted(wrong))}")
        door.check(result, asked)
        try:
            compared = type(door).same is not doors.Door.same
            same = asked.known and door.means_plain(base, asked)
            if compared and same and asked.families & {"kept", "guise"}:
                door.same(result, door.call(base, asked.plain, place.shared))
            door.relate(case["also"], base, asked, result, place.shared)
        except IpotError as error:
            raise Lost(f"taken at first, and then refused: {error}") from error


class OddTraining(OddArrays):
    """The same in training."""

    name = "arrays: fit"
    share = 3.0
    doors: ClassVar[dict[str, doors.Door]] = {"fit": others.Training()}

    def prepare(self, shared: Path) -> None:
        """Nothing: every case fits a model of its own."""

    def load(self, shared: Path) -> None:
        """Nothing."""


def _refuse_silence(said: str, door: doors.Door, asked: Given) -> None:
    """Refuse a refusal that nobody can make use of."""
    if not said.strip():
        raise Lost("the refusal says nothing")
    if len(said) > LONGEST:
        raise Lost(f"the refusal has {len(said)} characters: {said[:200]}")
    names = {*asked.values, *door.options, *door.words}
    names |= {n.removesuffix("s") for n in names}
    if not any(re.search(rf"(?<![A-Za-z]){re.escape(n)}(?![A-Za-z])", said) for n in names if n):
        raise Lost(f"the refusal names nothing: {said}")


ATTACKS = [OddArrays(), OddTraining()]
