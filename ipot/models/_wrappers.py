"""Models around models: the scales of the data, steps in physical space, and the globe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ipot.data.dataset import Dataset, Ragged, Stacked
from ipot.data.statistics import Statistics
from ipot.errors import DataError, Unsupported
from ipot.models.base import Latent, LatentOperator, OneStep, Operator
from ipot.nn.globe import is_global, on_globe, vector_bounds
from ipot.nn.neighbours import Surroundings
from ipot.nn.places import Places, chart
from ipot.samples import Batch, Sample
from ipot.spec import Need, Spec
from ipot.stopping import stop_if_asked

NEARLY = 0.05
"""How far, in gaps, a training point may lie from its place on a regular grid."""
Located = TypeVar("Located", Batch, Sample)


class Wrapper(Operator):
    """A model around another one, whose name, objective and checks it takes over."""

    def __init__(self, inner: Operator) -> None:
        super().__init__(inner.config, inner.spec)
        self.inner: Any = inner
        self.needs = inner.needs

    @property
    def name(self) -> str:
        """That of the inner model."""
        return self.inner.name

    def objective(self) -> Any:
        """That of the inner model."""
        return self.inner.objective()

    def examine(self, data: Dataset) -> None:
        """Passed on to the inner model."""
        self.inner.examine(data)

    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Passed on to the inner model."""
        self.inner.measure(points)

    def seen(self, batch: Batch) -> Batch:
        """The batch as the inner model sees it."""
        return batch

    def encoded(self, latent: Latent, batch: Callable[[], Batch]) -> Latent:
        """A state that the inner model has encoded, with what this one adds to it."""
        return latent


class LatentWrapper(Wrapper, LatentOperator):
    """A wrapper whose states are those of the inner model."""

    def encode(self, batch: Batch) -> Latent:
        """The inner model's state, of the batch as it sees it."""
        return self.inner.encode(self.seen(batch))

    def step(self, latent: Latent) -> Latent:
        """That of the inner model."""
        return self.inner.step(latent)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """That of the inner model."""
        return self.inner.roll_on(latent, times)


class Inward(nn.Module):
    """From physical units to the scales of the data."""

    def forward(
        self, x: Float[Tensor, "*B C"], mean: Float[Tensor, " C"], scale: Float[Tensor, " C"]
    ) -> Float[Tensor, "*B C"]:
        """(x - mean) / scale."""
        return (x - mean) / scale


class Outward(nn.Module):
    """From the scales of the data to physical units."""

    def forward(
        self,
        x: Float[Tensor, "*B K"],
        mean: Float[Tensor, "*#B K"],
        scale: Float[Tensor, "*#B K"],
    ) -> Float[Tensor, "*B K"]:
        """x * scale + mean, at least as precise as the scales."""
        return x.to(torch.promote_types(x.dtype, mean.dtype)) * scale + mean


class Normalized(Wrapper):
    """Physical units in and out, around a model that works in the scales of its training data.

    The statistics are buffers: a checkpoint is whole by itself.
    """

    input_mean: Tensor
    input_scale: Tensor
    output_mean: Tensor
    output_scale: Tensor
    parameter_mean: Tensor
    parameter_scale: Tensor

    def __init__(self, inner: Operator, statistics: Statistics) -> None:
        super().__init__(inner)
        for name, value in statistics.tensors().items():
            held = value.float()
            # An output of scale zero is its mean whatever the model says: it is constant.
            divides = name in ("input_scale", "parameter_scale")
            if not bool(torch.isfinite(held).all()) or (divides and not held.all()):
                raise DataError(
                    f"{name} of the training data is {value.tolist()}, which float32 cannot hold: "
                    "choose other units"
                )
            self.register_buffer(name, held)
        self.inward, self.outward = Inward(), Outward()
        inner.rescale(statistics)

    def of_channels(self, kind: str) -> tuple[Tensor, Tensor]:
        """Mean and deviation of every channel: of "input", "output" or "parameter"."""
        return getattr(self, f"{kind}_mean"), getattr(self, f"{kind}_scale")

    def seen(self, batch: Batch) -> Batch:
        """The batch in the scales of the data."""
        self.spec.check(batch)
        values = self.inward(batch.values, self.input_mean, self.input_scale)
        parameters = batch.parameters
        if parameters is not None:
            parameters = self.inward(parameters, self.parameter_mean, self.parameter_scale)
        return replace(batch, values=values, parameters=parameters)

    def denormalize(self, out: Tensor, queries: Tensor | None = None) -> Tensor:
        """The inner model's answer in physical units, in float32 at least."""
        return self.outward(out, self.output_mean, self.output_scale)

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """Predict in physical units."""
        return self.denormalize(self.inner(self.seen(batch)), batch.queries)


class NormalizedLatent(Normalized, LatentWrapper):
    """`Normalized` for a model whose encoder, steps and decoder can be called one by one."""

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields in physical units."""
        return self.denormalize(self.inner.decode(latent, queries), queries)

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states, in physical units."""
        return self.denormalize(self.inner.decode_all(states, queries), queries)


class NormalizedAtPoints(Normalized):
    """`Normalized` with a mean and a scale of the answer at each point of the training grid.

    Elsewhere both are interpolated: a model trained on one grid may be asked on another.
    """

    def __init__(self, inner: Operator, statistics: Statistics) -> None:
        points = torch.Size(inner.spec.shape).numel()
        names = ("output_mean", "output_scale")  # of each point, or one for all
        each = {n: getattr(statistics, n).expand(points, -1).contiguous() for n in names}
        super().__init__(inner, replace(statistics, **each))
        if inner.objective() is not None:
            raise Unsupported(
                f"--training.each-point is for systems that are trained by the error of their "
                f"answers, and {inner.name} is not: leave it out"
            )
        self.places = Places(chart(inner.spec), inner.spec.shape)

    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Find the training grid, to interpolate from."""
        self.places.measure(points)
        there = len(points) == self.places.number
        off = self.places.in_gaps(points[None])[0] - self.places.steps if there else None
        if off is None or float(off.abs().max()) > NEARLY:
            raise DataError(
                f"--training.each-point interpolates between the points of a regular grid of "
                f"{' x '.join(map(str, self.spec.shape))}, and those of {self.spec.name} are none: "
                "leave it out"
            )
        super().measure(points)

    def of_channels(self, kind: str) -> tuple[Tensor, Tensor]:
        """Mean and deviation of every channel; of outputs over all points together."""
        mean, scale = super().of_channels(kind)
        if kind != "output":
            return mean, scale
        return mean.mean(0), (scale.square().mean(0) + mean.var(0, correction=0)).sqrt()

    def denormalize(self, out: Tensor, queries: Tensor | None = None) -> Tensor:
        """The inner model's answer in physical units. In training the queries are the grid."""
        if self.training or queries is None:
            return super().denormalize(out)
        near = self.places(queries)
        mean, scale = (near.look_up(t.unsqueeze(0)) for t in (self.output_mean, self.output_scale))
        if out.ndim == 4:
            mean, scale = mean.unsqueeze(1), scale.unsqueeze(1)
        return self.outward(out, mean, scale)


class NormalizedAtPointsLatent(NormalizedAtPoints, NormalizedLatent):
    """`NormalizedAtPoints` for a model whose encoder and decoder can be called one by one."""


class Change(Wrapper):
    """Adds the last past frame to the answer of a model that predicts the change since then.

        u(t, y) = u(0, y) + model(t, y)

    At the input points u(0, y) is among the inputs. At other queries it is interpolated from the
    nearest of them, by a plane that meets the inputs themselves.
    """

    def __init__(self, inner: Operator) -> None:
        super().__init__(inner)
        if inner.objective() is not None:
            raise Unsupported(
                f"--training.change is for systems that are trained by the error of their answers, "
                f"and {inner.name} is not: leave it out"
            )
        if getattr(inner.config, "change", False):
            raise Unsupported(
                f"{inner.name} answers with the change since the last frame by itself "
                "(model.change), and --training.change would add the frame twice: use one of them"
            )
        spec = inner.spec
        self.around = Surroundings(spec.domain, spec.periods, shape=spec.shape)

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """The frame and its change, in no lower precision than the frame."""
        change, frame = self.inner(batch), self.frame(batch)
        return frame + change.to(torch.promote_types(change.dtype, frame.dtype))

    def frame(self, batch: Batch) -> Float[Tensor, "B T1 M K"]:
        """The last past frame at the queries."""
        history, channels = self.spec.history, len(self.spec.outputs)
        last = batch.values[..., (history - 1) * channels : history * channels]
        if answers_at_points(self, batch):
            return last.unsqueeze(1)
        times = batch.queries.shape[1] if batch.queries.ndim == 4 else 1
        queries = batch.queries.flatten(1, 2) if times > 1 else batch.queries
        queries = queries.squeeze(1) if queries.ndim == 4 else queries
        near = self.around.near(batch.points, queries, batch.point_mask)
        return near.look_up(last).unflatten(1, (times, -1))


class Autoregressive(Wrapper):
    """A model of one step, applied again and again to its own answers.

    Each answer becomes the newest past frame and the oldest one is dropped; the channels after the
    past frames stay. Where the queries are not the input points, the model is called twice: at the
    points, to go on from, and at the queries, to answer.
    """

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """Roll on to every time of the batch."""
        wanted, frame = self.steps(batch.times), len(self.spec.outputs)
        history = self.spec.history * frame
        past, static = batch.values[..., :history], batch.values[..., history:]
        bound, answers = answers_at_points(self, batch), []
        for step in range(1, wanted[-1] + 1):
            stop_if_asked()
            values = torch.cat([past, static], -1)
            asked = step == wanted[len(answers)]
            if asked:
                answers.append(self.inner(self._ahead(batch, values, len(answers))))
            if step == wanted[-1]:
                break
            state = answers[-1] if asked and bound else self.inner(self._at_points(batch, values))
            past = torch.cat([past[..., frame:], self._real(state[:, 0], batch)], -1)
        return torch.cat(answers, 1)

    def _ahead(self, batch: Batch, values: Tensor, place: int) -> Batch:
        """The batch one step before one of its times, with the queries of that time."""
        queries = batch.queries if batch.queries.ndim == 3 else batch.queries[:, place]
        return replace(batch, values=values, queries=queries, times=(self.spec.dt,), targets=None)

    def _at_points(self, batch: Batch, values: Tensor) -> Batch:
        """The batch with its input points as queries."""
        return replace(
            batch,
            values=values,
            queries=batch.points,
            query_mask=batch.point_mask,
            query_grid=batch.grid,
            weights=None,
            times=(self.spec.dt,),
            targets=None,
        )

    def _real(self, frame: Tensor, batch: Batch) -> Tensor:
        """Zero at padding, so that answers there cannot grow from step to step."""
        mask = batch.point_mask
        return frame if mask is None else frame.masked_fill(~mask.unsqueeze(-1), 0.0)


def answers_at_points(model: Operator, batch: Batch) -> bool:
    """True if the queries are the input points, so that an answer can be the next input."""
    same = batch.asked_where_seen or batch.points is batch.queries
    return batch.queries.ndim == 3 and (same or Need.SAME_POINTS in model.needs)


def wrap(inner: Operator, statistics: Statistics) -> Operator:
    """The model as it is trained and stored: normalised, and rolled out over all of its steps."""
    each = inner.spec.each_point
    if isinstance(inner, LatentOperator):
        latent = (NormalizedAtPointsLatent if each else NormalizedLatent)(inner, statistics)
        return Change(latent) if inner.spec.change else latent
    model: Operator = (NormalizedAtPoints if each else Normalized)(inner, statistics)
    if inner.spec.change:
        model = Change(model)
    if isinstance(inner, OneStep) and inner.spec.history:
        return Autoregressive(model)
    return model


def seen_spec(spec: Spec) -> Spec:
    """The spec that the inner model is built from: unit vectors instead of degrees."""
    if not spec.geographic:
        return spec
    whole = len(spec.domain) == 2 and is_global(spec.domain)
    axes = (None, None, None)
    return replace(
        spec,
        geographic=False,
        sphere=whole,
        region=() if whole else spec.domain,
        domain=vector_bounds(spec.domain),
        periods=axes + spec.periods[2:],
        query_domain=vector_bounds(spec.query_domain),
        query_periods=axes + spec.query_periods[2:],
    )


def wrap_globe(model: Operator, spec: Spec) -> Operator:
    """A model built for `seen_spec`, to be called in degrees. Without degrees, the model itself."""
    if not spec.geographic:
        return model
    if model.objective() is not None:
        raise Unsupported(
            f"{model.name} is trained by an objective of its own, which knows nothing of longitude "
            "and latitude"
        )
    wrapper = OnGlobeLatent if isinstance(model, LatentOperator) else OnGlobe
    return wrapper(model, spec)


class OnGlobe(Wrapper):
    """Turns degrees into unit vectors before the inner model sees them."""

    def __init__(self, inner: Operator, spec: Spec) -> None:
        super().__init__(inner)
        self.spec = spec

    def seen(self, batch: Batch) -> Batch:
        """The batch in unit vectors; queries that are the points stay the same object."""
        self.spec.check(batch)
        return self._mapped(batch)

    def examine(self, data: Dataset) -> None:
        """Let the inner model check the data in unit vectors."""
        if isinstance(data, Stacked):
            self.inner.examine(Stacked(self._mapped(data.data), check=False))
        else:
            samples = [self._mapped(data[i]) for i in range(len(data))]
            self.inner.examine(Ragged(samples, check=False))

    def _mapped(self, places: Located) -> Located:
        points = on_globe(places.points)
        same = places.queries is places.points
        return replace(places, points=points, queries=points if same else on_globe(places.queries))

    def measure(self, points: Float[Tensor, "N D"]) -> None:
        """Passed on to the inner model in unit vectors."""
        self.inner.measure(on_globe(points))

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """The inner model's answer."""
        return self.inner(self.seen(batch))


class OnGlobeLatent(OnGlobe, LatentWrapper):
    """`OnGlobe` for a model whose encoder, steps and decoder can be called one by one."""

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields at places in degrees."""
        return self.inner.decode(latent, on_globe(queries))

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states."""
        return self.inner.decode_all(states, on_globe(queries))
