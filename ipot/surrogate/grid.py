"""The regular grid of a built-in problem: whether points form it, and interpolation onto it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from ipot.data import fill
from ipot.data.dataset import Ragged, Stacked
from ipot.data.facts import grid_of
from ipot.errors import Unsupported, shown
from ipot.models.base import Operator
from ipot.problems.base import GridProblem, Problem
from ipot.samples import Sample
from ipot.spec import Need, Spec


def grid_places(problem: Problem | None, spec: Spec) -> np.ndarray:
    """The points (N, D) of the grid that a model was trained on."""
    if not isinstance(problem, GridProblem):
        raise Unsupported(f"{spec.name} has no grid of its own")
    return problem.coordinates(problem.resolution).float().numpy()


def refuse_fill(problem: Problem | None, spec: Spec, method: str | None) -> None:
    """Refuse an unknown `fill`, and any where the model has no grid."""
    if method is None:
        return
    if not isinstance(method, str):
        raise Unsupported(f"fill must be a name like 'linear', got {shown(method)}")
    fill.check(method)
    if not isinstance(problem, GridProblem):
        raise Unsupported(f"fill: {spec.name} has no grid of its own to interpolate onto")


def on_grid(
    samples: Sequence[Sample], problem: Problem | None, spec: Spec, method: str | None
) -> list[Sample]:
    """Samples with their values interpolated onto the grid of training if `fill` is given."""
    if method is None:
        return list(samples)
    places = torch.from_numpy(grid_places(problem, spec))
    plain = [s.astype(torch.float32) for s in samples]
    return [
        replace(s, points=places, values=fill.carried(s.points, s.values, places, spec, method))
        for s in plain
    ]


def with_grids(samples: Sequence[Sample], problem: Problem | None, model: Operator) -> list[Sample]:
    """Samples that say which grid of the problem their points and queries form, if any.

    For your own data any points on straight lines are a grid, if the model was trained on such. If
    the model needs a grid and the points form none, they are refused.
    """
    own = problem is None and Need.GRID in model.spec.provides
    if own or isinstance(problem, GridProblem):
        found = _Grids(problem.grid_of if isinstance(problem, GridProblem) else grid_of)
        samples = [
            replace(
                s,
                grid=s.grid or found.of(s.points),
                query_grid=s.query_grid or found.of(s.queries),
            )
            for s in samples
        ]
    for sample in samples:
        if Need.GRID not in model.needs or sample.grid is not None:
            continue
        if own:
            raise Unsupported(
                f"{model.name} needs {Need.GRID.value}, and these {len(sample.points)} are none. "
                "Give places with the axes of a grid whose lines are straight, as in training."
            )
        if problem is not None:
            raise Unsupported(
                f"{model.name} needs {Need.GRID.value}, and these {len(sample.points)} are none "
                f"that {problem.name} has{_nodes(problem)}. `places()` of a loaded run gives its "
                "own grid, and --fill linear interpolates onto it."
            )
    return list(samples)


def data_with_grids(
    data: Stacked | Ragged, problem: Problem | None, model: Operator
) -> Stacked | Ragged:
    """A data set whose samples say which grids they form; the same data set if they do already."""
    if not isinstance(problem, GridProblem) or data[0].grid is not None:
        return data
    samples = with_grids([data[i] for i in range(len(data))], problem, model)
    if isinstance(data, Stacked) and len({(s.grid, s.query_grid) for s in samples}) == 1:
        first = samples[0]
        whole = replace(data.data, grid=first.grid, query_grid=first.query_grid)
        return Stacked(whole, check=False)
    return Ragged(samples, check=False)


class _Grids:
    """Finds the grid that places form; places that samples share are looked at once."""

    def __init__(self, look: Callable[[torch.Tensor], tuple[int, ...] | None]) -> None:
        self.look = look
        self.known: dict[int, tuple[torch.Tensor, tuple[int, ...] | None]] = {}

    def of(self, places: torch.Tensor) -> tuple[int, ...] | None:
        key = places.data_ptr()
        if key not in self.known or self.known[key][0].shape != places.shape:
            # The tensor is kept with its grid, so that its memory is nobody else's meanwhile.
            self.known[key] = places, self.look(places)
        return self.known[key][1]


def _nodes(problem: Problem) -> str:
    """A sentence on where the nodes of the training grid lie."""
    if not isinstance(problem, GridProblem):
        return ""
    nodes = problem.coordinates(problem.resolution)
    lines = [sorted(set(axis.tolist())) for axis in nodes.unbind(-1)]
    words = " and ".join(f"{x[0]:.5g}, {x[1]:.5g}, ... {x[-1]:.5g} ({len(x)})" for x in lines)
    return f": that of training has nodes at {words}, row by row"
