"""Meshes that messages cannot pass through, named before a run is spent on them."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from ipot.data.dataset import Dataset, Stacked
from ipot.errors import DataError
from ipot.nn.graph import Graph
from ipot.samples import Sample

EXAMINED = 50
"""Samples that are looked at where all have one size and meshes of their own."""


def looked_at(data: Dataset) -> range:
    """All samples of a ragged data set; of a stacked one the only mesh, or some of many."""
    if not isinstance(data, Stacked):
        return range(len(data))
    return range(1 if data.one_mesh else min(EXAMINED, len(data)))


def refuse_no_edges(number: int, sample: Sample) -> None:
    """Refuse a mesh that is no more than its nodes."""
    if sample.edges is None or not sample.edges.numel():
        raise DataError(
            f"sample {number}: its mesh has no edges. Give it some, or set model.edges to nearest."
        )


def refuse_duplicates(number: int, sample: Sample) -> None:
    """Refuse points at one place: they are one node, written twice, and no way leads between."""
    _, place, times = torch.unique(sample.points, dim=0, return_inverse=True, return_counts=True)
    twice = times[place] > 1
    if twice.any():
        raise DataError(
            f"sample {number}: {named(twice)} the place of another. Keep one node for each place, "
            "or give the mesh's edges."
        )


def refuse_isolated(number: int, graph: Graph, nodes: int, advice: str) -> None:
    """Refuse nodes at which no edge ends."""
    ends = graph.receivers if graph.real is None else graph.receivers[graph.real]
    alone = torch.bincount(ends, minlength=nodes) == 0
    if alone.any():
        raise DataError(f"sample {number}: {named(alone)} no edge. {advice}")


def named(which: Bool[Tensor, " N"]) -> str:
    """Subject and verb: nodes 4, 17 and 2 more have."""
    numbers = which.nonzero().flatten().tolist()
    shown, more = ", ".join(map(str, numbers[:2])), len(numbers) - 2
    if more < 0:
        return f"node {shown} has"
    return f"nodes {shown} and {more} more have" if more else f"nodes {shown} have"
