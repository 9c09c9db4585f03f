"""Messages along the edges of a mesh.

    e_ij += f(e_ij, v_j, v_i)          every edge hears its sender j and its receiver i
    v_i  += g(v_i, Σ_j f(...))         every node hears the sum of its incoming messages

Nodes start from the values, the parameters and the place; edges from the vector between their ends
and its length. All maps are small networks followed by a LayerNorm, with weights of their own at
every step; a last one, without LayerNorm, gives the fields at the nodes. One step reaches one
neighbour farther. Pfaff, Fortunato, Sanchez-Gonzalez and Battaglia, "Learning mesh-based simulation
with graph networks", ICLR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ipot.data.dataset import Dataset, Stacked
from ipot.errors import DataError, Unsupported
from ipot.models._settings import positive
from ipot.models.base import OneStep
from ipot.nn.graph import (
    Graph,
    Space,
    from_edges,
    from_neighbours,
    grid_neighbours,
    nearest,
    without_padding,
)
from ipot.nn.mlp import MLP
from ipot.nn.points import FourierFeatures, with_parameters
from ipot.samples import Batch, Sample, collate
from ipot.spec import Need, Spec

NEEDED = {"mesh": {Need.EDGES}, "grid": {Need.GRID}}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The published sizes, and where the edges come from."""

    width: int = 128
    """Channels of nodes, of edges and of all hidden layers."""
    layers: int = 15
    """Steps of message passing, each with weights of its own."""
    hidden: int = 2
    """Hidden layers of every network."""
    edges: Literal["auto", "mesh", "grid", "radius", "nearest"] = "auto"
    """auto: the mesh's own where it has any, else those of a grid, else the nearest points."""
    neighbours: int = 6
    """Incoming edges of a node, or the most of them, for nearest and radius."""
    radius: float = 0.1
    """How far an edge by radius may reach, with the domain as a unit box."""
    positions: bool = True
    """Give every node its coordinates, besides the vectors to its neighbours."""
    recompute: bool = False
    """Keep one state for every step and compute the rest again in the backward pass."""

    def __post_init__(self) -> None:
        positive(self, "width", "layers", "hidden", "neighbours", "radius")


def network(inputs: int, config: Config, outputs: int | None = None) -> MLP:
    """A small network to the width and a LayerNorm, or to the outputs without one."""
    sizes = (inputs, *(config.width,) * config.hidden, outputs or config.width)
    return MLP(sizes, activation="relu", norm=outputs is None)


class Messages(nn.Module):
    """One step: edges from their ends, nodes from their edges."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.edge = network(3 * config.width, config)
        self.node = network(2 * config.width, config)

    def forward(
        self, nodes: Float[Tensor, "G R d"], edges: Float[Tensor, "G1 E d"], graph: Graph
    ) -> tuple[Float[Tensor, "G R d"], Float[Tensor, "G E d"]]:
        """Nodes and edges a step later. The nodes receive the updates of the edges, not the
        edges."""
        # The first layer on (edge, sender, receiver) in three parts: those of the ends are products
        # with N rows and not with as many as there are edges.
        first: Any = self.edge.layers[0]
        own, sender, receiver = first.weight.chunk(3, 1)
        heard = F.linear(edges, own, first.bias)
        heard = heard + graph.at_senders(F.linear(nodes, sender))
        heard = heard + graph.at_receivers(F.linear(nodes, receiver))
        update = graph.only_real(self.edge.layers[1:](heard))
        summed = graph.incoming(update, nodes.shape[1])
        return nodes + self.node(torch.cat([nodes, summed], -1)), edges + update


class MeshGraphNet(OneStep):
    """Encode nodes and edges, pass messages, decode the nodes."""

    needs = frozenset({Need.SAME_POINTS})

    edge_length: Tensor

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.needs = self.needs | NEEDED.get(config.edges, set())
        spec.require(f"{type(self).__name__} with model.edges={config.edges}", self.needs)
        self.space = Space(spec.domain, spec.periods)
        self.position = None
        features = spec.channels + len(spec.parameters)
        if config.positions:
            # Coordinates, and the sine and cosine of periodic ones: no seam where they wrap.
            waves = [0 if p is None else 1 for p in spec.periods]
            self.position = FourierFeatures(
                waves, [2.0] * len(waves), domain=spec.domain, periods=spec.periods
            )
            features += self.position.width
        if not features:
            raise Unsupported(
                f"{spec.name} has no values and no parameters: a node that does not know its place "
                "either has nothing to start from. Set model.positions to True."
            )
        self.encode_nodes = network(features, config)
        self.encode_edges = network(spec.dimension + 1, config)
        self.messages = nn.ModuleList(Messages(config) for _ in range(config.layers))
        self.decode = network(config.width, config, len(spec.outputs))
        # The scale of the edges' features, zero until data have been seen; stored with the weights.
        self.register_buffer("edge_length", torch.zeros(1))

    def advance(self, batch: Batch) -> Float[Tensor, "B M K"]:
        """The fields at the nodes."""
        graph = self.graph(batch)
        nodes = graph.rows(self.encode_nodes(self._node_features(batch)))
        edges = self.encode_edges(self._edge_features(batch, graph))
        again = self.config.recompute and torch.is_grad_enabled()
        for step in self.messages:
            if again:
                # Nothing is random in a step, and a captured graph cannot look at such a state.
                nodes, edges = checkpoint(
                    step, nodes, edges, graph, use_reentrant=False, preserve_rng_state=False
                )
            else:
                nodes, edges = step(nodes, edges, graph)
        return self.decode(nodes).view(*batch.values.shape[:2], len(self.spec.outputs))

    def graph(self, batch: Batch) -> Graph:
        """The edges of a batch: those of its mesh, of its grid, or between neighbours."""
        edges_from, mask = self.edges_from(batch), batch.point_mask
        samples, nodes, _ = batch.values.shape
        if edges_from == "mesh":
            if batch.edges is None:
                raise DataError("model.edges=mesh needs edges, and this batch has none")
            return from_edges(batch.edges, samples * nodes)
        if edges_from == "grid":
            if batch.grid is None:
                raise DataError("model.edges=grid needs a grid, and this batch has none")
            found = grid_neighbours(batch.grid, self.spec.wraps, batch.values.device)
            return from_neighbours(*without_padding(*found, mask))
        places = self.space(batch.points)
        if mask is not None:
            places = places.expand(samples, -1, -1)
        radius = self.config.radius if edges_from == "radius" else None
        count = self.config.neighbours
        return from_neighbours(*nearest(places, self.space, count, mask=mask, radius=radius))

    def edges_from(self, cases: Batch | Sample) -> str:
        """Where the edges of these cases come from."""
        if self.config.edges != "auto":
            return self.config.edges
        if cases.edges is not None:
            return "mesh"
        return "nearest" if cases.grid is None else "grid"

    def examine(self, data: Dataset) -> None:
        """Refuse nodes without an edge and points that coincide, and say which.

        The first data that a new model sees also give the scale of its edges.
        """
        super().examine(data)
        for number in looked_at(data):
            self._look_at(number, data[number])
        if not self.edge_length.any():
            batch = self._alone(data[0])
            graph = self.graph(batch)
            length = self._displacements(batch, graph).square().sum(-1).flatten()
            length = length if graph.real is None else length[graph.real]
            self.edge_length.copy_(length.mean().sqrt())

    def _node_features(self, batch: Batch) -> Tensor:
        values = with_parameters(batch.values, batch.parameters)
        if self.position is None:
            return values
        position = self.position(batch.points).expand(batch.size, -1, -1)
        return torch.cat([values, position.to(values.dtype)], -1)

    def _edge_features(self, batch: Batch, graph: Graph) -> Tensor:
        """The vector from receiver to sender and its length, in typical lengths of an edge."""
        displacement = self._displacements(batch, graph)
        length = torch.linalg.vector_norm(displacement, dim=-1, keepdim=True)
        scale = torch.where(self.edge_length > 0, self.edge_length, 1.0)
        return torch.cat([displacement, length], -1) / scale

    def _displacements(self, batch: Batch, graph: Graph) -> Tensor:
        places = self.space(batch.points)
        if not graph.shared:
            places = places.expand(batch.size, -1, -1)
        places = graph.rows(places)
        return self.space.displacement(graph.at_receivers(places), graph.at_senders(places))

    def _alone(self, sample: Sample) -> Batch:
        """A batch of one sample, on the device of the model."""
        return collate([sample]).to(self.edge_length.device)

    def _look_at(self, number: int, sample: Sample) -> None:
        edges_from = self.edges_from(sample)
        if edges_from == "mesh":
            refuse_no_edges(number, sample)
        elif edges_from != "grid":
            refuse_duplicates(number, sample)
        advice = {
            "mesh": "Join each to another, leave it out, or set model.edges to nearest.",
            "radius": f"No other is within model.radius={self.config.radius} (of the unit box): "
            "make it larger, or set model.edges to nearest.",
        }
        # Neighbours on a grid and nearest ones are always there, unless there is one node alone.
        if edges_from in advice or len(sample.points) == 1:
            graph = self.graph(self._alone(sample))
            words = advice.get(edges_from, "A graph takes two nodes at least.")
            refuse_isolated(number, graph, len(sample.points), words)


MODEL = MeshGraphNet


EXAMINED = 50
"""Samples that are looked at where all have one size and meshes of their own."""


def looked_at(data: Dataset) -> range:
    """The samples to check: all of a ragged data set; the one mesh of a stacked one, or some of
    many."""
    if not isinstance(data, Stacked):
        return range(len(data))
    return range(1 if data.one_mesh else min(EXAMINED, len(data)))


def refuse_no_edges(number: int, sample: Sample) -> None:
    """Refuse a mesh without edges."""
    if sample.edges is None or not sample.edges.numel():
        raise DataError(
            f"sample {number}: its mesh has no edges. Give it some, or set model.edges to nearest."
        )


def refuse_duplicates(number: int, sample: Sample) -> None:
    """Refuse points at the same place: they are one node, written twice, with no edge between."""
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
    """The nodes and a verb for a sentence: "nodes 4, 17 and 2 more have"."""
    numbers = which.nonzero().flatten().tolist()
    shown, more = ", ".join(map(str, numbers[:2])), len(numbers) - 2
    if more < 0:
        return f"node {shown} has"
    return f"nodes {shown} and {more} more have" if more else f"nodes {shown} have"
