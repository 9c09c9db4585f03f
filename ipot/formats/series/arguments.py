"""What labelled arrays may be asked for, in the types that it is used in: one check for each kind.

They go before any file is read, and a refusal names the argument.
"""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np

from ipot.errors import DataError, shown

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}

_SIZES |= {f"{unit}i": 2 ** (10 * i) for i, unit in enumerate("kmgt", start=1)}

_BYTES = re.compile(
    r"\s*((?:\d+\.?\d*|\.\d+)(?:e\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE | re.ASCII
)


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
