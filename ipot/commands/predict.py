"""`ipot predict`: answer at any queries for inputs from a file."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro

from ipot import files
from ipot.api import load
from ipot.commands.common import emit, parse, say
from ipot.errors import DataError, RunError
from ipot.spec import Spec


@dataclass
class Predict:
    """Answer at any queries with a trained run.

    The input is an .npz file with `points` (N, D) and `values` (N, C), and if you like `queries`
    (M, E) and `parameters` (P). For instance, on a grid of 200 points a side:

        ipot predict runs/darcy --input case.npz --grid 200 --output answer.npz

    The answer is an .npz with `queries` (M, E), `prediction` (T, M, K) and `times` (T).
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    input: Path
    """An .npz file."""
    output: Path
    """Where to write the .npz answer."""
    queries: Path | None = None
    """An .npy file (M, E), or an .npz with `queries`; those of the input unless said."""
    grid: int | None = None
    """Ask on a regular grid over the domain, with so many points a side."""
    fill: str | None = None
    """Interpolate the inputs onto the grid of training, for a system that takes nothing else:
    linear, cubic or nearest. The answer is on that grid unless said."""
    steps: int | None = None
    """Steps of the rollout; the training horizon unless said."""
    device: str = "auto"
    """auto, cpu or cuda."""
    json: bool = False
    """Print a JSON summary."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Predict, arguments, "predict")
    surrogate = load(flags.run, device=flags.device)
    spec = surrogate.spec
    case = read_arrays(flags.input)
    missing = [] if spec.parameters else [k for k in ("points", "values") if k not in case]
    if missing:
        raise DataError(f"{flags.input} lacks {' and '.join(missing)}; it has {', '.join(case)}")
    if flags.fill is not None:
        case.setdefault("queries", surrogate.places())
    queries = _queries(flags, case, spec)
    prediction = surrogate.predict(
        case.get("points"),
        case.get("values"),
        queries,
        steps=flags.steps,
        parameters=case.get("parameters"),
        fill=flags.fill,
    )
    times = spec.dt * np.arange(1, len(prediction) + 1)
    write_arrays(flags.output, queries=queries, prediction=prediction, times=times)
    summary = {
        "output": str(flags.output),
        "shape": list(prediction.shape),
        "minimum": float(prediction.min()),
        "maximum": float(prediction.max()),
        "outputs": list(spec.outputs),
    }
    if flags.json:
        emit(summary)
    else:
        t, m, k = prediction.shape
        say(f"{flags.output}: {t} times, {m} queries, {k} channels ({', '.join(spec.outputs)})")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, or the array of an .npy file as `queries`; never a pickle."""
    if path.suffix not in (".npz", ".npy"):
        raise DataError(f"{path}: expected a file that ends in .npz or .npy")
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"queries": content}
        return {name: content[name] for name in content.files}
    except FileNotFoundError as error:
        raise DataError(f"{path} is not there") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as numpy arrays: {error}") from error


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """An .npz file, whole or not at all."""
    if path.suffix != ".npz":
        raise DataError(f"{path}: the answer is written as .npz")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    try:
        with files.atomic(path) as temporary:
            temporary.write_bytes(buffer.getvalue())
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def _queries(flags: Predict, case: dict[str, np.ndarray], spec: Spec) -> np.ndarray:
    if flags.grid is not None and flags.queries is not None:
        raise DataError("--grid and --queries both say where to answer: give one of them")
    if flags.grid is not None:
        if flags.grid < 2:
            raise DataError(f"--grid needs at least 2 points a side, got {flags.grid}")
        lines = [torch.linspace(a, b, flags.grid) for a, b in spec.query_domain]
        return torch.cartesian_prod(*lines).reshape(-1, len(lines)).numpy()
    if flags.queries is not None:
        case = read_arrays(flags.queries)
    if "queries" in case:
        return case["queries"]
    if flags.queries is not None:
        raise DataError(f"{flags.queries} has no array `queries`; it has {', '.join(case)}")
    if "points" in case and spec.dimension == spec.query_dimension:
        return case["points"]
    raise DataError("no queries: give --queries FILE, --grid N, or `queries` in the input")
