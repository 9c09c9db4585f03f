"""Errors, as they are computed in the literature.

The relative L2 error of a sample takes one norm jointly over times, queries and channels, in
physical units and unweighted; a score is its mean over samples. It is also given for each time and
each channel, and weighted by quadrature if samples carry weights. The root mean square error is in
the units of the field and always weighted where there are weights: it is an integral.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SQUARED = 1e100
"""Numbers up to this size, and down to its inverse, have squares that float64 can add up."""
LARGEST = 1e300
"""A relative error that counts as endless."""


def relative_l2(
    prediction: Float[Tensor, "B T M K"],
    target: Float[Tensor, "B T M K"],
    *,
    mask: Bool[Tensor, "B M"] | None = None,
    weights: Float[Tensor, "B1 M"] | None = None,
    over: tuple[int, ...] = (1, 2, 3),
) -> Tensor:
    """‖prediction - target‖ / ‖target‖ over some axes; by default one number for each sample.

    Where a target is zero throughout, the error is the norm of the prediction itself.
    """
    factor = _factor(mask, weights)
    error = (prediction - target).square()
    norm = target.square()
    if factor is not None:
        error, norm = error * factor, norm * factor
    error, norm = error.sum(over), norm.sum(over)
    # The square root has no derivative at zero: a perfect sample must not give NaN gradients.
    error = (error + torch.finfo(error.dtype).tiny).sqrt()
    return error / torch.where(norm > 0, norm, torch.ones_like(norm)).sqrt()


def relative_l2_of_any_size(
    prediction: Float[Tensor, "B T M K"],
    target: Float[Tensor, "B T M K"],
    *,
    mask: Bool[Tensor, "B M"] | None = None,
    weights: Float[Tensor, "B1 M"] | None = None,
    over: tuple[int, ...] = (1, 2, 3),
) -> Tensor:
    """The relative error for scores, in float64, also where squares would underflow or overflow.

    Where a target is zero throughout, the error is the norm of the prediction itself.
    """
    factor = _factor(mask, weights)
    error, unit = _norm(prediction - target, factor, over)
    norm, own = _norm(target, factor, over)
    zero = norm == 0
    # Larger ones cannot be told from infinity, nor averaged.
    ratio = (error / norm.where(~zero, 1.0)) * (unit / own.where(~zero, 1.0))
    return ratio.clamp(max=LARGEST)


def norm_of_any_size(
    target: Float[Tensor, "B T M K"],
    *,
    mask: Bool[Tensor, "B M"] | None = None,
    weights: Float[Tensor, "B1 M"] | None = None,
    over: tuple[int, ...] = (1, 2, 3),
) -> Tensor:
    """The divisor of a relative error, in float64."""
    norm, unit = _norm(target, _factor(mask, weights), over)
    return (norm * unit).clamp(max=LARGEST)


def _norm(numbers: Tensor, factor: Tensor | None, over: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The norm over some axes, computed in units in which squares do not overflow."""
    if factor is not None:
        numbers = torch.where(factor > 0, numbers, 0.0)  # padding may hold anything
    unit = _unit(numbers.abs().amax(over, keepdim=True))
    squares = (numbers / unit).square()
    squares = squares if factor is None else squares * factor
    found = squares.sum(over).sqrt()
    return found, unit.reshape(found.shape)


def typical_where_zero(sizes: Tensor) -> Tensor:
    """Sizes of targets along the first axis, with the typical one of the others, a root mean
    square, in place of zeros; 1 where all are zero."""
    real = sizes > 0
    largest = sizes.amax(0, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    mean = ((sizes / unit).square().sum(0) / real.sum(0).clamp(min=1)).sqrt() * unit
    return torch.where(real, sizes, torch.where(largest > 0, mean, 1.0))


def unit_of(numbers: Float[Tensor, "B T M K"]) -> Float[Tensor, ""]:
    """The number to divide by before squaring: 1 unless squares would overflow or underflow."""
    return _unit(numbers.abs().max())


def _unit(largest: Tensor) -> Tensor:
    usual = (largest == 0) | ((largest > 1 / SQUARED) & (largest < SQUARED))
    return torch.where(usual, 1.0, largest)


def squared_error(
    prediction: Float[Tensor, "B T M K"],
    target: Float[Tensor, "B T M K"],
    *,
    mask: Bool[Tensor, "B M"] | None = None,
    weights: Float[Tensor, "B1 M"] | None = None,
) -> tuple[Float[Tensor, " T"], Float[Tensor, ""]]:
    """The sum of squared errors at every time, and the weight that it is to be divided by.

    Two sums and not their ratio, so that batches of any size add up to one mean.
    """
    error = (prediction - target).square()
    factor = _factor(mask, weights)
    if factor is None:
        factor = error.new_ones(1, 1, 1, 1)
    count = factor.expand(error.shape[0], 1, error.shape[2], error.shape[3]).sum()
    return (error * factor).sum((0, 2, 3)), count


def _factor(mask: Tensor | None, weights: Tensor | None) -> Tensor | None:
    if mask is None:
        return None if weights is None else weights[:, None, :, None]
    factor = mask.to(torch.float32) if weights is None else weights * mask
    return factor[:, None, :, None]
