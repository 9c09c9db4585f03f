"""A trained model beside a simple predictor: an answer is a weighted mean of both.

    u(t, y) = share * simple(a)(t, y) + (1 - share) * model(a)(t, y)

The simple predictor is a regression of the fields on the principal components of the inputs, linear
or with a kernel (`ipot.evaluation.regression`). It takes inputs and gives answers at fixed places
of its own; inputs at other points are interpolated to these, and answers from these to any queries,
by parabolas through the nearest neighbours. Its numbers and the shares, one for each channel, are
buffers, so a file of weights is complete. Nothing of it is trained by gradients: the shares are
chosen on samples that neither has seen (`ipot.own.blending`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ipot.models._wrappers import OnGlobe, Wrapper
from ipot.models.base import Latent, LatentOperator, Operator
from ipot.nn.neighbours import Surroundings
from ipot.samples import Batch
from ipot.spec import Spec

DIRECTION = (0.5698402909980532, 0.7548776662466927, 0.8191725133961645, 0.8566748838545029)
"""A direction along which no two places of a mesh are likely to lie at the same height."""


class Blend(Wrapper):
    """A model in physical units, blended with a simple predictor."""

    places: Tensor
    queries: Tensor
    centre: Tensor
    scale: Tensor
    basis: Tensor
    known: Tensor
    weights: Tensor
    rest: Tensor
    length: Tensor
    mean: Tensor
    fields: Tensor
    share: Tensor

    def __init__(self, inner: Operator) -> None:
        super().__init__(inner)
        spec: Spec = inner.spec
        points, queries, count, samples, rank = spec.simple
        inputs = points * spec.channels + len(spec.parameters)
        sizes: dict[str, tuple[int, ...]] = {
            "places": (points, spec.dimension),
            "queries": (queries, spec.query_dimension),
            "centre": (inputs,),
            "scale": (inputs,),
            "basis": (inputs, count),
            "known": (samples, count),
            "weights": (samples or count, rank),
            # What float32 has rounded off the weights: those of a kernel are large and cancel.
            "rest": (samples or count, rank),
            "length": (),
            "mean": (spec.steps, queries, len(spec.outputs)),
            "fields": (rank, spec.steps, queries, len(spec.outputs)),
            "share": (len(spec.outputs),),
        }
        for name, size in sizes.items():
            self.register_buffer(name, torch.zeros(size))
        # An even grid's spacing, for places that nobody has measured yet.
        self.carry = Surroundings(spec.domain, spec.periods, query_count=near(spec.dimension))
        self.spread = Surroundings(
            spec.query_domain, spec.query_periods, query_count=near(spec.query_dimension)
        )
        self.carry.curved = self.spread.curved = True

    @torch.no_grad()
    def take(self, numbers: Mapping[str, Tensor]) -> None:
        """Take over the numbers of a simple predictor, by their names."""
        for name, value in numbers.items():
            getattr(self, name).copy_(value)
        if len(self.places):
            self.carry.measure(self.places)
        self.spread.measure(self.queries)

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """The weighted mean of both answers."""
        steps = self.steps(batch.times)
        return self.together(
            self.simple(self.coefficients(batch), steps, batch.queries), self.inner(batch), steps
        )

    def together(
        self, simple: Float[Tensor, "B T M K"], other: Tensor, steps: list[int]
    ) -> Float[Tensor, "B T M K"]:
        """The weighted mean. The simple predictor knows no steps beyond those of training; there
        the model answers alone."""
        other = other.to(torch.promote_types(other.dtype, simple.dtype))
        none = torch.zeros_like(self.share)
        shares = [self.share if step <= len(self.mean) else none for step in steps]
        share = torch.stack(shares).unsqueeze(1)
        return share * simple + (1 - share) * other

    def coefficients(self, batch: Batch) -> Float[Tensor, "B q"]:
        """The coefficient of each of the simple predictor's fields, from the inputs."""
        with torch.autocast(batch.values.device.type, enabled=False):
            rows = (self._inputs(batch).double() - self.centre.double()) * self.scale.double()
            rows = rows @ self.basis.double()
            if len(self.known):
                rows = _matern(rows, self.known.double(), self.length.double())
            return (rows @ (self.weights.double() + self.rest.double())).to(self.mean.dtype)

    def _inputs(self, batch: Batch) -> Float[Tensor, "B i"]:
        """Values at the simple predictor's places, then the parameters."""
        found = []
        if len(self.places):
            found.append(self._carried(batch).flatten(1))
        if batch.parameters is not None:
            found.append(batch.parameters.to(self.mean.dtype))
        return torch.cat(found, 1)

    def _carried(self, batch: Batch) -> Float[Tensor, "B P C"]:
        values, points = batch.values.to(self.mean.dtype), batch.points.to(self.mean.dtype)
        if not torch.compiler.is_compiling() and batch.point_mask is None:
            there = points.shape[1:] == self.places.shape
            if there and bool((points == self.places.unsqueeze(0)).all()):
                return values
        around = self.carry.near(points, self.places.unsqueeze(0), batch.point_mask)
        return around.look_up(values)

    def simple(
        self, coefficients: Float[Tensor, "B q"], steps: list[int], queries: Tensor
    ) -> Float[Tensor, "B T M K"]:
        """The simple predictor's fields after some steps; after the last step that it knows, those
        of the last step."""
        with torch.autocast(coefficients.device.type, enabled=False):
            known = self.mean.shape[0]
            at = [min(step, known) - 1 for step in steps]
            if queries.ndim == 3:
                return self._at(at, coefficients, queries)
            # Queries that move, asked of fields whose places do not.
            each = [self._at([i], coefficients, queries[:, n]) for n, i in enumerate(at)]
            return torch.cat(each, 1)

    def _at(self, at: list[int], coefficients: Tensor, queries: Tensor) -> Tensor:
        rows, times = self._rows(queries), _as_slice(at)
        mean, fields = self.mean[times], self.fields[:, times]
        few = isinstance(rows, Tensor) and len(rows) < len(self.queries)
        if few:
            mean, fields = mean[:, rows], fields[:, :, rows]
        whole = mean + (coefficients @ fields.flatten(1)).unflatten(1, mean.shape)
        if rows is not None:
            return whole if few else whole[:, :, rows]
        size, count, channels = len(coefficients), *mean.shape[1:]
        around = self.spread.near(self.queries.unsqueeze(0), queries.to(self.queries.dtype))
        flat = whole.transpose(1, 2).reshape(size, count, len(at) * channels)
        return around.look_up(flat).unflatten(2, (len(at), channels)).transpose(1, 2)

    def _rows(self, queries: Float[Tensor, "B1 M E"]) -> Int[Tensor, " M"] | slice | None:
        """The row of each query among the simple predictor's places; None if a query is not
        there."""
        if torch.compiler.is_compiling() or len(queries) != 1:
            return None
        asked, axes = queries[0].to(self.queries.dtype), queries.shape[-1]
        # Nodes that lie upon each other, on a seam or a crack, are told by their order alone.
        if torch.equal(asked, self.queries):
            return slice(None)
        along = [DIRECTION[i % len(DIRECTION)] + i // len(DIRECTION) for i in range(axes)]
        direction = torch.tensor(along, dtype=torch.float64, device=asked.device)
        heights, order = (self.queries.double() @ direction).sort()
        above = torch.searchsorted(heights, asked.double() @ direction)
        rows = order[above.clamp(max=len(heights) - 1)]
        return rows if torch.equal(self.queries[rows], asked) else None


class BlendLatent(Blend, LatentOperator):
    """`Blend` for a model whose encoder, steps and decoder can be called one by one."""

    def encode(self, batch: Batch) -> Latent:
        """The model's state, and what the simple predictor makes of the inputs."""
        return self.encoded(self.inner.encode(batch), lambda: batch)

    def encoded(self, latent: Latent, batch: Callable[[], Batch]) -> Latent:
        """A state that the model has encoded, with the simple predictor's coefficients added."""
        return latent._replace(simple=self.coefficients(batch()), steps=0)

    def step(self, latent: Latent) -> Latent:
        """That of the model."""
        return _after(latent, self.inner.step(_bare(latent)), 1)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """That of the model."""
        states, wanted = self.inner.roll_on(_bare(latent), times), self.steps(times)
        return [_after(latent, s, n) for s, n in zip(states, wanted, strict=True)]

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields."""
        assert latent.simple is not None
        steps = [max(1, latent.steps)]
        simple = self.simple(latent.simple, steps, queries)
        other = self.inner.decode(_bare(latent), queries).unsqueeze(1)
        return self.together(simple, other, steps)[:, 0]

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states."""
        first = states[0].simple
        assert first is not None
        steps = [max(1, s.steps) for s in states]
        simple = self.simple(first, steps, queries)
        other = self.inner.decode_all([_bare(s) for s in states], queries)
        return self.together(simple, other, steps)


def _as_slice(at: list[int]) -> slice | list[int]:
    """Consecutive numbers as a slice, which copies nothing."""
    whole = slice(at[0], at[-1] + 1)
    return whole if at == list(range(whole.start, whole.stop)) else at


def _bare(latent: Latent) -> Latent:
    return latent._replace(simple=None, steps=0)


def _after(before: Latent, now: Latent, steps: int) -> Latent:
    return now._replace(simple=before.simple, steps=before.steps + steps)


def _matern(rows: Tensor, known: Tensor, length: Tensor) -> Tensor:
    """As `ipot.evaluation.regression.matern`; when exported, by operations that all formats
    have."""
    if torch.compiler.is_compiling():
        apart = ((rows.unsqueeze(1) - known).square().sum(-1) + 1e-30).sqrt()
    else:
        apart = torch.cdist(rows, known, compute_mode="donot_use_mm_for_euclid_dist")
    r = math.sqrt(5) * apart / length
    return (1 + r + r * r / 3) * torch.exp(-r)


def near(dimension: int) -> int:
    """How many neighbours a parabola is fitted to."""
    return (dimension + 1) * (dimension + 2)


def beside_simple(model: Operator) -> Operator:
    """The model, blended with a simple predictor if its spec has sizes for one."""
    if not model.spec.simple:
        return model
    return BlendLatent(model) if isinstance(model, LatentOperator) else Blend(model)


def within_globe(model: Operator) -> Operator:
    """The model without `OnGlobe`, which takes unit vectors: blends are made with it."""
    return model.inner if isinstance(model, OnGlobe) else model
