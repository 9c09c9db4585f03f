"""Weights of an ONNX graph in half the bytes, for graphs that travel.

    w = float32(half)                 where half precision holds them as they are: nothing is lost
    w = float32(whole) * scale(row)   whole numbers of 16 bits, and the scale of their row

A runtime makes float32 of either when it loads the graph, once. Rows of whole numbers round by
2^-16 of the largest weight of the row, several times less than half precision would round most of
them. What is one row alone is no weight: exporters keep places of a lattice so, and what follows
from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FEWEST = 1024
"""Numbers of a tensor that are worth two operations."""
LARGEST = 2**15 - 1


def compact(source: Path, target: Path, *, rounded: bool) -> bool:
    """Write a graph anew, smaller; True if any weight is another number now. Without `rounded` only
    those change their form that lose nothing."""
    import onnx

    model = onnx.load(str(source))
    graph, lost, nodes = model.graph, False, []
    for tensor in list(graph.initializer):
        if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims) < FEWEST:
            continue
        array = onnx.numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        if np.array_equal(half.astype(np.float32), array):
            made, held = _from_half(onnx, tensor.name, half)
        elif rounded and array.ndim > 1 and len(array) > 1 and np.isfinite(array).all():
            made, held = _from_whole(onnx, tensor.name, array)
            lost = True
        else:
            continue
        graph.initializer.remove(tensor)
        graph.initializer.extend(held)
        nodes += made
    for node in reversed(nodes):
        graph.node.insert(0, node)
    onnx.save(model, str(target))
    return lost


def _from_half(onnx: Any, name: str, half: np.ndarray) -> tuple[list[Any], list[Any]]:
    held = onnx.numpy_helper.from_array(half, f"{name} half")
    kind = onnx.TensorProto.FLOAT
    return [onnx.helper.make_node("Cast", [held.name], [name], to=kind)], [held]


def _from_whole(onnx: Any, name: str, array: np.ndarray) -> tuple[list[Any], list[Any]]:
    rows = tuple(range(1, array.ndim))
    scale = np.abs(array).max(axis=rows, keepdims=True).astype(np.float64) / LARGEST
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    whole = np.rint(array / scale).clip(-LARGEST, LARGEST).astype(np.int16)
    held = [
        onnx.numpy_helper.from_array(whole, f"{name} whole"),
        onnx.numpy_helper.from_array(scale, f"{name} scale"),
    ]
    kind = onnx.TensorProto.FLOAT
    return [
        onnx.helper.make_node("Cast", [held[0].name], [f"{name} real"], to=kind),
        onnx.helper.make_node("Mul", [f"{name} real", held[1].name], [name]),
    ], held
