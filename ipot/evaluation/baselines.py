"""Simple predictors to compare a model with, for any data.

The mean field ignores the inputs. The nearest neighbour answers as the training sample whose inputs
are closest. The linear model regresses fields on the principal components of the inputs. None has
settings to choose: held-out parts of the training data choose them. All are scored by the code that
scores models.

Samples on one mesh are compared point by point. Where meshes differ, see
`ipot.evaluation.sample_tables`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.evaluation.evaluate import Scores, chosen, score
from ipot.evaluation.regression import Matrix, choose_ridge, components, regress, regress_table
from ipot.evaluation.sample_tables import Rows, Table, tables
from ipot.samples import Sample
from ipot.seeds import generator
from ipot.spec import Spec

TRIED, ASKED = 300, 32
"""Training samples that choose how differing meshes are compared, and how many of them are
held out at most."""
AT_ONCE = 256
"""Samples that are answered together."""
COEFFICIENTS = 5e7
"""Numbers of a linear model: beyond, it has fewer components."""

Simple = TypeVar("Simple", bound="Baseline")


class Baseline(ABC):
    """A predictor that is fitted to a table of training data."""

    name: str

    def __init__(self, table: Table) -> None:
        self.table = table
        self.learn()

    @classmethod
    def fit(cls: type[Simple], train: Dataset, spec: Spec) -> Simple:
        """Learn from training data."""
        return cls.best(tables(train, spec))

    @classmethod
    def best(cls: type[Simple], found: Sequence[Table]) -> Simple:
        """Fitted to the table with the least error on a held-out fifth, and then to all of it."""
        if len(found) == 1 or len(found[0]) < 3:
            return cls(found[0])
        order = torch.randperm(len(found[0]), generator=generator(0, "frames"))[:TRIED]
        held = max(1, min(ASKED, len(order) // 5))
        asked, kept = order[:held].tolist(), order[held:]
        errors = []
        for table in found:
            simple = cls(table.select(kept))
            errors.append(score(simple.pairs([table.data[i] for i in asked])).relative_l2)
        return cls(found[errors.index(min(errors))])

    @abstractmethod
    def learn(self) -> None:
        """Learn from the table."""

    @abstractmethod
    def answer(self, samples: Sequence[Sample]) -> Iterator[Tensor]:
        """The fields (T, M, K) of some samples, in order."""

    def predict(self, sample: Sample) -> Tensor:
        """The field (T, M, K) of a sample, in the precision of the training targets."""
        (field,) = self.answer([_at_home(sample)])
        return field.to(self.table.dtype)

    def pairs(self, samples: Sequence[Sample] | Dataset) -> Iterator[tuple]:
        """Prediction, targets, no mask, and weights of each sample, as `score` takes them."""
        for start in range(0, len(samples), AT_ONCE):
            stop = min(start + AT_ONCE, len(samples))
            some = [_at_home(samples[i]) for i in range(start, stop)]
            for sample, field in zip(some, self.answer(some), strict=True):
                weights = None if sample.weights is None else sample.weights.unsqueeze(0)
                yield field.unsqueeze(0), sample.truth.unsqueeze(0), None, weights

    def _fields(self, rows: Tensor, samples: Sequence[Sample]) -> Iterator[Tensor]:
        """Rows of targets as fields at the samples' own queries."""
        for row, sample in zip(rows, samples, strict=True):
            yield self.table.frame.field(row.view(self.table.shape), sample)


class MeanField(Baseline):
    """The average of the training targets: a guess without any input."""

    name = "mean field"

    def learn(self) -> None:
        """The mean over samples, in float64."""
        table = self.table
        sums = torch.stack([table.targets(rows).sum(0) for rows in table.blocks()])
        self.mean = sums.sum(0) / len(table)

    def answer(self, samples: Sequence[Sample]) -> Iterator[Tensor]:
        """The mean for all samples, at their queries."""
        return self._fields(self.mean.expand(len(samples), -1), samples)


class NearestNeighbour(Baseline):
    """The targets of the training sample whose inputs are nearest, by Euclidean distance."""

    name = "nearest neighbour"

    def learn(self) -> None:
        """Keep the lengths of the rows."""
        table = self.table
        squares = [table.inputs(rows).square().sum(1) for rows in table.blocks()]
        self.squares = torch.cat(squares)

    def nearest(self, samples: Sequence[Sample]) -> list[int]:
        """The number of the nearest training sample for each sample; the first if there are
        several."""
        table, asked = self.table, self.table.inputs_of(samples)
        products = torch.cat([asked @ table.inputs(rows).T for rows in table.blocks()], 1)
        # Differences of large squares tell the few that may be nearest, and not which of them is.
        few = (self.squares - 2 * products).topk(min(4, len(table)), largest=False).indices
        few = few.sort(1).values
        pairs = zip(few, asked, strict=True)
        exact = torch.stack([(table.inputs(rows) - own).norm(dim=1) for rows, own in pairs])
        return few.gather(1, exact.argmin(1, keepdim=True)).flatten().tolist()

    def answer(self, samples: Sequence[Sample]) -> Iterator[Tensor]:
        """The neighbours' targets, interpolated from their queries to the samples' own."""
        data, frame = self.table.data, self.table.frame
        for row, sample in zip(self.nearest(samples), samples, strict=True):
            yield frame.field_of(data[row], sample)


class LinearComponents(MeanField):
    """Ridge regression of the targets on the principal components of the inputs.

    Linear in fields and parameters alike. How many components and how strong a ridge is chosen by
    five-fold cross-validation on the training samples, by the relative error that models are
    scored with; it may choose none, and is then the mean field.
    """

    name = "linear (PCA)"

    def learn(self) -> None:
        """Components, their number and the ridge, and the coefficients."""
        super().learn()
        table = self.table
        width = len(self.mean)
        inputs = Matrix(len(table), table.width, table.inputs)
        targets = Matrix(len(table), width, lambda rows: table.targets(rows) - self.mean)
        basis = components(inputs, max(50, int(COEFFICIENTS / width)))
        scores = inputs.times(basis)
        self.ridge = choose_ridge(scores, targets, self._norms())
        self.basis = basis[:, : self.ridge.count]
        self.weights = regress(scores, targets, self.ridge)

    def answer(self, samples: Sequence[Sample]) -> Iterator[Tensor]:
        """The mean field plus the regression on the inputs."""
        rows = self.mean + self.table.inputs_of(samples) @ self.basis @ self.weights
        return self._fields(rows, samples)

    def _norms(self) -> Tensor:
        table = self.table
        norms = torch.cat([table.targets(rows).norm(dim=1) for rows in table.blocks()])
        return torch.where(norms > 0, norms, 1.0)


class KernelComponents(Baseline):
    """Kernel regression of the targets on the principal components of the inputs.

    If the inputs are a few parameters, this is the strongest of them.
    """

    name = "kernel (PCA)"

    def learn(self) -> None:
        """Choose length, noise and components, and compute the coefficients."""
        self.regression = regress_table(self.table)

    def answer(self, samples: Sequence[Sample]) -> Iterator[Tensor]:
        """The fields that the kernel regression gives."""
        return self._fields(self.regression(self.table.inputs_of(samples)), samples)


BASELINES: tuple[type[Baseline], ...] = (MeanField, NearestNeighbour, LinearComponents)


def rivals(spec: Spec) -> tuple[type[Baseline], ...]:
    """The simple predictors for some data; if the inputs are parameters alone, a kernel regression
    as well."""
    return BASELINES if spec.inputs or not spec.parameters else (*BASELINES, KernelComponents)


def score_baselines(
    train: Dataset | Sequence[Table],
    test: Dataset,
    spec: Spec,
    channels: Sequence[int] | None = None,
) -> dict[str, Scores]:
    """The scores of all simple predictors, fitted to `train`, on `test`, by name; only of some
    outputs if `channels` are given. `train` may be in tables already."""
    channels = range(len(spec.outputs)) if channels is None else channels
    test = test.to("cpu")
    found = tables(train, spec) if isinstance(train, Dataset) else list(train)
    # Rows can be matched where there are as many of them; a test set may be of another size.
    found = [t for t in found if not isinstance(t.frame, Rows) or _all_fit(t.frame, test)]
    best = {simple.name: simple.best(found) for simple in rivals(spec)}
    return {name: score(chosen(made.pairs(test), channels)) for name, made in best.items()}


def _all_fit(frame: Rows, data: Dataset) -> bool:
    return all(frame.fits(data[i]) for i in range(len(data)))


def _at_home(sample: Sample) -> Sample:
    """The sample on the CPU, where baselines are computed."""
    if sample.values.device.type == "cpu":
        return sample
    there: dict[str, Any] = {
        f.name: value.cpu()
        for f in fields(sample)
        if isinstance(value := getattr(sample, f.name), Tensor)
    }
    return replace(sample, **there)
