"""What a mesh that stays the same gives is computed once for a whole training.

Where all samples share their points, and a step neither draws some of them nor moves them, their
position features are the same at every step. Encoder and decoder layers keep what they give in the
form that the product behind takes. It is found by the identity of the tensor of points, belongs to
the accelerated layer and dies with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.accelerate.folded import product_dtype

MOST_KEPT = 1 << 27
"""Bytes that may be kept of the points of a fixed mesh, and as many of its queries."""


class Known(NamedTuple):
    """What is kept of the positions in one tensor."""

    points: Tensor
    """The tensor itself, which it is known by."""
    operand: Float[Tensor, "1 N F2"]
    """What the product behind takes, in the precision of that: features, or what `fold` makes of
    them."""
    features: Float[Tensor, "1 N F"] | None = None
    """The features in full, where they are asked for."""
    sums: Float[Tensor, "1 N 2"] | None = None
    """Of the features and of their squares, where they are asked for."""

    def copy_(self, other: Known) -> None:
        """Take over the numbers of another one, in place and in this one's precision."""
        for name in ("operand", "features", "sums"):
            mine = getattr(self, name)
            if mine is not None:
                mine.copy_(getattr(other, name))


class KeepsMesh:
    """A layer with position features that can keep what a tensor of points gives."""

    position: Any
    _known: Known | None = None
    _version = 0

    def given(self, places: Tensor) -> Known:
        """What to keep of these places: made of their features and of nothing that is learnt."""
        raise NotImplementedError

    def keep(self, places: Float[Tensor, "1 N D"]) -> None:
        """Keep what these places give, until `forget`, unless it would be too much."""
        rows, each = places.shape[:-1].numel(), places.element_size() + 2
        suits = places.shape[-1] == len(self.position.centre)
        if suits and rows * self.position.width * each <= MOST_KEPT:
            with torch.no_grad():
                self._known, self._version = self.given(places), places._version

    def forget(self) -> None:
        """Let go of what is kept."""
        self._known = None

    @property
    def keeps(self) -> Known | None:
        """What is kept, whatever the points are."""
        return self._known

    def known(self, places: Tensor) -> Known | None:
        """What is kept of these very places, unless they have changed or products are in another
        precision now. A compiler does not see a change in place: call `renew` before."""
        known = self._known
        if known is None or places is not known.points or not torch.is_grad_enabled():
            return None
        if not torch.compiler.is_compiling() and places._version != self._version:
            return None
        exact = torch.promote_types(places.dtype, self.position.centre.dtype)
        return known if known.operand.dtype == product_dtype(exact, places.device) else None

    def renew(self) -> None:
        """Compute what is kept again if its points have changed, in place: what was captured or
        compiled reads it where it lies."""
        known = self._known
        if known is None or known.points._version == self._version:
            return
        self._version = known.points._version
        with torch.no_grad():
            known.copy_(self.given(known.points))


class KeepsNeighbours:
    """A layer that can keep which inputs lie around points and queries of a fixed mesh."""

    _kept_points: Tensor | None = None
    _kept_queries: Tensor | None = None
    _kept_around: Any = None
    _kept_near: Any = None
    _versions: tuple[int, ...] = ()

    def search(self, points: Tensor, queries: Tensor | None) -> Any:
        """The inputs around all queries, or around the places of the points' stencils."""
        raise NotImplementedError

    def keep_all(self, points: Tensor, queries: Tensor | None) -> None:
        """Keep the neighbours of these points and queries, until `forget`."""
        self._kept_points, self._kept_queries = points, queries
        with torch.no_grad():
            self._kept_around = self.search(points, None)
            suits = queries is not None and queries.shape[-1] == points.shape[-1]
            self._kept_near = self.search(points, queries) if suits else None
        self._versions = self._current()

    def kept_for(self, points: Tensor, queries: Tensor | None) -> Any:
        """What is kept of these very tensors, unless they have changed; None for others."""
        if self._kept_around is None or points is not self._kept_points:
            return None
        if not torch.compiler.is_compiling() and self._versions != self._current():
            return None
        if queries is None:
            return self._kept_around
        return self._kept_near if queries is self._kept_queries else None

    def forget(self) -> None:
        """Let go of what is kept."""
        self._kept_points = self._kept_queries = self._kept_around = self._kept_near = None

    @property
    def keeps(self) -> Any:
        """What is kept, whatever the points are."""
        return self._kept_around, self._kept_near

    def renew(self) -> None:
        """Search again if points or queries have changed in place. A grid that is one no more is
        found out here, and what was compiled or captured for it cannot go on."""
        if self._kept_around is None or self._versions == self._current():
            return
        assert self._kept_points is not None
        self._versions = self._current()
        with torch.no_grad():
            for old, queries in ((self._kept_around, None), (self._kept_near, self._kept_queries)):
                if old is None:
                    continue
                new = self.search(self._kept_points, queries)
                if new.grid != old.grid:
                    raise RuntimeError("the points of a fixed mesh have become another grid")
                old.index.copy_(new.index)
                if old.weight is not None:
                    old.weight.copy_(new.weight)

    def _current(self) -> tuple[int, ...]:
        kept = (self._kept_points, self._kept_queries)
        return tuple(t._version for t in kept if t is not None)


class FixedMesh:
    """Lets an accelerated model keep what the mesh of its steps gives, until it is released.

    `cast` says whether the steps run in bf16 by autocast: what is kept is rounded as it would be
    there.
    """

    def __init__(
        self, model: nn.Module, points: Tensor | None, queries: Tensor | None, *, cast: bool
    ) -> None:
        self.layers: list[KeepsMesh | KeepsNeighbours] = []
        with torch.autocast(_device(model), torch.bfloat16, enabled=cast, cache_enabled=False):
            for layer in _keeping(model):
                places = points if layer.sees_inputs else queries
                if places is not None and _constant(places):
                    layer.keep(places)
                    self.layers += [layer] if layer.keeps is not None else []
        if points is not None and _constant(points):
            asked = queries if queries is not None and _constant(queries) else None
            for module in model.modules():
                if isinstance(module, KeepsNeighbours):
                    module.keep_all(points, asked)
                    self.layers.append(module)
        # A captured step reads these where they lie.
        self._kept: list[object] = [layer.keeps for layer in self.layers]

    def renew(self) -> None:
        """Follow points that were changed in place since the last step: a captured step, and a
        compiled one, cannot see that. It compares two numbers and waits for nothing."""
        for layer in self.layers:
            layer.renew()

    def release(self) -> None:
        """Let the model forget what it keeps, and free it: no captured step may run any more."""
        for layer in self.layers:
            layer.forget()
        self._kept.clear()


def _keeping(model: nn.Module) -> Iterator[Any]:
    return (m for m in model.modules() if isinstance(m, KeepsMesh))


def _device(model: nn.Module) -> str:
    return next((p.device.type for p in model.parameters()), "cpu")


def _constant(places: Tensor) -> bool:
    """True if places are no unknowns and tell when they are changed."""
    return not (places.requires_grad or places.is_inference())
