"""Models for people who bring their own loop: sized by a few numbers, called with tensors."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from ipot import registry
from ipot.errors import DataError, Unsupported, shown
from ipot.samples import Batch
from ipot.spec import Need, Spec


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
    """The facts of a problem from numbers alone; its channels are called by their numbers."""
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
    kind = registry.config_class(model)
    known = [field.name for field in fields(kind)]
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {shown(close[0])}?" if close else ""
            raise Unsupported(
                f"{model.__name__} has no setting {shown(name)}.{hint} Known: {', '.join(known)}."
            )
    return kind(**settings)


def batch_of(
    spec: Spec,
    points: Float[Tensor, "B1 N D"],
    values: Float[Tensor, "B N C"],
    queries: Float[Tensor, "B2 M E"] | None,
    parameters: Float[Tensor, "B P"] | None,
    mask: Bool[Tensor, "B N"] | None,
    edges: Int[Tensor, "two_ends edges"] | None,
) -> Batch:
    """Tensors as a checked batch, asked at the times of the spec; queries are the points unless
    said."""
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
