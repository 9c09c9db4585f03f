"""What every model is, whatever is inside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.data.statistics import Statistics
from ipot.samples import Batch
from ipot.spec import Need, Spec


class Operator(nn.Module, ABC):
    """A map from an input function on any points to an output function at any queries."""

    needs: frozenset[Need] = frozenset()
    """Structure that the model cannot do without."""

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__()
        spec.require(type(self).__name__, self.needs)
        self.config = config
        self.spec = spec

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """The prediction at every time and query of a batch."""

    def regions(self) -> Iterator[nn.Module]:
        """The parts worth compiling one by one; the whole model unless a model knows better."""
        yield self

    def steps(self, times: tuple[float, ...]) -> list[int]:
        """Times as whole numbers of the problem's step."""
        steps = [round(t / self.spec.dt) for t in times]
        exact = all(
            abs(s * self.spec.dt - t) <= 1e-6 * t for s, t in zip(steps, times, strict=True)
        )
        if not exact or any(b <= a for a, b in zip([0, *steps], steps, strict=False)):
            raise ValueError(f"times must be increasing multiples of dt={self.spec.dt}: {times}")
        return steps


class Latent(NamedTuple):
    """A state between encoder and decoder. Without inducing points it may be padded."""

    state: Float[Tensor, "B Z d"]
    mask: Bool[Tensor, "B Z"] | None = None


class LatentOperator(Operator):
    """A model that encodes once, steps in latent space, and decodes at any queries.

    The three parts are open to callers: encode once and ask often, ask in chunks, roll on.
    """

    @abstractmethod
    def encode(self, batch: Batch) -> Latent:
        """The state at time zero."""

    @abstractmethod
    def step(self, latent: Latent) -> Latent:
        """The state one `dt` later."""

    @abstractmethod
    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields at the queries."""

    def rollout(self, batch: Batch) -> list[Latent]:
        """The states at the batch's times."""
        wanted = self.steps(batch.times)
        latent, states = self.encode(batch), []
        for step in range(1, wanted[-1] + 1):
            latent = self.step(latent)
            if step == wanted[len(states)]:
                states.append(latent)
        return states

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states; `queries` has a T axis behind B where the mesh moves.

        One decode for each state. A model that can decode them in one batch overrides this.
        """
        moving = queries.ndim == 4
        return torch.stack(
            [self.decode(s, queries[:, t] if moving else queries) for t, s in enumerate(states)], 1
        )

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """Encode once, step to every time, decode there."""
        return self.decode_all(self.rollout(batch), batch.queries)


class Normalized(Operator):
    """A model inside the scales of its training data, physical units outside.

    The statistics are buffers: a checkpoint is whole by itself. Use `normalized` to wrap a model:
    it keeps `encode`, `step` and `decode` open where the model has them.
    """

    input_mean: Tensor
    input_scale: Tensor
    output_mean: Tensor
    output_scale: Tensor
    parameter_mean: Tensor
    parameter_scale: Tensor

    def __init__(self, inner: Operator, statistics: Statistics) -> None:
        super().__init__(inner.config, inner.spec)
        self.inner: Any = inner
        self.needs = inner.needs
        for name, value in statistics.tensors().items():
            self.register_buffer(name, value.float())

    def normalize(self, batch: Batch) -> Batch:
        """The batch as the inner model sees it."""
        self.spec.check(batch)
        values = (batch.values - self.input_mean) / self.input_scale
        parameters = batch.parameters
        if parameters is not None:
            parameters = (parameters - self.parameter_mean) / self.parameter_scale
        return replace(batch, values=values, parameters=parameters)

    def denormalize(self, out: Tensor) -> Tensor:
        """What the inner model answers, in physical units and at least float32."""
        out = out.to(torch.promote_types(out.dtype, self.output_mean.dtype))
        return out * self.output_scale + self.output_mean

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """Predict in physical units."""
        return self.denormalize(self.inner(self.normalize(batch)))

    def regions(self) -> Iterator[nn.Module]:
        """The inner model's."""
        yield from self.inner.regions()


class NormalizedLatent(Normalized, LatentOperator):
    """The same for a model whose parts are open to callers."""

    def encode(self, batch: Batch) -> Latent:
        """The inner model's state, from physical units."""
        return self.inner.encode(self.normalize(batch))

    def step(self, latent: Latent) -> Latent:
        """The inner model's."""
        return self.inner.step(latent)

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields in physical units."""
        return self.denormalize(self.inner.decode(latent, queries))

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states, in physical units."""
        return self.denormalize(self.inner.decode_all(states, queries))


def normalized(inner: Operator, statistics: Statistics) -> Normalized:
    """Wrap a model in the scales of its data."""
    wrapper = NormalizedLatent if isinstance(inner, LatentOperator) else Normalized
    return wrapper(inner, statistics)


def parameter_count(model: nn.Module) -> int:
    """The number of trainable scalars."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
