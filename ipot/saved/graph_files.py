"""Graphs in files: torch's own format, and ONNX by way of onnxscript and onnxruntime."""

from __future__ import annotations

import importlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from ipot.errors import Unsupported
from ipot.models.base import Operator
from ipot.saved.graph import Signature

ONNX_MOST = (1 << 31) - (1 << 24)
"""Bytes of weights in one ONNX file, which must stay below 2 GiB with its graph."""
OUTPUT = "fields"
"""The name of what comes out."""

Answer = Callable[[dict[str, Tensor]], Tensor]
"""From tensors by their names to fields."""


def write_pt2(program: ExportedProgram, signature: Signature, path: Path) -> None:
    """The graph in torch's format."""
    with path.open("wb") as file:
        torch.export.save(program, file)


def read_pt2(path: Path) -> Answer:
    """The graph in a file, ready to be asked."""
    with path.open("rb") as file:
        graph = torch.export.load(file).module()

    def answer(given: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            return graph(*given.values())

    return answer


def write_onnx(program: ExportedProgram, signature: Signature, path: Path) -> None:
    """The graph with names of its own, and without what torch notes of this machine."""
    axes = {name: signature.axes(name) for name in signature.columns}
    write_graph(program, axes, [OUTPUT], path)


def write_graph(
    program: ExportedProgram,
    axes: Mapping[str, Sequence[str | None]],
    outputs: Sequence[str],
    path: Path,
) -> None:
    """A graph as ONNX, with the names of its inputs, of their open axes, and of its outputs."""
    names = list(axes)
    try:
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=names, output_names=list(outputs)
        )
    except torch.onnx.OnnxExporterError as error:
        found = re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", str(error))
        what = f"there is none for {found[1]}" if found else "an operation has none"
        raise Unsupported(
            f"this model cannot be written as ONNX: {what}. Export as pt2."
        ) from error
    assert made is not None
    graph: Any = made.model.graph
    opened = {
        str(graph.inputs[i].shape[axis]): word
        for i, name in enumerate(names)
        for axis, word in enumerate(axes[name])
        if word
    }
    for value in (*graph.inputs, *graph.outputs):
        value.metadata_props.clear()
        for axis, size in enumerate(value.shape):
            if str(size) in opened:
                value.shape[axis] = opened[str(size)]
    graph.metadata_props.clear()
    for node in graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    made.save(str(path))


def read_onnx(path: Path) -> Answer:
    """The graph in an ONNX file, run by onnxruntime."""
    run = run_onnx(path)
    return lambda given: run(given)[0]


def run_onnx(path: Path) -> Callable[[dict[str, Tensor]], list[Tensor]]:
    """The graph in an ONNX file, from tensors by their names to all that come out. What a graph
    does not take is left out."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    taken = [given.name for given in session.get_inputs()]

    def answer(given: dict[str, Tensor]) -> list[Tensor]:
        found = session.run(None, {name: given[name].numpy() for name in taken})
        return [torch.from_numpy(array) for array in found]

    return answer


def refuse_large(model: Operator) -> None:
    """Refuse weights that one ONNX file cannot hold."""
    size = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    if size > ONNX_MOST:
        raise Unsupported(
            f"onnx: one file holds less than 2 GiB, and the weights are {size / 2**30:.1f} GiB. "
            "Export as pt2."
        )


def need_onnx() -> None:
    """Refuse where what writes and runs ONNX is not installed."""
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(
            f"onnx: {error.name} is not installed: pip install 'ipot[export]', or export as pt2"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without the remarks of exporters on what they left out, which are for their developers."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
