"""`ipot predict`: answer at any queries for inputs from a file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import tyro

from ipot.api import load
from ipot.commands.common import emit, parse, say
from ipot.commands.predict_own import answer_own
from ipot.errors import DataError, Unsupported
from ipot.formats.arrays import read_arrays, write_arrays, write_mapped
from ipot.spec import Spec
from ipot.surrogate.surrogate import Surrogate


@dataclass
class Predict:
    """Answer at any queries with a trained run.

    For a run of a built-in problem the input is an .npz file with `points` (N, D) and `values`
    (N, C), and if you like `queries` (M, E) and `parameters` (P). For instance, on a grid of 200
    points a side:

        ipot predict runs/darcy --input case.npz --grid 200 --output answer.npz

    The answer is an .npz with `queries` (M, E), `prediction` (T, M, K) and `times` (T).

    For more than fits into memory, the input is a folder with points.npy, values.npy and the like,
    and the answer an .npy with the prediction alone: neither is ever held whole.

        ipot predict runs/darcy --input case/ --output answer.npy

    A model of your own data (`ipot fit`) takes the kinds of files that it was trained on and
    answers in the format that --output ends in: .npz, .csv, .parquet, .h5, .vtu, .vtp, or .nc for
    a forecast. --queries is then another mesh, table or grid.

        ipot predict surrogate --input case.vtu --queries tomorrow.vtu --output answer.vtu
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the folder of a saved model."""
    input: Path
    """An .npz file, or a folder of .npy files; for a model of your own data any file of a case, or
    a folder of cases."""
    output: Path
    """Where to write the answer; for several cases a folder, or one .h5, .csv or .parquet file."""
    overwrite: bool = False
    """Write over an answer of a model of your own data that is there already."""
    queries: Path | None = None
    """An .npy file (M, E), or an .npz with `queries`; those of the input unless said."""
    interval: float | None = None
    """Bounds besides, that hold the truth so often: 0.9. For models of your own data."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16 is quicker, at about three decimal digits: several times on a GPU, about twice on a CPU
    that has the instructions for it."""
    grid: int | None = None
    """Ask on a regular grid over the domain, with so many points a side."""
    fill: str | None = None
    """Interpolate the inputs onto the grid of training, for a system that takes nothing else:
    linear, cubic or nearest. The answer is on that grid unless said."""
    steps: int | None = None
    """Steps of the rollout; the training horizon unless said."""
    rows: int | None = None
    """Points or queries taken at once; fewer take less memory."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that the folder names: only where you know where it comes from."""
    edited: bool = False
    """Take a saved model whose settings or files were changed after it was saved."""
    json: bool = False
    """Print a JSON summary."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Predict, arguments, "predict")
    surrogate = load(flags.run, device=flags.device, trusted=flags.trust, edited=flags.edited)
    _refuse_own_input(flags)
    _refuse_there(flags)
    if surrogate.problem is None:
        _answer_fitted(flags, surrogate)
        return
    if flags.interval is not None:
        raise Unsupported("--interval is for models of your own data, which `ipot fit` makes")
    if flags.output.suffix not in (".npz", ".npy"):
        raise DataError(f"{flags.output}: the answer of a run is written as .npz or .npy")
    spec = surrogate.spec
    case = read_arrays(flags.input)
    missing = [] if spec.parameters else [k for k in ("points", "values") if k not in case]
    if missing:
        raise DataError(f"{flags.input} lacks {' and '.join(missing)}; it has {', '.join(case)}")
    if flags.fill is not None:
        case.setdefault("queries", surrogate.places())
    queries = _queries(flags, case, spec)
    answer = partial(
        surrogate.predict,
        case.get("points"),
        case.get("values"),
        queries,
        steps=flags.steps,
        parameters=case.get("parameters"),
        fill=flags.fill,
        rows=flags.rows,
        precision=flags.precision,
    )
    if flags.output.suffix == ".npy":
        steps = spec.steps if flags.steps is None else flags.steps
        shape = (steps, *queries.shape[:1], len(spec.outputs))
        prediction = write_mapped(flags.output, shape, lambda out: answer(out=out))
    else:
        prediction = answer()
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


def _answer_fitted(flags: Predict, model: Surrogate) -> None:
    """The answer of a model of somebody's own data, by its own kinds of files."""
    foreign = [n for n in ("fill", "grid", "rows") if getattr(flags, n) is not None]
    if foreign:
        raise Unsupported(f"--{foreign[0]} is for runs of built-in problems: leave it out")
    half = flags.precision == "bf16"
    with torch.autocast(model.device.type, torch.bfloat16, enabled=half):
        summary = answer_own(
            model,
            flags.input,
            flags.queries,
            flags.output,
            interval=flags.interval,
            steps=flags.steps,
        )
    if flags.json:
        emit(summary)
    else:
        say(f"{flags.output}: {summary['cases']} case(s), {', '.join(model.spec.outputs)}")


def _refuse_own_input(flags: Predict) -> None:
    """Refuse to write the answer over what it is made from."""
    output = flags.output.resolve()
    for source in (flags.input, flags.queries):
        if source is None:
            continue
        inside = source.is_dir() and output.parent == source.resolve() and output.exists()
        if output == source.resolve() or inside:
            raise DataError(f"{flags.output} is among the inputs: choose another --output")


def _refuse_there(flags: Predict) -> None:
    """Refuse to write over a file, or into a folder with something in it, that is there already."""
    output = flags.output
    empty = output.is_dir() and not any(output.iterdir())
    if output.exists() and not empty and not flags.overwrite:
        raise DataError(
            f"--output {output} is there already: choose another, or add --overwrite to write over "
            "it"
        )


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
