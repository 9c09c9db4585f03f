"""A model as a function of plain tensors, and that as a graph whose sizes are open.

What a model does by itself to be quick (kernels, chunks, projections that a batch shares) depends
on sizes and devices. A graph must not, so here it goes by the book, all points at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from ipot.errors import Unsupported
from ipot.models._attentive import Attentive, Encoder
from ipot.models._globe import OnGlobe
from ipot.models._wrappers import Normalized
from ipot.models.base import Operator
from ipot.nn.paths import attention_path
from ipot.samples import Batch
from ipot.spec import Need, Spec

STRUCTURE = frozenset({Need.GRID, Need.EDGES, Need.SAME_POINTS, Need.FIXED_POINTS})
"""What plain tensors of points, values and queries do not carry."""


class Signature:
    """Which tensors a model takes, in their order, and how many columns each has."""

    def __init__(self, spec: Spec, points: bool | None = None) -> None:
        if points is None:
            points = takes_points(spec)
        self.columns: dict[str, int] = {}
        if points:
            self.columns["points"] = spec.dimension
            if spec.channels:
                self.columns["values"] = spec.channels
        self.columns["queries"] = spec.query_dimension
        if spec.parameters:
            self.columns["parameters"] = len(spec.parameters)

    def axes(self, name: str) -> tuple[str, ...]:
        """The names of a tensor's axes that are open."""
        rows = {"points": "points", "values": "points", "queries": "queries"}
        return ("batch", rows[name]) if name in rows else ("batch",)

    def shape(self, name: str, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape of a tensor for some sizes."""
        return (*(sizes[axis] for axis in self.axes(name)), self.columns[name])


def takes_points(spec: Spec) -> bool:
    """Whether a model has input points, as far as the facts tell: without channels and with
    parameters it has some where they are counted, or where they are the queries."""
    return Need.POINTS in spec.provides or bool(spec.shape) or Need.SAME_POINTS in spec.provides


class Unchecked(Batch):
    """A batch that does not look at its sizes: what is asked of an open size closes it."""

    def __post_init__(self) -> None:
        pass


class Plain(nn.Module):
    """A model with tensors in and a tensor out, in physical units and for its own times."""

    def __init__(self, model: Operator, spec: Spec, signature: Signature) -> None:
        super().__init__()
        self.model, self.spec = model, spec
        self.names = tuple(signature.columns)
        self.times = tuple(spec.dt * (i + 1) for i in range(spec.steps))

    def forward(self, *given: Tensor) -> Tensor:
        """The fields (B, T, M, K)."""
        named = dict(zip(self.names, given, strict=True))
        queries = named["queries"]
        points = named.get("points")
        if points is None:
            points = queries.new_zeros(queries.shape[0], 0, self.spec.dimension)
        values = named.get("values")
        batch = Unchecked(
            points=points,
            values=points[..., :0] if values is None else values,
            queries=queries,
            parameters=named.get("parameters"),
            times=self.times,
        )
        inner, seen = _opened(self.model, batch)
        if not isinstance(inner, Attentive):
            return self.model(batch)
        # Not `inner.encode`, which cuts many points into chunks.
        latent = Encoder.forward(inner.encoder, seen.points, seen.values, seen.parameters, None)
        model: Any = self.model
        answers = []
        for _ in self.times:
            latent = inner.step(latent)
            answers.append(model.decode(latent, queries))
        return torch.stack(answers, 1)


def _opened(model: Any, batch: Batch) -> tuple[Operator, Batch]:
    """The model inside its wrappers, and the batch as it sees it."""
    if isinstance(model, OnGlobe):
        return _opened(model.inner, model.placed(batch))
    if isinstance(model, Normalized):
        return _opened(model.inner, model.normalize(batch))
    return model, batch


def trace(plain: Plain, signature: Signature) -> ExportedProgram:
    """The graph of a model, open in batch, points and queries."""
    model = plain.model
    if bound := sorted(need.value for need in STRUCTURE & model.needs):
        raise Unsupported(
            f"{model.name} cannot be exported: it needs {' and '.join(bound)}, which plain tensors "
            "do not carry. ipot, transformer, perceiver_io, lno and oformer can be."
        )
    sizes = {"batch": 2, "points": 5, "queries": 7}  # all differ, and none is 1
    dims = {name: Dim(name, min=1) for name in sizes}
    example = tuple(torch.rand(signature.shape(name, sizes)) for name in signature.columns)
    shapes = tuple(
        {i: dims[axis] for i, axis in enumerate(signature.axes(name))} for name in signature.columns
    )
    try:
        with attention_path("plain"), torch.no_grad():
            program = torch.export.export(plain, example, dynamic_shapes=(shapes,), strict=True)
    except Exception as error:  # torch has many kinds for one fact: this cannot be traced
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise Unsupported(
            f"{model.name} cannot be exported: torch cannot trace it with open sizes ({line}). "
            "ipot, transformer, perceiver_io, lno and oformer can be."
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it holds paths of this machine
    return program
