"""What people give in place of arrays: tensors of every kind, objects, and things that are none."""

from __future__ import annotations

import collections
import decimal
import fractions
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import torch

Maker = Callable[[np.ndarray, Random], Any]
ABSURD = 10**12
"""Rows of an array that has one in memory."""


class Interface:
    """Numbers behind numpy's interface alone."""

    def __init__(self, a: np.ndarray) -> None:
        self.kept = np.ascontiguousarray(a)
        self.__array_interface__ = self.kept.__array_interface__


class Convertible:
    """Numbers behind `__array__` alone, as it was before numpy 2."""

    def __init__(self, a: Any) -> None:
        self.kept = a

    def __array__(self) -> Any:
        return self.kept


class Failing:
    """Whose conversion fails."""

    shape = (3, 2)

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise ZeroDivisionError("broken __array__")


class NoLength:
    """A sequence whose length fails."""

    def __len__(self) -> int:
        raise KeyError("broken __len__")

    def __getitem__(self, index: int) -> Any:
        return 1.0


class NoAttributes:
    """Whose attributes fail."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"broken {name}")


class WrongInterface:
    """Whose interface is of the wrong kind."""

    __array_interface__ = {"shape": "(3, 2)", "typestr": 7, "data": None, "version": 3}  # noqa: RUF012


class NoTruth:
    """That is neither true nor false, and equal to nothing."""

    def __bool__(self) -> bool:
        raise ValueError("broken __bool__")

    def __eq__(self, other: object) -> bool:
        raise ValueError("broken __eq__")

    __hash__ = None  # type: ignore[assignment]


def _back(tensor: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    plain = tensor.detach().resolve_neg()
    plain = plain.dequantize() if plain.is_quantized else plain
    plain = plain.to_dense() if plain.layout != torch.strided else plain
    return tensor, plain.double().numpy()


def _of(dtype: torch.dtype) -> Any:
    return lambda a, random, folder: _back(torch.tensor(a).to(dtype))


def _quantized(a: np.ndarray, random: Random, folder: Path) -> tuple[Any, np.ndarray]:
    whole = torch.tensor(np.clip(np.nan_to_num(a), -10, 10)).float()
    return _back(torch.quantize_per_tensor(whole, 0.1, 0, torch.qint8))


def _negated(a: np.ndarray, random: Random, folder: Path) -> tuple[Any, np.ndarray]:
    found = torch.complex(torch.zeros(a.shape), torch.tensor(a).float()).conj().imag
    return _back(found)


def _other_library(name: str, make: str) -> Any:
    """An object of a library that need not be there."""

    def made(a: np.ndarray, random: Random, folder: Path) -> tuple[Any, np.ndarray]:
        import importlib

        if (make == "DataFrame" and a.ndim != 2) or (make == "Series" and a.ndim != 1):
            return a, a
        return getattr(importlib.import_module(name), make)(a), a

    return made


TENSORS: dict[str, Any] = {
    "tensor float64": _of(torch.float64),
    "tensor float32": _of(torch.float32),
    "tensor float16": _of(torch.float16),
    "tensor bfloat16": _of(torch.bfloat16),
    "tensor float8": _of(torch.float8_e4m3fn),
    "tensor int64": lambda a, random, folder: _back(torch.tensor(np.nan_to_num(a)).mul(50).long()),
    "tensor bool": lambda a, random, folder: _back(torch.tensor(a) > 0),
    "tensor sparse": lambda a, random, folder: _back(torch.tensor(a).to_sparse()),
    "tensor with gradients": lambda a, random, folder: _back(torch.tensor(a).requires_grad_()),
    "parameter": lambda a, random, folder: _back(torch.nn.Parameter(torch.tensor(a))),
    "tensor transposed": lambda a, random, folder: _back(
        torch.tensor(a.T.copy()).permute(tuple(range(a.ndim))[::-1])
    ),
    "tensor quantized": _quantized,
    "tensor negated": _negated,
    "interface": lambda a, random, folder: (Interface(a), a),
    "convertible": lambda a, random, folder: (Convertible(a), a),
    "xarray": _other_library("xarray", "DataArray"),
    "pandas frame": _other_library("pandas", "DataFrame"),
    "pandas series": _other_library("pandas", "Series"),
}
"""Guises of other libraries, which may be refused."""


def _itself(a: np.ndarray, random: Random) -> Any:
    inside: list[Any] = []
    inside.append(inside)
    return inside


def _ragged(a: np.ndarray, random: Random) -> Any:
    rows = a.reshape(len(a), -1).tolist() if a.size and a.ndim else [[1.0]]
    return [*rows, [1.0] * (len(rows[0]) + 1 if rows else 1), 2.0]


def _record(a: np.ndarray, random: Random) -> Any:
    found = np.zeros(a.shape, [("x", "f8"), ("y", "f4")])
    found["x"] = a
    return found


def _masked(a: np.ndarray, random: Random) -> Any:
    return np.ma.MaskedArray(a, mask=np.arange(a.size).reshape(a.shape) % 3 == 0)


def _absurd(a: np.ndarray, random: Random) -> Any:
    row = a[:1] if a.ndim and len(a) else np.zeros((1, 2))
    return np.broadcast_to(row, (ABSURD, *row.shape[1:]))


def _absurd_inside(a: np.ndarray, random: Random) -> Any:
    return np.broadcast_to(np.float64(0.5), (*a.shape[:-1], ABSURD))


def _absurd_tensor(a: np.ndarray, random: Random) -> Any:
    known = a.ndim and len(a) and a.dtype.kind in "fiu"  # torch has no dates
    row = torch.tensor(a[:1]) if known else torch.zeros(1, 2)
    return row.expand(ABSURD, *row.shape[1:])


NONSENSE: dict[str, Maker] = {
    "complex": lambda a, random: np.full(a.shape, 0.5 + 1j),
    "tensor complex": lambda a, random: torch.zeros(a.shape, dtype=torch.complex128),
    "dates": lambda a, random: np.zeros(a.shape, "datetime64[s]"),
    "no dates": lambda a, random: np.full(a.shape, "NaT", "datetime64[ns]"),
    "durations": lambda a, random: np.ones(a.shape, "timedelta64[m]"),
    "text": lambda a, random: a.astype(str),
    "bytes of text": lambda a, random: a.astype(str).astype("S"),
    "void": lambda a, random: np.zeros(a.shape, "V8"),
    "records": _record,
    "objects of text": lambda a, random: np.full(a.shape or (2,), "one", object),
    "objects that are none": lambda a, random: np.full(a.shape or (2,), None, object),
    "masked": _masked,
    "ragged": _ragged,
    "dict": lambda a, random: {"points": a},
    "set": lambda a, random: {1.0, 2.0},
    "word": lambda a, random: random.choice(["abc", "", "0.5", "\x00", "x" * 10_000]),
    "bytes": lambda a, random: b"\x00" * 64,
    "generator": lambda a, random: (row for row in np.atleast_1d(a)),
    "range of nothing": lambda a, random: iter(()),
    "function": lambda a, random: _ragged,
    "kind": lambda a, random: random.choice([np.ndarray, torch.Tensor, dict, Failing]),
    "ellipsis": lambda a, random: ...,
    "slice": lambda a, random: slice(0, 3),
    "itself": _itself,
    "huge integers": lambda a, random: [10**400, 1],
    "not implemented": lambda a, random: NotImplemented,
    "failing": lambda a, random: Failing(),
    "list of failing": lambda a, random: [Failing(), Failing()],
    "no length": lambda a, random: NoLength(),
    "no attributes": lambda a, random: NoAttributes(),
    "no truth": lambda a, random: NoTruth(),
    "wrong interface": lambda a, random: WrongInterface(),
    "converts to text": lambda a, random: Convertible("abc"),
    "converts to none": lambda a, random: Convertible(None),
    "pretends": lambda a, random: mock.MagicMock(),
    "tensor meta": lambda a, random: torch.zeros(a.shape, device="meta"),
    "tensor nested": lambda a, random: torch.nested.nested_tensor(
        [torch.zeros(2, 2), torch.zeros(3, 2)]
    ),
    "tensor sparse with nan": lambda a, random: torch.sparse_coo_tensor(
        torch.zeros(2, 1, dtype=torch.long), torch.tensor([float("nan")]), (2, 2)
    ),
    "absurd rows": _absurd,
    "absurd columns": _absurd_inside,
    "absurd tensor": _absurd_tensor,
    "list of absurd": lambda a, random: [_absurd(a, random)] * 2,
}
"""What holds no real numbers, or more than there is memory for: always to be refused."""

ANYTHING: dict[str, Maker] = {
    "none": lambda a, random: None,
    "left out of a list": lambda a, random: [None, *np.atleast_1d(a)],
    "number": lambda a, random: random.choice([0, 1, -1, 3.5, 10**30, float("nan"), -0.0]),
    "numpy number": lambda a, random: random.choice(
        [np.int8(2), np.uint64(2**63), np.float16(0.5), np.float64("inf"), np.bool_(True)]
    ),
    "tensor number": lambda a, random: torch.tensor(random.choice([0, 1, -1, 0.5, float("nan")])),
    "truth": lambda a, random: random.choice([True, False]),
    "imaginary": lambda a, random: 1j,
    "fraction": lambda a, random: fractions.Fraction(1, 2),
    "decimal": lambda a, random: decimal.Decimal("0.5"),
    "empty list": lambda a, random: random.choice([[], (), [[]], [[], []]]),
    "range": lambda a, random: range(random.choice([0, 1, 3, 100])),
    "list of words": lambda a, random: ["u", "v"],
    "list of truth": lambda a, random: [True, False] * 3,
    "list of rows": lambda a, random: [random.randint(-8, 8) for _ in range(3)],
    "numbers by axis": lambda a, random: {random.choice([0, 1, 5, "x"]): 1.5},
    "words by name": lambda a, random: {random.choice(["target", "value"]): "K"},
    "default dict": lambda a, random: collections.defaultdict(str),
}
"""What may be right for one argument and wrong for another."""
