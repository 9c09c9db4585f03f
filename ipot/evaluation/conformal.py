"""Bounds around predictions that hold as often as they say, measured on held-out samples.

Split-conformal: on calibration samples, which a model has not been trained on, the residuals are
divided by a scale; how large they may be at some level is read off them, and a prediction is
bounded by that many scales to each side. Nothing is assumed of the residuals but that calibration
samples and new ones come alike (are exchangeable). Points of one sample are no such thing: a field
that is off is off at many of them. So samples are what is counted.

**Bounds at a point** (the default): averaged over samples and queries, the truth lies between them
with the probability `level`, at every time and for every channel.
How they are found, and how exact that is, stands below.

**Bounds of the whole field** (`simultaneous=True`): with the probability `level`, and at most
1 / (n + 1) more, the truth lies between them at every query, time and channel of a sample. They
are the k-th smallest, k = ⌈(n + 1) level⌉, of one number for each of n samples, its largest
scaled residual.

**The scale** is the root mean square of the residuals at each time and channel; where all
calibration samples share their queries, at each query too, so that bounds are wide where the model
is unsure. A calibration sample is measured against the scale of the others, as a new one will be.

How many scales a bound at a point is, from the residuals of calibration samples: with one query
for each sample it is the k-th smallest of n residuals, k = ⌈(n + 1) level⌉, and the
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.data.dataset import check_finite
from ipot.errors import DataError, Unsupported, shown
from ipot.evaluation.interpolation import Scattered, Space, same
from ipot.spec import Spec

FEWEST_LOCAL = 8
"""Calibration samples that a scale for every query takes at least."""
FLOOR = 1e-2
"""A scale is at least this share of the one of its time and channel: some points, as on a boundary,
have no residual at all."""
TINY = torch.tensor(1e-36, dtype=torch.float64)


class Conformal:
    """Bounds fitted to calibration samples by `calibrate`."""

    def __init__(
        self,
        everywhere: Bounds,
        local: Bounds | None = None,
        queries: Tensor | None = None,
        *,
        scaled: bool = False,
    ) -> None:
        self.everywhere, self.local, self.queries, self.scaled = everywhere, local, queries, scaled

    @property
    def samples(self) -> int:
        """The number of calibration samples."""
        return len(self.everywhere.maxima)

    @property
    def highest_level(self) -> float:
        """The highest level that this number of calibration samples supports."""
        return self.samples / (self.samples + 1)

    def interval(
        self,
        prediction: Float[Tensor, "T M K"],
        level: float = 0.9,
        *,
        queries: Tensor | None = None,
        spec: Spec | None = None,
        scale: Tensor | None = None,
        simultaneous: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The lower and the upper bound of a prediction, in its own shape and precision.

        `queries` are where it was asked. At the calibration queries the scale is the one of each
        query; elsewhere it is carried there from them, with `spec` to say what is near, or is the
        same everywhere where neither is given. `scale` (T, M, K) is needed where `calibrate` was
        given scales. A prediction of fewer times than were calibrated is of the first ones.
        """
        self._check_level(level)
        times, channels = prediction.shape[0], prediction.shape[2]
        calibrated = self.everywhere.quantiles.shape[1:]
        if times > calibrated[0] or channels != calibrated[1]:
            raise Unsupported(
                f"the bounds were calibrated for {calibrated[0]} times and {calibrated[1]} "
                f"channels, this prediction has {times} and {channels}"
            )
        bounds = self._bounds(prediction, queries, spec, scale)
        half = bounds.half_width(level, simultaneous)[:times].to(prediction)
        return prediction - half, prediction + half

    def state(self) -> dict[str, Tensor]:
        """The bounds as tensors by name, to be saved beside the weights of a model."""
        found = {f"everywhere.{k}": v for k, v in vars(self.everywhere).items()}
        if self.local is not None and self.queries is not None:
            found |= {f"local.{k}": v for k, v in vars(self.local).items()}
            found["queries"] = self.queries
        found["scaled"] = torch.tensor(float(self.scaled))
        return {name: tensor.detach().cpu().contiguous() for name, tensor in found.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Conformal:
        """The bounds from what `state` returned."""
        try:
            parts = [
                Bounds(*(state[f"{part}.{name}"] for name in Bounds.__dataclass_fields__))
                for part in ("everywhere", "local")
                if part == "everywhere" or f"{part}.scale" in state
            ]
            queries = state["queries"] if len(parts) == 2 else None
            scaled = bool(state["scaled"])
        except KeyError as error:
            raise DataError(
                f"the saved bounds have no {shown(error.args[0])}, only {', '.join(sorted(state))}"
            ) from error
        for part in parts:
            part.check()
        return cls(parts[0], parts[1] if len(parts) == 2 else None, queries, scaled=scaled)

    def _check_level(self, level: float) -> None:
        if not 0 < level < 1:
            raise DataError(f"level must lie between 0 and 1, got {level}: 0.9 is 90 %")
        if level > self.highest_level + ROUNDING:
            needed = math.ceil(level / (1 - level) - ROUNDING)
            raise Unsupported(
                f"bounds at level {level:g} need at least {needed} calibration samples, and there "
                f"are {self.samples}: hold out more, or ask for at most {self.highest_level:.3g}"
            )

    def _bounds(
        self,
        prediction: Tensor,
        queries: Tensor | None,
        spec: Spec | None,
        scale: Tensor | None,
    ) -> Bounds:
        if self.scaled != (scale is not None):
            raise DataError(
                "these bounds were calibrated with scales: give the prediction's own, scale=..."
                if self.scaled
                else "these bounds were calibrated without scales: leave out scale=..."
            )
        everywhere = self.everywhere
        if scale is not None:
            if scale.shape != prediction.shape:
                raise DataError(
                    f"scale must be {tuple(prediction.shape)} as the prediction is, got "
                    f"{tuple(scale.shape)}"
                )
            check_finite("scale", scale)
            floor = everywhere.scale[: len(scale)].to(scale)
            return replace(everywhere, scale=torch.maximum(scale, floor).float())
        if self.local is None or self.queries is None or queries is None:
            return everywhere
        if queries.shape[-2] != prediction.shape[1]:
            raise DataError(
                f"queries {tuple(queries.shape)} do not fit a prediction of "
                f"{prediction.shape[1]} queries {tuple(prediction.shape)}"
            )
        if same(self.queries, queries.to(self.queries)):
            return self.local
        if spec is None or self.queries.ndim != 2 or queries.ndim != 2:
            return everywhere
        times, count, channels = self.local.scale.shape
        columns = self.local.scale.transpose(0, 1).reshape(count, times * channels)
        carried = Scattered(self.queries, Space.of_queries(spec)).at(columns, queries)
        carried = carried.reshape(-1, times, channels).transpose(0, 1).float()
        return replace(self.local, scale=carried)


def calibrate(
    predictions: Tensor | Sequence[Tensor],
    truths: Tensor | Sequence[Tensor],
    scale: Tensor | Sequence[Tensor] | None = None,
    *,
    queries: Tensor | None = None,
) -> Conformal:
    """Bounds from predictions (T, M, K) and truths of held-out samples.

    `queries` are those that all samples share; leave them out where samples have their own.
    `scale` is one positive (T, M, K) for each sample, such as the spread of an ensemble, where
    the bounds shall be in proportion to that.
    """
    residuals = _residuals(predictions, truths)
    if scale is not None:
        scales = _scales(scale, residuals)
        # Where an ensemble agrees to the last digit it is not sure beyond all measure.
        floor = FLOOR * _size([s.square().mean(1, keepdim=True) for s in scales])
        scaled = [r / torch.maximum(s, floor) for r, s in zip(residuals, scales, strict=True)]
        return Conformal(read_off(scaled, floor), scaled=True)
    return _calibrated(residuals, queries)


def _calibrated(residuals: list[Tensor], queries: Tensor | None) -> Conformal:
    squares = [r.square() for r in residuals]
    means = [square.mean(1, keepdim=True) for square in squares]
    everywhere = _size(means)
    found = read_off(_scaled(residuals, everywhere, means, TINY), everywhere)
    if queries is None or len(residuals) < FEWEST_LOCAL:
        return Conformal(found)
    if any(r.shape[1] != queries.shape[-2] for r in residuals):
        raise DataError(
            f"queries {tuple(queries.shape)} are not those of all samples, which have "
            f"{sorted({r.shape[1] for r in residuals})}: leave them out"
        )
    floor = FLOOR * everywhere
    here = torch.maximum(_size(squares), floor)
    local = read_off(_scaled(residuals, here, squares, floor), here)
    return Conformal(found, local, queries.detach().float().cpu())


def _residuals(
    predictions: Tensor | Sequence[Tensor], truths: Tensor | Sequence[Tensor]
) -> list[Tensor]:
    made, true = list(predictions), list(truths)
    if len(made) != len(true) or not made:
        raise DataError(
            f"calibration needs one truth for each prediction, and at least one of them; got "
            f"{len(made)} predictions and {len(true)} truths"
        )
    for i, (p, t) in enumerate(zip(made, true, strict=True)):
        if p.shape != t.shape or p.ndim != 3 or p.shape[::2] != made[0].shape[::2]:
            raise DataError(
                f"predictions and truths must be (T, M, K) with one T and K: sample {i} has "
                f"{tuple(p.shape)} and {tuple(t.shape)}, sample 0 {tuple(made[0].shape)}"
            )
        check_finite(f"prediction {i}", p)
        check_finite(f"truth {i}", t)
    return [(p.double() - t.double()).abs().cpu() for p, t in zip(made, true, strict=True)]


def _scales(given: Tensor | Sequence[Tensor], residuals: list[Tensor]) -> list[Tensor]:
    scales = [s.detach().double().cpu() for s in given]
    if [s.shape for s in scales] != [r.shape for r in residuals]:
        raise DataError("scale must have one tensor for each prediction, of its shape")
    for i, s in enumerate(scales):
        check_finite(f"scale {i}", s)
        if s.min() < 0:
            raise DataError(f"scale {i} has negative values: give a spread, such as a deviation")
    if not any(s.any() for s in scales):
        raise DataError("scale is zero throughout: leave it out, or give a spread")
    return scales


def _size(squares: list[Tensor]) -> Tensor:
    """The root of the mean over samples (T, M or 1, K), never zero."""
    total = torch.zeros_like(squares[0])
    for square in squares:
        total += square
    return torch.maximum((total / len(squares)).sqrt(), TINY)


def _scaled(
    residuals: list[Tensor], scale: Tensor, squares: list[Tensor], floor: Tensor
) -> list[Tensor]:
    """Residuals of every sample, divided by the scale of all other samples.

    `squares` are what each sample adds to the square of the scale.
    """
    samples = len(residuals)
    if samples == 1:
        return [residuals[0] / scale]
    whole = samples * scale.square()
    others = (((whole - square) / (samples - 1)).clamp_min(0).sqrt() for square in squares)
    return [r / torch.maximum(o, floor) for r, o in zip(residuals, others, strict=True)]


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
        """Half the distance from the lower to the upper bound (T, M, K)."""
        if simultaneous:
            rank = math.ceil((len(self.maxima) + 1) * level - ROUNDING)
            return self.maxima[max(rank, 1) - 1] * self.scale
        row = int(torch.searchsorted(self.levels, level - ROUNDING))
        quantiles = self.quantiles[min(row, len(self.levels) - 1), : len(self.scale)]
        return quantiles.unsqueeze(1) * self.scale

    def check(self) -> None:
        """Refuse tensors that do not fit together, such as from a file of another program."""
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
    """In float32, limited to its largest number: if all other samples have no residual, the scale
    is next to zero."""
    return scores.clamp_max(torch.finfo(torch.float32).max).float()


def _quantiles(scores: list[Tensor], levels: Tensor) -> Tensor:
    """The scaled residual that is the bound at each level, as the module describes."""
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
