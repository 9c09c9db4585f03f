"""A model as a function of plain tensors, and that as a graph whose sizes are open.

What is traced is the model as it stands. `ipot.accelerate` makes it quicker by ways that depend on
sizes and devices, which a graph must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from ipot.errors import Unsupported
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.spec import Need, Spec

STRUCTURE = frozenset({Need.GRID, Need.EDGES, Need.SAME_POINTS, Need.FIXED_POINTS})
"""What plain tensors of points, values and queries do not carry."""
EXPORTED = "ipot, lattice, relay, transformer, perceiver_io, lno and oformer can be."


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
        return self.model(
            batch_of(dict(zip(self.names, given, strict=True)), self.spec, self.times)
        )


def batch_of(named: dict[str, Tensor], spec: Spec, times: tuple[float, ...]) -> Batch:
    """Tensors by their names as a batch."""
    queries = named["queries"]
    points = named.get("points")
    if points is None:
        points = queries.new_zeros(queries.shape[0], 0, spec.dimension)
    values = named.get("values")
    return Unchecked(
        points=points,
        values=points[..., :0] if values is None else values,
        queries=queries,
        parameters=named.get("parameters"),
        times=times,
    )


def examples(signature: Signature) -> tuple[Tensor, ...]:
    """Tensors of sizes that all differ, of which none is 1."""
    sizes = {"batch": 2, "points": 5, "queries": 7}
    return tuple(torch.rand(signature.shape(name, sizes)) for name in signature.columns)


def trace(plain: Plain, signature: Signature) -> ExportedProgram:
    """The graph of a model, open in batch, points and queries."""
    refuse_structure(plain.model)
    return traced(plain, examples(signature), [signature.axes(name) for name in signature.columns])


def refuse_structure(model: Operator) -> None:
    """Refuse a model that tensors of points, values and queries do not suffice for."""
    if bound := sorted(need.value for need in STRUCTURE & model.needs):
        raise Unsupported(
            f"{model.name} cannot be exported: it needs {' and '.join(bound)}, which plain tensors "
            f"do not carry. {EXPORTED}"
        )


def traced(
    function: nn.Module, example: tuple[Tensor, ...], axes: Sequence[Sequence[str | None]]
) -> ExportedProgram:
    """The graph of a function of tensors. `axes` has the names of the axes of each, those of the
    same name being of one open size; what has no name, or lies after them, has the size of the
    example."""
    dims = {name: Dim(name, min=1) for names in axes for name in names if name}
    shapes = tuple({i: dims[n] for i, n in enumerate(names) if n} for names in axes)
    try:
        with torch.no_grad():
            program = torch.export.export(function, example, dynamic_shapes=(shapes,), strict=True)
    except Exception as error:  # torch has many kinds for one fact: this cannot be traced
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        model = cast(Operator, function.model)
        raise Unsupported(
            f"{model.name} cannot be exported: torch cannot trace it with open sizes ({line}). "
            f"{EXPORTED}"
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it holds paths of this machine
    return program
