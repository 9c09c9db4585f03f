"""The interface of all models. The package calls them with a `Batch`; people who bring their own
training loop call them with plain tensors.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ipot import registry
from ipot.data.dataset import Dataset
from ipot.data.statistics import Statistics
from ipot.errors import DataError, Unsupported, shown
from ipot.nn.neighbours import Neighbours
from ipot.samples import Batch
from ipot.spec import Need, Spec
from ipot.stopping import stop_if_asked


def spec_for(
    domain: Sequence[tuple[float, float]],
    *,
    inputs: int,
    outputs: int,
    parameters: int,
    steps: int,
    periods: Sequence[float | None],
    query_domain: Sequence[tuple[float, float]],
    shape: Sequence[int],
    same_points: bool,
) -> Spec:
    """The facts of a problem from numbers alone; channels are named by their numbers."""
    for name, count, least in (
        ("inputs", inputs, 0),
        ("outputs", outputs, 1),
        ("parameters", parameters, 0),
        ("steps", steps, 1),
    ):
        if not isinstance(count, int) or count < least:
            raise DataError(
                f"{name} must be a whole number of at least {least}, got {shown(count)}"
            )
    provides: set[Need] = {Need.SAME_POINTS} if same_points or shape else set()
    if shape:
        provides |= {Need.GRID, Need.FIXED_POINTS}
    return Spec(
        name="your data",
        inputs=tuple(f"input {i}" for i in range(inputs)),
        outputs=tuple(f"output {i}" for i in range(outputs)),
        parameters=tuple(f"parameter {i}" for i in range(parameters)),
        domain=tuple((float(a), float(b)) for a, b in domain),
        periods=tuple(periods),
        query_domain=tuple((float(a), float(b)) for a, b in query_domain),
        steps=steps,
        shape=tuple(shape),
        provides=frozenset(provides),
    )


def config_for(model: type, settings: dict[str, Any]) -> Any:
    """The settings of a model's class, with those that were given."""
    cls = registry.config_class(model)
    known = [field.name for field in fields(cls)]
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {shown(close[0])}?" if close else ""
            raise Unsupported(
                f"{model.__name__} has no setting {shown(name)}.{hint} Known: {', '.join(known)}."
            )
    return cls(**settings)


def batch_of(
    spec: Spec,
    points: Float[Tensor, "B1 N D"],
    values: Float[Tensor, "B N C"],
    queries: Float[Tensor, "B2 M E"] | None,
    parameters: Float[Tensor, "B P"] | None,
    mask: Bool[Tensor, "B N"] | None,
    edges: Int[Tensor, "two_ends edges"] | None,
) -> Batch:
    """Tensors as a checked batch, at the times of the spec. Queries default to the points."""
    same = queries is None
    grid = spec.shape if len(spec.shape) > 1 or Need.GRID in spec.provides else None
    batch = Batch(
        points=points,
        values=values,
        queries=points if same else queries,
        times=tuple(spec.dt * (i + 1) for i in range(spec.steps)),
        parameters=parameters,
        point_mask=mask,
        query_mask=mask if same else None,
        edges=edges,
        grid=grid or None,
        query_grid=(grid or None) if same else None,
    )
    spec.check(batch)
    return batch


Model = TypeVar("Model", bound="Operator")
# Not `typing.Self`, which run-time checks of types refuse in a class that they do not decorate.


class Operator(nn.Module, ABC):
    """A map from an input function on any points to an output function at any queries."""

    needs: frozenset[Need] = frozenset()
    """Structure that the model cannot do without."""

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__()
        spec.require(type(self).__name__, self.needs)
        self.config = config
        self.spec = spec

    @classmethod
    def for_tensors(
        cls: type[Model],
        domain: Sequence[tuple[float, float]],
        *,
        inputs: int = 1,
        outputs: int = 1,
        parameters: int = 0,
        steps: int = 1,
        periods: Sequence[float | None] = (),
        query_domain: Sequence[tuple[float, float]] = (),
        shape: Sequence[int] = (),
        same_points: bool = False,
        **settings: Any,
    ) -> Model:
        """A model for your own training loop, to be called by `at` with plain tensors.

        `domain` are the least and the largest value of each coordinate of the points; `inputs`,
        `outputs` and `parameters` are numbers of channels. `shape` is that of the grid that the
        points form, for systems that need one, and `same_points` says that answers are wanted at
        the input points. `settings` are those of the model's `Config`.
        """
        spec = spec_for(
            domain,
            inputs=inputs,
            outputs=outputs,
            parameters=parameters,
            steps=steps,
            periods=periods,
            query_domain=query_domain,
            shape=shape,
            same_points=same_points,
        )
        return cls(config_for(cls, settings), spec)

    def at(
        self,
        points: Float[Tensor, "B1 N D"],
        values: Float[Tensor, "B N C"],
        queries: Float[Tensor, "B2 M E"] | None = None,
        *,
        parameters: Float[Tensor, "B P"] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
        edges: Int[Tensor, "two_ends edges"] | None = None,
    ) -> Tensor:
        """The fields (B, M, K) at the queries, or (B, T, M, K) where there are several steps.

        Points and queries with a leading 1 serve all samples; queries default to the points. `mask`
        is False at padding among the points.
        """
        batch = batch_of(self.spec, points, values, queries, parameters, mask, edges)
        out = self(batch)
        return out[:, 0] if self.spec.steps == 1 else out

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """The prediction at every time and query of a batch."""

    @property
    def name(self) -> str:
        """The name in the registry; the dotted path for a model outside this package."""
        return registry.name_of(type(self))

    def objective(self) -> Any:
        """An objective of the model's own (`ipot.training.objective`); None for the usual loss."""
        return None

    def examine(self, data: Dataset) -> None:
        """Refuse data that lack what the model needs, before training starts.

        The problem may provide it and a view of its data may not.
        """
        first = data[0]
        lost = set()
        if first.grid is None:
            lost.add(Need.GRID)
        if first.edges is None:
            lost.add(Need.EDGES)
        if not _alike(first.points, first.queries):
            lost.add(Need.SAME_POINTS)
        if Need.FIXED_POINTS in self.needs and not self._fixed(data):
            lost.add(Need.FIXED_POINTS)
        spec = replace(self.spec, provides=self.spec.provides - lost)
        spec.require(type(self).__name__, self.needs)

    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Adapt to the points of the first training sample, before training. Most models ignore
        it."""

    def rescale(self, statistics: Statistics) -> None:
        """Take over the scales of inputs and outputs, before training. Most models ignore it; one
        whose answers become past frames needs both scales to convert them."""

    def _fixed(self, data: Dataset) -> bool:
        """True if all samples have the same points, as many as the problem says."""
        first = data[0].points
        count = torch.Size(self.spec.shape).numel() if self.spec.shape else len(first)
        same = all(_alike(first, data[i].points) for i in range(len(data)))
        return same and len(first) == count

    def steps(self, times: tuple[float, ...]) -> list[int]:
        """Times as whole numbers of the problem's step."""
        steps = [round(t / self.spec.dt) for t in times]
        exact = all(
            abs(s * self.spec.dt - t) <= 1e-6 * t for s, t in zip(steps, times, strict=True)
        )
        if not exact or any(b <= a for a, b in zip([0, *steps], steps, strict=False)):
            raise ValueError(f"times must be increasing multiples of dt={self.spec.dt}: {times}")
        return steps


class OneStep(Operator):
    """A model that answers one `dt` ahead. For a problem of several steps the wrapper
    `Autoregressive` feeds it its own answers, so past frames must be among the inputs."""

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__(config, spec)
        if spec.steps > 1:
            name = f"{type(self).__name__}, to take {spec.steps} steps,"
            spec.require(name, frozenset({Need.HISTORY}))

    @abstractmethod
    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """The fields one step ahead, at the queries (B or 1, M, E) of a batch."""

    def forward(self, batch: Batch) -> Float[Tensor, "B 1 M K"]:
        """The answer of `advance`, with an axis for time."""
        if self.steps(batch.times) != [1]:
            raise Unsupported(
                f"{type(self).__name__} answers at one time, dt={self.spec.dt}, and was asked for "
                f"the times {batch.times}: {self.spec.name} has no past frames to go on from"
            )
        n, m = batch.values.shape[1], batch.queries.shape[-2]
        if Need.SAME_POINTS in self.needs and n != m:
            raise DataError(
                f"{type(self).__name__} answers at its input points: {n} points and {m} queries"
            )
        if Need.GRID in self.needs and batch.grid is None:
            raise DataError(f"{type(self).__name__} needs a grid, and this batch has none")
        if batch.queries.ndim == 4:
            batch = replace(batch, queries=batch.queries[:, 0])
        return self.advance(batch).unsqueeze(1)


class SeenPoints(NamedTuple):
    """What a model keeps of its input points beside the latent state."""

    points: Float[Tensor, "B1 N D"]
    features: Float[Tensor, "B NP d"]
    """Of the points, then of the parameters."""
    mask: Bool[Tensor, "B N"] | None = None
    around: Neighbours | None = None
    """The stencils of the points, where features go on in time."""
    frame: Float[Tensor, "B N K"] | None = None
    """The last past frame, where answers are changes since then."""


class Latent(NamedTuple):
    """The state between encoder and decoder. A model without inducing points may pad it."""

    state: Float[Tensor, "B Z d"]
    mask: Bool[Tensor, "B Z"] | None = None
    seen: SeenPoints | None = None
    """The input points, for a decoder that looks at those near a query."""
    age: Float[Tensor, " B"] | None = None
    """How many steps ago they were seen, where that matters."""
    simple: Float[Tensor, "B q"] | None = None
    """What a simple predictor makes of the inputs, for a model that is blended with one, and the
    steps since."""
    steps: int = 0


class LatentOperator(Operator):
    """A model that encodes once, steps in latent space, and decodes at any queries.

    The three parts can be called one by one: to encode once and ask often, or in chunks.
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
        return self.roll_on(self.encode(batch), batch.times)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """The states at some times, from the state at time zero."""
        wanted, states = self.steps(times), []
        for step in range(1, wanted[-1] + 1):
            stop_if_asked()
            latent = self.step(latent)
            if step == wanted[len(states)]:
                states.append(latent)
        return states

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states; on a moving mesh `queries` has an axis T after B."""
        moving = queries.ndim == 4
        fields = []
        for t, state in enumerate(states):
            stop_if_asked()
            fields.append(self.decode(state, queries[:, t] if moving else queries))
        return torch.stack(fields, 1)

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """Encode once, step to every time, and decode there."""
        return self.decode_all(self.rollout(batch), batch.queries)


def without_queries(batch: Batch) -> Batch:
    """The batch as an encoder sees it: with one query, and without grid and targets."""
    mask = batch.query_mask
    return replace(
        batch,
        queries=batch.queries[..., :1, :],
        targets=None,
        weights=None,
        query_mask=None if mask is None else mask[:, :1],
        edges=None,
        grid=None,
        query_grid=None,
    )


def _alike(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))


def parameter_count(model: nn.Module) -> int:
    """The number of trainable scalars."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
