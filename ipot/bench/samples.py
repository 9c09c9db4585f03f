"""Random data in the shape of a problem's own: nothing is solved.

Fields are drawn in the layout that the problem's solver would leave them in, and the problem
makes samples of them: points, views, weights and times are those of the real data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ipot.bench.measuring import free_memory
from ipot.data.dataset import Ragged, Stacked
from ipot.errors import DataError, UnknownName
from ipot.problems import _unit_cells
from ipot.problems.base import Problem
from ipot.problems.navier_stokes import HISTORY
from ipot.samples import Batch
from ipot.seeds import generator
from ipot.spec import Need, Spec

LIMIT = 10**9
"""Points or queries, at most: beyond, one tensor of them passes what an index can reach."""
CHUNK = 1 << 24
"""Rows that are drawn at a time."""

Shapes = dict[str, tuple[int, ...]]


def _grid(problem: Any) -> tuple[int, ...]:
    return problem.shape(problem.resolution)


# Behind the axis of samples, the fields of each problem as its `dataset` takes them.
FIELDS: dict[str, Callable[[Any], Shapes]] = {
    "burgers": lambda p: {"initial": _grid(p), "final": _grid(p)},
    "darcy": lambda p: {"positive": _grid(p), "pressure": _grid(p)},
    "navier_stokes": lambda p: {"vorticity": (HISTORY + p.horizon, *_grid(p))},
    "airfoil": lambda p: {"mesh": (2, *_grid(p)), "state": (4, *_grid(p))},
    "elasticity": lambda p: {
        "points": (_unit_cells.POINTS, 2),
        "radii": (_unit_cells.ANGLES,),
        "stress": (_unit_cells.POINTS,),
    },
    "plasticity": lambda p: {"die": p.grid[:1], "displacement": (*p.grid, 2)},
    "shallow_water": lambda p: {name: (1 + p.steps, *_grid(p)) for name in ("height", "vorticity")},
    "era5": lambda p: {"temperature": (p.history + p.steps, *_grid(p))},
    "era5_synthetic": lambda p: {"temperature": (p.history + p.steps, *_grid(p))},
}
POSITIVE = {"darcy": "positive"}
"""Fields that are true or false."""


def random_samples(problem: Problem, count: int, *, seed: int = 0) -> Stacked:
    """So many samples of a problem, drawn and not solved for; on the CPU."""
    if problem.name not in FIELDS:
        raise UnknownName(
            f"the shape of {problem.name}'s data is not known here, so there is nothing to train "
            f"on. Known: {', '.join(FIELDS)}"
        )
    fields: dict[str, Tensor] = {}
    for name, shape in FIELDS[problem.name](problem).items():
        random = generator(seed, f"bench/{name}", 0)
        # Between 1/2 and 3/2, since some of these fields are densities and pressures.
        field = torch.rand((count, *shape), generator=random).add_(0.5)
        fields[name] = field > 1 if POSITIVE.get(problem.name) == name else field
    return problem.dataset(fields, None, None)  # pyrefly: ignore[bad-return]


def own_meshes(data: Stacked) -> Stacked:
    """The samples with points and queries of its own for each, and nothing known of grids."""
    whole = data.data

    def own(tensor: Tensor) -> Tensor:
        return tensor.expand(whole.size, *tensor.shape[1:]).contiguous()

    points = own(whole.points)
    batch = replace(
        whole,
        points=points,
        queries=points if _asked_at_the_points(whole) else own(whole.queries),
        weights=None if whole.weights is None else own(whole.weights),
        grid=None,
        query_grid=None,
    )
    return Stacked(batch, check=False)


def uneven(data: Stacked, spread: float | int, *, seed: int = 0) -> Ragged:
    """The samples in sizes from 1 - spread to 1 + spread times their own, as many rows in all.

    A smaller sample has lost its last rows, a larger one has its first rows again: what is timed
    does not depend on where points lie. Queries at the points of a sample are as many as those.
    """
    whole, random = data.data, generator(seed, "bench/sizes", 0)
    n, m = whole.values.shape[1], whole.queries.shape[-2]
    points = uneven_sizes(n, len(data), spread, random)
    same = _asked_at_the_points(whole)
    queries = points if same else uneven_sizes(m, len(data), spread, random)
    return Ragged(
        [
            data[i].take_points(torch.arange(p) % n).take_queries(torch.arange(q) % m)
            for i, (p, q) in enumerate(zip(points, queries, strict=True))
        ],
        check=False,
    )


def uneven_sizes(size: int, count: int, spread: float | int, random: torch.Generator) -> list[int]:
    """So many sizes around one, each with its mirror image among them: their mean is that size."""
    reach = torch.randint(math.floor(spread * size) + 1, (count // 2,), generator=random)
    both = torch.cat([reach, -reach, reach.new_zeros(count % 2)])
    return (size + both[torch.randperm(count, generator=random)]).tolist()


def _asked_at_the_points(batch: Batch) -> bool:
    return batch.queries is batch.points or torch.equal(batch.queries, batch.points)


def random_question(
    spec: Spec,
    points: int,
    queries: int | None,
    device: torch.device,
    *,
    needs: frozenset[Need] = frozenset(),
    batch: int = 1,
    seed: int = 0,
) -> Batch:
    """Samples of a problem, one by default, with so many input points that all of them share.

    Queries are the points by default. A system that needs a grid gets one of about as many
    points, the same along every axis.
    """
    check_room(spec, points, queries, device, batch)
    random = torch.Generator(device).manual_seed(seed)
    grid = None
    if Need.GRID in needs:
        grid = grid_of(spec, points)
        places = _lattice(spec, grid, device)
    else:
        places = _scatter(spec.domain, spec.sphere, points, random, device)
    places = asked = places.unsqueeze(0)
    elsewhere = spec.query_domain != spec.domain
    if queries is not None or elsewhere:
        sphere = spec.sphere and not elsewhere
        asked = _scatter(spec.query_domain, sphere, queries or points, random, device).unsqueeze(0)
    values = torch.randn(batch, places.shape[1], spec.channels, generator=random, device=device)
    parameters = torch.randn(batch, len(spec.parameters), generator=random, device=device)
    return Batch(
        points=places,
        values=values,
        queries=asked,
        parameters=parameters if spec.parameters else None,
        times=tuple(spec.dt * step for step in range(1, spec.steps + 1)),
        grid=grid,
        query_grid=grid if asked is places else None,
    )


def check_count(name: str, value: float | int) -> int:
    """A number of points as it was asked for, like 1e6, or a message that says what is wrong."""
    if not (math.isfinite(value) and value >= 1 and value == int(value)):
        raise DataError(f"--{name} must be a whole number of at least 1, got {value:g}")
    if value > LIMIT:
        raise DataError(f"--{name} must be at most {LIMIT:g}, got {value:g}")
    return int(value)


def check_room(
    spec: Spec, points: int, queries: int | None, device: torch.device, batch: int = 1
) -> None:
    """Refuse points whose inputs and answers alone do not fit into memory."""
    rows = points * (spec.dimension + batch * spec.channels)
    own = queries is not None or spec.query_domain != spec.domain
    asked = points if queries is None else queries
    rows += asked * (own * spec.query_dimension + batch * spec.steps * len(spec.outputs))
    needed, free = 4 * rows / 2**30, free_memory(device)
    if free is not None and needed > free:
        raise DataError(
            f"{points:,} points and {asked:,} queries of {spec.name} take {needed:.1f} GiB for "
            f"inputs and answers alone; {device} has {free:.1f} GiB free. Ask for fewer --points."
        )


def grid_of(spec: Spec, points: int) -> tuple[int, ...]:
    """A grid of about so many points, as many along every axis."""
    rank = len(spec.wraps)
    return (max(2, round(points ** (1 / rank))),) * rank


def _lattice(spec: Spec, grid: tuple[int, ...], device: torch.device) -> Tensor:
    """The nodes of a grid over the domain; on a sphere over its latitudes and longitudes."""
    bounds = ((-0.5, 0.5), (0.0, 2.0)) if spec.sphere else spec.domain
    lines = [torch.linspace(a, b, n, device=device) for (a, b), n in zip(bounds, grid, strict=True)]
    nodes = torch.cartesian_prod(*lines).reshape(-1, len(grid))
    if not spec.sphere:
        return nodes
    latitude, longitude = (math.pi * nodes).unbind(-1)
    cosine = latitude.cos()
    return torch.stack((cosine * longitude.cos(), cosine * longitude.sin(), latitude.sin()), -1)


def _scatter(bounds, sphere: bool, count: int, random: torch.Generator, device) -> Tensor:
    """Points anywhere in a box, or on a sphere; drawn in chunks, in place."""
    out = torch.empty(count, len(bounds), device=device)
    low = torch.tensor([a for a, _ in bounds], device=device)
    size = torch.tensor([b - a for a, b in bounds], device=device)
    for piece in out.split(CHUNK):
        if sphere:
            piece.normal_(generator=random)
            piece.div_(piece.norm(dim=-1, keepdim=True))
        else:
            piece.uniform_(generator=random).mul_(size).add_(low)
    return out
