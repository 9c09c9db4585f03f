"""What every problem is, and what those on a regular grid share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ipot.data.dataset import Dataset, Stacked
from ipot.data.store import Fields, Report, Store
from ipot.data.views import Mask
from ipot.errors import DataError, RunError, UnknownName, Unsupported, shown
from ipot.memory import free_memory, in_words
from ipot.samples import Batch
from ipot.spec import Spec

SPLITS = ("train", "validation", "test")
MOST = 1 << 20
"""The largest size among the settings of a problem: points a side, steps, frames."""


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """A problem is its settings: a frozen dataclass whose fields are the flags of `--problem.`."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line for `ipot problems`."""
    source: ClassVar[str]
    """Where the data come from, in words."""
    sizes: ClassVar[Mapping[str, int]]
    """How many samples each split has by default."""
    version: ClassVar[int] = 1
    """Part of the recipe: a change of the generator that changes data must raise it."""
    piece: ClassVar[int] = 50
    """Samples solved together and stored as one file."""
    masks: ClassVar[Mapping[str, Mask]] = {}
    """Masks of its own, beside those that any problem has."""
    generated: ClassVar[bool] = True
    """False where data are measured, not computed: then `read` is the only way to them."""
    published: ClassVar[tuple[str, ...]] = ()
    """Names of the published files, as `read` looks for them and `write` writes them."""
    quality: ClassVar[str] = ""
    """The field that records how well each sample converged, where the solver is not direct."""
    views: ClassVar[tuple[str, ...]] = ()
    """Settings that only change how the data are seen: they are stored once for all of these."""
    shown: ClassVar[Mapping[str, Any]] = {}
    """The view that pictures of samples are drawn from."""
    reduced: ClassVar[Mapping[str, Any]] = {}
    """Settings of a small version: seconds on a CPU, for a first look and for tests."""

    files: str | None = None
    """Folder with the published files: data are read from them and not generated."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The facts that a model is sized from."""

    @abstractmethod
    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Solve for some samples; sample i has the same draw in any range and on any device."""

    @abstractmethod
    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Dataset:
        """Fields as samples, inputs and queries each at a resolution of their own."""

    @abstractmethod
    def bytes_each(self, resolution: int | None) -> int:
        """What one sample takes on disk."""

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """The first samples of a split from the published files, in the layout of `generate`.

        Refuses with `DataError` what is missing, truncated or not what it claims to be.
        """
        raise Unsupported(f"{self.name} has no published files to read: leave --problem.files out")

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """Generated splits as files in the published layout, which `read` takes back."""
        raise Unsupported(f"{self.name} has no published layout to write")

    def small(self) -> Problem:
        """The problem at sizes for a first look."""
        return replace(self, **self.reduced)

    def storage(self, resolution: int | None, query_resolution: int | None) -> int | None:
        """The resolution to store fields at, so that both can be seen; None without a choice."""
        if resolution is not None or query_resolution is not None:
            raise Unsupported(f"{self.name} has no grid: it comes at one resolution only")
        return None

    def with_steps(self, steps: int) -> Problem:
        """The problem with another horizon."""
        raise Unsupported(f"{self.name} is steady: it has no steps to take, so leave {steps} out")

    def references(self, data: Dataset, split: str) -> dict[str, Tensor]:
        """Forecasts (S, T, M, K) by name, in the terms of the targets, to hold a model against.

        `data` are samples of the split from its first one on, perhaps with inputs left out. Here:
        persistence, where past frames of the outputs are among the inputs and seen at all queries.
        """
        history, outputs = self.spec.history, len(self.spec.outputs)
        if not history or not isinstance(data, Stacked) or not same_points(data):
            return {}
        last = data.data.values[..., (history - 1) * outputs : history * outputs]
        return {"persistence": last.unsqueeze(1).expand(-1, len(data.data.times), -1, -1)}

    def recipe(self, split: str, seed: int, resolution: int | None) -> dict[str, Any]:
        """All that the stored arrays depend on; what is merely seen of them is no part of it."""
        settings = asdict(self)
        for seen in ("resolution", "files", *self.views):
            settings.pop(seen, None)
        return {
            "problem": self.name,
            "version": self.version,
            "settings": settings,
            "split": split,
            "seed": seed,
            "resolution": resolution,
        }

    def refuse_beyond_memory(self, split: str, count: int, **view: Any) -> None:
        """Refuse samples that do not fit into memory, before any is generated."""
        if self.files is not None or not self.generated or count < 1:
            return
        asked = {name: view.get(name) for name in ("resolution", "query_resolution")}
        for name, value in asked.items():
            if value is not None and abs(value) > MOST:
                raise RunError(f"{name} is {value}: {MOST} is the most. Choose less.")
        each, free = self.bytes_each(self.storage(**asked)), free_memory()
        if free is not None and count * each > free:
            raise RunError(
                f"{count} samples for {split} (data.{split}) of {self.name} take "
                f"{in_words(count * each)}, {in_words(each)} each, and {in_words(free)} of memory "
                "are free. Choose fewer samples, or a smaller problem.resolution or problem.size."
            )

    def load(
        self,
        split: str,
        count: int,
        *,
        store: Store,
        seed: int = 0,
        device: torch.device | str = "cpu",
        resolution: int | None = None,
        query_resolution: int | None = None,
        report: Report | None = None,
    ) -> Dataset:
        """A split as a data set, generated into the store where it is not there yet."""
        if split not in SPLITS:
            raise UnknownName(f"unknown split {shown(split)}. Known: {', '.join(SPLITS)}")
        if count < 1:
            raise DataError(f"the {split} split needs at least one sample, got {count}")
        stored = self.storage(resolution, query_resolution)
        if self.files is not None or not self.generated:
            fields = self.read(split, count, None if self.files is None else Path(self.files))
        else:
            fields = self.fetch(split, count, stored, store, seed, device, report)
        return self.dataset(fields, resolution, query_resolution)

    def fetch(
        self,
        split: str,
        count: int,
        stored: int | None,
        store: Store,
        seed: int,
        device: torch.device | str,
        report: Report | None = None,
    ) -> Fields:
        """The fields of a split at a resolution, generated where the store lacks them."""
        return store.fetch(
            self.recipe(split, seed, stored),
            count,
            lambda indices: self.generate(
                split, indices, seed=seed, device=torch.device(device), resolution=stored
            ),
            piece=self.piece,
            bytes_each=self.bytes_each(stored),
            report=report,
        )


def same_points(data: Dataset) -> bool:
    """True if every query of every sample is the input point of the same row."""
    if not isinstance(data, Stacked):
        return False
    points, queries = data.data.points, data.data.queries
    return points.shape == queries.shape and torch.equal(points, queries)


@dataclass(frozen=True, kw_only=True)
class GridProblem(Problem):
    """A problem whose fields are solved on one structured grid.

    A resolution is the number of nodes along the first axis; the other axes follow in the
    proportion of `spans`. A coarser resolution is every k-th node of the solver's grid, so that
    all of them show the same function. A periodic grid has nodes i / size and can be thinned by
    any divisor of size; a closed one can be thinned by any divisor of size - 1, which keeps both
    ends.
    """

    periodic: ClassVar[bool] = False
    spans: ClassVar[tuple[int, ...]] = (1, 1)
    """How long the axes are, in cells and relative to each other."""

    size: int
    """Points along the first axis that the equation is solved on."""
    resolution: int
    """Points along the first axis that a model is trained on."""

    @property
    def nodes(self) -> int:
        """Points along the first axis of the solver's grid; other settings may choose them."""
        return self.size

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.spans)

    @property
    def _closed(self) -> int:
        """1 where the grid has two ends, 0 where it wraps around."""
        return 0 if self.periodic else 1

    def shape(self, resolution: int) -> tuple[int, ...]:
        """Nodes along every axis."""
        cells = resolution - self._closed
        return tuple(cells * span // self.spans[0] + self._closed for span in self.spans)

    def resolutions(self) -> list[int]:
        """The thinnings of the solver's grid, from coarse to fine."""
        return [r for r in range(2 + self._closed, self.nodes + 1) if self.thins(self.nodes, r)]

    def thins(self, fine: int, coarse: int) -> bool:
        """True if the coarse grid is every k-th node of the fine one, along every axis."""
        if not 1 < coarse <= fine or (fine - self._closed) % (coarse - self._closed):
            return False
        step = (fine - self._closed) // (coarse - self._closed)
        return all((n - self._closed) % step == 0 for n in self.shape(fine))

    def stride(self, fine: int, coarse: int) -> int:
        """How many nodes of the fine grid lie from one of the coarse grid to the next."""
        if not self.thins(fine, coarse):
            possible = ", ".join(str(r) for r in self.resolutions())
            raise DataError(
                f"a resolution of {coarse} is not a thinning of {fine} points a side. "
                f"Possible for {self.name}: {possible}; or choose another --problem.size."
            )
        return (fine - self._closed) // (coarse - self._closed)

    def storage(self, resolution: int | None, query_resolution: int | None) -> int:
        """The coarsest resolution that shows both inputs and queries."""
        wanted = [self.resolution if resolution is None else resolution]
        wanted.append(wanted[0] if query_resolution is None else query_resolution)
        for coarse in wanted:
            self.stride(self.nodes, coarse)
        enough = (r for r in self.resolutions() if all(self.thins(r, w) for w in wanted))
        return next(enough, self.nodes)

    def coordinates(self, resolution: int) -> Tensor:
        """The nodes of a grid (nodes, dimension), in float64, row by row.

        Here i / size on a periodic grid and cell centres on a closed one; a problem with other
        nodes says where they are.
        """
        step = self.stride(self.nodes, resolution)
        lines = [
            ((torch.arange(n, dtype=torch.float64) + 0.5 * self._closed) / n)[::step]
            for n in self.shape(self.nodes)
        ]
        return torch.cartesian_prod(*lines).reshape(-1, self.rank)

    def grid_of(self, points: Tensor) -> tuple[int, ...] | None:
        """The shape of the grid that some points (N, D) are, row by row, at any resolution."""
        for resolution in self.resolutions():
            shape = self.shape(resolution)
            if torch.Size(shape).numel() != len(points) or points.ndim != 2:
                continue
            mesh = self.coordinates(resolution).to(points)
            if mesh.shape == points.shape and torch.allclose(mesh, points, rtol=0, atol=1e-5):
                return shape
        return None

    def weights(self, resolution: int) -> Tensor | None:
        """The area that every node stands for, with mean one, where that differs."""
        return None

    def thin(self, field: Tensor, resolution: int) -> Tensor:
        """Every k-th node along the last axes."""
        step = self.stride(field.shape[-self.rank], resolution)
        return field[(..., *[slice(None, None, step)] * self.rank)]

    def stack(
        self,
        inputs: Tensor,
        outputs: Tensor,
        resolution: int | None,
        query_resolution: int | None,
        times: tuple[float, ...] = (1.0,),
    ) -> Stacked:
        """Inputs (S, C, *grid) and outputs (S, T, *grid) or (S, T, K, *grid) on shared meshes."""
        coarse = resolution or self.resolution
        fine = query_resolution or coarse
        points = self.coordinates(coarse).float().unsqueeze(0)
        queries = points if fine == coarse else self.coordinates(fine).float().unsqueeze(0)
        weights = self.weights(fine)
        if outputs.ndim == 2 + self.rank:
            outputs = outputs.unsqueeze(2)
        values = self.thin(inputs, coarse).flatten(2).transpose(1, 2)
        targets = self.thin(outputs, fine).flatten(3).transpose(2, 3)
        return Stacked(
            Batch(
                points=points,
                values=values.float().contiguous(),
                queries=queries,
                targets=targets.float().contiguous(),
                weights=None if weights is None else weights.float().unsqueeze(0),
                times=times,
                grid=self.shape(coarse),
                query_grid=self.shape(fine),
            )
        )
