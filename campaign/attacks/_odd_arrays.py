"""Arrays in another guise, with odd numbers, or of an odd shape; see `_odd_objects` for the rest.

Every oddity takes an array of real numbers, a source of chance and a folder. Guises return what to
give and the plain float64 array that means the same; the others return a changed array.
"""

from __future__ import annotations

import array
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

Guise = Callable[[np.ndarray, Random, Path], tuple[Any, np.ndarray]]
Change = Callable[[np.ndarray, Random], np.ndarray]

WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FEW = 50
"""What numbers of size one are multiplied by before they are rounded to whole ones."""


class Subclass(np.ndarray):
    """What a library may hand out in place of an array."""


def _same(make: Callable[[np.ndarray], Any]) -> Guise:
    """A guise that leaves the numbers as they are."""
    return lambda a, random, folder: (make(a), a)


def _cast(dtype: Any) -> Guise:
    def cast(a: np.ndarray, random: Random, folder: Path) -> tuple[Any, np.ndarray]:
        with np.errstate(all="ignore"):
            found = a.astype(dtype)
        return found, found.astype(np.float64)

    return cast


def whole(a: np.ndarray, dtype: str) -> np.ndarray:
    """An array as whole numbers that its dtype and float64 can hold."""
    limits = np.iinfo(dtype)
    few = FEW if np.nan_to_num(np.abs(a)).max(initial=0) <= 2 else 1
    low, high = max(limits.min, -(2**52)), min(limits.max, 2**52)
    with np.errstate(all="ignore"):
        near = np.clip(np.nan_to_num(a * few), low, high)
        return np.asarray(near).round().astype(dtype).reshape(a.shape)


def _whole(dtype: str, order: str = "=") -> Guise:
    def cast(a: np.ndarray, random: Random, folder: Path) -> tuple[Any, np.ndarray]:
        found = whole(a, dtype)
        return found.astype(found.dtype.newbyteorder(order)), found.astype(np.float64)

    return cast


def _reversed(a: np.ndarray) -> np.ndarray:
    back = (slice(None, None, -1),) * a.ndim
    return np.ascontiguousarray(a[back])[back]


def _every_other(a: np.ndarray) -> np.ndarray:
    wide = np.full((*a.shape[:-1], 2 * a.shape[-1]) if a.ndim else (2,), np.nan)
    wide[..., ::2] = a if a.ndim else a[None]
    return wide[..., ::2] if a.ndim else wide[0:1].reshape(())


def _unaligned(a: np.ndarray) -> np.ndarray:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    found = raw[1:].view(np.float64) if a.size else np.zeros(0)
    found = found.reshape(a.shape)
    found[...] = a
    return found


def _read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


def _mapped(a: np.ndarray, random: Random, folder: Path) -> tuple[Any, np.ndarray]:
    if not a.size:
        return a, a
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".npy", delete=False) as file:
        np.save(file, a)
    return np.load(file.name, mmap_mode="r"), a


def _tuples(a: Any) -> Any:
    return tuple(map(_tuples, a)) if isinstance(a, list) else a


KEPT: dict[str, Guise] = {
    "float64": _same(np.copy),
    "fortran": _same(np.asfortranarray),
    "reversed strides": _same(_reversed),
    "every other": _same(_every_other),
    "unaligned": _same(_unaligned),
    "read-only": _same(_read_only),
    "mapped": _mapped,
    "subclass": _same(lambda a: a.copy().view(Subclass)),
    "float32": _cast(np.float32),
    "float16": _cast(np.float16),
    "big-endian float64": _cast(">f8"),
    "big-endian float32": _cast(">f4"),
    **{dtype: _whole(dtype) for dtype in WHOLE},
    "big-endian int32": _whole("int32", ">"),
}
"""Guises that every door for arrays takes."""


def _bools(a: np.ndarray, random: Random, folder: Path) -> tuple[Any, np.ndarray]:
    found = np.asarray(a > (np.median(a) if a.size else 0))
    return found, found.astype(np.float64)


GUISES: dict[str, Guise] = {
    "bool": _bools,
    "longdouble": _same(lambda a: a.astype(np.longdouble)),
    "list": _same(lambda a: a.tolist()),
    "tuples": _same(lambda a: _tuples(a.tolist())),
    "list of arrays": _same(lambda a: list(a) if a.ndim else a),
    "objects": _same(lambda a: a.astype(object)),
    "masked nowhere": _same(lambda a: np.ma.MaskedArray(a.copy(), mask=False)),
    "memoryview": _same(lambda a: memoryview(np.ascontiguousarray(a))),
    "array.array": _same(lambda a: array.array("d", a.ravel()) if a.ndim == 1 else a),
    "list of numpy scalars": _same(lambda a: list(a) if a.ndim == 1 else a.tolist()),
}
"""Guises that may be refused, or else mean the same."""


def _scaled(a: np.ndarray, random: Random) -> np.ndarray:
    with np.errstate(all="ignore"):
        return a * 10.0 ** random.choice([-320, -300, -200, -40, -30, -10, 10, 30, 40, 200, 300])


def _shifted(a: np.ndarray, random: Random) -> np.ndarray:
    spread = float(np.ptp(a)) if a.size else 1.0
    with np.errstate(all="ignore"):
        return a + random.choice([-1, 1]) * (spread or 1.0) * 10.0 ** random.choice(range(3, 19))


def _somewhere(number: float, share: float = 0.0) -> Change:
    def put(a: np.ndarray, random: Random) -> np.ndarray:
        a = a.astype(np.float64)
        if a.size:
            some = {random.randrange(a.size) for _ in range(max(1, int(share * a.size)))}
            a.reshape(-1)[sorted(some)] = number
        return a

    return put


def _beyond(a: np.ndarray, random: Random) -> np.ndarray:
    offset = random.choice([2**54, 2**60, 2**62, -(2**61)])
    return whole(a, "int64") + np.int64(offset)


def _tail(a: np.ndarray, random: Random) -> np.ndarray:
    """Numbers of very different sizes in one array."""
    powers = np.array([random.choice([-300, -20, -3, 0, 3, 20, 300]) for _ in range(a.size)])
    with np.errstate(all="ignore"):
        return a * 10.0 ** powers.reshape(a.shape)


NUMBERS: dict[str, Change] = {
    "scaled": _scaled,
    "shifted": _shifted,
    "nan": _somewhere(np.nan),
    "many nan": _somewhere(np.nan, 0.5),
    "inf": _somewhere(np.inf),
    "-inf": _somewhere(-np.inf),
    "one huge": _somewhere(1e300),
    "one large": _somewhere(3e38),
    "one beyond float32": _somewhere(1e39),
    "denormal": lambda a, random: a * 1e-310,
    "denormal in float32": lambda a, random: a * 1e-41,
    "minus zero": lambda a, random: np.full_like(a, -0.0),
    "all zero": lambda a, random: np.zeros_like(a),
    "all one": lambda a, random: np.ones_like(a),
    "all alike": lambda a, random: np.full_like(a, random.choice([0.1, -7e9, 1e-200, 1e200])),
    "all nan": lambda a, random: np.full_like(a, np.nan),
    "beyond 2^53": _beyond,
    "all sizes": _tail,
    "largest": lambda a, random: np.sign(a) * np.finfo(np.float64).max,
    "negated": lambda a, random: -a,
}
"""Other numbers in an array of the same shape."""


def _axis(a: np.ndarray, random: Random) -> int:
    return random.randrange(a.ndim) if a.ndim else 0


def _cut(size: int) -> Change:
    def cut(a: np.ndarray, random: Random) -> np.ndarray:
        axis = _axis(a, random)
        return a.take(range(min(size, a.shape[axis])), axis=axis) if a.ndim else a

    return cut


def _one_less(a: np.ndarray, random: Random) -> np.ndarray:
    return np.delete(a, -1, axis=_axis(a, random)) if a.size and a.ndim else a


def _one_more(a: np.ndarray, random: Random) -> np.ndarray:
    axis = _axis(a, random)
    return np.concatenate([a, a.take([0], axis=axis)], axis=axis) if a.size and a.ndim else a


def _swapped(a: np.ndarray, random: Random) -> np.ndarray:
    return a.swapaxes(_axis(a, random), _axis(a, random)) if a.ndim else a


def _duplicated(a: np.ndarray, random: Random) -> np.ndarray:
    """Some rows are copies of others."""
    axis = max(0, a.ndim - 2)
    if not a.ndim or not a.shape[axis]:
        return a
    return a.take([random.randrange(a.shape[axis]) for _ in range(a.shape[axis])], axis=axis)


def _collinear(a: np.ndarray, random: Random) -> np.ndarray:
    a = a.copy()
    if a.ndim and a.shape[-1] > 1 and a.dtype.kind != "M":
        a[..., 1:] = a[..., :1] * random.choice([0, 1, -3])
    return a


SHAPES: dict[str, Change] = {
    "empty": _cut(0),
    "one of": _cut(1),
    "two of": _cut(2),
    "one less": _one_less,
    "one more": _one_more,
    "no axis": lambda a, random: a.reshape(-1)[0] if a.size else a.reshape(-1),
    "an axis more": lambda a, random: np.expand_dims(a, random.randint(0, a.ndim)),
    "an axis less": lambda a, random: a[0] if a.ndim and len(a) else a,
    "flat": lambda a, random: a.reshape(-1),
    "swapped": _swapped,
    "twice": lambda a, random: np.concatenate([a, a]) if a.ndim else a,
    "many axes": lambda a, random: a.reshape((1,) * random.choice([20, 32 - a.ndim]) + a.shape),
    "duplicated": _duplicated,
    "collinear": _collinear,
}
"""Other shapes, or places that are no longer in general position."""
