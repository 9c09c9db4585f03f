"""Arrays as people have them, brought to one form: a tensor for each sample, or one for all.

A `Column` is one argument of `Dataset.from_arrays` behind its checks. Every refusal names the
argument, what was expected, what came and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipot.data.scaling import (
    Scaling,
    Span,
    power_of_two,
    scaling_of,
    spans,
    warn_outliers,
    warn_vanished,
)
from ipot.errors import DataError
from ipot.memory import SMALL, free_memory, refuse_too_large

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
    scaling: Scaling | None = None
    """The change of units that its channels are held in."""

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
        """Apply a function to every sample's rows; it must keep the leading axes as they are."""
        if self.each is not None:
            return replace(self, each=tuple(function(t) for t in self.each))
        if self.shared is not None:
            return replace(self, shared=function(self.shared))
        assert self.stacked is not None
        return replace(self, stacked=function(self.stacked))


def is_listed(given: Any) -> bool:
    """Whether an argument is a list of arrays, one for each sample, and not one array.

    A list of numbers, however deep, is an array.
    """
    if isinstance(given, np.ndarray) and given.dtype == object:
        return given.ndim > 0
    return isinstance(given, list | tuple) and any(has_axes(a) for a in given)


def array(name: str, given: Any) -> np.ndarray:
    """One argument as an array of real numbers; nothing is copied that need not be, and nothing is
    taken that the memory cannot hold."""
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
    except MemoryError as error:
        raise DataError(f"{name} does not fit into memory: take fewer samples or points") from error
    except Exception as error:  # objects of other libraries raise what they like
        raise DataError(f"{name} is not an array of numbers: {error}") from error
    if found.dtype == object:
        raise DataError(
            f"{name} holds objects instead of numbers. Where samples differ in size give a list "
            "with an array for each."
        )
    if found.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold real numbers, got {found.dtype}")
    # A view may repeat a few numbers without end; only the copy in float32 would be that large.
    refuse_large(name, found.size)
    return found


def tensor(name: str, given: Any, scaling: Scaling | None = None) -> Tensor:
    """An array as float32, checked for values that are not finite, in other units if given."""
    found = array(name, given)
    out = np.empty(found.shape, dtype=np.float32)
    for piece, place in zip(_pieces(found), _pieces(out), strict=True):
        with np.errstate(over="ignore"):
            place[...] = piece if scaling is None else scaling.apply(piece)
        if not np.isfinite(place).all():
            _refuse_infinite(name, found, out)
    return torch.from_numpy(out)


def spans_of(name: str, arrays: Sequence[np.ndarray], channels: int | None) -> list[Span] | None:
    """The smallest and largest number of every channel, where all are finite."""
    found = spans((piece for a in arrays for piece in _pieces(a)), channels)
    if found is not None and not all(math.isfinite(s.low) and math.isfinite(s.high) for s in found):
        for i, one in enumerate(arrays):
            if not all(np.isfinite(piece).all() for piece in _pieces(one)):
                _refuse_infinite(f"{name}[{i}]" if len(arrays) > 1 else name, one)
    return found


def column(name: str, given: Any, ranks: tuple[int, ...], shared_rank: int | None = None) -> Column:
    """An argument as a column.

    `ranks` are the axes that one sample may have, `shared_rank` those of one array for all. Of two
    ranks the smaller lacks an axis for channels.
    """
    if is_listed(given):
        if not len(given):
            raise DataError(f"{name} is an empty list: give an array for each sample")
        arrays = [array(f"{name}[{i}]", a) for i, a in enumerate(given)]
        for i, a in enumerate(arrays):
            if a.ndim not in ranks or a.ndim != arrays[0].ndim:
                raise DataError(
                    f"{name}[{i}] has {a.ndim} axes {a.shape}; expected "
                    f"{arrays[0].ndim if arrays[0].ndim in ranks else _or(ranks)} as in {name}[0] "
                    f"{arrays[0].shape}"
                )
        refuse_large(name, sum(a.size for a in arrays))
        scaling = _scaling(name, arrays, arrays[0].ndim == ranks[0])
        each = tuple(tensor(f"{name}[{i}]", a, scaling) for i, a in enumerate(arrays))
        if name == "targets" and not (scaling and any(scaling.offset)):
            warn_vanished(arrays, each)
        if len({t.shape for t in each}) == 1:
            return Column(name, stacked=torch.stack(each), scaling=scaling)
        return Column(name, each=each, scaling=scaling)
    found = array(name, given)
    if found.ndim and not len(found):
        raise DataError(f"{name} is empty {found.shape}: there is nothing to learn from")
    if shared_rank is not None and found.ndim == shared_rank:
        scaling = _scaling(name, [found], True)
        return Column(name, shared=tensor(name, found, scaling), scaling=scaling)
    if found.ndim - 1 not in ranks:
        raise DataError(
            f"{name} has {found.ndim} axes {found.shape}; expected samples first and "
            f"{_or(ranks)} behind"
            + ("" if shared_rank is None else f", or {shared_rank} in all where samples share it")
        )
    scaling = _scaling(name, [found], found.ndim - 1 == ranks[0])
    stacked = tensor(name, found, scaling)
    if name == "targets" and not (scaling and any(scaling.offset)):
        warn_vanished(found, stacked)
    return Column(name, stacked=stacked, scaling=scaling)


def _scaling(name: str, arrays: Sequence[np.ndarray], flat: bool) -> Scaling | None:
    """The change of units that the channels of an argument need."""
    widths = {a.shape[-1] for a in arrays} if not flat else {1}
    if 0 in widths and name != "weights":
        raise DataError(f"{name} has no channels: its last axis is empty, {arrays[0].shape}")
    if len(widths) > 1:
        for i, a in enumerate(arrays):
            if a.shape[-1] != arrays[0].shape[-1]:
                raise DataError(
                    f"{name}[{i}] has {a.shape[-1]} channels, {name}[0] has {arrays[0].shape[-1]}"
                )
    found = spans_of(name, arrays, None if flat else arrays[0].shape[-1])
    if name == "weights" and found is not None:  # only their ratios count
        scale = power_of_two(float(found[0].largest))
        return None if scale == 1 else Scaling((0.0,), (scale,))
    scaling = scaling_of(name, found)
    warn_outliers(name, arrays, found, scaling)
    return scaling


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
    try:
        if not (hasattr(given, "columns") and hasattr(given, "to_numpy")):
            return
        columns = ", ".join(repr(str(c)) for c in list(given.columns)[:3])
    except Exception as error:  # objects of other libraries raise what they like
        raise DataError(
            f"{name} must be an array of numbers, got a {type(given).__name__}: {error}"
        ) from error
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
    refuse_large(name, math.prod(given.shape))
    try:
        if given.is_quantized:
            given = given.dequantize()
        if given.layout != torch.strided:
            given = given.to_dense()
        if given.is_floating_point() and given.dtype not in NUMPY_KNOWS:
            given = given.float()
        return given.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (RuntimeError, TypeError) as error:  # kinds that have no numbers, or that numpy lacks
        raise DataError(f"{name} is a tensor that cannot be read as numbers: {error}") from error


def _pieces(found: np.ndarray) -> Iterator[np.ndarray]:
    """Views of some rows at a time, so that no second copy of all is ever held."""
    if not found.size:
        return
    if not found.ndim:
        yield found.reshape(1)
        return
    rows = max(1, AT_ONCE * len(found) // found.size)
    for start in range(0, len(found), rows):
        yield found[start : start + rows]


def has_axes(given: Any) -> bool:
    """Whether something in a list is an array with an axis at least."""
    try:
        shape = getattr(given, "shape", ())
    except Exception:  # objects of other libraries raise what they like
        return False
    return isinstance(shape, tuple) and len(shape) > 0


def refuse_large(name: str, size: int) -> None:
    """Refuse more numbers than the memory holds in float32, before any of them is copied."""
    if 4 * size > SMALL:
        refuse_too_large(f"{name} in float32", 4 * size, free_memory())


def _refuse_infinite(name: str, found: np.ndarray, held: np.ndarray | None = None) -> None:
    """Refuse an array by the first of its values that is not finite, or not as it is held."""
    source, start, bad = np.atleast_1d(found), 0, np.zeros(0, bool)
    # What lies after the first piece that is not finite has not been written yet.
    for piece in _pieces(source if held is None else np.atleast_1d(held)):
        bad = ~np.isfinite(piece)
        if bad.any():
            break
        start += len(piece)
    first, *rest = (int(i) for i in np.argwhere(bad)[0])
    place = (start + first, *rest)
    value = source[place].item()
    if math.isfinite(value):
        raise DataError(
            f"{name} holds {value:g} at {place}, more than float32 can: choose other units"
        )
    # How many in all: the user decides by it whether to drop points or samples.
    count = sum(int((~np.isfinite(piece)).sum()) for piece in _pieces(source))
    raise DataError(
        f"{name} holds {value} at {place}, {count} of {source.size} values are not finite. Leave "
        "those points or samples out: a list of arrays may have other points in every sample."
    )


def _or(numbers: tuple[int, ...]) -> str:
    return " or ".join(map(str, numbers)) + (" axis" if numbers == (1,) else " axes")
