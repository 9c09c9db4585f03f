"""Times as whole steps: what lies between frames, which are missing, what comes after the last.

Times may be those of the standard calendar, of another one (cftime), of a month each, durations,
plain numbers, or none at all. All are counted in steps from the first.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ipot.errors import DataError, shown

OFF = 0.05
"""How far from a whole step a time may lie, as a part of one."""

_DAY = 86400.0

_SHORTEST_MONTH = 28 * _DAY

_PARTS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units that xarray keeps dates and durations in, by how many of them a second has."""


@dataclass(frozen=True)
class Clock:
    """How far apart frames are.

    `kind` is dates, cftime, duration, number or none (frames that are counted and not dated);
    `unit` is seconds, months or plain numbers, and `step` how many of them go from frame to frame.
    """

    kind: str
    unit: str
    step: float
    calendar: str = "standard"

    def count(self, times: np.ndarray, origin: Any) -> np.ndarray:
        """Steps from an origin, in float64: whole numbers where frames lie on the clock."""
        return _offsets(times, origin, self.kind, self.unit) / self.step

    def after(self, last: Any, steps: int) -> Any:
        """The time some steps after another; before it, where they are negative."""
        amount = self.step * steps
        if self.unit == "months":
            if self.kind == "dates":
                last = last.astype(f"M8[{self._unit(last, amount * 31 * _DAY)}]")
            return _months_on(last, round(amount))
        if self.kind == "cftime":
            return last + datetime.timedelta(seconds=amount)
        if self.kind in ("dates", "duration"):
            unit = self._unit(last, amount)
            moved = np.timedelta64(round(amount * _PARTS[unit]), unit)
            return last.astype(f"{last.dtype.kind}8[{unit}]") + moved
        value = last + amount
        return round(value) if self.kind == "none" else float(value)

    def _unit(self, last: Any, amount: float) -> Literal["ns", "us"]:
        """The unit to add in: nanoseconds, which end in the year 2262, or else microseconds."""
        start = float(_seconds(last)[0])
        reached = start, start + amount, amount
        if _fits(reached, "ns"):
            return "ns"
        if _fits(reached, "us"):
            return "us"
        raise DataError(
            f"{amount / self.step:g} steps of {self} after {said(last)} are more than a date can "
            "hold. Check the units of the times."
        )

    def offset(self, steps: int) -> str:
        """So many steps in words, like 6 d, 12 h or 2 months."""
        amount = self.step * steps
        if self.unit == "months":
            return f"{amount:g} month{'' if amount == 1 else 's'}"
        if self.unit == "seconds":
            name, size = self._whole(("d", "h", "min"))
            return f"{amount / size:g} {name}"
        return f"{amount:g}"

    def _whole(self, names: tuple[str, str, str]) -> tuple[str, float]:
        """The largest of days, hours and minutes that a step is a whole number of, or seconds."""
        for name, size in zip(names, (_DAY, 3600.0, 60.0), strict=True):
            if self.step >= size and (self.step / size).is_integer():
                return name, size
        return "s", 1.0

    def __str__(self) -> str:
        if self.unit != "seconds":
            return self.offset(1)
        name, size = self._whole(("days", "hours", "minutes"))
        return f"{self.step / size:g} {name[:-1] if self.step == size > 1 else name}"


def said(time: Any) -> str:
    """A time in words: a date without what is zero in it, a duration in days or hours."""
    if isinstance(time, np.datetime64):
        return str(np.datetime_as_string(time, unit="auto")).replace("T", " ")
    if isinstance(time, np.timedelta64):
        return str(Clock("duration", "seconds", _apart(np.asarray([time]), time * 0)[0]))
    return str(time)


def kind_of(values: np.ndarray, name: str) -> str:
    """What a time axis holds; refused where it is nothing that can be counted."""
    if values.dtype.kind in "mM":
        missing = np.isnat(values)
        if missing.any():
            raise DataError(
                f"{name} has {int(missing.sum())} of {len(values)} times missing (NaT), the first "
                f"at {int(missing.argmax())}. Drop those frames."
            )
        seconds = _seconds(values)[0]
        if len(values) and not _fits((float(seconds.min()), float(seconds.max())), "us"):
            raise DataError(
                f"{name} goes from {said(values.min())} to {said(values.max())}. Times up to "
                "290000 years before and after 1970 are taken: check its units."
            )
        return "dates" if values.dtype.kind == "M" else "duration"
    if values.dtype.kind in "fiu":
        if not np.isfinite(values).all():
            raise DataError(f"{name} holds times that are not finite. Drop those frames.")
        return "number"
    if len(values) and all(hasattr(v, "calendar") for v in values):
        return "cftime"
    raise DataError(
        f"{name} must hold times (dates, cftime or numbers), got {values.dtype}. Decode it first, "
        "with units such as 'hours since 1900-01-01' and xarray.decode_cf."
    )


def find_clock(values: np.ndarray, name: str) -> Clock:
    """The step that sorted times without duplicates have most often, and that all lie on."""
    kind = kind_of(values, name)
    calendar = values[0].calendar if kind == "cftime" else "standard"
    plain = "number" if kind == "number" else "seconds"
    if len(values) < 2:
        return Clock(kind, plain, 1.0 if kind == "number" else _DAY, calendar)
    offsets = _offsets(values, values[0], kind, plain)
    step = _commonest(offsets)
    dated = kind in ("dates", "cftime") and np.diff(offsets).min() >= _SHORTEST_MONTH
    months = _months(values, kind) if dated else np.zeros(0)
    if dated and len(np.unique(months)) == len(months):
        regular = _off(offsets, step).max() <= OFF
        if not regular or _same_day(values, kind):
            monthly = _commonest(months)
            if _off(months - months[0], monthly).max() <= OFF:
                return Clock(kind, "months", monthly, calendar)
    off = _off(offsets, step)
    if off.max() > OFF:
        first = int((off > OFF).argmax())
        raise DataError(
            f"{name} is not regular: most frames are {Clock(kind, plain, step)} apart, but "
            f"{int((off > OFF).sum())} of {len(values)} do not lie on such steps, the first "
            f"{said(values[first])}. Bring the data to regular times first (in xarray, "
            "ds.resample(time='1D').mean() or .nearest())."
        )
    return Clock(kind, plain, step, calendar)


def in_order(values: np.ndarray, name: str) -> np.ndarray:
    """The order of the times; one that comes twice is refused."""
    order = np.argsort(values, kind="stable")
    sorted_ = values[order]
    twice = np.flatnonzero(sorted_[1:] == sorted_[:-1])
    if len(twice):
        raise DataError(
            f"{name} has {said(sorted_[twice[0]])} twice ({len(twice)} duplicates in all). Keep "
            f"one of each, for example with ds.drop_duplicates({shown(name)})."
        )
    return order


def season(values: np.ndarray, kind: str) -> np.ndarray:
    """The time of the year as an angle, 2π in a year, zero at the beginning of 1990."""
    if kind == "dates":
        days = _apart(values, np.datetime64("1990-01-01", "s")) / _DAY
        return 2 * np.pi * np.floor(days) / 365.25
    if kind == "cftime":
        return np.array([2 * np.pi * (v.dayofyr - 1) / _year(v) for v in values])
    raise DataError("the season is known of dates alone; these times are numbers")


def _year(time: Any) -> float:
    lengths = {"360_day": 360.0, "noleap": 365.0, "365_day": 365.0, "all_leap": 366.0}
    return lengths.get(time.calendar, 365.25)


def _offsets(values: np.ndarray, origin: Any, kind: str, unit: str) -> np.ndarray:
    """What lies between an origin and these times, in a clock's unit."""
    if unit == "months":
        return _months(values, kind) - _months(np.asarray([origin]), kind)[0]
    if kind in ("dates", "duration"):
        return _apart(values, origin)
    if kind == "cftime":
        return np.array([(v - origin).total_seconds() for v in values], dtype=np.float64)
    return values.astype(np.float64) - float(origin)


def _seconds(times: Any) -> tuple[Any, Any]:
    """Dates or durations as whole seconds, and the rest of a second. numpy would bring two units to
    the finer one, in which distant dates overflow."""
    unit, step = np.datetime_data(times.dtype)
    if unit not in _PARTS or step != 1:
        times, unit = times.astype(f"{times.dtype.kind}8[s]"), "s"
    parts, count = _PARTS[unit], times.astype(np.int64)
    return count // parts, (count % parts) / parts


def _apart(values: np.ndarray, origin: Any) -> np.ndarray:
    """Seconds from an origin, however far it is."""
    (whole, rest), (start, first) = _seconds(values), _seconds(origin)
    return (whole - start).astype(np.float64) + (rest - first)


def _fits(seconds: tuple[float, ...], unit: str) -> bool:
    """Whether some times can be counted in a unit."""
    return all(abs(s) < 2**63 / _PARTS[unit] - 2 * _SHORTEST_MONTH for s in seconds)


def in_one_unit(times: list[Any]) -> np.ndarray:
    """Dates or durations side by side: in nanoseconds, or microseconds where that is too fine."""
    unit = "ns" if _fits(tuple(float(_seconds(t)[0]) for t in times), "ns") else "us"
    return np.array([t.astype(f"{t.dtype.kind}8[{unit}]") for t in times])


def _months(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "dates":
        return values.astype("datetime64[M]").astype(np.int64).astype(np.float64)
    return np.array([12.0 * v.year + v.month for v in values])


def _same_day(values: np.ndarray, kind: str) -> bool:
    """Whether all times are at one day of the month: then months are meant, however long."""
    if kind == "dates":
        day = values.astype("datetime64[D]")
        of_month = day - day.astype("datetime64[M]").astype(day.dtype)
        (whole, rest), size = _seconds(values), int(_DAY)
        return all(bool((part == part[0]).all()) for part in (of_month, whole % size, rest))
    return len({(v.day, v.hour, v.minute) for v in values}) == 1


def _commonest(offsets: np.ndarray) -> float:
    """The difference that comes most often, the smallest of those that do."""
    gaps = np.diff(offsets)
    rounded = np.round(gaps / gaps.min(), 3)
    found, counts = np.unique(rounded, return_counts=True)
    chosen = gaps[rounded == found[counts.argmax()]]
    # Numbers such as 0.1, 0.2, ... do not subtract exactly; their mean is as near as it gets.
    return float(np.median(chosen)) if np.ptp(chosen) == 0 else float(chosen.mean())


def _off(offsets: np.ndarray, step: float) -> np.ndarray:
    return np.abs(offsets / step - np.rint(offsets / step))


def _months_on(last: Any, months: int) -> Any:
    """The day some months later. The last day of a month becomes the last day of the other."""
    if isinstance(last, np.datetime64):
        day, one = last.astype("datetime64[D]"), np.timedelta64(1, "D")
        month = last.astype("datetime64[M]")
        wanted = month + months
        longest = (wanted + 1).astype("datetime64[D]") - wanted.astype("datetime64[D]") - one
        at_end = (day + one).astype("datetime64[M]") > month
        days = longest if at_end else min(day - month.astype("datetime64[D]"), longest)
        clock = last - day.astype(last.dtype)
        return (wanted.astype("datetime64[D]") + days).astype(last.dtype) + clock
    total = 12 * last.year + last.month - 1 + months
    at_end = (last + datetime.timedelta(days=1)).month != last.month
    for day in range(31 if at_end else last.day, 0, -1):
        try:
            return last.replace(year=total // 12, month=total % 12 + 1, day=day)
        except ValueError:  # a month that is not so long
            continue
    raise AssertionError("every month has a first day")
