"""`ipot predict`: answer at any queries for inputs from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ipot.api import load
from ipot.commands.common import data_given, emit, parse, say, without_old_input
from ipot.errors import DataError
from ipot.surrogate.files import answer_files


@dataclass
class Predict:
    """Answer at any queries with a trained model: a run of `ipot train`, or a saved model.

    The input is an .npz file with `points` (N, D) and `values` (N, C), and if you like `queries`
    (M, E) and `parameters` (P). For instance, on a grid of 200 points a side:

        ipot predict runs/darcy case.npz --grid 200 --output answer.npz

    The answer is an .npz with `queries`, `prediction` and, where the model has such, `times`. A
    run of a built-in problem answers (T, M, K), a model of your own data like its targets.

    For more than fits into memory, the input is a folder with points.npy, values.npy and the like,
    and the answer an .npy with the prediction alone: neither is ever held whole.

        ipot predict runs/darcy case/ --output answer.npy

    The input may also be a file of a case, like those that `ipot fit` takes, with the fields that
    the model knows by name; the answer has the format that --output ends in: .npz, .csv, .parquet,
    .h5, .vtu, .vtp, or .nc for a forecast. --queries is then another mesh, table or grid.

        ipot predict surrogate case.vtu --queries tomorrow.vtu --output answer.vtu
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the folder of a saved model."""
    output: Path
    """Where to write the answer; for several cases a folder, or one .h5, .csv or .parquet file."""
    cases: Annotated[Path | None, tyro.conf.Positional] = None
    """An .npz file, a folder of .npy files, any file of a case, or a folder of cases."""
    overwrite: bool = False
    """Write over an answer that is there already."""
    queries: Path | None = None
    """An .npy file (M, E), an .npz with `queries`, or another case; the input's unless said."""
    interval: float | None = None
    """Bounds besides, that hold the truth so often: 0.9, for a model that was calibrated."""
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
    arguments, old = without_old_input(arguments, "predict")
    flags = parse(Predict, arguments, "predict")
    cases = data_given(flags.cases, old)
    if cases is None:
        raise DataError(
            f"what is to be answered? Give a file or a folder: ipot predict {flags.run} case.npz "
            f"--output {flags.output}"
        )
    surrogate = load(flags.run, device=flags.device, trusted=flags.trust, edited=flags.edited)
    _refuse_own_input(flags, cases)
    _refuse_there(flags)
    summary = answer_files(
        surrogate,
        cases,
        flags.output,
        queries=flags.queries,
        grid=flags.grid,
        interval=flags.interval,
        steps=flags.steps,
        fill=flags.fill,
        rows=flags.rows,
        precision=flags.precision,
    )
    if flags.json:
        emit(summary)
        return
    shape = f", shape {tuple(summary['shape'])}" if "shape" in summary else ""
    say(f"{flags.output}: {summary['cases']} case(s), {', '.join(summary['outputs'])}{shape}")


def _refuse_own_input(flags: Predict, cases: Path) -> None:
    """Refuse to write the answer over what it is made from."""
    output = flags.output.resolve()
    for source in (cases, flags.queries):
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
