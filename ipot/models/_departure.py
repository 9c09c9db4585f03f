"""A model that starts from a simple predictor and answers with the departure from it.

    u(t, y) = mean(t, y) + trust * simple(a)(t, y) + model(a)(t, y)

The simple predictor is a regression of the fields on the principal components of the inputs, linear
or with a kernel (`ipot.evaluation.kernels`). Its numbers are buffers: a checkpoint is whole by
itself. It knows its inputs and answers at places of its own; other points are carried there, and
answers from there to any queries, by parabolas through the nearest of them.

On the samples that it was fitted to it would be far too good, and leave the model nothing to learn.
So in training it answers for each sample as it would without having seen it (`held_out`), which is
looked up by the sample's number. How far it is to be trusted, channel by channel, is learnt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ipot.errors import Unsupported
from ipot.models._wrappers import Wrapper
from ipot.models.base import Latent, LatentOperator, Operator
from ipot.nn.neighbours import Surroundings
from ipot.samples import Batch
from ipot.spec import Spec

ROW = (0.5698402909980532, 0.7548776662466927, 0.8191725133961645, 0.8566748838545029)
"""A direction along which no two places of a mesh are likely to lie at the same height."""


class Departure(Wrapper):
    """The simple predictor around a model in physical units."""

    held_out: Tensor | None
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
    part: Tensor

    def __init__(self, inner: Operator) -> None:
        super().__init__(inner)
        spec: Spec = inner.spec
        if inner.objective() is not None:
            raise Unsupported(
                f"{inner.name} is trained in a way of its own and cannot start from a simple "
                "predictor: leave simple=... out"
            )
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
        }
        for name, size in sizes.items():
            self.register_buffer(name, torch.zeros(size))
        self.register_buffer("part", torch.ones(()))
        """1 where the model counts, 0 for the simple predictor alone."""
        self.register_buffer("held_out", None, persistent=False)
        self.trust = nn.Parameter(torch.ones(len(spec.outputs)))
        self.carry = Surroundings(spec.domain, spec.periods, query_count=_near(spec.dimension))
        self.spread = Surroundings(
            spec.query_domain, spec.query_periods, query_count=_near(spec.query_dimension)
        )
        self.carry.curved = self.spread.curved = True

    @torch.no_grad()
    def take(self, simple: Mapping[str, Tensor]) -> None:
        """Take over the numbers of a simple predictor, by their names."""
        for name, value in simple.items():
            if name == "held_out":
                self.held_out = value.to(self.mean)
            else:
                getattr(self, name).copy_(value)
        if len(self.places):
            self.carry.measure(self.places)
        self.spread.measure(self.queries)

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """What the simple predictor answers, and the departure from it."""
        steps = self.steps(batch.times)
        simple = self.simple(self.coefficients(batch), steps, batch.queries)
        return self._together(simple, self.inner(batch))

    def _together(self, simple: Tensor, departure: Tensor) -> Tensor:
        departure = departure.to(torch.promote_types(departure.dtype, simple.dtype))
        return simple + self.part * departure

    def coefficients(self, batch: Batch) -> Float[Tensor, "B q"]:
        """Of the fields: for samples of training as if they had not been learned from."""
        if self.training and self.held_out is not None and batch.index is not None:
            return self.held_out[batch.index]
        with torch.no_grad(), torch.autocast(batch.values.device.type, enabled=False):
            rows = ((self._inputs(batch).double() - self.centre) * self.scale) @ self.basis.double()
            if len(self.known):
                rows = _matern(rows, self.known.double(), self.length.double())
            found = rows @ (self.weights.double() + self.rest.double())
            return found.to(self.mean.dtype)

    def _inputs(self, batch: Batch) -> Float[Tensor, "B i"]:
        """Values at the own places, and the parameters behind them."""
        found = []
        if len(self.places) and self.spec.channels:
            found.append(self._carried(batch).flatten(1))
        if batch.parameters is not None:
            found.append(batch.parameters.to(self.mean.dtype))
        return torch.cat(found, 1)

    def _carried(self, batch: Batch) -> Float[Tensor, "B P C"]:
        values, points = batch.values.to(self.mean.dtype), batch.points.to(self.mean.dtype)
        if not torch.compiler.is_compiling() and batch.point_mask is None:
            there = self.places.unsqueeze(0)
            if points.shape[1:] == self.places.shape and _same(points, there):
                return values
        near = self.carry.near(points, self.places.unsqueeze(0), batch.point_mask)
        return near.look_up(values)

    def simple(
        self, coefficients: Float[Tensor, "B q"], steps: list[int], queries: Tensor
    ) -> Float[Tensor, "B T M K"]:
        """The fields of some coefficients after some steps; after its last one it stays."""
        with torch.autocast(coefficients.device.type, enabled=False):
            known = self.mean.shape[0]
            at = [min(step, known) - 1 for step in steps]
            mean, fields = self.mean, self.fields
            if at != list(range(known)):
                mean, fields = mean[at], fields[:, at]
            if queries.ndim == 4:  # the mesh moves, and the simple predictor's does not
                each = [
                    self._at(mean[i : i + 1], fields[:, i : i + 1], coefficients, queries[:, i])
                    for i in range(len(at))
                ]
                return torch.cat(each, 1)
            return self._at(mean, fields, coefficients, queries)

    def _at(self, mean: Tensor, fields: Tensor, coefficients: Tensor, queries: Tensor) -> Tensor:
        rows = self._rows(queries)
        if rows is not None:
            mean, fields = mean[:, rows], fields[:, :, rows]
            return mean + self.trust * torch.einsum("bq,qtmk->btmk", coefficients, fields)
        whole = mean + self.trust * torch.einsum("bq,qtmk->btmk", coefficients, fields)
        size, times, count, channels = whole.shape
        near = self.spread.near(self.queries.unsqueeze(0), queries.to(self.queries.dtype))
        flat = whole.transpose(1, 2).reshape(size, count, times * channels)
        return near.look_up(flat).unflatten(2, (times, channels)).transpose(1, 2)

    def _rows(self, queries: Float[Tensor, "B1 M E"]) -> Int[Tensor, " M"] | None:
        """Which of its own places the queries are; None where they are others. Those of training
        are among them, and are not compared: that would wait for the device."""
        if torch.compiler.is_compiling() or len(queries) != 1:
            return None
        asked = queries[0].to(self.queries.dtype)
        direction = asked.new_tensor(
            [ROW[i % len(ROW)] + i // len(ROW) for i in range(asked.shape[-1])],
            dtype=torch.float64,
        )
        heights, order = (self.queries.double() @ direction).sort()
        wanted = asked.double() @ direction
        above = torch.searchsorted(heights, wanted).clamp(1, max(1, len(heights) - 1))
        above = above.clamp(max=len(heights) - 1)
        below = (above - 1).clamp(min=0)
        lower = (wanted - heights[below]).abs() <= (heights[above] - wanted).abs()
        rows = order[torch.where(lower, below, above)]
        if self.training and self.held_out is not None:
            return rows
        return rows if torch.equal(self.queries[rows], asked) else None


class DepartureLatent(Departure, LatentOperator):
    """The same around a model whose encoder, steps and decoder can be called by themselves."""

    def encode(self, batch: Batch) -> Latent:
        """The inner model's state, and what the simple predictor makes of the inputs."""
        return self.encoded(self.inner.encode(batch), lambda: batch)

    def encoded(self, latent: Latent, batch: Callable[[], Batch]) -> Latent:
        """A state that somebody else has encoded."""
        return latent._replace(simple=self.coefficients(batch()), steps=0)

    def step(self, latent: Latent) -> Latent:
        """The inner model's."""
        return self._after(latent, self.inner.step(_bare(latent)), 1)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """The inner model's."""
        states = self.inner.roll_on(_bare(latent), times)
        wanted = self.steps(times)
        return [self._after(latent, s, n) for s, n in zip(states, wanted, strict=True)]

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields."""
        assert latent.simple is not None
        simple = self.simple(latent.simple, [max(1, latent.steps)], queries)[:, 0]
        return self._together(simple, self.inner.decode(_bare(latent), queries))

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states."""
        first = states[0]
        assert first.simple is not None
        simple = self.simple(first.simple, [max(1, s.steps) for s in states], queries)
        return self._together(simple, self.inner.decode_all([_bare(s) for s in states], queries))

    def _after(self, before: Latent, now: Latent, steps: int) -> Latent:
        return now._replace(simple=before.simple, steps=before.steps + steps)


def _bare(latent: Latent) -> Latent:
    return latent._replace(simple=None, steps=0)


def _matern(rows: Tensor, known: Tensor, length: Tensor) -> Tensor:
    """As `ipot.evaluation.kernels.matern`, in operations that a graph can hold."""
    apart = (rows.unsqueeze(1) - known).square().sum(-1)
    r = math.sqrt(5) * (apart + 1e-30).sqrt() / length
    return (1 + r + r * r / 3) * torch.exp(-r)


def _near(dimension: int) -> int:
    """Neighbours that a parabola is put through."""
    return (dimension + 1) * (dimension + 2)


def _same(points: Tensor, places: Tensor) -> bool:
    return bool((points == places).all())


def around_simple(model: Operator) -> Operator:
    """A wrapped model, with a simple predictor around it where its facts name the sizes of one."""
    if not model.spec.simple:
        return model
    if model.spec.change:
        raise Unsupported(
            "--training.change and simple=... both say what answers are departures from: use one"
        )
    latent = isinstance(model, LatentOperator)
    if not latent and model.spec.steps > 1:
        raise Unsupported(
            f"{model.name} goes on from its own answers and cannot start from a simple predictor, "
            "which knows all times at once: leave simple=... out"
        )
    return DepartureLatent(model) if latent else Departure(model)


def departing_from(model: Operator, simple: Mapping[str, Tensor]) -> None:
    """Give a model the numbers of the simple predictor that it starts from."""
    found = departing(model)
    assert found is not None
    found.take(simple)


def departing(model: Any) -> Departure | None:
    """The simple predictor that a model starts from, if it does."""
    while isinstance(model, Wrapper):
        if isinstance(model, Departure):
            return model
        model = model.inner
    return None
