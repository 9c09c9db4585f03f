"""AdamW for parameters that lie side by side: one launch, shared out evenly.

Torch's fused kernel takes the addresses of a few dozen tensors, and so cuts one long vector into as
many pieces, in several launches. Here a program takes a short piece, and as many as there are run
at once. The arithmetic is torch's: decoupled decay, bias corrections in float64, all else in the
precision of the parameters.
"""

import math
from collections.abc import Sequence
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from ipot.accelerate.cuda import on_its_device

SIZE = 512
"""Floats of a piece, at most."""
OPTIONS: dict[str, Any] = {"num_warps": 2}


def pieces(runs: Sequence[tuple[int, int]], device: torch.device) -> Tensor:
    """What each program takes of runs of parameters, given by their beginnings and ends: where it
    begins, where its gradient does, and how long it is. Gradients lie one after the other."""
    rows, before = [], 0
    for start, end in runs:
        for place in range(start, end, SIZE):
            rows.append((place, before + place - start, min(SIZE, end - place)))
        before += end - start
    return torch.tensor(rows, device=device)


@on_its_device
def adamw(
    values: Tensor,
    gradient: Tensor,
    means: Tensor,
    squares: Tensor,
    steps: Tensor,
    seen: Tensor,
    table: Tensor,
    rate: Tensor | float,
    divisor: Tensor | None,
    settings: dict[str, Any],
) -> None:
    """Update the pieces of a table, and set `steps` to one more than the steps `seen` before.

    `seen` is a number on the device that shares no memory with `steps`: programs read it when
    others have set those already. The gradient is divided by a number on the device, if one is
    given, and itself stays as it is. The settings are those of a group of torch's AdamW.
    """
    if not isinstance(rate, Tensor) or rate.device != values.device:
        rate = float(rate)
    beta1, beta2 = settings["betas"]
    _update_kernel[(len(table),)](
        *(values, gradient, means, squares, steps, seen, table),
        *(rate, seen if divisor is None else divisor, len(steps)),
        BETA1=beta1,
        BETA2=beta2,
        LOG1=_log2(beta1),
        LOG2=_log2(beta2),
        DECAY=settings["weight_decay"],
        EPS=settings["eps"],
        RATE_ON_DEVICE=isinstance(rate, Tensor),
        DIVIDES=divisor is not None,
        SIZE=SIZE,
        **OPTIONS,
    )


def _log2(beta: float) -> float:
    return math.log2(beta) if beta else -math.inf


@triton.jit
@no_type_check
def _correction(step, LOG: tl.constexpr):
    """1 - β ** step, in float64: in float32 three of seven digits would be lost at first."""
    return 1.0 - tl.exp2(step.to(tl.float64) * tl.full((), LOG, tl.float64))


@triton.jit
@no_type_check
def _update_kernel(
    values,
    gradient,
    means,
    squares,
    steps,
    seen,
    table,
    rate,
    divisor,
    step_count,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    LOG1: tl.constexpr,
    LOG2: tl.constexpr,
    DECAY: tl.constexpr,
    EPS: tl.constexpr,
    RATE_ON_DEVICE: tl.constexpr,
    DIVIDES: tl.constexpr,
    SIZE: tl.constexpr,
):
    """A piece of a vector, and some of the counts of steps."""
    program = tl.program_id(0)
    piece = tl.arange(0, SIZE)
    step = tl.load(seen) + 1
    lr = tl.load(rate).to(tl.float32) if RATE_ON_DEVICE else rate
    # Parameters begin and end at whole units, and so do pieces: whole vectors can be loaded.
    here = tl.multiple_of(tl.load(table + 3 * program), 64) + piece
    there = tl.multiple_of(tl.load(table + 3 * program + 1), 64) + piece
    real = piece < tl.multiple_of(tl.load(table + 3 * program + 2), 64)
    x = tl.load(values + here, mask=real, other=0.0)
    g = tl.load(gradient + there, mask=real, other=0.0)
    mean = tl.load(means + here, mask=real, other=0.0)
    square = tl.load(squares + here, mask=real, other=0.0)
    if DIVIDES:
        g /= tl.load(divisor)
    if DECAY != 0:
        x -= lr * DECAY * x
    mean = BETA1 * mean + (1 - BETA1) * g
    square = BETA2 * square + (1 - BETA2) * g * g
    size = (lr / _correction(step, LOG1)).to(tl.float32)
    root = tl.sqrt(_correction(step, LOG2)).to(tl.float32)
    x -= size * mean / (tl.sqrt(square) / root + EPS)
    tl.store(values + here, x, mask=real)
    tl.store(means + here, mean, mask=real)
    tl.store(squares + here, square, mask=real)
    # A parameter has more floats than its one count, so that the programs are enough for these.
    count = program * SIZE + piece
    tl.store(steps + count, step, mask=count < step_count)
