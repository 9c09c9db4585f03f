"""`ipot export`: a trained model as one file that runs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ipot.api import load
from ipot.commands.common import emit, parse, say
from ipot.data.own_layout import Layout
from ipot.data.scaling import Scaling
from ipot.errors import DataError
from ipot.report.tables import bytes_
from ipot.saved.export import export


@dataclass
class Export:
    """Write a trained model as a graph that runs without this package.

    Any number of samples, points and queries go in, fields come out, in physical units:

        ipot export runs/darcy --format onnx --output darcy.onnx

    Beside it comes darcy.onnx.json, which says what goes in, in which order, and how to call it.
    Before anything is written, the file has answered as the model does at sizes drawn at random.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """A run folder, or a saved model."""
    output: Path
    """The file to write; it ends in the name of its format."""
    format: Literal["onnx", "pt2"] | None = None
    """onnx runs in onnxruntime and takes `pip install 'ipot[export]'`, pt2 runs in torch; as the
    output ends unless said."""
    tolerance: float = 1e-5
    """The largest difference to the model that is let through, relative to the largest number."""
    overwrite: bool = False
    """Write over a file that is there already."""
    trust: bool = False
    """Import code outside ipot that the folder names: only where you know where it comes from."""
    edited: bool = False
    """Take a saved model whose settings or files were changed after it was saved."""
    json: bool = False
    """Print a JSON summary."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Export, arguments, "export")
    if flags.output.exists() and not flags.overwrite:
        raise DataError(
            f"--output {flags.output} is there already: choose another, or add --overwrite"
        )
    surrogate = load(flags.folder, device="cpu", trusted=flags.trust, edited=flags.edited)
    layout = surrogate.layout
    summary = export(
        surrogate.model,
        surrogate.spec,
        flags.output,
        format=flags.format or flags.output.suffix.removeprefix("."),
        tolerance=flags.tolerance,
        origin=layout.origin,
        scalings=_beside_origin(layout),
        points=not layout.alone,
    )
    if flags.json:
        emit(summary)
        return
    say(
        f"{summary['path']}: {bytes_(summary['bytes'])}, within {summary['difference']:.1e} of the "
        f"model at {summary['combinations']} sizes drawn at random; {summary['facts']} says how to "
        "call it"
    )


def _beside_origin(layout: Layout) -> dict[str, Scaling]:
    """The changes of units of a model that are more than one origin of all places."""
    found = layout.scalings()
    if not (layout.origin_scale or layout.query_origin or layout.query_scale):
        found = {n: s for n, s in found.items() if n not in ("points", "queries")}
    return found
