"""A model on the globe: longitude and latitude outside, unit vectors inside."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from ipot.models._wrappers import Wrapper
from ipot.models.base import Latent, LatentOperator, Operator
from ipot.nn.globe import is_global, on_globe, vector_bounds
from ipot.samples import Batch
from ipot.spec import Spec


def seen_spec(spec: Spec) -> Spec:
    """The facts as the model inside is sized from: unit vectors instead of degrees."""
    if not spec.geographic:
        return spec
    whole = len(spec.domain) == 2 and is_global(spec.domain)
    behind = (None, None, None)
    return replace(
        spec,
        geographic=False,
        sphere=whole,
        region=() if whole else spec.domain,
        domain=vector_bounds(spec.domain),
        periods=behind + spec.periods[2:],
        query_domain=vector_bounds(spec.query_domain),
        query_periods=behind + spec.query_periods[2:],
    )


def place(model: Operator, spec: Spec) -> Operator:
    """A model built for `seen_spec`, as it is asked in degrees; other models as they are."""
    if not spec.geographic:
        return model
    kind = OnGlobeLatent if isinstance(model, LatentOperator) else OnGlobe
    return kind(model, spec)


class OnGlobe(Wrapper):
    """Maps points and queries before a model sees them."""

    def __init__(self, inner: Operator, spec: Spec) -> None:
        super().__init__(inner)
        self.spec = spec

    def seen(self, batch: Batch) -> Batch:
        """The batch in unit vectors; queries that are the points stay the same object."""
        self.spec.check(batch)
        points = on_globe(batch.points)
        same = batch.queries is batch.points
        return replace(batch, points=points, queries=points if same else on_globe(batch.queries))

    def forward(self, batch: Batch) -> Float[Tensor, "B T M K"]:
        """What the model inside answers."""
        return self.inner(self.seen(batch))


class OnGlobeLatent(OnGlobe, LatentOperator):
    """The same for a model whose parts are open to callers."""

    def encode(self, batch: Batch) -> Latent:
        """The inner model's state."""
        return self.inner.encode(self.seen(batch))

    def step(self, latent: Latent) -> Latent:
        """The inner model's."""
        return self.inner.step(latent)

    def roll_on(self, latent: Latent, times: tuple[float, ...]) -> list[Latent]:
        """The inner model's."""
        return self.inner.roll_on(latent, times)

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """The fields at places in degrees."""
        return self.inner.decode(latent, on_globe(queries))

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states."""
        return self.inner.decode_all(states, on_globe(queries))
