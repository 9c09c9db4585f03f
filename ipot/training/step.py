"""One training step, and the three modes that it runs in.

A step gathers its batch, predicts, differentiates and updates. Eager runs it as written; compiled
compiles the model's regions; graph does both and captures the whole step in a CUDA graph, so that
it costs one launch. The mathematics does not change, and nothing here waits for the device: losses
are added up there and read now and then. If a mode fails at the first step, what it changed is
restored and the next simpler one is tried.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx.experimental import _config as tracing
from torch.nn.parallel import DistributedDataParallel

from ipot.accelerate import accelerate
from ipot.accelerate.fixed_mesh import FixedMesh
from ipot.accelerate.operators import passes, regions
from ipot.device import out_of_memory, recorded
from ipot.errors import IpotError, OutOfMemory, Unsupported
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.training.distributed import World
from ipot.training.draws import Draw, Draws
from ipot.training.execution import IN_WORDS, Say, attempts, fallen_back, refuse_unindexable
from ipot.training.objective import Objective
from ipot.training.optimizer import JoinedAdamW, add_penalty, set_rate
from ipot.training.settings import Training
from ipot.training.unroll import first_steps, horizons


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Step:
    """Runs training steps. Losses are kept in a `Ledger` on the device."""

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
        mode: str,
        world: World,
        say: Say = _to_stderr,
    ) -> None:
        refuse_unindexable(model, draws, device)
        self.objective, self.optimizer, self.draws = objective, optimizer, draws
        self.settings, self.device, self.mode, self.say = settings, device, mode, say
        self.cast = precision == "bf16"
        with torch.autocast(device.type, torch.bfloat16, enabled=self.cast, cache_enabled=False):
            quick = accelerate(model, training=True)
        self.fixed = FixedMesh(quick, *draws.mesh(), cast=self.cast)
        self.parameters = [p for g in optimizer.param_groups for p in g["params"]]
        self.ledger = Ledger(settings.clip, device)
        if hasattr(objective, "follow"):
            objective.follow(self.ledger.count)
        self.regions = list(regions(quick))
        if self.regions and device.type == "cuda":
            # Many small kernels, which cost a GPU as much as large ones; a CPU does not mind.
            self.regions += [*small_regions(quick, objective, draws), self.ledger]
        self._attempts = attempts(
            mode, settings, device, world, compilable=bool(self.regions), say=say
        )
        self.model = quick
        # Layer by layer: one of them may have been set to answer while the others train.
        both = ((layer, model.get_submodule(name)) for name, layer in quick.named_modules())
        self._apart = [(layer, own) for layer, own in both if layer is not own]
        if world.size > 1:
            ids = [torch.cuda.current_device()] if device.type == "cuda" else None
            self.model = DistributedDataParallel(quick, device_ids=ids)
            self._apart.append((self.model, model))
        self._horizons: list[int | None] = [None]
        if settings.grow:
            self._horizons = [*horizons(settings.unroll or len(draws.data[0].times))]
        self.horizon = self._horizons[-1]
        """The current length of rollouts, if it grows during training; None for the full length."""
        self._graphs: dict[Any, tuple[Draw, Callable[[], None]]] = {}
        self._one: Tensor | None = None

    def __call__(self, work: Draw | Batch, number: int, rate: float) -> None:
        """Run the step with a number (counted from 0) at a learning rate."""
        self.fixed.renew()
        for quick, own in self._apart:
            quick.training = own.training
        set_rate(self.optimizer, rate)
        try:
            if self._attempts:
                self._first(work)
            else:
                self._run(work)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise OutOfMemory(
                f"step {number} ran out of memory on {self.device}, with "
                f"{self._described(work)}. Lower --training.batch ({self.settings.batch}), "
                "--training.queries or --training.points."
            ) from error

    def start(self, number: int) -> None:
        """Set the number of the next step, after a resume."""
        self.ledger.count.fill_(number)

    @property
    def loss_sum(self) -> Tensor:
        """The sum of losses since the last reading, on the device."""
        return self.ledger.loss_sum

    def read(self) -> tuple[float, int]:
        """The sum of losses since the last reading and the first faulty step (-1: none).

        This waits for the device; call it now and then, not at every step.
        """
        return self.ledger.read()

    def close(self) -> None:
        """Leave the model as it was given: parameters in memory of their own, nothing kept for
        captured steps, and no wrapper that synchronises gradients, which must not outlive its
        processes."""
        self._graphs.clear()
        self.fixed.release()
        if isinstance(self.optimizer, JoinedAdamW):
            self.optimizer.part()
        if isinstance(self.model, DistributedDataParallel):
            self.model = self.model.module

    def _first(self, work: Draw | Batch) -> None:
        """Run the first step in the best mode that works; modes that fail leave the weights
        unchanged."""
        tries, self._attempts = self._attempts, []
        if len(tries) == 1 and tries[0][0] == "eager":
            self.mode = "eager"
            return self._run(work)
        before, reason = Snapshot(self._touched(), self.optimizer), ""
        for mode, compiled in tries:
            try:
                with _sizes_apart():
                    self._prepare(mode, compiled, before)
                    self._run(work)
                break
            except Exception as error:
                last = (mode, compiled) == tries[-1]
                # What fails eagerly too has nothing to do with the mode.
                if isinstance(error, IpotError) or out_of_memory(error) or (last and reason):
                    raise
                if last:
                    raise Unsupported(
                        f"steps cannot be run as {mode} here: {_in_a_line(error)}. "
                        "Use --training.step eager."
                    ) from error
                # Words alone: the error holds on to all that was computed before it.
                reason = reason or _in_a_line(error)
            before.restore()
            self._graphs.clear()
        if reason:
            self.say(fallen_back(IN_WORDS[mode, compiled], reason))
        return None

    def _prepare(self, mode: str, compiled: bool, before: Snapshot) -> None:
        """Compile and capture what a mode needs."""
        self.mode = mode
        for region in self.regions:
            if compiled:
                # Samples of several sizes share what is compiled for the first of them.
                region.compile(dynamic=not self.draws.data.stacked)
            else:
                region._compiled_call_impl = None
        if mode != "graph":
            return
        joined = self._joined
        self._capture()
        if joined and not self._joined:
            # Samples of one size have gradients where others have none. What was captured before
            # that was seen counts all parameters' steps as one.
            self._capture()
        before.restore()

    @property
    def _joined(self) -> bool:
        return isinstance(self.optimizer, JoinedAdamW) and self.optimizer.joined

    def _capture(self) -> None:
        """Record a graph for each size of a batch.

        The graphs share a pool of memory: each writes all that it reads, and no two run at once.
        """
        pool, wanted = torch.cuda.graph_pool_handle(), self.horizon
        for example, length in product(self.draws.examples(), self._horizons):
            draw, self.horizon = example.to(self.device), length

            def work(draw: Draw = draw) -> None:
                self._work(self.draws.gather(draw))

            replay = recorded(work, rehearsals=WARM_UP, before=self._forget, pool=pool)
            self._forget()
            self._graphs[draw.sizes, length] = draw, replay
        self.horizon = wanted

    def _touched(self) -> Iterator[Tensor]:
        """All that a step changes, except the optimiser's state."""
        yield from self.parameters
        yield from self.model.buffers()
        yield from self.ledger.buffers()

    def _run(self, work: Draw | Batch) -> None:
        if isinstance(work, Batch):
            self._work(work.to(self.device, non_blocking=True))
        elif self.mode == "graph":
            # The graph reads its choices from tensors of its own.
            static, replay = self._graphs[work.sizes, self.horizon]
            static.copy_(work)
            replay()
            # A replay changes weights behind torch's back; whoever keeps something that was made
            # from them must see that they are others now.
            torch.autograd.graph.increment_version(self.parameters)
        else:
            self._work(self.draws.gather(work.to(self.device)))

    def _work(self, batch: Batch) -> None:
        if self.horizon is not None:
            batch = first_steps(batch, self.horizon)
        self._forget()
        device = self.device.type
        # Without the cache of cast weights: a captured graph must cast afresh at every replay.
        with torch.autocast(device, torch.bfloat16, enabled=self.cast, cache_enabled=False):
            loss = self.objective(self.model, batch)
        if self._one is None:  # made once: by itself torch would fill one at every step
            self._one = torch.ones_like(loss)
        loss.backward(self._one)
        self._update(loss.detach())

    def _update(self, loss: Tensor) -> None:
        """Record the loss, and update the weights by their gradients."""
        clips = self.settings.clip is not None
        if self.settings.decay == "coupled":
            # The model's alone: what an objective owns says itself how it decays.
            add_penalty(self.optimizer.param_groups[0]["params"], self.settings.weight_decay)
        if isinstance(self.optimizer, JoinedAdamW):
            gradient = self.optimizer.gather()
            if gradient is not None:
                divisor = self.ledger(loss, gradient)
                self.optimizer.step(gradient=gradient, divisor=divisor if clips else None)
                return
        updated = [p for p in self.parameters if p.grad is not None]
        grads = [p.grad for p in updated]
        divisor = self.ledger(loss, torch.stack(torch._foreach_norm(grads)))
        if clips:
            # Not in place: a gradient may be a view of another, or of the one that is kept.
            for p, grad in zip(updated, torch._foreach_div(grads, divisor), strict=True):
                p.grad = grad
        self.optimizer.step()

    def _forget(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _described(self, work: Draw | Batch) -> str:
        size, points, queries, times = self.draws.shape()
        if isinstance(work, Batch):
            points, queries = work.values.shape[1], work.queries.shape[-2]
        return f"{size} samples of {points} points and {queries} queries at {times} times"


def small_regions(model: Operator, objective: Objective, draws: Draws) -> Iterator[nn.Module]:
    """Small modules around a model's regions that are compiled too: the gather, the scales, the
    loss."""
    yield from draws.passes()
    yield from passes(model)
    yield from getattr(objective, "regions", list)()


def _in_a_line(error: Exception) -> str:
    """An error's type and its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@contextmanager
def _sizes_apart() -> Iterator[None]:
    """Keep the compiler from treating sizes as one that are equal by chance, such as those of
    points and queries: in another batch they differ, and it would compile again."""
    before, tracing.use_duck_shape = tracing.use_duck_shape, False
    try:
        yield
    finally:
        tracing.use_duck_shape = before


@contextmanager
def fast_products() -> Iterator[None]:
    """During training, let float32 products use the GPU's matrix units, and let cuDNN choose the
    fastest convolution for each size, which it tries out at the first step."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.benchmark = before[1]


class Ledger(nn.Module):
    """The sum of losses, the number of steps, and the first step that was not finite."""

    loss_sum: Tensor
    count: Tensor
    fault: Tensor

    def __init__(self, clip: float | None, device: torch.device) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("loss_sum", torch.zeros((), device=device, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), device=device, dtype=torch.long))
        self.register_buffer("fault", torch.full((), -1, device=device, dtype=torch.long))

    def forward(self, loss: Float[Tensor, ""], gradient: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """Record a step, and return the number by which its gradients are divided to clip them.

        `gradient` may also be the norms of its parts, since only its norm is used. An infinite norm
        is a fault even if the loss is still finite.
        """
        norm = torch.linalg.vector_norm(gradient)
        self.loss_sum += loss
        # The sum is finite as long as every loss was; asking it makes one launch of all this.
        bad = ~(torch.isfinite(self.loss_sum) & torch.isfinite(norm)) & (self.fault < 0)
        self.fault.copy_(torch.where(bad, self.count, self.fault))
        self.count += 1
        most = torch.inf if self.clip is None else self.clip
        return ((norm + 1e-6) / most).clamp(min=1.0)

    def read(self) -> tuple[float, int]:
        """The sum of losses since the last reading and the first faulty step (-1: none).

        This waits for the device.
        """
        loss, fault = self.loss_sum.item(), int(self.fault.item())
        self.loss_sum.zero_()
        return loss, fault


WARM_UP = 3
"""Steps that run before a capture, so that everything lazy has happened; they are undone."""


class Snapshot:
    """A copy of tensors and of an optimiser's state, to be restored in place: a captured graph
    holds their addresses."""

    def __init__(self, tensors: Iterable[Tensor], optimizer: torch.optim.Optimizer) -> None:
        self.tensors, self.optimizer = [t.detach() for t in tensors], optimizer
        self.kept = [t.clone() for t in self.tensors]
        self.state = {
            p: {name: t.clone() for name, t in entries.items() if isinstance(t, Tensor)}
            for p, entries in optimizer.state.items()
        }

    def restore(self) -> None:
        """Restore everything. State that was created since then is set to zero, its initial
        value."""
        for tensor, kept in zip(self.tensors, self.kept, strict=True):
            tensor.copy_(kept)
        for p, entries in self.optimizer.state.items():
            for name, value in entries.items():
                if p in self.state:
                    value.copy_(self.state[p][name])
                else:
                    value.zero_()
        self.optimizer.zero_grad(set_to_none=True)
