"""Arguments of a call that is right, and the changes that make them odd."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from campaign.attacks import _odd_arrays as arrays
from campaign.attacks import _odd_objects as objects

FAMILIES: dict[str, tuple[float, Mapping[str, Any]]] = {
    "kept": (0.2, arrays.KEPT),
    "guise": (0.25, {**arrays.GUISES, **objects.TENSORS}),
    "numbers": (0.25, arrays.NUMBERS),
    "shape": (0.15, arrays.SHAPES),
    "nonsense": (0.1, objects.NONSENSE),
    "anything": (0.05, objects.ANYTHING),
}
"""Kinds of oddities, how often each is drawn, and the oddities by name."""
FAMILY_OF = {name: family for family, (_, found) in FAMILIES.items() for name in found}
LARGE = 1 << 22
"""Numbers of an array beyond which only its ends are looked at."""


@dataclass
class Given:
    """What is given to a door, and what it means."""

    values: dict[str, Any]
    plain: dict[str, Any]
    """Numbers as plain arrays, or lists of such; what is not known is left out."""
    families: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    must_refuse: set[str] = field(default_factory=set)
    """Arguments that hold no numbers at all."""

    @property
    def known(self) -> bool:
        """Whether all that was given has a plain form."""
        return set(self.plain) == set(self.values)

    @property
    def calm(self) -> bool:
        """Whether numbers and shapes are those of the call that is right."""
        return self.known and self.families <= {"kept", "guise"}


def draw_changes(random: Random, arguments: Sequence[str], options: Sequence[str]) -> list[Any]:
    """One to three changes: an argument, an oddity, and a number that decides the rest."""
    changes = []
    for _ in range(random.choice([1, 1, 1, 2, 2, 3])):
        if options and (not arguments or random.random() < 0.15):
            family = random.choice(["anything", "anything", "nonsense"])
            argument = random.choice(options)
        else:
            argument = random.choice(arguments)
            family = random.choices(list(FAMILIES), [w for w, _ in FAMILIES.values()])[0]
        oddity = random.choice(list(FAMILIES[family][1]))
        changes.append([argument, oddity, random.randrange(1000)])
    return changes


def given(
    base: Mapping[str, Any], changes: Sequence[Any], options: Sequence[str], folder: Path
) -> Given:
    """The arguments of a base with the changes made to them, one after another."""
    plain = {name: _copied(value) for name, value in base.items()}
    found = Given(dict(plain), plain)
    for argument, oddity, seed in changes:
        random, family = Random(seed), FAMILY_OF[oddity]
        found.changed.add(argument)
        if argument in options:
            # Options are no arrays, so what they are changed to has no plain form.
            found.values[argument] = FAMILIES[family][1][oddity](np.linspace(0, 1, 4), random)
            found.plain.pop(argument, None)
            found.families.add("option")
            continue
        now = found.plain.get(argument)
        if now is None:
            continue
        dates = isinstance(now, np.ndarray) and now.dtype.kind == "M"
        # Dates in place of which others are given: they are not the same in another guise.
        found.families.add("numbers" if dates and family in ("kept", "guise") else family)
        if isinstance(now, list) and now:
            one = random.randrange(len(now)) if random.random() < 0.5 else None
            pairs = [
                _changed(family, oddity, a, random, folder) if one in (None, i) else (a, a)
                for i, a in enumerate(now)
            ]
            value, meant = [p[0] for p in pairs], [p[1] for p in pairs]
            meant = None if any(m is None for m in meant) else meant
        else:
            value, meant = _changed(family, oddity, now, random, folder)
        found.values[argument] = value
        found.plain[argument] = meant
        if meant is None:
            del found.plain[argument]
        if family == "nonsense":
            found.must_refuse.add(argument)
    return found


def _changed(family: str, oddity: str, a: np.ndarray, random: Random, folder: Path) -> Any:
    """What to give in place of an array, and what it means; None where that is nothing."""
    make = FAMILIES[family][1][oddity]
    if a.dtype.kind == "M" and family in ("kept", "guise", "numbers"):
        value = _other_dates(a, random)
        return value, value
    if family in ("kept", "guise"):
        value, plain = make(np.asarray(a, np.float64), random, folder)
        return value, np.asarray(plain)  # numpy makes numbers of arrays without axes
    if family in ("numbers", "shape"):
        value = np.asarray(make(a, random))
        return value, value
    return make(a, random), None


def _other_dates(a: np.ndarray, random: Random) -> np.ndarray:
    """Dates that are missing, too many, out of order, far away or in other units."""
    a = a.copy()
    match random.choice(["missing", "again", "backwards", "far", "unit", "uneven", "order"]):
        case "missing" if a.size:
            a.reshape(-1)[random.randrange(a.size)] = np.datetime64("NaT")
        case "again" if a.size > 1:
            a.reshape(-1)[0] = a.reshape(-1)[-1]
        case "backwards":
            a = a[::-1] if a.ndim else a
        case "far":
            # In seconds: nanoseconds do not reach so far, and numpy wraps around or refuses.
            days = np.timedelta64(random.choice([-600, -50, 200]) * 365, "D")
            a = a.astype("datetime64[s]") + days
        case "unit":
            a = a.astype(random.choice(["datetime64[s]", "datetime64[us]", "datetime64[Y]"]))
        case "uneven" if a.size:
            a.reshape(-1)[random.randrange(a.size)] += np.timedelta64(random.choice([1, 9000]), "s")
        case "order" if a.ndim:
            a = a[sorted(range(len(a)), key=lambda i: random.random())]
    return a


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(v) for v in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def fingerprint(value: Any) -> Any:
    """Tells whether something was written to; what cannot be looked at has none."""
    if isinstance(value, np.ma.MaskedArray):
        return fingerprint(value.data), fingerprint(np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return value.shape
        few = value if value.size <= LARGE else value[(slice(0, 1),) * value.ndim]
        said = str((value.dtype, value.shape, value.strides, value.flags.writeable))
        return said, hashlib.sha1(few.tobytes()).hexdigest()
    if isinstance(value, torch.Tensor):
        if value.is_nested or value.is_meta or value.layout != torch.strided or value.is_quantized:
            return str(value.layout)
        few = value if value.numel() <= LARGE else value[(slice(0, 1),) * value.ndim]
        kept = (
            few.detach().resolve_neg().resolve_conj().clone(memory_format=torch.contiguous_format)
        )
        raw = kept.reshape(-1).view(torch.uint8).numpy() if kept.numel() else np.zeros(0)
        said = str((value.dtype, value.shape, value.stride(), value.requires_grad))
        return said, hashlib.sha1(raw.tobytes()).hexdigest()
    if type(value) in (list, tuple) and not any(v is value for v in value):
        return tuple(fingerprint(v) for v in value)
    if type(value) is dict:
        return tuple((name, fingerprint(v)) for name, v in value.items())
    return type(value).__name__
