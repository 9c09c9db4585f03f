"""Every accelerated way against the plain one in float64, over random models and extreme batches.

What is masked is rubbish for the accelerated way and zeros for the plain one: it must not matter.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import torch

from campaign.attack import MIB, Attack, Case, Lost, Place
from campaign.attacks import _ways
from campaign.attacks._parity import (
    HALF,
    SINGLE,
    Numbers,
    Yardstick,
    ask,
    doubled,
    finite,
    nudged,
    rounded_attention,
)
from campaign.attacks._random_batches import clean, draw_batch, samples_of, spoiled
from campaign.attacks._random_models import (
    ATTENTIVE,
    OTHERS,
    STEPPED,
    build,
    draw_model,
    draw_spec,
)
from campaign.attacks._smaller_models import simpler
from campaign.attacks._training_steps import try_steps


class Accelerated(Attack):
    """Models on one kind of device."""

    counted = "models"
    device: ClassVar[str]
    ways: ClassVar[tuple[str, ...]]
    widths: ClassVar[tuple[int, ...]]

    def draw(self, random: Random) -> Case:
        """A way, a model that goes it, and a batch."""
        way = random.choice(self.ways)
        names = ("ipot",) * 5 + ("transformer",) * 2
        if way in ("native", "halves", "blocks", "fused", "uncompiled", "pieces", "auto"):
            names += OTHERS
        if way in ("step", "pieces"):
            names += STEPPED + OTHERS
        name = "ipot" if way == "stream" else random.choice(names)
        spec = draw_spec(random, name)
        case: Case = {
            "way": way,
            "model": draw_model(random, name, self.widths),
            "spec": spec,
            "batch": draw_batch(random, name, spec),
            "normalized": random.random() < 0.4,
            "check": random.choice(("answers", "gradients", "gradients")),
            "inputs": random.choice(([], [], ["values"], ["values", "points"], ["queries"])),
            "cast": False,
            "rows": random.choice((1, 3, 16, 50)),
            "threads": random.choice((1, 1, 1, 3)),
        }
        if way in _ways.ANSWERS:
            case["check"] = "answers"
        if way in _ways.GRADIENTS:
            case["check"] = "gradients"
        if way == "fixed":
            case["batch"] |= {"layout": "shared", "memory": "plain"}
            case["inputs"] = random.choice(([], ["values"]))
            spec["globe"] = False
        if way == "step":
            case |= {"steps": random.choice((1, 2, 3)), "packed": random.random() < 0.5}
            case |= {"clipped": random.random() < 0.7, "captured": random.random() < 0.7}
        if way == "recompute":
            spec["steps"] = max(2, spec["steps"])
        self.adapt(case, random)
        return case

    def adapt(self, case: Case, random: Random) -> None:
        """Choose the precision."""

    def run(self, case: Case, place: Place) -> None:
        """Ask in three ways: exactly, plainly, and accelerated."""
        device = torch.device(self.device)
        threads = torch.get_num_threads()
        torch.set_num_threads(case["threads"])
        try:
            model, samples = build(case).to(device), samples_of(case)
            if case["way"] == "step":
                self._steps(case, model, samples, device)
            else:
                self._answers(case, model, samples, device)
        finally:
            torch.set_num_threads(threads)

    def _answers(self, case: Case, model: Any, samples: list[Any], device: torch.device) -> None:
        from ipot.nn.paths import attention_path

        from ipot.errors import IpotError

        def plainly(network: Any, given: Any) -> Any:
            kind = given.values.device.type
            with attention_path("plain"), torch.autocast(kind, torch.bfloat16, enabled=cast):
                return network(given)

        def exactly(network: Any, given: Any) -> Any:
            with attention_path("plain"):
                return network(given)

        def sensitive(seed: int) -> Numbers:
            with rounded_attention(rounding.unit, seed):
                return ask(nudged(model, rounding.unit, seed), wide, case, exactly)

        cast, batch = case["cast"], clean(samples, device)
        wide, rounding = batch.astype(torch.float64), HALF if cast else SINGLE
        yardstick = Yardstick(
            ask(doubled(model), wide, case, exactly),
            ask(model, batch, case, plainly),
            rounding,
            sensitive,
        )
        given = spoiled(batch, case)
        try:
            with _ways.taken(case, device):
                found = ask(model, given, case, _ways.answer_of(case))
        except IpotError as error:
            if finite(yardstick.plain):
                kind = f"{case['way']}, refused"
                raise Lost(f"{kind}, and the plain way is not: {error}", kind) from error
            raise
        yardstick.compare(found, case["way"])

    def _steps(self, case: Case, model: Any, samples: list[Any], device: torch.device) -> None:
        from ipot.errors import Unsupported

        try:
            with _ways.taken(case | {"cast": False}, device):
                try_steps(case, model, samples, device)
        except Unsupported as error:
            if case["model"]["name"] in ATTENTIVE and case["captured"]:
                raise Lost(f"step, not captured: {error}", "step, not captured") from error
            raise

    def smaller(self, case: Case) -> Iterator[Case]:
        """Fewer and simpler of everything."""
        yield from simpler(case)


class OnCPU(Accelerated):
    """C++ in float32 and bf16, blocks, chunks, folded meshes, joined parameters."""

    name = "accelerated: cpu"
    share = 8.0
    seconds = 30.0
    memory = 256 * MIB
    device = "cpu"
    ways = _ways.ON_A_CPU
    widths = (8, 12, 16, 24, 32, 48, 64)

    def prepare(self, shared: Path) -> None:
        """Compile the library, which takes ten seconds at its first use on a machine."""
        from ipot.accelerate.cpu.interface import available

        available()

    def adapt(self, case: Case, random: Random) -> None:
        """bf16 is for answers alone."""
        bf16 = case["way"] == "halves" or (case["way"] == "pieces" and random.random() < 0.3)
        case["cast"] = bf16 and case["model"]["name"] in (*ATTENTIVE, *OTHERS)


class OnCUDA(Accelerated):
    """Triton's kernels, towers, captured steps and answers.

    Kernels are compiled for each width, so that few are drawn.
    """

    name = "accelerated: cuda"
    share = 2.0
    seconds = 120.0
    memory = 16384 * MIB
    limited = False
    device = "cuda"
    ways = _ways.ON_A_GPU
    widths = (16, 32, 64)

    def possible(self) -> str | None:
        """Asked in a process of its own: one that has touched CUDA cannot be forked any more."""
        from ipot.accelerate import cuda as kernels

        if not kernels.installed():
            return "Triton is not installed"
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_exit_with_cuda)
        child.start()
        child.join(60)
        if child.is_alive():
            child.kill()
            child.join()
        return None if child.exitcode == 0 else "there is no GPU for CUDA"

    def adapt(self, case: Case, random: Random) -> None:
        """bf16 mostly, which is what kernels are for."""
        case["threads"] = 1
        kernels = case["model"]["name"] in (*ATTENTIVE, "perceiver_io", "lno")
        case["cast"] = kernels and random.random() < 0.8


def _exit_with_cuda() -> None:
    raise SystemExit(0 if torch.cuda.is_available() else 1)


ATTACKS = [OnCPU(), OnCUDA()]
