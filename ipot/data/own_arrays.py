"""Arrays as people have them, brought to one form: a tensor for each sample, or one for all.

A `Column` is one argument of `Dataset.from_arrays` behind its checks. Every refusal names the
argument, what was expected, what came and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.errors import DataError

AT_ONCE = 1 << 22
"""Numbers that are converted and checked in one go, so that no second copy of all is held."""

NUMPY_KNOWS = (torch.float16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class Column:
    """Rows of an argument, sample by sample.

    `shared` is the one array of all samples, `stacked` the samples of one size with a leading axis,
    `each` those of many sizes; one of the three is there.
    """

    name: str
    shared: Tensor | None = None
    stacked: Tensor | None = None
    each: tuple[Tensor, ...] | None = None

    def of(self, index: int) -> Tensor:
        """The rows of one sample."""
        if self.shared is not None:
            return self.shared
        rows = self.stacked if self.stacked is not None else self.each
        assert rows is not None
        return rows[index]

    @property
    def count(self) -> int | None:
        """Samples; None where all share one."""
        if self.shared is not None:
            return None
        return len(self.stacked if self.stacked is not None else self.each or ())

    @property
    def first(self) -> Tensor:
        """The rows of the first sample."""
        return self.of(0)

    def sizes(self, axis: int) -> list[int]:
        """The length of an axis in every sample."""
        if self.each is not None:
            return [t.shape[axis] for t in self.each]
        return [self.first.shape[axis]] * (self.count or 1)

    def led(self) -> Tensor:
        """With an axis for samples in front, of length one where they share it."""
        if self.shared is not None:
            return self.shared.unsqueeze(0)
        assert self.stacked is not None, "samples of many sizes have no such axis"
        return self.stacked

    def map(self, function: Callable[[Tensor], Tensor]) -> Column:
        """The same function of every sample's rows; it must keep the leading axes as they are."""
        if self.each is not None:
            return Column(self.name, each=tuple(function(t) for t in self.each))
        if self.shared is not None:
            return Column(self.name, shared=function(self.shared))
        assert self.stacked is not None
        return Column(self.name, stacked=function(self.stacked))


def is_listed(given: Any) -> bool:
    """Whether an argument is a list of arrays, one for each sample, and not one array.

    A list of numbers, however deep, is an array.
    """
    if isinstance(given, np.ndarray) and given.dtype == object:
        return given.ndim > 0
    return isinstance(given, list | tuple) and any(len(getattr(a, "shape", ())) for a in given)


def array(name: str, given: Any) -> np.ndarray:
    """One argument as an array of real numbers; nothing is copied that need not be."""
    if given is None:
        raise DataError(f"{name} is None: give an array of numbers")
    refuse_frame(name, given)
    if isinstance(given, Tensor):
        given = _of_torch(name, given)
    if isinstance(given, np.ma.MaskedArray):
        if np.ma.is_masked(given):
            raise DataError(
                f"{name} has masked values: leave those points out, or fill them before"
            )
        given = given.data
    try:
        found = np.asarray(given)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name} is not an array of numbers: {error}") from error
    if found.dtype == object:
        raise DataError(
            f"{name} holds objects instead of numbers. Where samples differ in size give a list "
            "with an array for each."
        )
    if found.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold real numbers, got {found.dtype}")
    return found


def tensor(name: str, given: Any, origin: np.ndarray | None = None) -> Tensor:
    """An array as float32, checked for values that are not finite, less an origin if given."""
    found = array(name, given)
    out = np.empty(found.shape, dtype=np.float32)
    if not found.size:
        return torch.from_numpy(out)
    rows = max(1, AT_ONCE * len(found) // found.size) if found.ndim else 1
    source, target = (found, out) if found.ndim else (found.reshape(1), out.reshape(1))
    for start in range(0, len(source), rows):
        piece = source[start : start + rows]
        if origin is not None:
            piece = piece.astype(np.float64) - origin
        with np.errstate(over="ignore"):
            target[start : start + rows] = piece
        good = np.isfinite(target[start : start + rows])
        if not good.all():
            _refuse_infinite(name, source, start, ~good)
    return torch.from_numpy(out)


def column(name: str, given: Any, ranks: tuple[int, ...], shared_rank: int | None = None) -> Column:
    """An argument as a column.

    `ranks` are the axes that one sample may have, `shared_rank` those of one array for all.
    """
    if is_listed(given):
        if not len(given):
            raise DataError(f"{name} is an empty list: give an array for each sample")
        each = tuple(tensor(f"{name}[{i}]", a) for i, a in enumerate(given))
        for i, t in enumerate(each):
            if t.ndim not in ranks or t.ndim != each[0].ndim:
                raise DataError(
                    f"{name}[{i}] has {t.ndim} axes {tuple(t.shape)}; expected "
                    f"{each[0].ndim if each[0].ndim in ranks else _or(ranks)} as in {name}[0] "
                    f"{tuple(each[0].shape)}"
                )
        if len({t.shape for t in each}) == 1:
            return Column(name, stacked=torch.stack(each))
        return Column(name, each=each)
    found = tensor(name, given)
    if found.ndim and not len(found):
        raise DataError(f"{name} is empty {tuple(found.shape)}: there is nothing to learn from")
    if shared_rank is not None and found.ndim == shared_rank:
        return Column(name, shared=found)
    if found.ndim - 1 not in ranks:
        raise DataError(
            f"{name} has {found.ndim} axes {tuple(found.shape)}; expected samples first and "
            f"{_or(ranks)} behind"
            + ("" if shared_rank is None else f", or {shared_rank} in all where samples share it")
        )
    return Column(name, stacked=found)


def same_count(columns: Sequence[Column]) -> int:
    """How many samples there are; refuses columns that disagree."""
    counts = {c.name: c.count for c in columns if c.count is not None}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise DataError(f"the arguments disagree on the number of samples: {said}")
    if not counts:
        raise DataError("targets must have an axis for the samples in front")
    count = next(iter(counts.values()))
    if not count:
        raise DataError(f"{next(iter(counts))} holds no sample: there is nothing to learn from")
    return count


def refuse_frame(name: str, given: Any) -> None:
    """Refuse tables with named columns, whose names would be passed over."""
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):
        columns = ", ".join(repr(str(c)) for c in list(given.columns)[:3])
        raise DataError(
            f"{name} is a table whose columns have names, and arrays go by order. Say which: "
            f"{name}=table[[{columns}]].to_numpy()"
        )


def _of_torch(name: str, given: Tensor) -> np.ndarray:
    """A tensor of any kind as an array: numpy knows neither bfloat16 nor sparse ones."""
    if given.is_nested:
        raise DataError(f"{name} is a nested tensor: give a list with a tensor for each sample")
    if given.is_meta:
        raise DataError(f"{name} lies on the device 'meta', where tensors hold no numbers")
    if given.is_quantized:
        given = given.dequantize()
    if given.layout != torch.strided:
        given = given.to_dense()
    if given.is_floating_point() and given.dtype not in NUMPY_KNOWS:
        given = given.float()
    return given.detach().cpu().resolve_conj().resolve_neg().numpy()


def _refuse_infinite(name: str, source: np.ndarray, start: int, bad: np.ndarray) -> None:
    first, *rest = (int(i) for i in np.argwhere(bad)[0])
    place = (start + first, *rest)
    value = float(source[place])
    if np.isfinite(value):
        raise DataError(
            f"{name} holds {value:g} at {place}, more than float32 can: choose other units"
        )
    # How many in all: the user decides by it whether to drop points or samples.
    count = sum(
        int((~np.isfinite(source[i : i + AT_ONCE])).sum()) for i in range(0, len(source), AT_ONCE)
    )
    raise DataError(
        f"{name} holds {value} at {place}, {count} of {source.size} values are not finite. Leave "
        "those points or samples out: a list of arrays may have other points in every sample."
    )


def _or(numbers: tuple[int, ...]) -> str:
    return " or ".join(map(str, numbers)) + (" axis" if numbers == (1,) else " axes")
