"""Principal components of a table that need not fit into memory twice, and ridge regression on
them; cross-validation chooses the number of components and the strength of the ridge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ipot.evaluation.interpolation import evenly
from ipot.seeds import generator

LOOKED_AT = 2000
"""Samples that components are found from; of more, so many are taken evenly."""
WORK = 5e9
"""Multiplications of one look at the table: what bounds the components where it is large."""
HELD = 5e7
"""Numbers of a table that are held at once in float64."""
FEWEST, MOST = 200, 1000
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
        """Of all rows with all rows (count, count), which are held for it."""
        whole = self.rows(slice(None))
        return whole @ whole.T

    def transposed_times(self, left: Tensor) -> Tensor:
        """A matrix (count, n), transposed, times all rows: (n, width)."""
        out, start = left.new_zeros(left.shape[1], self.width), 0
        for block in self.blocks(torch.arange(self.count)):
            out += left[start : start + len(block)].T @ block
            start += len(block)
        return out


def components(matrix: Matrix, most: int = MOST) -> Tensor:
    """Orthonormal directions (width, p) in which rows of mean zero spread, the widest first.

    All of them where there are few; otherwise by subspace iteration from a random start that is
    always the same.
    """
    look = evenly(matrix.count, LOOKED_AT)
    room = WORK / (len(look) * max(1, matrix.width))
    most = min(most, int(max(FEWEST, min(MOST, room))))
    span = _span(matrix, look, most)
    seen = torch.cat([block @ span for block in matrix.blocks(look)])
    _, spread, turn = torch.linalg.svd(seen, full_matrices=False)
    kept = int((spread > NOTHING * spread[:1]).sum()) if len(spread) else 0
    return span @ turn[: min(kept, most)].T


def _span(matrix: Matrix, look: Tensor, most: int) -> Tensor:
    """An orthonormal basis (width, n) of where the rows lie, or mostly lie."""
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
    """How many components, and how strong a ridge in units of the variance of the first."""

    count: int
    strength: float


def choose(scores: Tensor, targets: Matrix, norms: Tensor) -> Ridge:
    """What gives the least relative error on held-out samples, each fifth held out in turn.

    `scores` (samples, p) are the components of the inputs; `targets` have mean zero, and `norms`
    (samples) are the lengths that errors are divided by. No component at all, the mean, is one of
    the choices.
    """
    samples, most = scores.shape
    if samples < 3 or most == 0:
        return Ridge(0, 0.0)
    turned, rest = _compressed(targets)
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


def _compressed(targets: Matrix) -> tuple[Tensor, Tensor]:
    """Targets by their own components (samples, q), and the square of what is left of each."""
    everyone = torch.arange(targets.count)
    if targets.count <= MOST and targets.count * targets.width <= HELD:  # the quicker way
        gram = targets.products()
        values, vectors = torch.linalg.eigh(gram)
        turned = vectors[:, -FEWEST:] * values[-FEWEST:].clamp_min(0).sqrt()
        return turned, (gram.diagonal() - turned.square().sum(1)).clamp_min(0)
    turned = targets.times(components(targets, FEWEST))
    whole = torch.cat([block.square().sum(1) for block in targets.blocks(everyone)])
    return turned, (whole - turned.square().sum(1)).clamp_min(0)
