"""Arguments of users, checked where they come in: names, rows, numbers, sizes, paths.

Every refusal names the argument, what was expected, what came and what to do.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ipot.data.arrays import array, has_axes, refuse_large
from ipot.errors import DataError, shown

LARGEST_SEED = 2**63 - 1
MOST_STEPS = 1_000_000
"""Of one prediction."""

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZES |= {f"{unit}i": 2 ** (10 * i) for i, unit in enumerate("kmgt", start=1)}
_BYTES = re.compile(
    r"\s*((?:\d+\.?\d*|\.\d+)(?:e\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE | re.ASCII
)


class NoSuchSample(DataError, IndexError):
    """A sample after the last one; an `IndexError` too, as every sequence of Python raises."""


def text(argument: str, given: Any) -> str:
    """A name that is not empty."""
    if not isinstance(given, str) or not given.strip():
        raise DataError(f"{argument} must be a name in quotation marks, got {shown(given)}")
    return str(given)


def flag(argument: str, given: Any) -> bool:
    """True or False, and not what Python would take for one of them."""
    if not isinstance(given, bool | np.bool_):
        raise DataError(f"{argument} must be True or False, got {shown(given)}")
    return bool(given)


def units_of(units: Any, channels: Sequence[str]) -> tuple[str, ...]:
    """A unit for every channel, or none at all."""
    if units is None:
        return ()
    if not isinstance(units, Mapping):
        name = channels[0] if channels else "u"
        raise DataError(f"units must be a mapping like {{{shown(name)}: 'K'}}, got {shown(units)}")
    for name, unit in units.items():
        if not isinstance(unit, str):
            raise DataError(
                f"units: that of {shown(name)} must be text like 'K' or 'm s-1', got {shown(unit)}"
            )
    found = tuple(units.get(channel, "") for channel in channels)
    return found if any(found) else ()


def refuse_unknown_units(units: Any, channels: Sequence[str]) -> None:
    """Refuse units of what is no channel: a slip of the pen would else leave one without."""
    if unknown := [name for name in units or () if name not in channels]:
        raise DataError(
            f"units: there is no channel {', '.join(map(shown, unknown))}. The channels are "
            f"{', '.join(channels)}; inputs=[...] and outputs=[...] give them names."
        )


def fraction(argument: str, given: Any) -> float:
    """A number between 0 and 1."""
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 < float(given) < 1:
        raise DataError(f"{argument} must lie between 0 and 1, like 0.8, got {shown(given)}")
    return float(given)


def seed_given(given: Any) -> int:
    """A number that randomness starts from."""
    if not is_whole(given) or not 0 <= given <= LARGEST_SEED:
        raise DataError(f"seed must be a whole number from 0 to 2^63 - 1, got {shown(given)}")
    return int(given)


def items(argument: str, given: Any) -> list[Any]:
    """What something that can be gone through holds, one by one."""
    try:
        return list(given)
    except Exception as error:  # tensors without axes, objects of other libraries
        raise DataError(
            f"{argument} must be a list, got a {type(given).__name__}: {error}"
        ) from error


def refuse_many_steps(argument: str, count: int | float) -> None:
    """Refuse more steps than anybody waits for, as of times in other units than the model's."""
    if not count <= MOST_STEPS:
        raise DataError(
            f"{argument}: {count:g} steps of the model, and {MOST_STEPS} at most are taken. Check "
            "that times are in the units of training."
        )


def is_whole(given: Any) -> bool:
    """Whether this is a whole number of Python or numpy, and not True or False."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def is_row(given: Any) -> bool:
    """Whether this counts one sample: a whole number, or a tensor that holds one."""
    if isinstance(given, bool | np.bool_) or has_axes(given):
        return False
    try:
        operator.index(given)
    except Exception:  # tensors and objects of other libraries raise what they like
        return False
    return "bool" not in str(getattr(given, "dtype", ""))


def row(index: Any, count: int) -> int:
    """The number of one sample, from behind where it is negative."""
    if not is_row(index):
        raise DataError(
            f"a sample is taken by a whole number like data[0], several by data[0:10] or "
            f"data.select([...]), got {shown(index)}"
        )
    found = operator.index(index)
    if not -count <= found < count:
        raise NoSuchSample(f"there is no sample {found}: of {count}, the last is {count - 1}")
    return found


def rows(index: Any, count: int) -> list[int]:
    """The numbers of some samples: a slice, whole numbers, or a yes or no for every sample."""
    if isinstance(index, slice):
        try:
            found = list(range(count)[index])
        except (TypeError, ValueError) as error:
            raise DataError(f"samples cannot be taken by {index}: {error}") from error
    else:
        if isinstance(index, str | bytes | Mapping) or not isinstance(index, Iterable):
            raise DataError(f"index must be a list of whole numbers, got {shown(index)}")
        if isinstance(index, Tensor) and index.is_nested:
            raise DataError("index must have one axis, got a nested tensor")
        if isinstance(index, np.ndarray | Tensor):
            if index.ndim != 1:
                raise DataError(f"index must have one axis, got the shape {tuple(index.shape)}")
            # As numbers of Python, which are much larger.
            refuse_large("index", 16 * math.prod(index.shape))
            index = array("index", index).tolist()
        given = items("index", index)
        if given and all(isinstance(g, bool | np.bool_) for g in given):
            if len(given) != count:
                raise DataError(
                    f"index says yes or no for {len(given)} samples, and there are {count}"
                )
            given = np.flatnonzero(given).tolist()
        found = [row(g, count) for g in given]
    if not found:
        raise DataError("no sample is chosen")
    return found


def path_given(argument: str, given: Any) -> Path:
    """A path that is not empty: an empty one is the folder that one happens to be in."""
    if not isinstance(given, str | os.PathLike) or isinstance(os.fspath(given), bytes):
        raise DataError(f"{argument} must be a path in quotation marks, got {shown(given)}")
    if not os.fspath(given):
        raise DataError(f"{argument} is empty: say where")
    return Path(given)


def near(missing: Path) -> str:
    """Names like one that is not there, beside it, as the end of a sentence; nothing where there
    are none."""
    folder = missing.parent
    while not folder.is_dir() and folder != folder.parent:
        missing, folder = folder, folder.parent
    try:
        there = [p.name for p in folder.iterdir() if not p.name.startswith(".")]
    except OSError:
        return ""
    alike = {name.lower(): name for name in sorted(there)}
    found = difflib.get_close_matches(missing.name.lower(), alike, n=3, cutoff=0.6)
    said = ", ".join(str(folder / alike[name]) for name in found)
    return f" Did you mean {said}?" if said else ""


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number, of whatever type says that it is one."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise DataError(
            f"{name} must be a whole number like {name}=7, got {shown(value)} "
            f"({type(value).__name__})"
        ) from None
    if found < least:
        raise DataError(f"{name} must be at least {least}, got {found}")
    return found


def bytes_of(name: str, value: Any) -> int:
    """A number of bytes, also in words like 2GB or 500 MiB."""
    found = None
    if isinstance(value, str) and (read := _BYTES.fullmatch(value)):
        found = float(read[1]) * _SIZES[(read[2] or "").lower()]
    elif not isinstance(value, str | bool):
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = None
    if found is None or not 1 <= found < 2**63:
        raise DataError(f"{name} must be a number of bytes, like 2e9 or '2GB', got {shown(value)}")
    return int(found)


def listed(name: str, value: Any) -> tuple[str, ...]:
    """Names; one alone need not be in a list."""
    if isinstance(value, str):
        return (value,)
    try:
        found = tuple(value)
    except TypeError:
        found = (value,)
    if wrong := [v for v in found if not isinstance(v, str)]:
        raise DataError(f"{name} must be a name or a list of names, got {shown(wrong[0])} in it")
    return tuple(map(str, found))


def refuse_dimensions(time: Any, sample: Any) -> None:
    """Refuse what cannot name dimensions of time and of samples."""
    for name, value in (("time", time), ("sample", sample)):
        if value is not None and not isinstance(value, str):
            raise DataError(f"{name} must be the name of a dimension, got {shown(value)}")
    if time is not None and time == sample:
        raise DataError(
            f"time and sample both say {shown(time)}: give sample={shown(sample)} alone where "
            "every time is a sample of its own, and time= alone where frames follow one another"
        )
