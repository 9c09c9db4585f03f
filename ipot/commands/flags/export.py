"""The flags of `ipot export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro


@dataclass
class Export:
    """Write a trained model as a graph that runs without this package.

    Any number of samples, points and queries go in, fields come out, in physical units:

        ipot export runs/darcy --format onnx --out darcy.onnx

    Beside it comes darcy.onnx.json, which says what goes in, in which order, and how to call it.
    Before anything is written, the file has answered as the model does at sizes drawn at random.

    One graph holds every step in time anew. For a model of many steps write its parts, to be called
    in a loop, or fewer steps:

        ipot export shallow_water --parts --out shallow_water
        ipot export shallow_water --steps 3 --out shallow_water.onnx
    """

    usual: ClassVar = ("folder", "out", "format", "steps", "parts", "overwrite", "json")

    folder: Annotated[str, tyro.conf.Positional]
    """Run folder, the folder of a saved model, or the name of a model in the package: darcy."""
    out: Path
    """Where the result goes: a file that ends in the name of its format."""
    format: Literal["onnx", "pt2"] | None = None
    """Format of what is written: onnx runs in onnxruntime and takes `pip install 'ipot[export]'`,
    pt2 runs in torch; as --out ends by default."""
    steps: int | None = None
    """Steps of the rollout; of one graph the first so many, and all of the training by default."""
    parts: bool = False
    """Write a folder with ONNX graphs of the encoder, one step and the decoder, for any number of
    steps, and model.json, which says how to call them."""
    tolerance: float | None = None
    """The largest difference to the model that is let through, relative to the largest number: 1e-5
    by default, and 8e-5 for parts, where that of every step adds up."""
    overwrite: bool = False
    """Write over what is there already."""
    trust: bool = False
    """Import code outside ipot that a folder names: only where you know where it comes from."""
    edited: bool = False
    """Take a saved model whose settings or files were changed after it was saved."""
    json: bool = False
    """Print the result as JSON: a summary."""


FLAGS = Export
