"""Graphs on points: which nodes are neighbours, and sums over neighbours.

Two forms, one type. Where every node has the same number of neighbours, the edges lie receiver by
receiver, and a sum over them is a sum along an axis. Otherwise they are a list, and a sum is a
scatter. Shapes never depend on values: edges that must not count are masked, not removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ipot.nn.points import UnitBox
from ipot.spec import Bounds

AT_ONCE = 1 << 22
"""Pairs of places that a search for neighbours compares at a time."""
TILT = 1e-4
"""Part of a squared distance by which its direction counts, so that ties have a winner."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Directed edges over the nodes of a batch.

    `shared`: the edges number the N nodes of any sample, and serve all alike. Otherwise they number
    the B N nodes of the whole batch. `degree`: how many edges end at each node, if that is the same
    for all; the edges then lie receiver by receiver. `real` is None where all edges are.
    """

    senders: Int[Tensor, " E"]
    receivers: Int[Tensor, " E"]
    real: Bool[Tensor, " E"] | None = None
    shared: bool = False
    degree: int | None = None

    def rows(self, nodes: Float[Tensor, "B N d"]) -> Float[Tensor, "G R d"]:
        """Features of nodes in the order that edges number them in."""
        return nodes if self.shared else nodes.flatten(0, 1).unsqueeze(0)

    def at_senders(self, nodes: Float[Tensor, "G R d"]) -> Float[Tensor, "G E d"]:
        """The features of every edge's start."""
        return nodes.index_select(1, self.senders)

    def at_receivers(self, nodes: Float[Tensor, "G R d"]) -> Float[Tensor, "G E d"]:
        """The features of every edge's end."""
        if self.degree is None:
            return nodes.index_select(1, self.receivers)
        return nodes.unsqueeze(2).expand(-1, -1, self.degree, -1).flatten(1, 2)

    def only_real(self, edges: Float[Tensor, "G E d"]) -> Float[Tensor, "G E d"]:
        """The rows with zeros at edges that are padding."""
        return edges if self.real is None else edges * self.real.unsqueeze(-1)

    def incoming(self, edges: Float[Tensor, "G E d"], nodes: int) -> Float[Tensor, "G R d"]:
        """The sum, at each of so many nodes, over the edges that end there."""
        if self.degree is not None:
            return edges.unflatten(1, (nodes, self.degree)).sum(2)
        empty = edges.new_zeros(edges.shape[0], nodes, edges.shape[-1])
        return empty.index_add(1, self.receivers, edges)


def from_neighbours(
    index: Int[Tensor, "G N k"], real: Bool[Tensor, "G N k"] | None = None
) -> Graph:
    """The graph in which node n of sample g receives from the nodes `index[g, n]` of that sample.

    With G = 1 it is shared by any number of samples.
    """
    samples, nodes, degree = index.shape
    first = nodes * torch.arange(samples, device=index.device).view(-1, 1, 1)
    rows = torch.arange(samples * nodes, device=index.device)
    return Graph(
        senders=(index + first).flatten(),
        receivers=rows.unsqueeze(-1).expand(-1, degree).flatten(),
        real=None if real is None else real.flatten(),
        shared=samples == 1,
        degree=degree,
    )


def without_padding(
    index: Int[Tensor, "G N k"],
    real: Bool[Tensor, "G N k"] | None,
    mask: Bool[Tensor, "B N"] | None,
) -> tuple[Int[Tensor, "G1 N k"], Bool[Tensor, "G1 N k"] | None]:
    """The neighbours without those to and from rows that a mask says are padding."""
    if mask is None:
        return index, real
    index = index.expand(mask.shape[0], -1, -1)
    both = mask.unsqueeze(-1) & mask.gather(1, index.flatten(1)).view_as(index)
    return index, both if real is None else both & real


def from_edges(edges: Int[Tensor, "two_ends e"], nodes: int) -> Graph:
    """A mesh's own edges among B N nodes, in both directions, each once, without loops.

    Duplicates are masked, so a list with each edge in one direction costs least.
    """
    ends = torch.cat([edges, edges.flip(0)], 1)
    code = (ends[1] * nodes + ends[0]).sort().values
    senders, receivers = code % nodes, code // nodes
    again = torch.zeros_like(code, dtype=torch.bool)
    again[1:] = code[1:] == code[:-1]
    return Graph(senders, receivers, ~again & (senders != receivers))


@lru_cache(maxsize=32)
def grid_neighbours(
    shape: tuple[int, ...], wraps: tuple[bool, ...], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """The neighbours (1, N, k) of every node of a row-major grid, and which of them are real.

    Up to two axes diagonal neighbours count (2 and 8 neighbours); from three on only those along
    the axes do (6). Nodes at an open end have fewer.
    """
    if len(shape) != len(wraps):
        raise ValueError(f"a grid {shape} with {len(wraps)} axes that wrap or do not")
    # Kept for training too, which may not use what is made while predicting.
    with torch.inference_mode(False):
        nodes = torch.arange(math.prod(shape))
        places = torch.unravel_index(nodes, shape)
        index, real = [], []
        for offset in _offsets(len(shape)):
            there = [(p + o) % n for p, o, n in zip(places, offset, shape, strict=True)]
            inside = torch.ones_like(nodes, dtype=torch.bool)
            for p, o, n, wrap in zip(places, offset, shape, wraps, strict=True):
                # Around a circle of two, forward and backward is the same neighbour.
                inside &= (o == 0 or n > 2 or o == n - 1) if wrap else (p + o >= 0) & (p + o < n)
            flat = torch.zeros_like(nodes)
            for place, n in zip(there, shape, strict=True):
                flat = flat * n + place
            index.append(torch.where(inside, flat, nodes))
            real.append(inside)
        exists = torch.stack(real, -1).unsqueeze(0)
        mask = None if bool(exists.all()) else exists.to(device)
        return torch.stack(index, -1).unsqueeze(0).to(device), mask


def _offsets(axes: int) -> list[tuple[int, ...]]:
    steps = product((-1, 0, 1), repeat=axes)
    most = axes if axes <= 2 else 1
    return [step for step in steps if 0 < sum(map(abs, step)) <= most]


class Space(nn.Module):
    """Coordinates in the unit box of a domain, and displacements between them.

    On a periodic axis a displacement is the shorter of the two.
    """

    def __init__(self, domain: Bounds, periods: tuple[float | None, ...]) -> None:
        super().__init__()
        self.box = UnitBox(domain)
        self.axes = len(domain)
        self.periods = [
            p and p / (high - low) for p, (low, high) in zip(periods, domain, strict=True)
        ]

    def forward(self, points: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """The places of points."""
        return self.box(points)

    def along(self, axis: int, start: Tensor, end: Tensor) -> Tensor:
        """The displacement along an axis."""
        apart, period = end - start, self.periods[axis]
        return apart - period * (apart / period).round() if period else apart

    def displacement(
        self, start: Float[Tensor, "*a D"], end: Float[Tensor, "*b D"]
    ) -> Float[Tensor, "*c D"]:
        """The displacement from one place to another."""
        parts = (self.along(i, start[..., i], end[..., i]) for i in range(self.axes))
        return torch.stack(list(parts), -1)


@torch.no_grad()
def nearest(
    places: Float[Tensor, "G N D"],
    space: Space,
    count: int,
    *,
    mask: Bool[Tensor, "G N"] | None = None,
    radius: float | None = None,
) -> tuple[Int[Tensor, "G N k"], Bool[Tensor, "G N k"] | None]:
    """The `count` nearest other places of every place, and which of them are real.

    Padding has no neighbours and is nobody's neighbour; with `radius`, places farther away are not
    neighbours either. An entry that is not real is the place itself. Among neighbours at the same
    distance a fixed direction decides, so that the choice does not depend on how places are
    numbered. Rows are taken in pieces, so that memory grows with N and not with its square.
    """
    samples, nodes, _ = places.shape
    count = min(count, nodes - 1)
    here = torch.arange(nodes, device=places.device).view(1, -1, 1)
    index = here.new_empty(samples, nodes, count)
    real = torch.ones_like(index, dtype=torch.bool)
    piece = max(1, AT_ONCE // (samples * nodes))
    for start in range(0, nodes, piece):
        rows = slice(start, start + piece)
        square, rank = _distances(places[:, rows], places, space)
        rank.diagonal(start, 1, 2).fill_(math.inf)
        if mask is not None:
            rank.masked_fill_(~mask.unsqueeze(1), math.inf)
        found = rank.topk(count, dim=-1, largest=False, sorted=False)
        index[:, rows] = found.indices
        real[:, rows] = found.values.isfinite()
        if radius is not None:
            real[:, rows] &= square.gather(-1, found.indices) <= radius**2
    if mask is None and radius is None:
        return index, None
    if mask is not None:
        real &= mask.unsqueeze(-1)
    return torch.where(real, index, here), real


def _distances(some: Tensor, places: Tensor, space: Space) -> tuple[Tensor, Tensor]:
    """Squared distances (G, n, N), and the same with ties broken by a direction.

    Axis by axis, and not by a product of matrices, which would lose the digits of what is near. The
    direction lies along no axis and no diagonal of a grid, so that no two neighbours are alike.
    """
    square = slope = None
    for axis in range(space.axes):
        apart = space.along(axis, some[..., None, axis], places[:, None, :, axis])
        tilt = TILT * math.sqrt(axis + 2)
        square = apart.square() if square is None else square.addcmul_(apart, apart)
        slope = tilt * apart if slope is None else slope.add_(apart, alpha=tilt)
    assert square is not None
    assert slope is not None
    return square, torch.addcmul(square, slope, square.sqrt())
