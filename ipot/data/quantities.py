"""Units in which data are declared: what they mean, and exact conversions between them.

A small table of our own: SI with its prefixes, and what files of fluids and of weather say besides.
Units that are not in it are compared as text, and never guessed at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ipot.data.scaling import Scaling
from ipot.errors import DataError, shown, warn_user

NONE = ("", "-", "~", "none", "unknown", "n/a", "nondim")
"""What files say where nothing is said."""

_BASES: dict[str, tuple[float, dict[str, int]]] = {
    **{name: (1.0, {name: 1}) for name in ("m", "s", "K", "A", "mol", "cd", "rad")},
    "g": (1e-3, {"kg": 1}),
    "N": (1.0, {"kg": 1, "m": 1, "s": -2}),
    "Pa": (1.0, {"kg": 1, "m": -1, "s": -2}),
    "bar": (1e5, {"kg": 1, "m": -1, "s": -2}),
    "J": (1.0, {"kg": 1, "m": 2, "s": -2}),
    "W": (1.0, {"kg": 1, "m": 2, "s": -3}),
    "Hz": (1.0, {"s": -1}),
    "V": (1.0, {"kg": 1, "m": 2, "s": -3, "A": -1}),
    "C": (1.0, {"A": 1, "s": 1}),
    "L": (1e-3, {"m": 3}),
}
"""Units that take prefixes."""

_PLAIN: dict[str, tuple[float, dict[str, int]]] = {
    "min": (60.0, {"s": 1}),
    "h": (3600.0, {"s": 1}),
    "d": (86400.0, {"s": 1}),
    "deg": (math.pi / 180, {"rad": 1}),
    "atm": (101325.0, _BASES["Pa"][1]),
    "ft": (0.3048, {"m": 1}),
    "knot": (1852 / 3600, {"m": 1, "s": -1}),
    "%": (0.01, {}),
    "1": (1.0, {}),
    "degC": (1.0, {"K": 1}),  # of differences; alone it is an absolute temperature, see below
    "degF": (5 / 9, {"K": 1}),
}
"""Those that take none."""

_PREFIXES = {
    **dict(zip("TGMkhd", (1e12, 1e9, 1e6, 1e3, 1e2, 1e-1), strict=True)),
    **dict(zip("cmuµn", (1e-2, 1e-3, 1e-6, 1e-6, 1e-9), strict=True)),
}

_ABSOLUTE = {"degC": 273.15, "degF": 459.67 * 5 / 9}
"""What lies between the zero of a temperature and the absolute zero."""

_WORDS = {
    **dict.fromkeys(("kelvin", "kelvins", "degk", "deg_k", "degrees_k"), "K"),
    **dict.fromkeys(("celsius", "degree_celsius", "degrees_celsius", "degreec"), "degC"),
    **dict.fromkeys(("degc", "deg_c", "degrees_c", "degree_c", "°c", "℃"), "degC"),
    **dict.fromkeys(
        ("deg c", "degree c", "degrees c", "degree celsius", "degrees celsius"), "degC"
    ),
    **dict.fromkeys(("fahrenheit", "degree_fahrenheit", "degrees_fahrenheit", "degf"), "degF"),
    **dict.fromkeys(("deg_f", "°f"), "degF"),
    **dict.fromkeys(("pascal", "pascals"), "Pa"),
    **dict.fromkeys(("hectopascal", "hectopascals", "millibar", "millibars", "mb"), "hPa"),
    **dict.fromkeys(("radian", "radians"), "rad"),
    **dict.fromkeys(("degree", "degrees", "degs", "°"), "deg"),
    **dict.fromkeys(("degrees_north", "degree_north", "degrees_n", "degree_n"), "deg"),
    **dict.fromkeys(("degrees_east", "degree_east", "degrees_e", "degree_e"), "deg"),
    **dict.fromkeys(("meter", "meters", "metre", "metres"), "m"),
    **dict.fromkeys(("kilometer", "kilometers", "kilometre", "kilometres"), "km"),
    **dict.fromkeys(("millimeter", "millimeters", "millimetre", "millimetres"), "mm"),
    **dict.fromkeys(("foot", "feet"), "ft"),
    **dict.fromkeys(("second", "seconds", "sec"), "s"),
    **dict.fromkeys(("minute", "minutes"), "min"),
    **dict.fromkeys(("hour", "hours", "hr"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("knots", "kt", "kts"), "knot"),
    **dict.fromkeys(("percent",), "%"),
    **dict.fromkeys(("fraction", "dimensionless", "(0 - 1)", "0-1", "unitless"), "1"),
}
"""Names by other names, in small letters."""

_RELATED = (
    ("K", "degC"),
    ("Pa", "hPa", "kPa", "MPa"),
    ("deg", "rad"),
    ("m", "km", "mm"),
    ("1", "%"),
)
"""Units that are mistaken for one another."""

_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")

_FACTOR = re.compile(r"([A-Za-zµ°℃%_]+)(?:(?:\*\*|\^)?([+-]?\d{1,2}))?|1")
"""A name and its power. No number but 1 is part of a unit: `1000 hPa` is not known."""

_BETWEEN = re.compile(r"[\s·]+|(?<!\d)\.|\.(?!\d)|(?<!\*)\*(?!\*)")
"""What stands between factors; a dot inside of a number does not."""

_SIZES = (1e-99, 1e99)
"""Between which units lie; others are `Tm99` and its like, and would not be finite."""

_BARE_C = re.compile(r"(?<![\w°])C(?![A-Za-z_])")


@dataclass(frozen=True)
class Unit:
    """A unit as `factor` times those of SI, counted from `offset` in these."""

    dimension: tuple[tuple[str, int], ...]
    factor: float
    offset: float = 0.0


class Change(NamedTuple):
    """Numbers in one unit become `factor` times themselves and `offset` in another."""

    factor: float
    offset: float

    def apply(self, numbers: Any) -> Any:
        """Arrays of any library; whole numbers become others."""
        return numbers * self.factor + self.offset


@lru_cache(maxsize=1024)
def unit(text: str) -> Unit | None:
    """What a unit means; None where it is not known."""
    text = text.strip().translate(_RAISED)
    whole = _WORDS.get(" ".join(text.lower().split()), text)
    if whole == "C":  # nobody has fields of coulombs, and many write degrees Celsius so
        whole = "degC"
    if whole in _ABSOLUTE:
        return Unit((("K", 1),), _PLAIN[whole][0], _ABSOLUTE[whole])
    factor, powers = 1.0, dict[str, int]()
    for i, side in enumerate(whole.split("/")):
        for word in _BETWEEN.split(side.strip()):
            found = _FACTOR.fullmatch(word)
            one = None if found is None else _named(found[1] or "1")
            if found is None or one is None:
                return None
            power = int(found[2] or 1) * (-1 if i else 1)
            try:
                factor *= one[0] ** power
            except OverflowError:
                return None
            for base, count in one[1].items():
                powers[base] = powers.get(base, 0) + power * count
    if not _SIZES[0] < factor < _SIZES[1]:
        return None
    return Unit(tuple(sorted((b, n) for b, n in powers.items() if n)), factor)


def _readings(text: str) -> list[Unit]:
    """All that a unit may mean: C is a coulomb in `C/m2`, and a degree in `C/km`."""
    meant = (unit(text), unit(_BARE_C.sub("degC", text)))
    return [one for one in dict.fromkeys(meant) if one is not None]


def _named(word: str) -> tuple[float, dict[str, int]] | None:
    """One word of a unit, with its prefix."""
    word = _WORDS.get(word.lower(), word)
    if word in _BASES:
        return _BASES[word]
    if word in _PLAIN:
        return _PLAIN[word]
    if len(word) > 1 and word[0] in _PREFIXES and word[1:] in _BASES:
        factor, powers = _BASES[word[1:]]
        return _PREFIXES[word[0]] * factor, powers
    return None


def is_said(text: Any) -> bool:
    """Whether a unit says anything."""
    return isinstance(text, str) and text.strip().lower() not in NONE


def change(given: str, wanted: str) -> Change | None:
    """From one unit to another; None where no conversion is known."""
    pairs = product(_readings(given), _readings(wanted))
    for a, b in (pair for pair in pairs if pair[0].dimension == pair[1].dimension):
        factor = float(f"{a.factor / b.factor:.15g}")  # 0.01 and not 0.010000000000000002
        offset = float(f"{(a.offset - b.offset) / b.factor:.15g}")
        return Change(factor, offset)
    return None


class Agreement:
    """Brings numbers to the units that others are in, and says once what it did.

    agreed = Agreement("surrogate")
    if (found := agreed.change("T", "degC", "K", source="new.vtu")) is not None: ...
    agreed.say()
    """

    def __init__(self, other: str) -> None:
        self.other = other
        self._made: dict[tuple[str, str, str, bool], list[str]] = {}

    def change(self, what: str, given: str, wanted: str, *, source: str) -> Change | None:
        """What makes numbers in one unit those of another; None where nothing is to be done.

        Units that contradict each other are refused; those that are not known are remarked on.
        """
        if not (is_said(given) and is_said(wanted)):
            return None
        if given.lower().split() == wanted.lower().split() and unit(given) == unit(wanted):
            return None
        found = change(given, wanted)
        if found == (1.0, 0.0):
            return None
        if found is None and _contradict(given, wanted):
            raise DataError(
                f"{source}: {what} is in {given}, and in {self.other} in {wanted}: neither can be "
                "converted into the other. Give the same quantity, or mend its unit."
            )
        self._made.setdefault((what, given, wanted, found is not None), []).append(source)
        return found

    def say(self) -> None:
        """Give the lines about what was converted, and about what could not be compared."""
        for (what, given, wanted, known), sources in self._made.items():
            more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
            said = f"{sources[0]}{more}: {what} is "
            if known:
                said += f"converted from {given} to {wanted}, its unit in {self.other}"
            else:
                said += f"in {shown(given)}, and in {self.other} in {shown(wanted)}. "
                said += "These are not compared, and the numbers are taken as they are: check them."
            warn_user(said)
        self._made.clear()


def _contradict(given: str, wanted: str) -> bool:
    """Whether both units are known and of other quantities; rad/s may be called 1/s."""
    pairs = list(product(_readings(given), _readings(wanted)))
    return bool(pairs) and all(_apart(one, other) for one, other in pairs)


def _apart(one: Unit, other: Unit) -> bool:
    bare = [{p for p in u.dimension if p[0] != "rad"} for u in (one, other)]
    return bare[0] != bare[1] or not bare[0]


def turned(array: np.ndarray, found: Change) -> np.ndarray:
    """An array in another unit, by way of float64."""
    return found.apply(np.asarray(array, dtype=np.float64))


def behind(scaling: Scaling | None, changes: Iterable[Change | None]) -> Scaling:
    """The scaling of channels whose numbers, put back by it, are in other units."""
    whole = [one or Change(1.0, 0.0) for one in changes]
    own = scaling or Scaling.none(len(whole))
    return Scaling(
        tuple(c.factor * o + c.offset for c, o in zip(whole, own.offset, strict=True)),
        tuple(c.factor * s for c, s in zip(whole, own.scale, strict=True)),
    )


def looks_like(wanted: str, given: tuple[float, float], seen: tuple[float, float]) -> str | None:
    """The unit that numbers seem to be in: they all lie outside of what was seen in `wanted`, and
    converted from that unit all of them inside."""
    (low, high), (least, most) = given, seen
    slack = 0.1 * (most - least)
    if not is_said(wanted) or not (high < least - slack or low > most + slack):
        return None
    for group in _RELATED:
        named = [u for u in group if unit(u) == unit(wanted)]
        for other in (u for u in group if named and u not in named):
            found = change(other, wanted)
            assert found is not None
            if least - slack <= found.apply(low) and found.apply(high) <= most + slack:
                return other
    return None


def unit_in_name(name: str) -> tuple[str, str]:
    """The name of a column like `T [K]` or `p (hPa)` without its unit, and that unit, if it has
    one that is known."""
    found = re.fullmatch(r"(.*\S)\s*[\[(]([^\[\]()]+)[\])]", name.strip())
    if found is None or unit(found[2]) is None or found[2].strip() in ("1", "d", "h"):
        return name, ""
    return found[1].strip(), found[2].strip()
