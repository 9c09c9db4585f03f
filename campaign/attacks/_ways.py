"""The accelerated ways to answer and to differentiate, at sizes where each would not be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from campaign.attack import Case

ON_A_CPU = (
    *("native", "native", "native", "halves", "halves"),
    *("blocks", "fused", "uncompiled", "stream", "pieces", "recompute", "fixed", "step"),
)
ON_A_GPU = (
    *("auto", "auto", "auto", "many rows"),
    *("stream", "pieces", "recompute", "fixed", "replay", "step", "step"),
)
ANSWERS = ("halves", "pieces", "replay")
"""Those that do not differentiate."""
GRADIENTS = ("recompute", "fixed", "many rows")
"""Those that are there for nothing else."""
FORCED = ("blocks", "fused", "kernel")
"""Paths of attention that are asked for by name."""


@contextmanager
def taken(case: Case, device: torch.device) -> Iterator[None]:
    """Let computation go the way of a case, however few rows there are."""
    from ipot.accelerate import attention, chunks, operators
    from ipot.accelerate.cpu import blockwise, build
    from ipot.models import oformer

    way, rows = case["way"], case["rows"]
    cast = case["cast"]
    with ExitStack() as stack:

        def put(module: object, **values: object) -> None:
            for name, value in values.items():
                stack.enter_context(patch.object(module, name, value))

        put(attention, FEW=0)
        if way in ("blocks", "uncompiled"):
            put(blockwise, FEW=0, MANY=0, SCORES=16 * rows, SHORT=rows)
        if way == "uncompiled":
            put(build, _tried=lambda: (None, "left out by the campaign"))
        if way == "stream":
            put(chunks, STREAMED=0, STREAMED_ON_CPU=0, STREAMED_IN_TRAINING=0)
            put(chunks, ROWS_AT_ONCE={"cpu": rows, "cuda": rows}, ROWS_BY_KERNEL=(rows,) * 3)
        if way == "recompute":
            put(operators, ROWS_AT_ONCE=1, LEAN=1)
            put(oformer, ROWS_AT_ONCE=1)
        if way == "many rows":
            from ipot.accelerate.cuda import rows_layout

            put(rows_layout, VERY_MANY={case["model"]["width"]: 1})
        stack.enter_context(
            torch.autocast(device.type, torch.bfloat16, enabled=cast, cache_enabled=False)
        )
        yield


def answer_of(case: Case) -> Callable[..., Tensor]:
    """How a model is asked."""
    from ipot.accelerate import accelerate
    from ipot.accelerate.fixed_mesh import FixedMesh
    from ipot.accelerate.replay import PATIENCE, forget
    from ipot.evaluation.predict import predict

    way = case["way"]
    forced = case.get("path") or (way if way in FORCED else "auto")

    def quick(model) -> Any:
        return accelerate(model, training=case["check"] == "gradients", attention=forced)

    def in_pieces(model, batch) -> Tensor:
        return predict(model, batch, rows=case["rows"]).clone()

    def replayed(model, batch) -> Tensor:
        """Captured with other numbers, and then asked."""
        from dataclasses import replace

        other = replace(batch, values=torch.zeros_like(batch.values))
        for _ in range(PATIENCE + 2):
            predict(model, other)
        out = predict(model, batch).clone()
        forget(model)
        return out

    def with_fixed_mesh(model, batch) -> Tensor:
        points = batch.points if len(batch.points) == 1 else None
        still = len(batch.queries) == 1 and batch.queries.ndim == 3
        made = quick(model)
        FixedMesh(made, points, batch.queries if still else None, cast=case["cast"])
        return made(batch)

    ways = {"pieces": in_pieces, "replay": replayed, "fixed": with_fixed_mesh}
    return ways.get(way, lambda model, batch: quick(model)(batch))
