"""Position features: what a coordinate looks like to a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.native import project
from ipot.native.reach import available, readable
from ipot.nn.folded import Known, product_dtype
from ipot.nn.paths import by_the_book
from ipot.spec import Bounds


class FourierFeatures(nn.Module):
    """x itself, then sin(π f x) and cos(π f x) for every dimension.

    The frequencies f are spaced linearly from 1 to half the maximum frequency, `bins` of them, each
    dimension with its own. With `domain` the coordinates are first mapped to [-1, 1]. A periodic
    dimension (which needs the domain) takes the whole frequencies 1, 2, ..., bins and drops x
    itself, so that the features are exactly periodic.

    What a mesh gives that stays the same for a whole training can be kept; see `keep`.
    """

    _known: Known | None = None
    _make: Callable[[Tensor], Known] | None = None
    _version = 0

    def __init__(
        self,
        bins: Sequence[int],
        max_frequency: Sequence[float],
        *,
        domain: Bounds | None = None,
        periods: Sequence[float | None] | None = None,
    ) -> None:
        super().__init__()
        dimension = len(bins)
        if len(max_frequency) != dimension:
            raise ValueError(f"{dimension} numbers of bins, {len(max_frequency)} frequencies")
        periods = periods if domain is not None and periods else (None,) * dimension
        domain = domain or ((-1.0, 1.0),) * dimension
        # A periodic coordinate is mapped by its period, which may be longer than the domain seen.
        high = [a + p if p else b for (a, b), p in zip(domain, periods, strict=True)]
        low = torch.tensor([a for a, _ in domain])
        high = torch.tensor(high)
        self.register_buffer("centre", (low + high) / 2, persistent=False)
        self.register_buffer("radius", (high - low) / 2, persistent=False)

        axes, frequencies = [], []
        for axis, (count, highest) in enumerate(zip(bins, max_frequency, strict=True)):
            last = count if periods[axis] else highest / 2
            axes += [axis] * count
            frequencies.append(torch.linspace(1.0, last, count))
        raw = [axis for axis in range(dimension) if not periods[axis]]
        # One matrix maps the coordinates to all phases: a single small product, easily fused. It
        # is free of π, which would be rounded to float32 and spoil the periods in float64.
        matrix = torch.zeros(dimension, len(axes))
        matrix[axes, torch.arange(len(axes))] = torch.cat(frequencies)
        self.register_buffer("matrix", matrix, persistent=False)
        self.register_buffer("raw", torch.tensor(raw, dtype=torch.long), persistent=False)
        self.width = 2 * len(axes) + len(raw)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... F"]:
        """Features of coordinates; always at least float32, since the phases are large."""
        if x.shape[-1] != len(self.centre):
            raise ValueError(f"coordinates must have {len(self.centre)} axes, got {x.shape[-1]}")
        known = self.known(x)
        if known is not None and known.features is not None:
            return known.features
        formula = x.requires_grad or by_the_book() or torch.compiler.is_compiling()
        if not formula and self.native(x):
            rows = x.reshape(1, -1, x.shape[-1])
            return project.features(rows, self.waves()).view(*x.shape[:-1], self.width)
        x = (x - self.centre) / self.radius
        if x.device.type == "cpu" and not formula:
            return self._in_place(x)
        # Not a matmul: under autocast that would round the phases to bf16.
        phase = (x.unsqueeze(-1) * self.matrix).sum(-2) * math.pi
        return torch.cat([x[..., self.raw], phase.sin(), phase.cos()], dim=-1)

    def native(self, x: Tensor) -> bool:
        """Whether there are compiled kernels for points like these."""
        small = len(self.centre) <= project.MOST_DIMENSIONS
        return small and readable(x, self.centre) and available()

    def waves(self) -> project.Waves:
        """What the compiled kernels make features with."""
        return project.Waves(self.centre, self.radius, self.matrix, self.raw)

    def _in_place(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... F"]:
        """The same to the last bit, each feature written once: what a CPU waits for is memory."""
        first, count = len(self.raw), self.matrix.shape[1]
        out = torch.empty(*x.shape[:-1], self.width, dtype=x.dtype)
        with torch.autocast("cpu", enabled=False):
            # Of each sum only one term is not zero, so a product rounds nothing more.
            phase = (x @ self.matrix.to(x.dtype)).mul_(math.pi)
        out[..., :first] = x[..., self.raw]
        torch.sin(phase, out=out[..., first : first + count])
        torch.cos(phase, out=out[..., first + count :])
        return out

    def keep(self, points: Float[Tensor, "1 N D"], make: Callable[[Tensor], Known]) -> None:
        """Keep what `make` gives for a tensor of points, until `forget`; it must compute it from
        the features of these points and from nothing that is learnt.

        It is found by the tensor's identity, and only where gradients are wanted: whatever only
        asks is answered as ever. It is no part of the state, and copies of the module are without.
        """
        with torch.no_grad():
            self._known, self._make, self._version = make(points), make, points._version

    @property
    def keeps(self) -> Known | None:
        """What is kept, whatever the points are."""
        return self._known

    def forget(self) -> None:
        """Let go of what is kept."""
        self._known = self._make = None

    def known(self, x: Tensor) -> Known | None:
        """What is kept of these very points, unless they have changed or products are in another
        precision now. A compiler does not see a change in place: call `renew` before."""
        if not torch.is_grad_enabled() or by_the_book():
            return None
        known = self._known
        if known is None or x is not known.points:
            return None
        if not torch.compiler.is_compiling() and x._version != self._version:
            return None
        exact = torch.promote_types(x.dtype, self.centre.dtype)
        return known if known.operand.dtype == product_dtype(exact, x.device) else None

    def renew(self) -> None:
        """Compute what is kept again if its points have changed, in place: what was captured or
        compiled reads it where it lies."""
        known, make = self._known, self._make
        if known is None or make is None or known.points._version == self._version:
            return
        self._version = known.points._version
        with torch.no_grad():
            known.copy_(make(known.points))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept, which belongs to a training and not to the module."""
        kept = ("_known", "_make", "_version")
        return {name: value for name, value in self.__dict__.items() if name not in kept}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FourierFeatures:
        """Whoever moves or casts the module gets features of another kind."""
        before = self.matrix.dtype, self.matrix.device
        super()._apply(fn, recurse)
        if before != (self.matrix.dtype, self.matrix.device):
            self.forget()
        return self


def for_all(
    dimension: int, bins: tuple[int, ...], max_frequency: tuple[float, ...]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The settings of every dimension, where one number alone serves them all."""
    each = bins * dimension if len(bins) == 1 else bins
    highest = max_frequency * dimension if len(max_frequency) == 1 else max_frequency
    if len(each) != dimension or len(highest) != dimension:
        raise ValueError(
            f"bins {bins} and max_frequency {max_frequency} must have "
            f"{dimension} numbers, or one for all"
        )
    return each, highest
