"""Bounds from the residuals of calibration samples: how many scales to each side.

With one query for each sample it is the k-th smallest of n residuals, k = ⌈(n + 1) level⌉, and the
guarantee is that of conformal prediction: the truth lies within with a probability of at least
`level` and at most 1 / (n + 1) more.

With many queries, a bound x holds for a share F_i(x) of sample i. Were a new sample's share known,
there would be n + 1 exchangeable ones, and the bound would be where their mean is `level`. To take
it for 0 is safe whatever the residuals are, and covers nearly 92 % where 90 are asked for and n is
50. Here it is taken for what F_i(x) is on average in samples that change at x, those with
residuals just there: by so much does leaving one of them out move the mean. It is 0 where each
sample lies on one side of x, and then this is the k-th smallest again, with its guarantee; it is
what all samples have where points are independent. In between, coverage is `level` to first order
in 1 / n; in simulations of smooth and rough fields it stays within half of 1 / (n + 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.data.dataset import check_finite
from ipot.errors import DataError

LEVELS = 1000
"""Steps of the levels that bounds are kept for; a level between two takes the higher."""
NEARBY = 1.5
"""Residuals just at a bound: those of so many samples to each side, counted by their shares."""
COUNTED = 2_000_000
"""Residuals of one time and channel that bounds are read off; of more, queries are taken evenly."""
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Bounds:
    """How many scales to each side, by level."""

    levels: Float[Tensor, " L"]
    """Rising to n / (n + 1), the highest that n samples can vouch for."""
    quantiles: Float[Tensor, "L T K"]
    maxima: Float[Tensor, " n"]
    """The largest scaled residual of every sample, sorted."""
    scale: Float[Tensor, "T M K"]
    """With M 1 where it is the same at all queries."""

    def half_width(self, level: float, simultaneous: bool) -> Tensor:
        """Half of the way from the lower to the upper bound (T, M, K)."""
        if simultaneous:
            rank = math.ceil((len(self.maxima) + 1) * level - ROUNDING)
            return self.maxima[max(rank, 1) - 1] * self.scale
        row = int(torch.searchsorted(self.levels, level - ROUNDING))
        quantiles = self.quantiles[min(row, len(self.levels) - 1), : len(self.scale)]
        return quantiles.unsqueeze(1) * self.scale

    def check(self) -> None:
        """Refuse what disagrees, as from a file that was written by something else."""
        levels, times, channels = self.quantiles.shape
        if len(self.levels) != levels or self.scale.shape[::2] != (times, channels):
            raise DataError(
                f"the saved bounds disagree: levels {tuple(self.levels.shape)}, quantiles "
                f"{tuple(self.quantiles.shape)}, scale {tuple(self.scale.shape)}"
            )
        for name, tensor in vars(self).items():
            check_finite(f"the saved {name}", tensor)


def read_off(scores: list[Tensor], scale: Tensor) -> Bounds:
    """Bounds for all levels from the scaled residuals (T, M, K) of each sample."""
    samples, (times, _, channels) = len(scores), scores[0].shape
    highest = samples / (samples + 1)
    levels = torch.arange(1, LEVELS, dtype=torch.float64) / LEVELS
    levels = torch.cat([levels[levels < highest - ROUNDING], levels.new_tensor([highest])])
    thinned = [s[:, :: max(1, -(-s.shape[1] * samples // COUNTED))] for s in scores]
    quantiles = torch.empty(len(levels), times, channels)
    for t in range(times):
        for k in range(channels):
            quantiles[:, t, k] = _narrowed(_quantiles([s[t, :, k] for s in thinned], levels))
    maxima = torch.stack([s.max() for s in scores]).sort().values
    return Bounds(levels, quantiles, _narrowed(maxima), scale.float())


def _narrowed(scores: Tensor) -> Tensor:
    """In float32, where one that is too large is the largest there is: where all other samples have
    no residual at all, the scale is next to nothing."""
    return scores.clamp_max(torch.finfo(torch.float32).max).float()


def _quantiles(scores: list[Tensor], levels: Tensor) -> Tensor:
    """The residual that bounds at each level; the module says how."""
    values, below, share = _ranked(scores)
    values, order = values.sort()
    below, share = below[order], share[order]
    # The sum of all F_i as x passes one residual after another, and that of their shares below.
    total, moment = share.cumsum(0), (share * below).cumsum(0)
    start = torch.searchsorted(total, total - NEARBY)
    end = torch.searchsorted(total, total + NEARBY).clamp_max(len(total) - 1)
    zero = total.new_zeros(1)
    mass, moment = torch.cat([zero, total]), torch.cat([zero, moment])
    changing = (moment[end + 1] - moment[start]) / (mass[end + 1] - mass[start])
    reached = ((total + changing) / (len(scores) + 1)).cummax(0).values
    place = torch.searchsorted(reached, levels - ROUNDING)
    return values[place.clamp_max(len(values) - 1)]


def _ranked(scores: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """All residuals, the share of its own sample that lies below each, and the share that it is."""
    if len({len(s) for s in scores}) > 1:
        values, below, share = zip(*(_ranked([s]) for s in scores), strict=True)
        return torch.cat(values), torch.cat(below), torch.cat(share)
    values = torch.stack(scores).sort().values
    below = torch.searchsorted(values, values) / values.shape[1]
    share = torch.full_like(values, 1 / values.shape[1])
    return values.flatten(), below.to(values).flatten(), share.flatten()
