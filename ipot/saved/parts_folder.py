"""A trained model as a folder of ONNX graphs of its parts, and the lines that call them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipot import files
from ipot.data.scaling import Scaling
from ipot.errors import RunError, Unsupported
from ipot.models.base import Operator
from ipot.saved.disk import whole_folder
from ipot.saved.export import changes_of_units
from ipot.saved.graph import Signature
from ipot.saved.graph_files import need_onnx
from ipot.saved.parts import COMBINATIONS, DECODE, ENCODE, STEP, WHOLE, Parts, write_parts
from ipot.spec import Spec
from ipot.typed_json import to_dict
from ipot.version import __version__

FACTS = "model.json"
KIND = "ipot-export-parts"
TOLERANCE = 8e-5
"""Of float32 over many steps: nineteen of the shallow water in the package differ by 1.2e-5."""


def export_parts(
    model: Operator,
    spec: Spec,
    path: Path | str,
    *,
    tolerance: float = TOLERANCE,
    origin: Sequence[float] = (),
    scalings: Mapping[str, Scaling] | None = None,
    points: bool | None = None,
) -> dict[str, Any]:
    """Write encode.onnx, step.onnx and decode.onnx into a folder, and model.json, which says how to
    call them. The other arguments are those of `export`; any number of steps may be taken."""
    target = Path(os.path.realpath(path))
    need_onnx()
    signature, scalings = Signature(spec, points), dict(scalings or {})
    origin = () if {"points", "queries"} & set(scalings) else origin

    def refuse_others() -> None:
        if target.exists() and not _is_ours(target):
            raise RunError(f"{target} holds something else than an export: choose another --out")

    refuse_others()
    try:
        with whole_folder(target, check=refuse_others) as folder:
            parts = write_parts(model, spec, folder, points=points, tolerance=tolerance)
            if WHOLE in parts.files:
                raise Unsupported(
                    f"--parts: {model.name} does not come apart into an encoder, a step and a "
                    "decoder. Leave it out, and give --steps N where one graph has too many."
                )
            content = {
                "kind": KIND,
                "ipot": __version__,
                "model": model.name,
                "difference": parts.difference,
                "inputs": {n: [*signature.axes(n), c] for n, c in signature.columns.items()},
                "states": list(parts.states),
                "dt": spec.dt,
                "steps": spec.steps,
                "channels": {
                    "values": list(spec.inputs),
                    "parameters": list(spec.parameters),
                    "fields": list(spec.outputs),
                },
                "spec": to_dict(spec),
                "call": _call(parts, spec, signature, target, origin, scalings),
            }
            files.write_json(folder / FACTS, content)
            size = sum(file.stat().st_size for file in folder.iterdir())
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}") from error
    return {
        "path": str(target),
        "facts": str(target / FACTS),
        "format": "onnx",
        "bytes": size,
        "inputs": list(signature.columns),
        "difference": parts.difference,
        "combinations": COMBINATIONS,
    }


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds what was exported before, or nothing."""
    if not folder.is_dir():
        return False
    names = {entry.name for entry in folder.iterdir()}
    return names <= {FACTS, *(f"{part}.onnx" for part in (ENCODE, STEP, DECODE))}


def _call(
    parts: Parts,
    spec: Spec,
    signature: Signature,
    target: Path,
    origin: Sequence[float],
    scalings: Mapping[str, Scaling],
) -> list[str]:
    """How to call the graphs, in lines of Python, from arrays as they are in the data."""
    constants, given, undone = changes_of_units(signature, "onnx", origin, scalings)
    inputs = ", ".join(f'"{n}": numpy.float32({w})' for n, w in given.items() if n != "queries")
    step = ["    state = run(STEP, state)"] if STEP in parts.files else []
    names = [part for part in (ENCODE, STEP, DECODE) if part in parts.files]
    opened = [
        f"{part.upper()} = onnxruntime.InferenceSession(folder + {json.dumps(f'/{part}.onnx')})"
        for part in names
    ]
    return [
        "import numpy, onnxruntime",
        f"folder = {json.dumps(target.name, ensure_ascii=False)}",
        *opened,
        *constants,
        f"names = {list(parts.states)}",
        "def run(graph, there):",
        "    asked = {tensor.name: there[tensor.name] for tensor in graph.get_inputs()}",
        "    return dict(zip(names, graph.run(None, asked)))",
        "# arrays with the shapes of `inputs`; any number of steps",
        f"steps = {spec.steps}",
        f"state = run(ENCODE, {{{inputs}}})",
        f"places = numpy.float32({given['queries']})",
        "fields = []",
        "for _ in range(steps):",
        *step,
        '    there = {**state, "queries": places}',
        "    asked = {tensor.name: there[tensor.name] for tensor in DECODE.get_inputs()}",
        "    fields.append(DECODE.run(None, asked)[0])",
        "fields = numpy.stack(fields, 1)",
        *undone,
    ]
