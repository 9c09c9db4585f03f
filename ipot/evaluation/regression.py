"""Regression of fields on the principal components of their inputs: ridge regression, or with a
kernel.

Components are those of a table that need not fit into memory twice. Cross-validation on the
training samples chooses how many are taken, and how strong the ridge is.

With a kernel it is the mean of a Gaussian process (Matérn 5/2) whose length and noise are chosen,
beside the number of components, by cross-validation on the training samples; a straight line is one
of the choices, and so is the mean field. Where a few numbers are all that is given, no network is
better without effort. Everything is in dual form: the work is in matrices of samples by samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ipot.evaluation.interpolation import evenly
from ipot.evaluation.sample_tables import Table
from ipot.seeds import generator

LOOKED_AT = 2000
"""Samples that components are found from; of more, so many are taken evenly."""
WORK = 5e9
"""Multiplications of one look at the table: what bounds the components where it is large."""
HELD = 5e7
"""Numbers of a table that are held at once in float64."""
FEWEST, MOST_COMPONENTS = 200, 1000
"""Components that are found in any case, and the most, where there are so many."""
PASSES = 3
FOLDS = 5
RIDGES = (0.0, *(10.0**k for k in range(-9, 2)))
"""Strengths to choose from, in units of the variance of the first component."""
NOTHING = 1e-8
"""A component whose spread is this share of the first one's is rounding."""
TINY = 1e-150


@dataclass(frozen=True, eq=False)
class Matrix:
    """Rows of numbers that are made when asked for, in float64."""

    count: int
    width: int
    rows: Callable[[Tensor | slice], Tensor]

    def blocks(self, index: Tensor) -> Iterator[Tensor]:
        """The rows of an index, some at a time."""
        size = max(1, (1 << 22) // max(1, self.width))
        for start in range(0, len(index), size):
            yield self.rows(index[start : start + size])

    def times(self, right: Tensor) -> Tensor:
        """All rows times a matrix (width, n)."""
        return torch.cat([block @ right for block in self.blocks(torch.arange(self.count))])

    def products(self) -> Tensor:
        """The products of all rows with all rows (count, count), which are held in memory for
        it."""
        whole = self.rows(slice(None))
        return whole @ whole.T

    def transposed_times(self, left: Tensor) -> Tensor:
        """A matrix (count, n), transposed, times all rows: (n, width)."""
        out, start = left.new_zeros(left.shape[1], self.width), 0
        for block in self.blocks(torch.arange(self.count)):
            out += left[start : start + len(block)].T @ block
            start += len(block)
        return out


def components(matrix: Matrix, most: int = MOST_COMPONENTS) -> Tensor:
    """The principal components (width, p) of rows of mean zero, the largest first.

    All of them if there are few; otherwise by subspace iteration from a fixed random start.
    """
    look = evenly(matrix.count, LOOKED_AT)
    room = WORK / (len(look) * max(1, matrix.width))
    most = min(most, int(max(FEWEST, min(MOST_COMPONENTS, room))))
    span = _span(matrix, look, most)
    seen = torch.cat([block @ span for block in matrix.blocks(look)])
    _, spread, turn = torch.linalg.svd(seen, full_matrices=False)
    kept = int((spread > NOTHING * spread[:1]).sum()) if len(spread) else 0
    return span @ turn[: min(kept, most)].T


def _span(matrix: Matrix, look: Tensor, most: int) -> Tensor:
    """An orthonormal basis (width, n) of the space of the rows, or of most of it."""
    if matrix.width <= most:
        return torch.eye(matrix.width, dtype=torch.float64)
    if len(look) <= most:
        return torch.linalg.qr(torch.cat(list(matrix.blocks(look))).T)[0]
    wide = min(most + 20, len(look), matrix.width)
    random = generator(0, "principal components")
    span = torch.randn(matrix.width, wide, generator=random, dtype=torch.float64)
    for _ in range(PASSES):
        onward = torch.zeros_like(span)
        for block in matrix.blocks(look):
            onward += block.T @ (block @ span)
        span = torch.linalg.qr(onward)[0]
    return span


@dataclass(frozen=True)
class Ridge:
    """The number of components, and the ridge in units of the variance of the first."""

    count: int
    strength: float


def choose_ridge(scores: Tensor, targets: Matrix, norms: Tensor) -> Ridge:
    """The ridge with the least relative error on held-out samples, each fifth held out in turn.

    `scores` (samples, p) are the components of the inputs; `targets` have mean zero, and `norms`
    (samples) are the lengths that errors are divided by. No component at all, the mean, is one of
    the choices.
    """
    samples, most = scores.shape
    if samples < 3 or most == 0:
        return Ridge(0, 0.0)
    turned, rest = _compressed_rows(targets)
    order = torch.randperm(samples, generator=generator(0, "folds"))
    counts = sorted({min(2**k, most) for k in range(most.bit_length() + 1)})
    errors = {Ridge(0, 0.0): 0.0} | {Ridge(c, r): 0.0 for c in counts for r in RIDGES}
    for first in range(min(FOLDS, samples)):
        fold = order[first::FOLDS]
        kept = torch.ones(samples, dtype=torch.bool)
        kept[fold] = False
        normal, mean = _Normal(scores[kept]), turned[kept].mean(0)
        cross = normal.centred.T @ (turned[kept] - mean)
        for ridge in errors:
            weights = normal.solve(cross, ridge)
            if weights is None:
                errors[ridge] = float("inf")
                continue
            made = mean + (scores[fold] - normal.middle)[:, : ridge.count] @ weights
            off = (made - turned[fold]).square().sum(1) + rest[fold]
            errors[ridge] += float((off.sqrt() / norms[fold]).sum())
    return min(errors, key=errors.__getitem__)


def regress(scores: Tensor, targets: Matrix, ridge: Ridge) -> Tensor:
    """Coefficients (count, width) of the targets on the leading scores, both of mean zero."""
    normal = _Normal(scores)
    cross = targets.transposed_times(normal.centred[:, : ridge.count])
    weights = normal.solve(cross, ridge)
    return cross.new_zeros(cross.shape) if weights is None else weights


class _Normal:
    """The normal equations of some rows, for any number of their columns and any ridge.

    Columns are first brought to one length, so that directions of hardly any spread keep their
    digits.
    """

    def __init__(self, scores: Tensor) -> None:
        self.middle = scores.mean(0)
        centred = scores - self.middle
        self.lengths = centred.norm(dim=0).clamp_min(TINY)
        self.centred = centred / self.lengths
        self._gram = self.centred.T @ self.centred

    def solve(self, cross: Tensor, ridge: Ridge) -> Tensor | None:
        """Coefficients (count, columns) from `centred` transposed times the targets (all or count,
        columns); None where they are not determined."""
        count, lengths = ridge.count, self.lengths[: ridge.count]
        if ridge.strength == 0 and count >= len(self.centred):
            return None
        square = self._gram[:count, :count].clone()
        square.diagonal().add_(ridge.strength * (self.lengths[:1] / lengths) ** 2)
        # A ridge is steep on narrow directions and must not swamp the digits of the others.
        size = square.diagonal().clamp_min(TINY).rsqrt()
        factor, failed = torch.linalg.cholesky_ex(size[:, None] * square * size)
        if failed:
            return None
        solved = torch.cholesky_solve(size[:, None] * cross[:count], factor)
        return (size / lengths)[:, None] * solved


def _compressed_rows(targets: Matrix) -> tuple[Tensor, Tensor]:
    """Targets by their own components (samples, q), and the square of what is left of each."""
    everyone = torch.arange(targets.count)
    if (
        targets.count <= MOST_COMPONENTS and targets.count * targets.width <= HELD
    ):  # the quicker way
        gram = targets.products()
        values, vectors = torch.linalg.eigh(gram)
        turned = vectors[:, -FEWEST:] * values[-FEWEST:].clamp_min(0).sqrt()
        return turned, (gram.diagonal() - turned.square().sum(1)).clamp_min(0)
    turned = targets.times(components(targets, FEWEST))
    whole = torch.cat([block.square().sum(1) for block in targets.blocks(everyone)])
    return turned, (whole - turned.square().sum(1)).clamp_min(0)


MOST = 2000
"""Samples that are learned from; of more, so many are taken evenly."""
CHOSEN_ON = 400
"""Samples that length, noise and components are chosen on."""
COUNTS = (8, 32, 128)
"""Components that are tried, beside all of them."""
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""In units of the typical distance of two samples."""
NOISES = (1e-10, 1e-8, *(10.0**k for k in range(-6, 1)))
"""Added to the diagonal, in units of its mean."""
CHANCE = 0.97
"""Of the mean field's error: a gain of less is chance."""
ROUNDING = 1e-5
"""Components whose spread is less of the first one's are not told from rounding."""
NEGLIGIBLE = 1e-5
"""Part of the spread of the targets that their own components may leave out."""


@dataclass(frozen=True)
class Choice:
    """How many components of the inputs count, and how: along a straight line (length 0), or as far
    as a length, in units of the coordinates, reaches. `noise` is relative to the diagonal."""

    count: int = 0
    length: float = 0.0
    noise: float = 1.0

    @property
    def is_mean(self) -> bool:
        """True if the prediction is the mean field."""
        return self.count == 0


@dataclass(frozen=True, eq=False)
class Regression:
    """Fields (width) from rows of standardised inputs: mean + features(row @ basis) @ fields."""

    choice: Choice
    error: float
    """The relative error of fields that were held out when it was chosen."""
    basis: Tensor
    """(inputs, p)"""
    known: Tensor
    """Components of the samples learned from (n, p); none where the regression is linear."""
    weights: Tensor
    """(p or n, q)"""
    mean: Tensor
    """(width)"""
    fields: Tensor
    """(q, width)"""

    def coefficients(self, rows: Tensor) -> Tensor:
        """The coefficients of other rows (samples, q)."""
        return features(rows @ self.basis, self.known, self.choice.length) @ self.weights

    def __call__(self, rows: Tensor) -> Tensor:
        """The fields of other rows (samples, width)."""
        return self.mean + self.coefficients(rows) @ self.fields


def features(scores: Tensor, known: Tensor, length: float) -> Tensor:
    """The features: the components themselves, or the kernel with the components of the samples."""
    return matern(scores, known, length) if length > 0 else scores


def matern(left: Tensor, right: Tensor, length: float) -> Tensor:
    """exp(-r) (1 + r + r²/3) for the distances r of rows, in units of a length."""
    r = math.sqrt(5) / length * distances(left, right)
    return (1 + r + r * r / 3) * torch.exp(-r)


def distances(left: Tensor, right: Tensor) -> Tensor:
    """The distances between all rows of both (n, m)."""
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")


def regress_fields(inputs: Matrix, targets: Matrix, scale: Tensor) -> Regression:
    """Fit to rows of inputs and targets; errors count every column of the targets by its `scale`.

    Folds are contiguous: samples of a series that lie next to each other share what they know.
    """
    # As float32 holds them, in which a model will keep them: with little noise the weights of a
    # kernel belong to these very numbers.
    basis = _rounded(components(inputs))
    used = evenly(targets.count, MOST)
    scores = _rounded(torch.cat([block @ basis for block in inputs.blocks(used)]))
    spread = scores.std(0, correction=0)
    # Others are what float32 has left of nothing, and would be made much of where noise is low.
    real = int((spread > ROUNDING * spread[:1]).sum()) if len(spread) else 0
    basis, scores = basis[:, :real], scores[:, :real]
    rows = targets.rows(used)
    mean = rows.mean(0)
    turned, fields, rest = _compressed((rows - mean) * scale)
    norms = (rows * scale).norm(dim=1)
    norms = torch.where(norms > 0, norms, 1.0)
    some = evenly(len(used), CHOSEN_ON)
    choice, error = choose(scores[some], turned[some], rest[some], norms[some])
    known = scores[:, : choice.count]
    weights = turned.new_zeros(0, turned.shape[1])
    if not choice.is_mean:
        weights = _solved(_gram(known, choice), turned, choice.noise)
        if choice.length == 0:
            known, weights = known[:0], known.T @ weights
    return Regression(
        choice,
        error,
        basis[:, : choice.count],
        known,
        weights,
        mean,
        fields / scale,
    )


def regress_table(table: Table) -> Regression:
    """Fit to a table, with every channel counted by its typical size."""
    shape = table.shape
    squares = [table.targets(rows).square().sum(0) for rows in table.blocks()]
    sizes = (torch.stack(squares).sum(0) / len(table)).view(-1, shape[-1]).mean(0).sqrt()
    scale = torch.where(sizes > 0, 1 / torch.where(sizes > 0, sizes, 1.0), 1.0)
    return regress_fields(
        Matrix(len(table), table.width, table.inputs),
        Matrix(len(table), math.prod(shape), table.targets),
        scale.repeat(math.prod(shape[:-1])),
    )


def choose(scores: Tensor, turned: Tensor, rest: Tensor, norms: Tensor) -> tuple[Choice, float]:
    """The choice with the least relative error on held-out samples, and that error.

    `rest` are the squares of what the compressed targets have left out, `norms` the sizes of the
    targets that errors are divided by.
    """

    def error(made: Tensor) -> float:
        off = (made - turned).square().sum(1) + rest
        return float((off.sqrt() / norms).mean())

    plain = error(torch.zeros_like(turned))
    best = Choice(), CHANCE * plain
    samples, most = scores.shape
    if samples < 3 or most == 0:
        return Choice(), plain
    counts = sorted({min(c, most) for c in (*COUNTS, most)})
    for count in counts:
        near = distances(scores[:, :count], scores[:, :count])
        typical = float(near[near > 0].median()) if bool((near > 0).any()) else 1.0
        for length in (0.0, *LENGTHS):
            choice = Choice(count, length * typical)
            whole = _gram(scores[:, :count], choice)
            for noise, made in zip(NOISES, _folds(whole, turned, NOISES), strict=True):
                found = error(made)
                if found < 0.999 * best[1]:  # the simpler one where they are as good
                    best = Choice(count, choice.length, noise), found
    return best[0], plain if best[0].is_mean else best[1]


def _rounded(numbers: Tensor) -> Tensor:
    return numbers.float().double()


def _gram(scores: Tensor, choice: Choice) -> Tensor:
    if choice.length > 0:
        return matern(scores, scores, choice.length)
    return scores @ scores.T


def parts(samples: int) -> list[Tensor]:
    """The rows of each fold, one after the other."""
    return list(torch.arange(samples).tensor_split(min(FOLDS, samples)))


def _folds(whole: Tensor, targets: Tensor, noises: tuple[float, ...]) -> list[Tensor]:
    """For several noises, the prediction for every sample from the other folds."""
    made = [torch.zeros_like(targets) for _ in noises]
    for fold in parts(len(targets)):
        kept = torch.ones(len(targets), dtype=torch.bool)
        kept[fold] = False
        # Counted from the mean of all, as the inputs are: a line through the mean of some would
        # miss that of the others.
        values, vectors = torch.linalg.eigh(whole[kept][:, kept])
        turned = vectors.T @ targets[kept]
        across = whole[fold][:, kept] @ vectors
        size = float(whole.diagonal().mean())
        for out, noise in zip(made, noises, strict=True):
            shrunk = across / (values.clamp_min(0) + noise * size)
            out[fold] = shrunk @ turned
    return made


def _solved(whole: Tensor, targets: Tensor, noise: float) -> Tensor:
    """(whole + noise) alpha = targets, with as much more noise as rounding asks for."""
    size, unit = float(whole.diagonal().mean()), torch.eye(len(whole), dtype=whole.dtype)
    factor, failed = torch.linalg.cholesky_ex(whole + noise * size * unit)
    while failed:
        noise = max(10 * noise, 1e-14)
        factor, failed = torch.linalg.cholesky_ex(whole + noise * size * unit)
    return torch.cholesky_solve(targets, factor)


def _compressed(targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Targets of mean zero by their own components (n, q), these (q, width), and the squares of
    what is left of each target (n)."""
    matrix = Matrix(len(targets), targets.shape[1], lambda rows: targets[rows])
    basis = components(matrix, FEWEST)
    turned = targets @ basis
    spread = turned.square().sum(0)
    total = float(targets.square().sum())
    kept = max(1, int((total - spread.cumsum(0) > NEGLIGIBLE**2 * total).sum()) + 1)
    basis, turned = basis[:, :kept], turned[:, :kept]
    rest = targets.square().sum(1) - turned.square().sum(1)
    return turned, basis.T, rest.clamp_min(0)
