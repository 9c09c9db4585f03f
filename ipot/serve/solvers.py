"""The problems' own solvers on inputs that somebody gives; this runs in a process of its own.

A solver here answers to what a model is asked with: values at points in, fields at queries out. So
values are carried onto its grid first, and its solution to the queries. What is lost on the way is
said with each.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.interpolate import RegularGridInterpolator
from scipy.ndimage import map_coordinates
from scipy.spatial import KDTree
from torch import Tensor

from ipot import safe_read
from ipot.errors import DataError, IpotError, Unsupported
from ipot.problems.airfoil import LIMITERS, Airfoil, mach_number
from ipot.problems.base import GridProblem, Problem
from ipot.problems.burgers import Burgers
from ipot.problems.darcy import Darcy
from ipot.problems.elasticity import REFINE, Elasticity
from ipot.problems.navier_stokes import HISTORY, NavierStokes
from ipot.problems.plasticity import Plasticity
from ipot.problems.shallow_water import HOUR, SCALES, ShallowWater
from ipot.recipes.experiment import Experiment
from ipot.serve.solving import LENGTH, PART, pack, unpack
from ipot.solvers import airfoil_mesh, euler, forging, forging_block, shallow_water, unit_cell
from ipot.solvers import burgers as burgers_equation
from ipot.solvers import darcy as darcy_equation
from ipot.solvers import navier_stokes as flow_equation
from ipot.solvers.plane_stress import Metal
from ipot.solvers.sphere import Transform

NICE = 10
"""Answers of models come first."""
FINEST = 128
"""Points a side that a flow is followed on, at the most: twice as many take eight times as long."""
SELDOM = 0.2
"""Seconds from one word on what is done to the next."""
HEAVIER = 100.0
"""How much heavier a forged block is made where the problem leaves its mass as it is: ten times
fewer steps."""


@dataclass(frozen=True)
class Inputs:
    """One case, checked as a model's question is."""

    points: np.ndarray
    values: np.ndarray
    queries: np.ndarray | None
    times: tuple[float, ...]
    progress: Callable[[float], None]
    """Told which part is done, from 0 to 1, by solvers that take long."""


Solution = tuple[np.ndarray, np.ndarray, tuple[float, ...]]
"""Places (M, E), fields (T, M, K) there, times."""


def darcy(problem: Darcy, given: Inputs) -> Solution:
    """On the problem's cells, each with the permeability of the nearest point. The pressure at a
    query is linear between cells, and zero on the walls."""
    side = problem.size
    centres = problem.coordinates(side).numpy()
    nearest = KDTree(given.points).query(centres)[1]
    field = torch.from_numpy(given.values[nearest, 0]).reshape(1, side, side)
    pressure = darcy_equation.solve(field)[0].numpy()
    queries = given.points if given.queries is None else given.queries
    walls = np.pad(pressure, 1)
    # A wall is half a cell from the first centre, and zero is half of minus itself and itself.
    for axis in (0, 1):
        line = np.moveaxis(walls, axis, 0)
        line[0], line[-1] = -line[1], -line[-2]
    found = map_coordinates(walls, (queries * side + 0.5).T, order=1, mode="nearest")
    return queries, found[None, :, None], (1.0,)


def burgers(problem: Burgers, given: Inputs) -> Solution:
    """On the problem's points, which the state is linear between."""
    size = problem.size
    x, order = np.unique(np.mod(given.points[:, 0], 1.0), return_index=True)
    initial = np.interp(np.arange(size) / size, x, given.values[order, 0], period=1.0)
    final = burgers_equation.solve(torch.from_numpy(initial)[None], viscosity=problem.viscosity)
    queries = given.points if given.queries is None else given.queries
    found = np.interp(queries[:, 0], np.arange(size) / size, final[0, -1].numpy(), period=1.0)
    return queries, found[None, :, None], (1.0,)


def navier_stokes(problem: NavierStokes, given: Inputs) -> Solution:
    """From the last of the frames that are given, on their own grid or one that has it and more."""
    side = math.isqrt(len(given.points))
    grid = np.stack(np.meshgrid(*[np.arange(side) / side] * 2, indexing="ij"), -1).reshape(-1, 2)
    if side * side != len(given.points) or not np.allclose(given.points, grid, atol=1e-5):
        raise Unsupported(
            "points: the solver takes vorticities on a regular grid, i / n and j / n row by row"
        )
    if not 8 <= side <= 2 * FINEST:
        raise Unsupported(f"points: the solver takes 8 to {2 * FINEST} a side, got {side}")
    last = torch.from_numpy(given.values[:, HISTORY - 1]).reshape(1, side, side)
    solved = max(side, min(problem.solved, FINEST))
    start = _finer(last, solved).float()
    frames = flow_equation.solve(
        start,
        viscosity=problem.viscosity,
        times=list(given.times),
        progress=lambda t: given.progress(t / given.times[-1]),
    )
    queries = given.points if given.queries is None else given.queries
    places = (np.mod(queries, 1.0) * solved).T
    found = [map_coordinates(f, places, order=3, mode="grid-wrap") for f in frames[0].numpy()]
    return queries, np.stack(found)[..., None], given.times


def _finer(field: Tensor, side: int) -> Tensor:
    """A periodic field on more points, by its waves."""
    coarse = field.shape[-1]
    if side == coarse:
        return field
    waves = torch.fft.fftshift(torch.fft.fft2(field), dim=(-2, -1))
    start = side // 2 - coarse // 2
    wide = waves.new_zeros(*field.shape[:-2], side, side)
    wide[..., start : start + coarse, start : start + coarse] = waves
    fine = torch.fft.ifft2(torch.fft.ifftshift(wide, dim=(-2, -1))).real
    return fine * (side / coarse) ** 2


def shallow_water_(problem: ShallowWater, given: Inputs) -> Solution:
    """From height and vorticity. The divergence is not seen, and taken as zero: gravity waves that
    follow from this are in the solution and not in the data."""
    rows = math.isqrt(len(given.points) // 2)
    grid = problem.grid_of(torch.from_numpy(given.points))
    if grid is None:
        raise Unsupported("points: the solver takes fields on the grid of the problem, row by row")
    rows, columns = grid
    latitudes = torch.from_numpy(np.arcsin(np.clip(given.points[::columns, 2], -1, 1)))
    lmax = min(problem.size - 1, (2 * rows - 1) // 3)
    view = Transform(lmax, rows, columns, latitudes=latitudes)
    fields = torch.from_numpy(given.values).T.reshape(2, rows, columns)
    height, vorticity = fields[0] / SCALES["height"], fields[1] / SCALES["vorticity"]
    coefficients = _fitted(view, torch.stack((vorticity, height)))
    state = torch.stack((coefficients[0], torch.zeros_like(coefficients[0]), coefficients[1]))
    queries = given.points if given.queries is None else given.queries
    north = np.arcsin(np.clip(queries[:, 2] / np.linalg.norm(queries, axis=1), -1, 1))
    east = np.mod(np.arctan2(queries[:, 1], queries[:, 0]), 2 * math.pi)
    seen = Transform(lmax, 2 * rows)
    frames = []
    times = [HOUR * t for t in given.times]
    for vorticity_, _, height_ in shallow_water.solve(state[:, None], times=times):
        both = [seen.synthesis(f)[0].numpy() for f in (height_, vorticity_)]
        scaled = [SCALES[n] * f for n, f in zip(("height", "vorticity"), both, strict=True)]
        frames.append(np.stack([_on_sphere(f, seen, north, east) for f in scaled], -1))
        given.progress(len(frames) / len(times))
    return queries, np.stack(frames), given.times


def _fitted(view: Transform, fields: Tensor) -> Tensor:
    """Coefficients (B, m, l) that come closest to fields on lines that have no quadrature."""
    waves = torch.fft.rfft(fields, norm="forward")[..., : view.lmax + 1]
    table = view._to_rows[:, : view.lmax + 1]  # (m, l, rows)
    found = torch.zeros(len(fields), view.lmax + 1, view.lmax + 1, dtype=torch.complex128)
    for m in range(view.lmax + 1):
        basis = table[m, m:].T.to(torch.complex128)
        found[:, m, m:] = torch.linalg.lstsq(basis, waves[:, :, m].T).solution.T
    return found


def _on_sphere(field: np.ndarray, grid: Transform, north: Any, east: Any) -> np.ndarray:
    """A field between the lines of a grid, cubic along both."""
    rows = grid.latitudes.numpy()
    # Beyond the last line the field goes on across the pole, half a turn away.
    turned = np.roll(field, field.shape[1] // 2, axis=1)
    field = np.concatenate((turned[:2][::-1], field, turned[-2:][::-1]))
    lines = np.concatenate((math.pi - rows[:2][::-1], rows, -math.pi - rows[-2:][::-1]))
    place = np.interp(-north, -lines, np.arange(len(lines)))
    across = east / (2 * math.pi) * field.shape[1]
    wide = np.concatenate((field[:, -3:], field, field[:, :3]), axis=1)
    return map_coordinates(wide, (place, across + 3), order=3, mode="nearest")


def elasticity(problem: Elasticity, given: Inputs) -> Solution:
    """Around the cavity whose radius the values are: at the points of the solver's own mesh."""
    if problem.inputs == "mesh":
        raise Unsupported("values: the solver takes the radius of the cavity, not a mesh")
    if problem.inputs == "radii":
        angle = 2 * math.pi * given.points[:, 0]
    else:
        x, y = (given.points[:, :2] - unit_cell.CENTRE).T
        angle = np.mod(np.arctan2(y, x), 2 * math.pi)
    angle, order = np.unique(angle, return_index=True)
    radii = given.values[order, 0]
    if not (radii.min() > 0.02 and radii.max() < 0.48):
        raise DataError(
            f"values: the radius of the cavity must lie between 0.02 and 0.48, got "
            f"{radii.min():.3g} to {radii.max():.3g}"
        )

    def radius(angles: Tensor) -> Tensor:
        return torch.from_numpy(np.interp(angles, angle, radii, period=2 * math.pi))[None]

    points, stress = unit_cell.stress(radius, refine=REFINE[problem.mode])
    return points[0].numpy(), stress[0].numpy()[None, :, None], (1.0,)


def airfoil(problem: Airfoil, given: Inputs) -> Solution:
    """On the mesh whose nodes are given, all of them, by their departures or their coordinates."""
    shape = problem.grid_of(torch.from_numpy(given.points))
    if shape is None:
        raise Unsupported("points: the solver takes all nodes of the mesh, row by row")
    nodes = given.values.reshape(*shape, -1)
    if problem.inputs == "departure":
        plain = airfoil_mesh.c_mesh(torch.zeros(1, 8, dtype=torch.float64))[0].numpy()
        step = (plain.shape[0] - 1) // (shape[0] - 1)
        mesh = plain[::step, ::step].copy()
        mesh[..., 1] += nodes[..., 0]
    else:
        mesh = nodes
    try:
        flow = euler.solve(
            torch.from_numpy(mesh)[None],
            mach=problem.mach,
            limiter=LIMITERS[problem.mode],
            tolerance=max(problem.tolerance, 1e-3),
            progress=given.progress,
        )
    except euler.NoFlow as error:
        raise DataError(
            "no flow was found around this shape: density or pressure vanished on the way. Take "
            "one that is less bent."
        ) from error
    mach = mach_number(flow.state)[0].numpy()
    queries = given.points if given.queries is None else given.queries
    places = (queries * (np.array(shape) - 1)).T
    found = map_coordinates(mach, places, order=1, mode="nearest")
    return queries, found[None, :, None], (1.0,)


def plasticity(problem: Plasticity, given: Inputs) -> Solution:
    """Under the die whose heights are given along the block. Queries are (x, y, t), each from 0 to
    1; without any, the nodes of the mesh at 20 times."""
    if problem.repeated:
        raise Unsupported("points: the solver takes the die once along the block")
    along = np.linspace(0, 1, problem.size)
    x, order = np.unique(given.points[:, 0], return_index=True)
    die = torch.from_numpy(np.interp(along, x, given.values[order, 0]))[None]
    try:
        forged = forging.solve(
            die,
            metal=Metal(hardening=problem.hardening),
            mass_scaling=max(problem.mass_scaling, HEAVIER),
            progress=given.progress,
        )
    except forging.Lost as error:
        raise DataError(f"the forging could not be followed to its end: {error}") from error
    moved = forged.displacement[0].numpy()
    place = forging_block.reference(problem.size).unsqueeze(2).numpy() + moved
    fields = np.concatenate((place, moved), -1)
    lines = [np.linspace(0, 1, n) for n in problem.grid]
    queries = given.queries
    if queries is None:
        queries = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, 3)
    inside = np.clip(queries, 0, 1)
    found = RegularGridInterpolator(lines, fields)(inside)
    return queries, found[None], (1.0,)


SOLVERS: dict[type, Callable[[Any, Inputs], Solution]] = {
    Airfoil: airfoil,
    Burgers: burgers,
    Darcy: darcy,
    Elasticity: elasticity,
    NavierStokes: navier_stokes,
    Plasticity: plasticity,
    ShallowWater: shallow_water_,
}


def solved(
    problem: Problem,
    arrays: dict[str, Any],
    tells: dict[str, Any],
    progress: Callable[[float], None] = lambda part: None,
) -> dict[str, Any]:
    """The solution for one case, as named arrays."""
    solver = SOLVERS.get(type(problem))
    if solver is None:
        raise Unsupported(f"there is no solver for given inputs of {problem.name}")
    if isinstance(problem, GridProblem) and problem.files is not None:
        raise Unsupported("the model was trained on published files, whose solver is not ours")
    given = _checked(problem, arrays, tells, progress)
    try:
        places, fields, times = solver(problem, given)
    except IpotError:
        raise
    except (RuntimeError, ValueError, FloatingPointError) as error:
        # Of a solver: not converged, not finite, outside of what it is made for.
        raise DataError(f"the solver found no solution: {error}") from error
    if not np.isfinite(fields).all():
        raise DataError("the solver found no solution: it is not finite everywhere")
    return {
        "queries": places.astype(np.float32),
        "targets": fields.astype(np.float32),
        "times": np.array(times, np.float64),
    }


def _checked(
    problem: Problem,
    arrays: dict[str, Any],
    tells: dict[str, Any],
    progress: Callable[[float], None],
) -> Inputs:
    """The inputs as a model of the problem takes them: one case, all its numbers finite."""
    from ipot.data.layout import Layout
    from ipot.surrogate.inputs import read_inputs, times_of

    spec, layout = problem.spec, Layout(timed=True)
    queries = arrays.pop("queries", None)
    inputs = read_inputs(spec, layout, **{n: a for n, a in arrays.items() if n != "times"})
    if inputs.counts:
        raise DataError("several samples are given: a solver takes one at a time")
    times = times_of(spec, layout, tells["steps"], tells["times"])
    one = inputs.inputs[0]
    found = None
    if queries is not None:
        found = inputs.at(queries, times).samples[0].queries.double().numpy()
    count = len(one["points"] if found is None else found) * len(times)
    if max(count, len(one["points"])) > tells["rows"]:
        raise DataError(f"{count} queries (times multiplied in); {tells['rows']} are the most")
    points, values = (one[name].double().numpy() for name in ("points", "values"))
    return Inputs(points, values, found, times, progress)


def problem_in(folder: Path) -> Problem:
    """The problem that a model was trained on, with its settings."""
    from ipot.run_folder import run_at
    from ipot.saved.folder import looks_saved

    if looks_saved(folder):
        content = safe_read.read_json(folder / "config.json")
        told = content["experiment"] | {"code": content.get("about", {}).get("code")}
    else:
        told = run_at(folder).config()
    return Experiment.from_dict(told, "config.json").problem


def main() -> None:
    """Answer questions until there are no more."""
    os.nice(NICE)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer

    def tell(body: bytes) -> None:
        target.write(LENGTH.pack(len(body)) + body)
        target.flush()

    def progress(part: float) -> None:
        nonlocal told
        if time.monotonic() - told > SELDOM:
            told = time.monotonic()
            tell(pack({}, {PART: min(1.0, max(0.0, float(part)))}))

    while head := source.read(LENGTH.size):
        arrays, tells = unpack(source.read(LENGTH.unpack(head)[0]))
        began, told = time.perf_counter(), time.monotonic()
        found: dict[str, Any] = {}
        said: dict[str, Any] = {}
        try:
            found = solved(problem_in(Path(tells["folder"])), arrays, tells, progress)
        except IpotError as error:
            said["error"] = str(error)
        except MemoryError:
            said["error"] = "the memory does not suffice for this solution"
        except Exception as error:
            said["error"] = f"the solver failed ({type(error).__name__})"
        said["milliseconds"] = round(1000 * (time.perf_counter() - began), 3)
        tell(pack(found, said))
