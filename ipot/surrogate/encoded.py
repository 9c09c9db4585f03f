"""Encode once, ask often: the encoded inputs of a model, kept between calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.accelerate import for_answers
from ipot.models.base import Latent, LatentOperator, Operator
from ipot.samples import Batch, Sample, collate
from ipot.surrogate.answers import pieces
from ipot.surrogate.grid import with_grids
from ipot.surrogate.inputs import Inputs, times_of


class Interval(NamedTuple):
    """A prediction with its lower and upper bounds."""

    prediction: Any
    low: Any
    high: Any


class Encoded:
    """Inputs that a `Surrogate` has encoded: `at` predicts at any queries, as `predict` does."""

    def __init__(self, surrogate: Any, inputs: Inputs) -> None:
        self._surrogate, self._inputs = surrogate, inputs
        self._whole: list[Remembered] = []
        model = surrogate.model
        if isinstance(model, LatentOperator):
            samples = self._gridded(list(self._probes()))
            surrogate.remark(samples)
            self._whole = [_encoded(model, piece) for piece in pieces(samples)]

    def at(
        self,
        queries: Any = None,
        *,
        times: Any = None,
        steps: int | None = None,
        interval: float | None = None,
    ) -> Any:
        """The fields at the queries, by default the points. Arguments and answer are those of
        `predict`."""
        self._surrogate.refuse_level(interval)
        inputs = self._inputs
        asked = inputs.at(queries, times_of(inputs.spec, inputs.layout, steps, times))
        found: list[Tensor] = []
        for model, piece in self._together(asked.samples):
            found += self._surrogate.answers_of(model, piece)
        return self._surrogate.given_back(asked, found, interval)

    def _together(self, samples: list[Sample]) -> Iterator[tuple[Operator, list[Sample]]]:
        """Samples that are answered together, and the model with their states."""
        if not self._whole:  # a model that encodes and answers in one
            samples = self._gridded(samples)
            yield from ((self._surrogate.model, piece) for piece in pieces(samples))
            return
        # The inputs are in the states: what is left of them only says how many samples there are.
        samples = [replace(s, points=s.points[:1], values=s.values[:1]) for s in samples]
        if len(samples) > len(self._inputs.inputs):  # one, asked at several lists of places
            for piece in pieces(samples):
                yield self._whole[0].times_over(len(piece)), piece
            return
        for model in self._whole:
            yield model, samples[: model.size]
            samples = samples[model.size :]

    def _gridded(self, samples: list[Sample]) -> list[Sample]:
        return with_grids(samples, self._surrogate.problem, self._surrogate.model)

    def _probes(self) -> Iterator[Sample]:
        """The inputs with a single query."""
        spec = self._inputs.spec
        nowhere = torch.zeros(1, spec.query_dimension)
        times = times_of(spec, self._inputs.layout)
        return (Sample(**one, queries=nowhere, times=times) for one in self._inputs.inputs)


class Remembered(LatentOperator):
    """A model that has encoded its inputs already: `encode` returns these, whatever the batch."""

    def __init__(self, inner: LatentOperator, latent: Latent) -> None:
        super().__init__(inner.config, inner.spec)
        self.inner: Any = inner
        self.latent = latent
        self._kept: tuple[tuple[float, ...], list[Latent]] | None = None

    @property
    def size(self) -> int:
        """How many samples."""
        return len(self.latent.state)

    def times_over(self, count: int) -> Remembered:
        """The one encoded sample, repeated."""
        state, mask, seen, age, simple, steps = self.latent
        mask = None if mask is None else mask.expand(count, -1)
        if seen is not None:
            own = None if seen.mask is None else seen.mask.expand(count, -1)
            frame = None if seen.frame is None else seen.frame.expand(count, -1, -1)
            features = seen.features.expand(count, -1, -1)
            seen = seen._replace(features=features, mask=own, frame=frame)
        age = None if age is None else age.expand(count)
        simple = None if simple is None else simple.expand(count, -1)
        states = state.expand(count, -1, -1)
        return Remembered(self.inner, Latent(states, mask, seen, age, simple, steps))

    def encode(self, batch: Batch) -> Latent:
        """The kept state."""
        return self.latent

    def step(self, latent: Latent) -> Latent:
        """That of the inner model."""
        return self.inner.step(latent)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """The states of the inner model, kept until other times are asked for."""
        kept = self._kept  # read once: another thread may ask for other times meanwhile
        if kept is None or kept[0] != times:
            kept = self._kept = times, self.inner.roll_on(latent, times)
        return kept[1]

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """That of the inner model."""
        return self.inner.decode(latent, queries)

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """That of the inner model."""
        return self.inner.decode_all(states, queries)


@torch.inference_mode()
def _encoded(model: LatentOperator, samples: list[Sample]) -> Remembered:
    parameter = next(model.parameters())
    # Arrays that are mapped from files may be of another precision than the model.
    batch = collate(samples).to(parameter.device).astype(parameter.dtype)
    quick = for_answers(model)
    return Remembered(quick, quick.encode(batch)).eval()
