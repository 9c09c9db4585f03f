"""Data sets: samples by number, batches by index.

`Stacked` holds samples of one size as whole tensors, resident on the device; a batch is one gather.
`Ragged` holds samples of any size; a batch is padded. `Packed`, next door, is a ragged data set
that is resident. The trainer and the evaluation know little more of them than `len`, `[i]`, `batch`
and `to`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ipot.errors import DataError
from ipot.samples import Batch, Rows, Sample, collate


@runtime_checkable
class Dataset(Protocol):
    """What a data set offers."""

    stacked: bool
    """Whether all samples have one size."""
    resident: bool
    """Whether a batch is gathered on the device by an index that lies there."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def batch(self, index: Tensor) -> Batch:
        """The samples of an index, side by side."""
        ...

    def to(self, device: torch.device | str) -> Dataset:
        """The data set on a device, where that is worth while."""
        ...

    def astype(self, dtype: torch.dtype) -> Dataset:
        """The data set in another floating-point precision."""
        ...

    def select(self, index: Sequence[int]) -> Dataset:
        """Some of the samples."""
        ...

    def columns(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Values, targets and parameters, piece by piece, for statistics."""
        ...


class Stacked:
    """Samples of one size, held as one large `Batch`."""

    stacked = True
    resident = True

    def __init__(self, data: Batch, *, check: bool = True) -> None:
        if data.targets is None:
            raise DataError("a data set needs targets")
        if data.point_mask is not None or data.query_mask is not None:
            raise DataError("a padded batch cannot be stacked: use Ragged for samples of all sizes")
        if check:
            for name in ("points", "values", "queries", "targets", "parameters", "weights"):
                check_finite(name, getattr(data, name))
        self.data = data
        # Rows made once: the same objects for all samples, so that `collate` sees a shared mesh.
        self._points, self._queries = data.points.unbind(0), data.queries.unbind(0)

    def __len__(self) -> int:
        return self.data.size

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        d = self.data

        def row(rows: Sequence[Tensor] | Tensor) -> Tensor:
            return rows[0 if len(rows) == 1 else index]

        return Sample(
            points=row(self._points),
            values=d.values[index],
            queries=row(self._queries),
            targets=d.truth[index],
            weights=None if d.weights is None else row(d.weights),
            parameters=None if d.parameters is None else d.parameters[index],
            times=d.times,
            grid=d.grid,
            query_grid=d.query_grid,
            index=index % len(self),
        )

    @property
    def one_mesh(self) -> bool:
        """Whether all samples share their points and their queries."""
        return len(self._points) == len(self._queries) == 1

    def batch(self, index: Tensor, rows: Rows | None = None) -> Batch:
        """One gather, in a way of its own if one is given; the index must lie on the data's
        device."""
        return replace(self.data.take(index, rows), index=index)

    def to(self, device: torch.device | str) -> Stacked:
        """All of it on a device."""
        return Stacked(self.data.to(device), check=False)

    def astype(self, dtype: torch.dtype) -> Stacked:
        """All of it in another precision."""
        return Stacked(self.data.astype(dtype), check=False)

    def select(self, index: Sequence[int]) -> Stacked:
        """Some of the samples."""
        rows = torch.as_tensor(list(index), device=self.data.values.device)
        return Stacked(self.data.take(rows), check=False)

    def columns(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """In pieces of a hundred samples, so that float64 copies stay small."""
        d = self.data
        for start in range(0, len(self), 100):
            rows = slice(start, start + 100)
            parameters = None if d.parameters is None else d.parameters[rows]
            yield d.values[rows], d.truth[rows], parameters


class Ragged:
    """Samples of any size."""

    stacked = False
    resident = False

    def __init__(self, samples: Sequence[Sample], *, check: bool = True) -> None:
        self.samples = list(samples)
        if not self.samples:
            raise DataError("a data set needs at least one sample")
        if check:
            for sample in self.samples:
                if sample.targets is None:
                    raise DataError(f"sample {sample.index} has no targets")
                for name in ("points", "values", "queries", "targets", "parameters", "weights"):
                    check_finite(f"{name} of sample {sample.index}", getattr(sample, name))
        # Numbered by their place, whatever they were before: some systems keep something for each.
        self.samples = [
            s if s.index == i else replace(s, index=i) for i, s in enumerate(self.samples)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def batch(self, index: Tensor) -> Batch:
        """Padded to the longest of the batch."""
        return collate([self.samples[i] for i in index.tolist()])

    def to(self, device: torch.device | str) -> Ragged:
        """Itself: ragged batches travel one by one."""
        return self

    def astype(self, dtype: torch.dtype) -> Ragged:
        """All of it in another precision."""
        return Ragged([s.astype(dtype) for s in self.samples], check=False)

    def select(self, index: Sequence[int]) -> Ragged:
        """Some of the samples."""
        return Ragged([self.samples[i] for i in index], check=False)

    def columns(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Sample by sample."""
        for sample in self.samples:
            yield sample.values, sample.truth, sample.parameters

    def sizes(self) -> list[int]:
        """A measure of each sample's cost, to bucket by."""
        return [len(s.points) + s.queries.shape[-2] * len(s.times) for s in self.samples]


def from_samples(samples: Sequence[Sample]) -> Stacked | Ragged:
    """Stacked where all sizes agree, ragged otherwise."""
    shapes = {(s.points.shape, s.values.shape, s.queries.shape, s.times) for s in samples}
    if len(shapes) != 1 or any(s.edges is not None for s in samples):
        return Ragged(samples)
    return Stacked(collate(samples))


def check_finite(name: str, tensor: Tensor | None) -> None:
    """Refuse NaN and infinity, and say where the first of them stands."""
    if tensor is None:
        return
    bad = ~torch.isfinite(tensor)
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise DataError(
            f"{name} holds {int(bad.sum())} values that are not finite (NaN or infinity), the "
            f"first at index {place} of shape {tuple(tensor.shape)}. Remove or mask such points."
        )
