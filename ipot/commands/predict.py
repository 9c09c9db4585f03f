"""`ipot predict`: answer at any queries for inputs from a file."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

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

    For more than fits into memory, the input is a folder with points.npy, values.npy and the like,
    and the answer an .npy with the prediction alone: neither is ever held whole.

        ipot predict runs/darcy --input case/ --output answer.npy
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    input: Path
    """An .npz file, or a folder of .npy files."""
    output: Path
    """Where to write the answer, .npz or .npy."""
    queries: Path | None = None
    """An .npy file (M, E), or an .npz with `queries`; those of the input unless said."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16 is for a GPU: several times quicker, at about three decimal digits."""
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
    json: bool = False
    """Print a JSON summary."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Predict, arguments, "predict")
    if flags.output.suffix not in (".npz", ".npy"):
        raise DataError(f"{flags.output}: the answer is written as .npz or .npy")
    surrogate = load(flags.run, device=flags.device)
    spec = surrogate.spec
    case = read_arrays(flags.input)
    missing = [] if spec.parameters else [k for k in ("points", "values") if k not in case]
    if missing:
        raise DataError(f"{flags.input} lacks {' and '.join(missing)}; it has {', '.join(case)}")
    if flags.fill is not None:
        case.setdefault("queries", surrogate.places())
    queries = _queries(flags, case, spec)
    _refuse_own_input(flags)
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


def _refuse_own_input(flags: Predict) -> None:
    """Refuse to write the answer over what it is made from."""
    output = flags.output.resolve()
    for source in (flags.input, flags.queries):
        if source is not None and output in (source.resolve(), *source.resolve().glob("*.npy")):
            raise DataError(f"{flags.output} is among the inputs: choose another --output")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, the array of an .npy file as `queries`, or those of a folder of
    .npy files by their names; never a pickle. An .npy file is mapped and not read."""
    if path.is_dir():
        found = {f.stem: read_arrays(f)["queries"] for f in sorted(path.glob("*.npy"))}
        if not found:
            raise DataError(f"{path} holds no .npy file: points.npy and values.npy are expected")
        return found
    if path.suffix not in (".npz", ".npy"):
        raise DataError(f"{path}: expected a file that ends in .npz or .npy")
    try:
        mode = "r" if path.suffix == ".npy" else None
        content = np.load(path, mmap_mode=mode, allow_pickle=False)
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


def write_mapped(
    path: Path, shape: tuple[int, ...], fill: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """An .npy file that `fill` writes to in place, whole or not at all; mapped, for reading."""
    if min(shape) < 1:
        raise DataError(f"an answer of the shape {shape} holds nothing: ask for a query and a step")
    try:
        with files.atomic(path) as temporary:
            array = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
            # A mapped file that meets a full disk later on would end the process.
            if hasattr(os, "posix_fallocate"):
                with temporary.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, temporary.stat().st_size)
            fill(array)
            array.flush()
            del array
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    return np.load(path, mmap_mode="r")


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
