"""Training steps as the trainer takes them, each against the same step by the book.

The first updates of AdamW are signs of gradients, so that weights whose gradients are rounding
alone go anywhere. So the average of the gradients is held against exact ones, and weights against
what follows from the averages that were found.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from campaign.attack import Case, Lost
from campaign.attacks._parity import (
    HALF,
    SINGLE,
    Numbers,
    Yardstick,
    doubled,
    nudged,
    rounded_attention,
)
from campaign.attacks._random_batches import clean

RATE = 1e-3
CLIP = 1.0
KIND = "step"


def try_steps(case: Case, model: Any, samples: list[Any], device: torch.device) -> None:
    """Some steps in a row, each from wherever the one before has led."""
    step, draws, optimizer = _trainer(case, model, samples, device)
    batch = clean(samples, device)
    for number in range(case["steps"]):
        before = _state(model, optimizer)
        yardstick = _expected(case, model, batch)
        if not all(bool(t.isfinite().all()) for t in yardstick.plain.values()):
            return  # an overflow by the book too
        work = draws(number) if draws.data.resident else draws.ragged_batch(number)
        step(work, number, RATE)
        loss, fault = step.read()
        if fault >= 0:
            raise Lost(f"{KIND}: the update is not finite", f"{KIND}, not finite")
        after = _state(model, optimizer)
        found = {f"gradient of {n}": _gradient(before[n], after[n]) for n in before}
        found["loss"] = torch.tensor(loss, dtype=torch.float64, device=device)
        yardstick.compare(found, KIND)
        for name in before:
            _check_update(name, before[name], after[name], number + 1, optimizer)
    step.close()


def _trainer(case: Case, model: Any, samples: list[Any], device: torch.device) -> tuple:
    from ipot.data.dataset import Ragged, Stacked
    from ipot.data.packed import Packed, unpackable
    from ipot.training.distributed import World
    from ipot.training.draws import Draws
    from ipot.training.objective import RelativeL2
    from ipot.training.optimizer import make_optimizer
    from ipot.training.settings import Training
    from ipot.training.step import Step

    ragged = case["batch"]["layout"] == "ragged"
    data: Any = Ragged(samples) if ragged else Stacked(clean(samples, device))
    if ragged and case["packed"] and unpackable(data) is None:
        data = Packed(data, device=device, batch=len(samples))
    kind = "graph" if device.type == "cuda" and data.resident and case["captured"] else "eager"
    settings = Training(
        batch=len(samples), clip=CLIP if case["clipped"] else None, step=kind, learning_rate=RATE
    )
    optimizer = make_optimizer(model, settings, [], device)
    draws = Draws(data, model.spec, settings)
    model.regions = lambda: iter(())  # compiling takes a minute
    precision = "bf16" if case["cast"] else "float32"
    step = Step(
        *(model, RelativeL2(), optimizer, draws, settings),
        device=device,
        precision=precision,
        mode=kind,
        world=World(),
    )
    return step, draws, optimizer


State = dict[str, tuple[Tensor, Tensor, Tensor]]


def _state(model: Any, optimizer: Any) -> State:
    """Every parameter with the averages of its gradients and of their squares, in float64."""
    found: State = {}
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        own = optimizer.state.get(p) or {}
        moments = (own.get(k, torch.zeros_like(p)) for k in ("exp_avg", "exp_avg_sq"))
        found[name] = (p.detach().double(), *(m.detach().double() for m in moments))
    return found


def _gradient(before: tuple, after: tuple) -> Tensor:
    """The gradient that moved an average: (1 - β) g = m' - β m."""
    return (after[1] - 0.9 * before[1]) / 0.1


def _expected(case: Case, model: Any, batch: Any) -> Yardstick:
    """Loss and clipped gradients by the book, in float64 and in the precision of the step."""
    from ipot.nn.paths import attention_path

    from ipot.evaluation.metrics import relative_l2

    def by_the_book(network: Any, given: Any, cast: bool = False) -> Numbers:
        own = {n: p for n, p in network.named_parameters() if p.requires_grad}
        kind = given.values.device.type
        with attention_path("plain"), torch.autocast(kind, torch.bfloat16, enabled=cast):
            out = network(given)
            loss = relative_l2(out, given.truth, mask=given.query_mask).mean()
        grads = torch.autograd.grad(
            loss, list(own.values()), allow_unused=True, materialize_grads=True
        )
        grads = [g.double() for g in grads]
        norm = torch.stack([g.norm() for g in grads]).norm()
        divisor = ((norm + 1e-6) / CLIP).clamp(min=1.0) if case["clipped"] else 1.0
        named = zip(own, grads, strict=True)
        return {"loss": loss.detach().double()} | {
            f"gradient of {n}": g / divisor for n, g in named
        }

    rounding, wide = HALF if case["cast"] else SINGLE, batch.astype(torch.float64)

    def sensitive(seed: int) -> Numbers:
        with rounded_attention(rounding.unit, seed):
            return by_the_book(nudged(before, rounding.unit, seed), wide)

    before = doubled(model)  # the step is going to change it
    exact = by_the_book(before, wide)
    return Yardstick(exact, by_the_book(model, batch, case["cast"]), rounding, sensitive)


def _check_update(name: str, before: tuple, after: tuple, count: int, optimizer: Any) -> None:
    """Whether squares and weights follow from the averages that were found."""
    group = optimizer.param_groups[0]
    (b1, b2), eps, decay = group["betas"], group["eps"], group["weight_decay"]
    if not bool(after[1].any()) and not bool(after[2].any()):
        return  # no gradient so far: some are left alone, others decay
    gradient = _gradient(before, after)
    squares = b2 * before[2] + (1 - b2) * gradient.square()
    off = float((after[2] - squares).abs().max())
    if not off <= 1e-3 * float(squares.max()) + 1e-36:
        raise Lost(f"{KIND}: squares of {name} are off by {off:.2g}", f"{KIND}, squares differ")
    move = (after[1] / (1 - b1**count)) / ((after[2] / (1 - b2**count)).sqrt() + eps)
    weights = before[0] * (1 - RATE * decay) - RATE * move
    off = float((after[0] - weights).abs().max())
    if not off <= 1e-6 * float(before[0].abs().max()) + 1e-4 * RATE:
        raise Lost(f"{KIND}: weights {name} are off by {off:.2g}", f"{KIND}, weights differ")
