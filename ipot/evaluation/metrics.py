"""Errors, as the field counts them.

The relative L2 error of a sample takes one norm jointly over times, queries and channels, in
physical units and unweighted; a score is its mean over samples. Beside it stand the same per time,
per channel, and weighted by quadrature where samples carry weights. The root mean square error is
in the units of the field and always weighted where there are weights: it is an integral.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


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
