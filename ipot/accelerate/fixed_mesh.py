"""Features and projections of a mesh that stays the same, computed once for a whole training.

If all samples share their points, and steps neither draw some of them nor move them, position
features are the same at every step. Encoder and decoder layers keep them in the form that the next
product takes. They are looked up by the identity of the tensor of points, and belong to the
accelerated layer.

Such features need no gradient, and neither does what a LayerNorm makes of them but for its scale
and shift. These fold into the next projection:

    W (γ x̂ + β) + b = (W γ) x̂ + (W β + b) = W⁺ x̂⁺

with a column of ones beside x̂ in x̂⁺. That is one product forward and, since x̂ needs no gradient,
one product backward; nothing else goes over the rows.

Queries meet keys only in products, so the keys can absorb the projection of such queries:

    q · k = (W⁺ x̂⁺) · k = x̂⁺ · (W⁺ᵀ k)

Keys are then projected by W⁺ᵀ W_k, a product of parameters, and x̂⁺ itself attends to them. Nothing
goes over the rows of the queries but the attention. It pays if x̂⁺ has no more columns than a head,
both padded to what matrix units take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

ALIGNED = 8
"""Columns are filled up to a multiple of this: 16 bytes of bf16, which matrix units like best."""


class Folded(NamedTuple):
    """Queries that need no gradient, normalised but without the norm's scale and shift."""

    operand: Float[Tensor, "Bq M F2"]
    """What `operand_of` made of their features, in the precision of products."""
    tokens: None = None
    """Nothing is added to them later."""


def product_dtype(exact: torch.dtype, device: torch.device) -> torch.dtype:
    """The precision in which a product of tensors of type `exact` is computed under the current
    autocast."""
    if exact == torch.float64 or not torch.is_autocast_enabled(device.type):
        return exact
    return torch.get_autocast_dtype(device.type)


def for_product(features: Tensor) -> Tensor:
    """Features in the precision in which products are computed under the current autocast."""
    return features.to(product_dtype(features.dtype, features.device))


def operand_of(
    features: Float[Tensor, "B N F"], eps: float, columns: int | None = None
) -> Float[Tensor, "B N F2"]:
    """Layer-normalised features without scale and shift, then a column of ones, then zeros:
    `columns` in all, or as few as matrix units like."""
    normed = F.layer_norm(features, features.shape[-1:], eps=eps)
    filled = F.pad(normed, (0, 1), value=1.0)
    return aligned(filled) if columns is None else F.pad(filled, (0, columns - filled.shape[-1]))


def aligned(x: Float[Tensor, "*rows F"]) -> Float[Tensor, "*rows F2"]:
    """Rows padded with columns of zeros, so that each starts at an address that matrix units
    like."""
    return F.pad(x, (0, -x.shape[-1] % ALIGNED))


def times_padded(
    operand: Float[Tensor, "*rows F2"], weight: Float[Tensor, "p F"]
) -> Float[Tensor, "*rows p"]:
    """operand @ weightᵀ; the operand may have additional columns of zeros."""
    extra = operand.shape[-1] - weight.shape[1]
    return F.linear(operand, F.pad(weight, (0, extra)) if extra else weight)


def project_folded(
    operand: Float[Tensor, "B N F2"], norm: nn.LayerNorm, linear: nn.Linear
) -> Float[Tensor, "B N p"]:
    """linear(norm(features)), from what `operand_of` made of them."""
    return times_padded(operand, folded_weight(norm, linear))


def folded_weight(norm: nn.LayerNorm, linear: nn.Linear) -> Float[Tensor, "p F1"]:
    """W⁺: the weight of both, and a last column for the ones beside the features."""
    # Not a matmul: under autocast that would round the weights before they are summed.
    offset = (linear.weight * norm.bias).sum(1, keepdim=True)
    if linear.bias is not None:
        offset = offset + linear.bias.unsqueeze(1)
    return torch.cat([linear.weight * norm.weight, offset], 1)


def with_norm(
    norm: nn.LayerNorm, weight: Float[Tensor, "p F"], bias: Float[Tensor, " p"] | None
) -> tuple[Float[Tensor, "p F"], Float[Tensor, " p"]]:
    """The weight and offset W γ and W β + b of a layer after a norm, together with the norm's."""
    offset = weight @ norm.bias
    return weight * norm.weight, offset if bias is None else offset + bias


def absorbs(part: Any, features: int) -> bool:
    """True if the keys of a `MultiHead` can absorb the projection of queries with this many
    features."""
    if part.heads > 1 or part.norm_context is None:
        return False
    return columns(features) <= _padded(part.to_query.out_features)


def columns(features: int) -> int:
    """The number of columns of x̂⁺ for this many features."""
    return _padded(features + 1)


def absorbing_weights(part: Any, wide: int) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
    """The weights and bias for keys of `wide` channels, which are multiplied with x̂⁺ itself, and
    for values."""
    weight, bias = part.to_key_value.weight, part.to_key_value.bias
    inner = part.to_query.out_features
    # Rounded are the keys and the whole weight that they come by, not what it is made of.
    with torch.autocast(weight.device.type, enabled=False):
        by = folded_weight(part.norm, part.to_query)
        # Attention divides by the root of as many channels as it sees.
        by = F.pad(by * (wide / inner) ** 0.5, (0, wide - by.shape[1])).T
        weights = by @ weight[:inner], weight[inner:]
        if bias is not None:
            bias = torch.cat([by @ bias[:inner], bias[inner:]])
    return weights, bias


def _padded(count: int) -> int:
    """A power of two, at least what matrix units take."""
    return max(16, 1 << (count - 1).bit_length())


MOST_KEPT = 1 << 27
"""Bytes that may be kept of the points of a fixed mesh, and as many of its queries."""


class Known(NamedTuple):
    """What is kept for one tensor of points."""

    points: Tensor
    """The tensor itself, which it is known by."""
    operand: Float[Tensor, "1 N F2"]
    """What the next product takes, in its precision: features, or what `operand_of` makes of
    them."""
    features: Float[Tensor, "1 N F"] | None = None
    """The features in full, where they are asked for."""
    sums: Float[Tensor, "1 N 2"] | None = None
    """Of the features and of their squares, where they are asked for."""

    def copy_(self, other: Known) -> None:
        """Copy the numbers of another one, in place and in this one's precision."""
        for name in ("operand", "features", "sums"):
            mine = getattr(self, name)
            if mine is not None:
                mine.copy_(getattr(other, name))


class KeepsMesh:
    """A layer that can keep the position features of a tensor of points."""

    position: Any
    _known: Known | None = None
    _version = 0

    def given(self, places: Tensor) -> Known:
        """What to keep for these points: made from their features and nothing that is learnt."""
        raise NotImplementedError

    def keep(self, places: Float[Tensor, "1 N D"]) -> None:
        """Keep the features of these points until `forget`, unless they are too large."""
        rows, each = places.shape[:-1].numel(), places.element_size() + 2
        suits = places.shape[-1] == len(self.position.centre)
        if suits and rows * self.position.width * each <= MOST_KEPT:
            with torch.no_grad():
                self._known, self._version = self.given(places), places._version

    def forget(self) -> None:
        """Forget what is kept."""
        self._known = None

    @property
    def keeps(self) -> Known | None:
        """What is kept, for any points."""
        return self._known

    def known(self, places: Tensor) -> Known | None:
        """What is kept for this very tensor; None if it has changed or if products now have another
        precision. A compiled function does not see a change in place: call `renew` before."""
        known = self._known
        if known is None or places is not known.points or not torch.is_grad_enabled():
            return None
        if not torch.compiler.is_compiling() and places._version != self._version:
            return None
        exact = torch.promote_types(places.dtype, self.position.centre.dtype)
        return known if known.operand.dtype == product_dtype(exact, places.device) else None

    def renew(self) -> None:
        """Compute what is kept again if its points have changed. It stays at its place in memory,
        which captured and compiled steps read."""
        known = self._known
        if known is None or known.points._version == self._version:
            return
        self._version = known.points._version
        with torch.no_grad():
            known.copy_(self.given(known.points))


class KeepsNeighbours:
    """A layer that can keep the neighbours of the points and queries of a fixed mesh.

    They are a named tuple of tensors and plain values."""

    space: Any
    _kept_points: Tensor | None = None
    _kept_queries: Tensor | None = None
    _kept_around: Any = None
    _kept_near: Any = None
    _versions: tuple[int, ...] = ()

    def search(self, points: Tensor, queries: Tensor | None) -> Any:
        """The neighbours of all queries, or of the places of the points' stencils."""
        raise NotImplementedError

    def takes(self, points: Tensor) -> bool:
        """True if the layer is called with such points, and not with unit vectors where these are
        degrees."""
        return points.shape[-1] == self.space.axes

    def keep_all(self, points: Tensor, queries: Tensor | None) -> None:
        """Keep the neighbours of these points and queries until `forget`, if the layer is called
        with such."""
        if not self.takes(points):
            return
        self._kept_points, self._kept_queries = points, queries
        with torch.no_grad():
            self._kept_around = self.search(points, None)
            suits = queries is not None and queries.shape[-1] == points.shape[-1]
            self._kept_near = self.search(points, queries) if suits else None
        self._versions = self._current()

    def kept_for(self, points: Tensor, queries: Tensor | None) -> Any:
        """What is kept for these very tensors; None for others, and if they have changed."""
        if self._kept_around is None or points is not self._kept_points:
            return None
        if not torch.compiler.is_compiling() and self._versions != self._current():
            return None
        if queries is None:
            return self._kept_around
        return self._kept_near if queries is self._kept_queries else None

    def forget(self) -> None:
        """Forget what is kept."""
        self._kept_points = self._kept_queries = self._kept_around = self._kept_near = None

    @property
    def keeps(self) -> Any:
        """What is kept, for any points."""
        return self._kept_around, self._kept_near

    def renew(self) -> None:
        """Search again if points or queries have changed in place. If they were a grid and no
        longer are, what was compiled or captured for it cannot be used, and an error says so."""
        if self._kept_around is None or self._versions == self._current():
            return
        assert self._kept_points is not None
        self._versions = self._current()
        with torch.no_grad():
            for old, queries in ((self._kept_around, None), (self._kept_near, self._kept_queries)):
                if old is None:
                    continue
                new = self.search(self._kept_points, queries)
                facts = [[x for x in kept if not isinstance(x, Tensor)] for kept in (old, new)]
                if type(new) is not type(old) or facts[0] != facts[1]:
                    raise RuntimeError("the points of a fixed mesh have become another grid")
                for mine, other in zip(old, new, strict=True):
                    if isinstance(mine, Tensor):
                        mine.copy_(other)

    def _current(self) -> tuple[int, ...]:
        kept = (self._kept_points, self._kept_queries)
        return tuple(t._version for t in kept if t is not None)


class FixedMesh:
    """Lets an accelerated model keep features and neighbours of the mesh of its steps, until
    `release`.

    `cast` says whether the steps run in bf16 by autocast: what is kept is then rounded alike.
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
        """Compute again what is kept if points were changed in place since the last step, which
        captured and compiled steps cannot see. It compares two numbers and waits for nothing."""
        for layer in self.layers:
            layer.renew()

    def release(self) -> None:
        """Forget and free what is kept: no captured step may run any more."""
        for layer in self.layers:
            layer.forget()
        self._kept.clear()


def _keeping(model: nn.Module) -> Iterator[Any]:
    return (m for m in model.modules() if isinstance(m, KeepsMesh))


def _device(model: nn.Module) -> str:
    return next((p.device.type for p in model.parameters()), "cpu")


def _constant(places: Tensor) -> bool:
    """True if points need no gradient and their tensor counts its changes."""
    return not (places.requires_grad or places.is_inference())
