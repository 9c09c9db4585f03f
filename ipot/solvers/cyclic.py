"""Symmetric positive definite systems on a ring of lines, by nested dissection.

Unknowns stand on lines that close to a ring; a sector couples three lines, its first, its middle
and its last, and neighbours share a line. Eliminating every other line halves their number and
leaves the same kind of ring, until one line is left: log2 of the lines steps, each of them a
batch of small Cholesky factorisations. A dense factor of the whole would take the square of the
lines in memory and their cube in work. Golub and Van Loan, "Matrix Computations" (2013), 4.5.

    B batch   E sectors   L = 2 E lines   n unknowns of a line
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Factor:
    """A factorised ring; `solve` is cheap beside it."""

    levels: list[tuple[Tensor, Tensor]]
    """For every halving: Cholesky factors C of the lines eliminated, and C^-1 of what couples
    them to their two neighbours (.., n, 2 n)."""
    last: Tensor
    """The Cholesky factor of the line that is left."""

    def solve(self, right: Float[Tensor, "B L n"]) -> Float[Tensor, "B L n"]:
        """The solution for a right-hand side, line by line."""
        waiting = []
        for factor, coupling in self.levels:
            middle, ends = _down(factor, right[:, 1::2]), right[:, 0::2]
            waiting.append(middle)
            moved = (coupling.mT @ middle.unsqueeze(-1)).squeeze(-1)
            right = ends - _to_ends(moved, ends.shape[1])
        last = self.last.unsqueeze(1)
        x = _up(last, _down(last, right))
        for (factor, coupling), middle in zip(self.levels[::-1], waiting[::-1], strict=True):
            pairs = torch.cat((x, x.roll(-1, 1)), -1)[:, : middle.shape[1]].unsqueeze(-1)
            x = _woven(x, _up(factor, middle - (coupling @ pairs).squeeze(-1)))
        return x


def factorize(sectors: Float[Tensor, "B E m m"]) -> Factor:
    """Factorise a ring given by the matrices of its sectors, m = 3 n, which are summed where
    they share a line.

    A matrix that is not positive definite gives no error here: asking would make a GPU wait. Its
    solutions are wrong or not finite, which a residual shows.
    """
    n = sectors.shape[-1] // 3
    ends = torch.cat((torch.arange(n), torch.arange(2 * n, 3 * n))).to(sectors.device)
    middle = slice(n, 2 * n)
    outer = sectors[..., ends[:, None], ends]
    level, pairs = _eliminate(
        sectors[..., middle, middle], sectors[..., middle, :][..., ends], outer
    )
    levels = [level]
    while pairs.shape[1] > 1:
        # Sectors 2j and 2j + 1 become one; with an odd number, the last waits for its turn.
        count = pairs.shape[1] // 2
        left, right = pairs[:, 0 : 2 * count : 2], pairs[:, 1 : 2 * count : 2]
        shared = left[..., n:, n:] + right[..., :n, :n]
        towards = torch.cat((left[..., n:, :n], right[..., :n, n:]), -1)
        outer = torch.zeros_like(left)
        outer[..., :n, :n] = left[..., :n, :n]
        outer[..., n:, n:] = right[..., n:, n:]
        level, merged = _eliminate(shared, towards, outer)
        levels.append(level)
        pairs = torch.cat((merged, pairs[:, 2 * count :]), 1)
    # The two ends of the one sector that is left are the same line.
    closed = pairs[:, 0].unflatten(-1, (2, n)).unflatten(-3, (2, n)).sum((-4, -2))
    return Factor(levels, torch.linalg.cholesky_ex(closed).L)


def _eliminate(
    diagonal: Tensor, towards: Tensor, outer: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Schur complements on the two end lines of sectors, and what `solve` needs of them."""
    factor = torch.linalg.cholesky_ex(diagonal).L
    coupling = torch.linalg.solve_triangular(factor, towards, upper=False)
    return (factor, coupling), outer - coupling.mT @ coupling


# Triangular solves and not `cholesky_solve`, which on a GPU takes the matrices one by one.
def _down(factor: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(factor, right.unsqueeze(-1), upper=False).squeeze(-1)


def _up(factor: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(factor.mT, right.unsqueeze(-1), upper=True).squeeze(-1)


def _to_ends(moved: Tensor, count: int) -> Tensor:
    """Parts (B, middles, 2 n) for the first and the last line of sectors, summed at the lines."""
    first, last = torch.nn.functional.pad(moved, (0, 0, 0, count - moved.shape[1])).chunk(2, -1)
    return first + last.roll(1, 1)


def _woven(even: Tensor, odd: Tensor) -> Tensor:
    """Lines 0, 2, 4.. and lines 1, 3, 5.. in their order."""
    out = even.new_empty(even.shape[0], even.shape[1] + odd.shape[1], even.shape[2])
    out[:, 0::2], out[:, 1::2] = even, odd
    return out
