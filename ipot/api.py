"""What `import ipot` offers: the house from its front door."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ipot.data import fill
from ipot.data.own import Dataset, Layout
from ipot.data.own_arrays import array as own_array
from ipot.data.own_given import at_least_one, flag, near, path_given, refuse_many_steps
from ipot.device import choose
from ipot.errors import DataError, RunError, UnknownName, Unsupported, shown
from ipot.evaluation.conformal import Conformal
from ipot.evaluation.input_range import ends_of, seen_in_training, warn_unlike
from ipot.evaluation.predict import predict
from ipot.labelled.series import Series
from ipot.models.base import Operator
from ipot.own.continued import refuse_run
from ipot.own.fit import fit
from ipot.own.surrogate import Fitted
from ipot.problems.base import GridProblem, Problem
from ipot.recipes.experiment import Experiment, experiment, restore, resume, run
from ipot.recipes.studies import Question, ask, warn_outside
from ipot.samples import Batch, Sample
from ipot.saved.folder import CONFIG, FILES, WEIGHTS, looks_saved, read_folder
from ipot.saved.hub import commit_of, fetch_from_hub
from ipot.spec import Need

WHOLE_ROWS = 1 << 21
"""Points, or queries times steps, that go to a GPU at once; more travel in chunks."""

__all__ = [
    "Dataset",
    "Experiment",
    "Fitted",
    "Question",
    "Sample",
    "Surrogate",
    "ask",
    "experiment",
    "fit",
    "from_pretrained",
    "load",
    "resume",
    "run",
]

WEIGHTS_OF_A_RUN = ("best", "last")
CHECKED_AT_ONCE = 1 << 20
"""Rows of an array that are looked at in one go."""
KEPT = (np.float16, np.float32, np.float64)
"""Numbers that a mapped array may have; others are converted, and that means held."""


class Surrogate:
    """A trained operator: numpy in, numpy out, at any points and queries."""

    def __init__(self, model: Operator, settings: Experiment, device: torch.device) -> None:
        self.model, self.settings, self.device = model.to(device).eval(), settings, device
        self.spec = settings.problem.spec

    def predict(
        self,
        points: np.ndarray | None,
        values: np.ndarray | None,
        queries: np.ndarray,
        *,
        steps: int | None = None,
        parameters: np.ndarray | None = None,
        fill: str | None = None,
        rows: int | None = None,
        out: np.ndarray | None = None,
        precision: str = "float32",
    ) -> np.ndarray:
        """The fields (T, M, K) at queries (M, E), from values (N, C) at points (N, D).

        A time-dependent problem answers at its training horizon, or at as many `steps` as asked.
        `fill` interpolates the values onto the grid of `places` first, for a system that needs it.

        Arrays may be mapped from files (`numpy.load(..., mmap_mode="r")`), which are then read
        piece by piece; `out` is where to write the answer, which may be such a file too. `rows`
        are the points or queries taken at once, where memory is scarce. `precision` "bf16" is
        quicker, at about three decimal digits: several times on a GPU, about twice on a CPU that
        has the instructions for it.
        """
        if not isinstance(precision, str) or precision not in ("float32", "bf16"):
            raise Unsupported(f"precision must be float32 or bf16, got {shown(precision)}")
        if not isinstance(fill, str | None):
            raise Unsupported(f"fill must be a name like 'linear', got {shown(fill)}")
        rows = None if rows is None else at_least_one("rows", rows)
        sample = self.sample(points, values, queries, steps=steps, parameters=parameters)
        if fill is not None:
            sample = self._filled(sample, fill)
        batch = _alone(self._gridded(sample))
        warn_outside(batch, self.spec)
        warn_unlike(ends_of([sample]), seen_in_training(self.model), self.spec)
        place = None if out is None else torch.from_numpy(out).unsqueeze(0)
        device = next(self.model.parameters()).device
        most = max(batch.values.shape[1], batch.queries.shape[-2] * len(batch.times))
        if rows is None and device.type != "cpu" and most <= WHOLE_ROWS:
            batch = batch.to(device)  # small enough to go there at once, and to be replayed there
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            answer = predict(self.model, batch, rows=rows, out=place, finite=True)
        return out if out is not None else answer[0].float().cpu().numpy()

    def places(self) -> np.ndarray:
        """The points (N, D) of the grid that the operator was trained on."""
        problem = self.settings.problem
        if not isinstance(problem, GridProblem):
            raise Unsupported(f"{problem.name} has no grid of its own")
        return problem.coordinates(problem.resolution).float().numpy()

    def _filled(self, sample: Sample, method: str) -> Sample:
        """The values on the grid of training, interpolated."""
        places, sample = torch.from_numpy(self.places()), sample.astype(torch.float32)
        values = fill.carried(sample.points, sample.values, places, self.spec, method)
        return replace(sample, points=places, values=values)

    def _gridded(self, sample: Sample) -> Sample:
        """The sample with the grids that its points and queries are, if any."""
        problem, model = self.settings.problem, self.model
        if isinstance(problem, GridProblem):
            grid, asked = problem.grid_of(sample.points), problem.grid_of(sample.queries)
            sample = replace(sample, grid=grid, query_grid=asked)
        if Need.GRID in model.needs and sample.grid is None:
            raise Unsupported(
                f"{model.name} needs {Need.GRID.value}, and these {len(sample.points)} are none "
                f"that {problem.name} has{_grids(problem)}. `places()` of a loaded run gives its "
                "own grid, and --fill linear interpolates onto it."
            )
        return sample

    def sample(
        self,
        points: np.ndarray | None,
        values: np.ndarray | None,
        queries: np.ndarray,
        *,
        steps: int | None = None,
        parameters: np.ndarray | None = None,
    ) -> Sample:
        """The arrays as a checked sample."""
        spec = self.spec
        count = spec.steps if steps is None else at_least_one("steps", steps)
        refuse_many_steps("steps", count)
        if count != 1 and spec.steps == 1:
            raise Unsupported(f"steps: {spec.name} is steady, it has no steps to take")
        if parameters is None and spec.parameters:
            raise DataError(f"parameters are needed: {', '.join(spec.parameters)}")
        scalars = None
        if parameters is not None:
            scalars = _tensor("parameters", parameters, len(spec.parameters), rank=1)
            # An empty list is none: such a model has no place for parameters.
            scalars = scalars if len(scalars) else None
        points = np.zeros((0, spec.dimension)) if points is None else points
        values = np.zeros((0, spec.channels)) if values is None else values
        return Sample(
            points=_tensor("points", points, spec.dimension),
            values=_tensor("values", values, spec.channels),
            queries=_tensor("queries", queries, spec.query_dimension),
            times=tuple(spec.dt * (i + 1) for i in range(count)),
            parameters=scalars,
        )


def load(
    path: Path | str,
    *,
    device: str = "auto",
    weights: str = "best",
    trusted: bool = False,
    edited: bool = False,
) -> Surrogate | Fitted:
    """A trained operator: a `Surrogate` from the folder of a run, a `Fitted` from a saved model.

    A folder that names code outside this package is loaded only where it is `trusted`. A saved
    model whose files were changed after it was saved is loaded only as `edited`.
    """
    place, path = choose(device), path_given("path", path)
    trusted, edited = flag("trusted", trusted), flag("edited", edited)
    if weights not in WEIGHTS_OF_A_RUN:
        raise UnknownName(f"unknown weights {shown(weights)}. Known: {', '.join(WEIGHTS_OF_A_RUN)}")
    refuse_run(path)
    _refuse_no_model(path)
    if looks_saved(path):
        if weights != "best":
            raise Unsupported(
                f"weights={shown(weights)} is for the folder of a run, and {path} is a saved "
                "model, which has its best weights alone: leave it out"
            )
        return _fitted(path, place, trusted=trusted, edited=edited)
    model, settings = restore(path, place, weights, trusted=trusted)
    return Surrogate(model, settings, place)


def from_pretrained(
    repo_id: str, *, revision: str | None = None, device: str = "auto", edited: bool = False
) -> Surrogate | Fitted:
    """A saved model from the Hugging Face Hub; `ipot.saved.hub.push_to_hub` puts one there.

    `revision` is a commit, a branch or a tag. The commit that was taken is kept as `revision` in
    `model.about`; without one asked for, the log says which it was. Code is never fetched.
    """
    folder = fetch_from_hub(repo_id, revision)
    model = load(folder, device=device, edited=edited)
    if isinstance(model, Fitted) and (commit := commit_of(folder, repo_id, revision)):
        model.about |= {"repository": repo_id, "revision": commit}
    return model


def _refuse_no_model(path: Path) -> None:
    """Refuse a path that is no folder of a model or a run, and say what would be one."""
    if (path / CONFIG).is_file():
        return
    wanted = f"A saved model is a folder with {CONFIG} and {WEIGHTS}, as model.save(...) writes it."
    if path.is_file():
        where = f" Give the folder, {path.parent}." if path.name in FILES else ""
        raise RunError(f"{path} is a file. {wanted}{where}")
    if not path.is_dir():
        raise RunError(f"{path}: there is no such folder. {wanted}{near(path)}")
    inside = sorted(str(p.parent) for p in path.glob(f"*/{CONFIG}"))[:5]
    where = f" There is one at {', '.join(inside)}." if inside else ""
    raise RunError(f"{path} holds no {CONFIG}. {wanted}{where}")


def _fitted(path: Path, place: torch.device, *, trusted: bool, edited: bool) -> Fitted:
    model, saved = read_folder(path, place, trusted=trusted, edited=edited)
    return Fitted(
        model,
        saved.model,
        saved.spec,
        Layout.from_dict(saved.layout),
        scores=saved.scores,
        about=saved.about,
        bounds=None if saved.bounds is None else Conformal.from_state(saved.bounds),
        series=None if saved.series is None else Series.from_dict(saved.series),
    )


def _grids(problem: Problem) -> str:
    """Where the nodes of the grid of training lie, in words."""
    if not isinstance(problem, GridProblem):
        return ""
    nodes = problem.coordinates(problem.resolution)
    lines = [sorted(set(axis.tolist())) for axis in nodes.unbind(-1)]
    words = " and ".join(f"{x[0]:.5g}, {x[1]:.5g}, ... {x[-1]:.5g} ({len(x)})" for x in lines)
    return f": that of training has nodes at {words}, row by row"


def _alone(sample: Sample) -> Batch:
    """A sample as a batch of one, of the same memory."""
    given: dict[str, Any] = {f.name: getattr(sample, f.name) for f in fields(sample)}
    del given["units"]  # a batch has none
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and name != "edges":
            given[name] = value.unsqueeze(0)
    return Batch(**given | {"index": None})


def _tensor(name: str, array: np.ndarray, columns: int, rank: int = 2) -> torch.Tensor:
    """An array as float32, refused with its place where it cannot be used.

    One that is mapped from a file stays there, in the precision that it has.
    """
    mapped = isinstance(array, np.memmap)
    array = np.asarray(array) if mapped else own_array(name, array)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must be an array of real numbers, got {array.dtype}")
    if array.ndim != rank or array.shape[-1] != columns:
        wanted = f"(n, {columns})" if rank == 2 else f"({columns},)"
        raise DataError(f"{name} must have shape {wanted}, got {array.shape}")
    for start in range(0, len(array), CHECKED_AT_ONCE):
        piece = array[start : start + CHECKED_AT_ONCE]
        # As float32, since that is what it will be: a larger number would be infinity there.
        with np.errstate(over="ignore"):
            finite = np.isfinite(piece if piece.dtype == np.float32 else piece.astype(np.float32))
        if not finite.all():
            first, *rest = (int(i) for i in np.argwhere(~finite)[0])
            place, value = (start + first, *rest), float(piece[(first, *rest)])
            if np.isfinite(value):
                raise DataError(
                    f"{name} holds {value:g} at {place}, more than float32 can: check its units"
                )
            raise DataError(f"{name} holds a value that is not finite (NaN or infinity) at {place}")
    if not array.flags.c_contiguous or array.dtype not in (KEPT if mapped else (np.float32,)):
        return torch.from_numpy(array.astype(np.float64)).float()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # nor is it written to
        return torch.from_numpy(array)
