"""One training step, and the three ways to run it.

A step gathers its batch, predicts, differentiates and updates. Eager runs it as written; compiled
compiles the model's regions; graph does both and captures the whole step in a CUDA graph, so that
it costs one launch. The mathematics is the same, and nothing here waits for the device.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ipot.data.dataset import Dataset
from ipot.errors import Unsupported
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.training.distributed import World
from ipot.training.draws import Draw, Draws
from ipot.training.objective import Objective
from ipot.training.settings import Training

COMPILE_ROWS = 100_000_000
"""On a CPU, compiling (about a minute) pays off beyond this many rows of points in a run."""
WARM_UP = 3
"""Steps that run before a capture, so that everything lazy has happened; they are undone."""


def choose(settings: Training, data: Dataset, device: torch.device, world: World) -> str:
    """The way to run a step. It depends on sizes and not on timings, so that a run which is
    continued takes the same way again."""
    capturable = device.type == "cuda" and data.stacked and world.size == 1
    if settings.step == "graph" and not capturable:
        raise Unsupported("a CUDA graph needs a GPU, samples of one size and a single process")
    if settings.step != "auto":
        return settings.step
    if capturable:
        return "graph"
    if device.type == "cuda" or not data.stacked or not shutil.which("g++"):
        return "eager"
    first = data[0]
    rows = settings.points * len(first.points)
    rows += settings.queries * first.queries.shape[-2] * len(first.times)
    if settings.minutes is not None:
        return "compiled" if settings.minutes >= 10 else "eager"
    return "compiled" if rows * len(data) * settings.epochs > COMPILE_ROWS else "eager"


def make_optimizer(
    model: nn.Module, settings: Training, groups: list, device: torch.device
) -> torch.optim.AdamW:
    """AdamW, fused into one pass; on a GPU its rate is a tensor so that a graph can read it.

    A group of an objective's own may have a `factor` on the rate of the schedule.
    """
    everything = [{"params": [p for p in model.parameters() if p.requires_grad]}, *groups]
    cuda = device.type == "cuda"
    rate: Any = settings.learning_rate
    if cuda:
        rate = torch.tensor(rate, device=device)
    optimizer = torch.optim.AdamW(
        everything,
        lr=rate,
        weight_decay=settings.weight_decay,
        fused=True,
        capturable=cuda,
    )
    if cuda:  # a tensor of its own for each group, or the last factor would serve them all
        for group in optimizer.param_groups:
            group["lr"] = rate.clone()
    return optimizer


class Step:
    """Runs steps and keeps what they report on the device: the sum of losses, the first fault."""

    def __init__(
        self,
        model: Operator,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        draws: Draws,
        settings: Training,
        *,
        device: torch.device,
        precision: str,
        kind: str,
        world: World,
    ) -> None:
        self.objective, self.optimizer, self.draws = objective, optimizer, draws
        self.settings, self.device, self.kind = settings, device, kind
        self.cast = precision == "bf16"
        self.parameters = [p for g in optimizer.param_groups for p in g["params"]]
        self.loss_sum = torch.zeros((), device=device, dtype=torch.float64)
        self.count = torch.zeros((), device=device, dtype=torch.long)
        self.fault = torch.full((), -1, device=device, dtype=torch.long)
        if hasattr(objective, "follow"):
            objective.follow(self.count)
        if kind in ("compiled", "graph"):
            for region in model.regions():
                region.compile(dynamic=False)
        self.model = model
        if world.size > 1:
            ids = [torch.cuda.current_device()] if device.type == "cuda" else None
            self.model = DistributedDataParallel(model, device_ids=ids)
        self._captured: tuple[Draw, Callable[[], None]] | None = None

    def __call__(self, draw_or_batch: Draw | Batch, number: int, rate: float) -> None:
        """Run the step with a number (counted from 0) at a learning rate."""
        self._set_rate(rate)
        if isinstance(draw_or_batch, Batch):
            self._work(draw_or_batch.to(self.device, non_blocking=True))
        elif self.kind == "graph":
            if self._captured is None:
                self._captured = self._capture(draw_or_batch.to(self.device), number)
            static, replay = self._captured
            static.copy_(draw_or_batch)
            replay()
        else:
            self._work(self.draws.stacked_batch(draw_or_batch.to(self.device)))

    def start(self, number: int) -> None:
        """Say which step comes next, after a resume."""
        self.count.fill_(number)

    def read(self) -> tuple[float, int]:
        """The sum of losses since the last reading and the first faulty step (-1: none).

        This waits for the device; call it now and then, not at every step.
        """
        loss, fault = self.loss_sum.item(), int(self.fault.item())
        self.loss_sum.zero_()
        return loss, fault

    def close(self) -> None:
        """Let go of the wrapper that synchronises gradients: it must not outlive its processes."""
        if isinstance(self.model, DistributedDataParallel):
            self.model = self.model.module

    def _work(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        kind = self.device.type
        # Without the cache of cast weights: a captured graph must cast afresh at every replay.
        with torch.autocast(kind, torch.bfloat16, enabled=self.cast, cache_enabled=False):
            loss = self.objective(self.model, batch)
        loss.backward()
        # The norm says whether the update is finite, also where the loss itself still is.
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(grads, foreach=True)
        if self.settings.clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.settings.clip, norm, foreach=True)
        self.optimizer.step()
        loss = loss.detach()
        self.loss_sum += loss
        bad = ~(torch.isfinite(loss) & torch.isfinite(norm)) & (self.fault < 0)
        self.fault.copy_(torch.where(bad, self.count, self.fault))
        self.count += 1

    def _set_rate(self, base: float) -> None:
        for group in self.optimizer.param_groups:
            rate = base * group.get("factor", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _capture(self, draw: Draw, number: int) -> tuple[Draw, Callable[[], None]]:
        """Warm up, capture, and undo what the warm-up did to weights and optimiser.

        The graph reads its choices from the tensors of `draw`, which are filled before a replay.
        """
        weights = [p.detach().clone() for p in self.parameters]
        losses = self.loss_sum.clone()
        state = _optimizer_copy(self.optimizer)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._work(self.draws.stacked_batch(draw))
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._work(self.draws.stacked_batch(draw))
        with torch.no_grad():
            for p, w in zip(self.parameters, weights, strict=True):
                p.copy_(w)
            _optimizer_restore(self.optimizer, state)
        self.loss_sum.copy_(losses)
        self.fault.fill_(-1)
        self.count.fill_(number)
        return draw, graph.replay


def _optimizer_copy(optimizer: torch.optim.Optimizer) -> dict:
    return {
        p: {k: v.clone() for k, v in entries.items() if isinstance(v, Tensor)}
        for p, entries in optimizer.state.items()
    }


def _optimizer_restore(optimizer: torch.optim.Optimizer, copy: dict) -> None:
    """In place, since the captured graph holds the addresses; a fresh state is all zeros."""
    for p, entries in optimizer.state.items():
        for name, value in entries.items():
            if p in copy:
                value.copy_(copy[p][name])
            else:
                value.zero_()


class Average:
    """An exponential average of the weights, with a short memory at first."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.count = decay, 0
        self.live = dict(model.named_parameters())
        self.mean = {name: p.detach().clone() for name, p in self.live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now."""
        self.count += 1
        decay = min(self.decay, self.count / (self.count + 9.0))
        live: list[Tensor] = list(self.live.values())
        torch._foreach_lerp_(list(self.mean.values()), live, 1.0 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the average and the live weights; a second call undoes it."""
        for name, p in self.live.items():
            kept = p.detach().clone()
            p.copy_(self.mean[name])
            self.mean[name].copy_(kept)


@contextmanager
def fast_matmul() -> Iterator[None]:
    """Let float32 products use the GPU's matrix units while training."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
