"""One training step, and the three ways to run it.

A step gathers its batch, predicts, differentiates and updates. Eager runs it as written; compiled
compiles the model's regions; graph does both and captures the whole step in a CUDA graph, so that
it costs one launch. The mathematics is the same, and nothing here waits for the device. A way that
fails at the first step is undone, and the next simpler one is taken instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as tracing
from torch.nn.parallel import DistributedDataParallel

from ipot.accelerate import accelerate
from ipot.accelerate.fixed_mesh import FixedMesh
from ipot.accelerate.operators import passes, regions
from ipot.device import out_of_memory
from ipot.errors import IpotError, Unsupported
from ipot.models.base import Operator
from ipot.samples import Batch
from ipot.training.capture import Snapshot, capture
from ipot.training.distributed import World
from ipot.training.draws import Draw, Draws
from ipot.training.joined import JoinedAdamW
from ipot.training.ledger import Ledger
from ipot.training.memory import OutOfMemory
from ipot.training.objective import Objective
from ipot.training.settings import Training
from ipot.training.update import Average, make_optimizer, set_rate
from ipot.training.ways import Say, choose, fallen_back, no_compiler, refuse_unindexable

__all__ = ["Average", "Step", "choose", "fast_matmul", "make_optimizer"]

WAYS = {
    "graph": (("graph", True), ("graph", False), ("eager", False)),
    "compiled": (("compiled", True), ("eager", False)),
    "eager": (("eager", False),),
}
"""For each kind, what is tried one after the other: a kind, and whether regions are compiled."""
WORDS = {
    ("graph", False): "captured but not compiled",
    ("eager", False): "eagerly",
}


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Step:
    """Runs steps; what they report is kept in a `Ledger` on the device."""

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
        say: Say = _to_stderr,
    ) -> None:
        refuse_unindexable(model, draws, device)
        self.objective, self.optimizer, self.draws = objective, optimizer, draws
        self.settings, self.device, self.kind, self.say = settings, device, kind, say
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
        self._ways = self._to_try(world)
        self.reference, self.model = model, quick
        if world.size > 1:
            ids = [torch.cuda.current_device()] if device.type == "cuda" else None
            self.model = DistributedDataParallel(quick, device_ids=ids)
        self._graphs: dict[int | None, tuple[Draw, Callable[[], None]]] = {}
        self._one: Tensor | None = None

    def __call__(self, work: Draw | Batch, number: int, rate: float) -> None:
        """Run the step with a number (counted from 0) at a learning rate."""
        self.fixed.renew()
        if self.model.training != self.reference.training:
            self.model.train(self.reference.training)
        set_rate(self.optimizer, rate)
        try:
            if self._ways:
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
        """Say which step comes next, after a resume."""
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
        """Leave the model as it came: with parameters apart, without what was kept for captured
        steps, and without the wrapper that synchronises gradients, which must not outlive its
        processes."""
        self._graphs.clear()
        self.fixed.release()
        if isinstance(self.optimizer, JoinedAdamW):
            self.optimizer.part()
        if isinstance(self.model, DistributedDataParallel):
            self.model = self.model.module

    def _to_try(self, world: World) -> list[tuple[str, bool]]:
        """The ways that the first step may run, the best first."""
        ways = list(WAYS[self.kind])
        if not self.regions:  # nothing to compile
            ways = [(kind, False) for kind in dict.fromkeys(kind for kind, _ in ways)]
        lack = no_compiler(self.device) if ways[0][1] else None
        if lack and self.settings.step == self.kind:
            raise Unsupported(
                f"--training.step {self.kind} compiles, and {lack}. Leave it out, or use "
                "--training.step eager."
            )
        if lack:
            ways = [way for way in ways if not way[1]]
            self.say(fallen_back(WORDS[ways[0]], lack))
        # Processes must go the same way, and none knows what happens in another.
        asked = self.settings.step == self.kind or world.size > 1
        return ways[:1] if asked else ways

    def _first(self, work: Draw | Batch) -> None:
        """The first step, in the best way that works; the others leave no trace in the weights."""
        ways, self._ways = self._ways, []
        if len(ways) == 1 and ways[0][0] == "eager":
            self.kind = "eager"
            return self._run(work)
        before, reason = Snapshot(self._touched(), self.optimizer), ""
        for kind, compiled in ways:
            try:
                with _sizes_apart():
                    self._prepare(kind, compiled, before)
                    self._run(work)
                break
            except Exception as error:
                last = (kind, compiled) == ways[-1]
                # What fails eagerly too is no matter of how a step runs.
                if isinstance(error, IpotError) or out_of_memory(error) or (last and reason):
                    raise
                if last:
                    raise Unsupported(
                        f"steps cannot be run as {kind} here: {_in_a_line(error)}. "
                        "Use --training.step eager."
                    ) from error
                # Words alone: the error holds on to all that was computed before it.
                reason = reason or _in_a_line(error)
            before.restore()
            self._graphs.clear()
        if reason:
            self.say(fallen_back(WORDS[kind, compiled], reason))
        return None

    def _prepare(self, kind: str, compiled: bool, before: Snapshot) -> None:
        """Make ready to run one way."""
        self.kind = kind
        for region in self.regions:
            if compiled:
                # Samples of several sizes share what is compiled for the first of them.
                region.compile(dynamic=not self.draws.data.stacked)
            else:
                region._compiled_call_impl = None
        if kind != "graph":
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
        """A graph for each size of a batch."""
        pool = torch.cuda.graph_pool_handle()
        for example in self.draws.examples():
            draw = example.to(self.device)
            replay = capture(
                lambda draw=draw: self._work(self.draws.gather(draw)), self._forget, pool
            )
            self._graphs[draw.box] = draw, replay

    def _touched(self) -> Iterator[Tensor]:
        """All that a step changes, but for the optimiser's state."""
        yield from self.parameters
        yield from self.model.buffers()
        yield from self.ledger.buffers()

    def _run(self, work: Draw | Batch) -> None:
        if isinstance(work, Batch):
            self._work(work.to(self.device, non_blocking=True))
        elif self.kind == "graph":
            # The graph reads its choices from tensors of its own.
            static, replay = self._graphs[work.box]
            static.copy_(work)
            replay()
            # A replay changes weights behind torch's back; whoever keeps something that was made
            # from them must see that they are others now.
            torch.autograd.graph.increment_version(self.parameters)
        else:
            self._work(self.draws.gather(work.to(self.device)))

    def _work(self, batch: Batch) -> None:
        self._forget()
        kind = self.device.type
        # Without the cache of cast weights: a captured graph must cast afresh at every replay.
        with torch.autocast(kind, torch.bfloat16, enabled=self.cast, cache_enabled=False):
            loss = self.objective(self.model, batch)
        if self._one is None:  # made once: by itself torch would fill one at every step
            self._one = torch.ones_like(loss)
        loss.backward(self._one)
        self._update(loss.detach())

    def _update(self, loss: Tensor) -> None:
        """Note the loss, and move the weights along the gradients that are there."""
        clips = self.settings.clip is not None
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
    """What stands around a model's regions: the gather, the scales, the loss."""
    yield from draws.passes()
    yield from passes(model)
    yield from getattr(objective, "regions", list)()


def _in_a_line(error: Exception) -> str:
    """An error's kind and the first thing that it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@contextmanager
def _sizes_apart() -> Iterator[None]:
    """Let a compiler not take sizes for the same that are equal by chance, of points and queries
    say: in another batch they differ, and it would start again."""
    before, tracing.use_duck_shape = tracing.use_duck_shape, False
    try:
        yield
    finally:
        tracing.use_duck_shape = before


@contextmanager
def fast_matmul() -> Iterator[None]:
    """Let float32 products use the GPU's matrix units while training."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
