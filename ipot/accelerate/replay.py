"""Repeated inference with the same sizes on a GPU: its launches are captured once and replayed.

A small batch keeps a GPU busy for a fraction of a millisecond, and the host for several, to launch
kernels one by one. Replaying a captured graph costs one launch. That pays only if sizes and weights
stay the same, so a graph is captured after several such calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ipot.accelerate.layers import PARTS, QUICKER
from ipot.accelerate.twins import hooked, is_closed
from ipot.errors import warn_user
from ipot.nn.attention import FeedForward
from ipot.nn.neighbours import Surroundings
from ipot.nn.points import ParameterTokens
from ipot.samples import Batch

PATIENCE = 8
"""Equal questions in a row before the next is captured."""
MOST = 1 << 25
"""Rows of points and queries, beyond which a copy of them is too much to keep."""

Answer = Callable[[Batch], Tensor]


@dataclass
class _Seen:
    """The last call's sizes, how often it came, and its graph: inputs, output and replay."""

    key: Any
    count: int = 1
    graph: tuple[dict[str, Tensor], Tensor, Callable[[], None]] | None = None
    failed: bool = False


def repeats(model: nn.Module) -> bool:
    """True if a prediction is the same sequence of operations for all inputs of a size: all weights
    are in layers for which that is known, and none has a hook. A layer that searches for
    neighbours, or an unknown one, may do something else for other inputs."""
    layers = list(model.modules())
    known = (*QUICKER, *PARTS, FeedForward, ParameterTokens)
    return (
        any(type(m) in QUICKER for m in layers)
        and not any(isinstance(m, Surroundings) for m in layers)
        and all(isinstance(m, known) for m in layers if len(m._parameters))
        and not any(is_closed(m) for m in layers)
        and not hooked(*layers)
    )


_lock = threading.Lock()
_seen: WeakKeyDictionary[nn.Module, _Seen] = WeakKeyDictionary()
_repeats: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def replayed(model: nn.Module, batch: Batch, answer: Answer) -> Tensor | None:
    """The answer from a captured graph; None if there is none (yet), and the caller computes it.

    `answer` is what is captured. The batch must lie where the model does.
    """
    # One at a time: a graph has one place for its inputs. Whoever comes meanwhile does without.
    if not _worth_it(batch) or not _lock.acquire(blocking=False):
        return None
    try:
        return _replayed(model, batch, answer)
    finally:
        _lock.release()


def _replayed(model: nn.Module, batch: Batch, answer: Answer) -> Tensor | None:
    if model not in _repeats:
        _repeats[model] = repeats(model)
    key = _key(model, batch) if _repeats[model] else None
    if key is None:
        return None
    seen = _seen.get(model)
    if seen is None or seen.key != key:
        _seen[model] = _Seen(key)
        return None
    seen.count += 1
    if seen.graph is None:
        if seen.failed or seen.count <= PATIENCE:
            return None
        _repeats[model] = repeats(model)  # its layers may have been changed since
        if not _repeats[model]:
            return None
        try:
            seen.graph = capture(batch, answer)
        except RuntimeError as error:  # it goes on as before
            seen.failed = True
            torch.cuda.synchronize()
            warn_user(f"not captured, only slower for it: {error}")
            return None
    inputs, out, replay = seen.graph
    for name, tensor in _tensors(batch).items():
        inputs[name].copy_(tensor)
    replay()
    return out.clone()


def forget(model: nn.Module) -> None:
    """Forget the graph of a model."""
    _seen.pop(model, None)
    _repeats.pop(model, None)


def capture(batch: Batch, answer: Answer) -> tuple[dict[str, Tensor], Tensor, Callable[[], None]]:
    """Warm up on a copy of the batch, and capture its answer."""
    tensors = _tensors(batch)
    # Each once: points that are the queries too are still so.
    copies = {id(tensor): tensor.clone() for tensor in tensors.values()}
    inputs: dict[str, Any] = {name: copies[id(tensor)] for name, tensor in tensors.items()}
    still = replace(batch, targets=None, weights=None, **inputs)
    with torch.cuda.device(batch.values.device):  # streams and graphs belong to the current one
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            answer(still)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = answer(still)
    return inputs, out, graph.replay


def _worth_it(batch: Batch) -> bool:
    if batch.values.device.type != "cuda" or batch.edges is not None:
        return False
    if torch.cuda.is_current_stream_capturing() or torch.compiler.is_compiling():
        return False
    asked = batch.size * batch.queries.shape[-2] * len(batch.times)
    return batch.size * batch.values.shape[1] <= MOST and asked <= MOST


def _tensors(batch: Batch) -> dict[str, Tensor]:
    """What an answer depends on."""
    names = {f.name for f in fields(batch)} - {"targets", "weights"}
    found = {name: getattr(batch, name) for name in sorted(names)}
    return {name: t for name, t in found.items() if isinstance(t, Tensor)}


def _key(model: nn.Module, batch: Batch) -> Any:
    """Sizes and settings of a call, and the state of the weights; None if their changes cannot be
    seen."""
    own = [*model.parameters(), *model.buffers()]
    if any(t.is_inference() for t in own):
        return None
    shapes = tuple((n, t.shape, t.dtype, t.device) for n, t in _tensors(batch).items())
    weights = tuple((t.data_ptr(), t._version) for t in own)
    cast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    same = batch.points is batch.queries
    settings = cast, torch.get_float32_matmul_precision(), same, model.training
    return shapes, weights, batch.times, batch.grid, batch.query_grid, settings
