"""The flags of `ipot predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from ipot.commands.flags import Fill


@dataclass
class Predict:
    """Answer at any queries with a trained model: a run of `ipot train`, or a saved model.

    The input is an .npz file with `points` (N, D) and `values` (N, C), and if you like `queries`
    (M, E) and `parameters` (P). For instance, on a grid of 200 points a side:

        ipot predict runs/darcy case.npz --grid 200 --out answer.npz

    The answer is an .npz with `queries`, `prediction` and, where the model has such, `times`. A
    run of a built-in problem answers (T, M, K), a model of your own data like its targets.

    For more than fits into memory, the input is a folder with points.npy, values.npy and the like,
    and the answer an .npy with the prediction alone: neither is ever held whole.

        ipot predict runs/darcy case/ --out answer.npy

    The input may also be a file of a case, like those that `ipot fit` takes, with the fields that
    the model knows by name; the answer has the format that --out ends in: .npz, .csv, .parquet,
    .h5, .vtu, .vtp, or .nc for a forecast. --queries is then another mesh, table or grid.

        ipot predict surrogate case.vtu --queries tomorrow.vtu --out answer.vtu
    """

    usual: ClassVar = (
        *("run", "cases", "out", "overwrite", "queries", "grid", "interval", "steps"),
        "all_times",
        *("precision", "device", "json"),
    )

    run: Annotated[str, tyro.conf.Positional]
    """Run folder, the folder of a saved model, or the name of a model in the package: darcy."""
    out: Path
    """Where the result goes: a file; for several cases a folder, or one .h5, .csv or .parquet."""
    cases: Annotated[Path | None, tyro.conf.Positional] = None
    """An .npz file, a folder of .npy files, any file of a case, or a folder of cases."""
    overwrite: bool = False
    """Write over what is there already."""
    queries: Path | None = None
    """An .npy file (M, E), an .npz with `queries`, or another case; the input's by default."""
    interval: float | None = None
    """Bounds besides, that contain the truth this often: 0.9, for a model that was calibrated."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic; bf16 is quicker, at about three decimal digits: several times on a GPU, about
    twice on a CPU that has the instructions for it."""
    grid: int | None = None
    """Ask on a regular grid over the domain, with so many points a side."""
    all_times: bool = False
    """Answer at every time of a series that has its history, and not only after the last: 300
    times of stations in, 300 maps out, in one .nc file that is written as they come."""
    fill: Fill | None = None
    """Interpolate the inputs that are missing: onto the grid of training, for a system that takes
    nothing else. The answer is on that grid by default."""
    steps: int | None = None
    """Steps of the rollout; the training horizon by default."""
    rows: int | None = None
    """Points or queries taken at once; fewer take less memory."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that a folder names: only where you know where it comes from."""
    edited: bool = False
    """Take a saved model whose settings or files were changed after it was saved."""
    json: bool = False
    """Print the result as JSON: a summary."""


FLAGS = Predict
