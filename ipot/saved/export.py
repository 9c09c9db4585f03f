"""A trained model as one file that runs without this package: ONNX, or torch's own format.

All of batch, points and queries stay open, scales are inside, and nothing is written before the
file has answered as the model does, at sizes drawn at random.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ipot import files
from ipot.data.scaling import Scaling
from ipot.errors import DataError, RunError, Unsupported, shown
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.saved.card import scales_of
from ipot.saved.graph import Plain, Signature, examples, refuse_structure, trace
from ipot.saved.graph_files import (
    OUTPUT,
    Answer,
    need_onnx,
    quiet,
    read_onnx,
    read_pt2,
    refuse_large,
    write_onnx,
    write_pt2,
)
from ipot.spec import Spec
from ipot.typed_json import to_dict
from ipot.version import __version__

FORMATS = ("onnx", "pt2")
COMBINATIONS = 10
"""Sizes at which a file is compared with its model."""
LARGEST = {"batch": 3, "points": 500, "queries": 500}
SECONDS = {"onnx": 0.05, "pt2": 0.02}
"""To trace and write an operation, on a busy core (docs/log.md)."""
WORTH_SAYING, LONG = 60.0, 300.0
"""Seconds of an export that are told of before it begins, and that are refused unless asked for."""


def export(
    model: Operator,
    spec: Spec,
    path: Path | str,
    *,
    format: str,
    tolerance: float = 1e-5,
    origin: Sequence[float] = (),
    scalings: Mapping[str, Scaling] | None = None,
    points: bool | None = None,
    steps: int | None = None,
    say: Callable[[str], object] = lambda line: None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write a model as a graph, and beside it `<name>.json`, which says how to call it.

    Tensors points (B, N, D), values (B, N, C), queries (B, M, E) and parameters (B, P), as far as
    the model takes them, to fields (B, T, M, K), all float32 and in physical units; T is that of
    the training, or the first so many `steps` of it. A graph holds every step anew, so that one of
    many steps takes long to write: `say` is told so before it begins, and ONNX refuses where nobody
    asked for the steps. `points` says whether input points are among the tensors where the facts
    leave it open.
    The largest difference to the model, of any channel relative to the largest number in it, must
    be within `tolerance`. The graph's coordinates are relative to `origin`: the lines that say
    how to call it take that off, in float64. `scalings` are the changes of units of points,
    queries, values, parameters and targets that the model counts in: the same lines apply them and
    undo them for the answer. Those of places replace the origin.
    """
    target = _target(Path(path), format)
    asked, spec = steps, _of_steps(spec, steps)
    signature, scalings = Signature(spec, points), dict(scalings or {})
    origin = () if {"points", "queries"} & set(scalings) else origin
    if origin and not len(origin) == spec.dimension == spec.query_dimension:
        raise DataError(
            f"origin has {len(origin)} numbers, and is taken off points of {spec.dimension} "
            f"coordinates and queries of {spec.query_dimension}: give one for each"
        )
    # Without gradients the graph takes less work to make, and its answers are plain numbers.
    model = copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)
    if format == "onnx":
        refuse_large(model)
        need_onnx()
    refuse_structure(model)
    _tell_how_long(model, spec, signature, format, asked, say)
    write, read = (write_onnx, read_onnx) if format == "onnx" else (write_pt2, read_pt2)
    with quiet():
        program = trace(Plain(model, spec, signature), signature)
    try:
        sidecar = target.with_name(f"{target.name}.json")
        # Both are whole before either gets its name.
        with files.atomic(sidecar) as beside, files.atomic(target) as temporary:
            with quiet():
                write(program, signature, temporary)
                answer = read(temporary)
            gap = difference(answer, model, spec, signature, seed=seed)
            if not gap <= tolerance:
                raise RunError(
                    f"{target} is not written: it differs from the model by {gap:.2e}, relative "
                    f"to the largest number of the channel, and {tolerance:.0e} is asked for; "
                    "allow more by tolerance"
                )
            size = os.path.getsize(temporary)
            facts = _facts(spec, signature, target, format, origin, scalings)
            files.write_json(beside, facts | {"model": model.name, "difference": gap})
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}") from error
    return {
        "path": str(target),
        "facts": str(sidecar),
        "format": format,
        "bytes": size,
        "inputs": list(signature.columns),
        "difference": gap,
        "combinations": COMBINATIONS,
    }


def _of_steps(spec: Spec, steps: int | None) -> Spec:
    """The facts of a model that answers at its first steps."""
    if steps is None:
        return spec
    if not 1 <= steps <= spec.steps:
        raise Unsupported(
            f"--steps {steps}: {spec.name} has {spec.steps} steps in training, so give a number "
            f"from 1 to {spec.steps}"
        )
    return replace(spec, steps=steps)


def _tell_how_long(
    model: Operator,
    spec: Spec,
    signature: Signature,
    format: str,
    asked: int | None,
    say: Callable[[str], object],
) -> None:
    """Say how long the graph takes to write, if that is more than a minute; refuse what takes many
    unless the steps were asked for."""
    count = operations(Plain(model, spec, signature), signature)
    seconds = SECONDS[format] * count
    if seconds <= WORTH_SAYING:
        return
    minutes = f"about {max(2, round(seconds / 60))} minutes"
    steps = f"{spec.steps} steps in one graph are {count:,} operations"
    if spec.steps == 1:
        say(f"one graph of {count:,} operations takes {minutes} to write")
    elif format == "onnx" and asked is None and seconds > LONG:
        raise Unsupported(
            f"{steps}, which ONNX takes {minutes} or more to write. --parts writes the encoder, "
            "one step and the decoder, to be called in a loop; --steps N a graph of the first N "
            f"steps, and --steps {spec.steps} this one all the same. A .pt2 file is quicker."
        )
    else:
        say(f"{steps}, and take {minutes} to write: --steps N writes the first N, --parts one step")


class _Counter(TorchDispatchMode):
    """Counts operations as they are computed."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(plain: Plain, signature: Signature) -> int:
    """How many operations a model takes for an answer: about as many nodes has its graph."""
    with torch.no_grad(), _Counter() as counter:
        plain(*examples(signature))
    return counter.count


def difference(
    answer: Answer,
    model: Operator,
    spec: Spec,
    signature: Signature,
    *,
    seed: int = 0,
    combinations: int = COMBINATIONS,
    largest: Mapping[str, int] = LARGEST,
) -> float:
    """The largest difference between a graph and its model over sizes drawn at random.

    Of every channel, relative to the largest number in it. The first sizes are all 1, where graphs
    go wrong most easily; the model answers as it always does, by whatever path is quickest.
    """
    random = torch.Generator().manual_seed(seed)
    worst = torch.zeros(len(spec.outputs), dtype=torch.float64)
    highest = torch.zeros_like(worst)
    for turn in range(combinations):
        sizes = {
            axis: 1 if turn == 0 else int(torch.randint(1, most + 1, (), generator=random))
            for axis, most in largest.items()
        }
        given = _drawn(model, spec, signature, sizes, random)
        with torch.no_grad():
            truth = model(_batch(given, spec)).double()
        found = answer(given).double()
        if found.shape != truth.shape:
            return float("inf")
        gap = (found - truth).abs().flatten(0, 2).amax(0)
        worst = torch.maximum(worst, gap)
        highest = torch.maximum(highest, truth.abs().flatten(0, 2).amax(0))
    return float((worst / highest.clamp_min(torch.finfo(torch.float32).tiny)).max())


def _drawn(
    model: Operator,
    spec: Spec,
    signature: Signature,
    sizes: dict[str, int],
    random: torch.Generator,
) -> dict[str, Tensor]:
    """Inputs like those of the training: places in the domain, values in the scales of the data."""
    scales, found = scales_of(model), {}
    boxes = {"points": spec.domain, "queries": spec.query_domain}
    kinds = {"values": "input", "parameters": "parameter"}
    for name in signature.columns:
        shape = signature.shape(name, sizes)
        if name in boxes:
            low, high = torch.tensor(boxes[name]).unbind(-1)
            found[name] = low + (high - low) * torch.rand(shape, generator=random)
        else:
            mean, scale = map(torch.tensor, scales.get(kinds[name], (0.0, 1.0)))
            found[name] = mean + scale * torch.randn(shape, generator=random)
    return found


def _batch(given: dict[str, Tensor], spec: Spec) -> Batch:
    queries = given["queries"]
    points = given.get("points", queries.new_zeros(len(queries), 0, spec.dimension))
    return Batch(
        points=points,
        values=given.get("values", points.new_zeros(*points.shape[:2], spec.channels)),
        queries=queries,
        parameters=given.get("parameters"),
        times=tuple(spec.dt * (i + 1) for i in range(spec.steps)),
    )


def _facts(
    spec: Spec,
    signature: Signature,
    target: Path,
    format: str,
    origin: Sequence[float],
    scalings: Mapping[str, Scaling],
) -> dict[str, Any]:
    """What a caller must know."""
    inputs = [
        {"name": name, "shape": [*signature.axes(name), columns], "dtype": "float32"}
        for name, columns in signature.columns.items()
    ]
    shape = ["batch", spec.steps, "queries", len(spec.outputs)]
    units = dict(zip(spec.outputs, spec.units, strict=False))
    content = {
        "kind": "ipot-export",
        "ipot": __version__,
        "format": format,
        "inputs": inputs,
        "output": {"name": OUTPUT, "shape": shape, "channels": list(spec.outputs), "units": units},
        "channels": {"values": list(spec.inputs), "parameters": list(spec.parameters)},
        "times": [spec.dt * (i + 1) for i in range(spec.steps)],
        "spec": to_dict(spec),
        "call": _call(signature, target.name, format, origin, scalings),
    }
    if origin:
        content["origin"] = [float(x) for x in origin]
        content["coordinates"] = (
            "the graph takes points and queries less `origin`; `call` takes it off, in float64, "
            "since float32 would round away what tells neighbours apart so far from zero"
        )
    if scalings:
        content["scalings"] = {
            n: {"offset": list(s.offset), "scale": list(s.scale)} for n, s in scalings.items()
        }
        content["units"] = (
            "the graph takes (x - offset) / scale of what `scalings` names, and answers in such "
            "units of the targets; `call` changes them there and back, in float64, since float32 "
            "cannot hold such numbers"
        )
    return content


def _call(
    signature: Signature,
    name: str,
    format: str,
    origin: Sequence[float],
    scalings: Mapping[str, Scaling] | None = None,
) -> list[str]:
    """How to call it, in lines of Python, from arrays or tensors as they are in the data."""
    constants, given, undone = changes_of_units(signature, format, origin, scalings)
    file = json.dumps(name, ensure_ascii=False)
    if format == "onnx":
        arrays = ", ".join(f'"{n}": numpy.float32({words})' for n, words in given.items())
        lines = [
            "import numpy, onnxruntime",
            f"session = onnxruntime.InferenceSession({file})",
            *constants,
            "# arrays with the shapes of `inputs`",
            f'fields = session.run(["{OUTPUT}"], {{{arrays}}})[0]',
        ]
    else:
        tensors = ", ".join(
            f"{words}.float()" if words.isidentifier() else f"({words}).float()"
            for words in given.values()
        )
        lines = [
            "import torch",
            f"model = torch.export.load({file}).module()",
            *constants,
            "# tensors with the shapes of `inputs`",
            f"fields = model({tensors})",
        ]
    return [*lines, *undone]


def changes_of_units(
    signature: Signature,
    format: str,
    origin: Sequence[float],
    scalings: Mapping[str, Scaling] | None = None,
) -> tuple[list[str], dict[str, str], list[str]]:
    """Lines of Python that name offsets and scales, every input of a graph in words, and the lines
    that give an answer in the units of the data."""
    scalings = {n: s for n, s in (scalings or {}).items() if n in (*signature.columns, "targets")}
    moved = {n: f"{n} - origin" for n in ("points", "queries")} if origin else {}
    moved |= {n: f"({n} - {n}_offset) / {n}_scale" for n in scalings if n != "targets"}
    module, kind = (
        ("numpy.array", "") if format == "onnx" else ("torch.tensor", ", dtype=torch.float64")
    )
    constants = [f"origin = {module}({[float(x) for x in origin]}{kind})"] if origin else []
    constants += [
        f"{n}_{part} = {module}({list(getattr(s, part))}{kind})"
        for n, s in scalings.items()
        for part in ("offset", "scale")
    ]
    undone = ["fields = fields * targets_scale + targets_offset"] if "targets" in scalings else []
    return constants, {n: moved.get(n, n) for n in signature.columns}, undone


def _target(path: Path, format: str) -> Path:
    if format not in FORMATS:
        raise Unsupported(f"unknown format {shown(format)}; known: {', '.join(FORMATS)}")
    if path.suffix != f".{format}":
        raise Unsupported(f"{path}: a file of the format {format} ends in .{format}")
    if path.is_dir():
        raise RunError(f"{path} is a folder: give the name of a file")
    return path
