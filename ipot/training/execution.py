"""How a run executes on its device: precision, mode of a step, where the data lie, and refusals of
what cannot run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch

from ipot.accelerate import cuda
from ipot.data.dataset import Dataset, Ragged
from ipot.data.packed import Packed, packed_bytes, unpackable
from ipot.errors import OutOfMemory, Unsupported
from ipot.models.base import LatentOperator, Operator
from ipot.spec import ALL_POINTS
from ipot.training.distributed import World
from ipot.training.draws import Draws
from ipot.training.settings import Training

COMPILE_ROWS = 100_000_000
"""On a CPU, compiling (about a minute) pays off beyond this many rows of points in a run."""
INDEX_RANGE = 2**31
"""Elements of one tensor that kernels on a GPU can count with 32 bits."""
SHARE_OF_MEMORY = 0.5
"""The part of a GPU's memory that packed samples may take."""

ATTEMPTS = {
    "graph": (("graph", True), ("graph", False), ("eager", False)),
    "compiled": (("compiled", True), ("eager", False)),
    "eager": (("eager", False),),
}
"""For each mode, what is tried in turn: a mode, and whether regions are compiled."""
IN_WORDS = {
    ("graph", False): "captured but not compiled",
    ("eager", False): "eagerly",
}

Say = Callable[[str], None]


def choose(
    settings: Training,
    data: Dataset,
    device: torch.device,
    world: World,
    say: Say = lambda line: None,
) -> str:
    """The mode of a step: eager, compiled or graph. It depends on sizes and not on timings, so that
    a resumed run gets the same mode."""
    capturable = device.type == "cuda" and data.resident and world.size == 1
    if settings.step == "graph" and not capturable:
        raise Unsupported("a CUDA graph needs a GPU, data that lie on it and a single process")
    if settings.step != "auto":
        return settings.step
    if capturable:
        return "graph"
    if device.type == "cuda" or not _worth_compiling(settings, data):
        return "eager"
    if lack := no_compiler(device):
        say(fallen_back("eagerly", lack))
        return "eager"
    return "compiled"


def attempts(
    mode: str,
    settings: Training,
    device: torch.device,
    world: World,
    *,
    compilable: bool,
    say: Say,
) -> list[tuple[str, bool]]:
    """The modes to try for the first step, the best first, each with whether regions are compiled.

    `compilable` is True if the model has regions to compile.
    """
    tries = list(ATTEMPTS[mode])
    if not compilable:
        tries = [(name, False) for name in dict.fromkeys(name for name, _ in tries)]
    lack = no_compiler(device) if tries[0][1] else None
    if lack and settings.step == mode:
        raise Unsupported(
            f"--training.step {mode} compiles, and {lack}. Leave it out, or use "
            "--training.step eager."
        )
    if lack:
        tries = [(name, compiled) for name, compiled in tries if not compiled]
        say(fallen_back(IN_WORDS[tries[0]], lack))
    # All processes must run in one mode, and none knows what fails in another.
    asked = settings.step == mode or world.size > 1
    return tries[:1] if asked else tries


def fallen_back(how: str, reason: str) -> str:
    """A line for the log: the mode of the steps, and why it is not a better one."""
    return f"steps run {how}: {reason} (--training.step eager for no more attempts)"


def no_compiler(device: torch.device) -> str | None:
    """Why nothing can be compiled for a device, in words; None if it can."""
    if device.type == "cuda":
        return None if cuda.installed() else "Triton is not installed"
    name = os.environ.get("CXX", "g++")
    return None if shutil.which(name) else f"there is no C++ compiler ({name})"


def _worth_compiling(settings: Training, data: Dataset) -> bool:
    """True if a run on a CPU is long enough for compiling to pay."""
    if not data.stacked:
        return False
    if settings.minutes is not None:
        return settings.minutes >= 10
    first = data[0]
    rows = settings.points * len(first.points)
    rows += settings.queries * first.queries.shape[-2] * len(first.times)
    return rows * len(data) * settings.epochs > COMPILE_ROWS


def precision_for(settings: Training, device: torch.device, say: Say) -> str:
    """The precision of a run: bf16 on a GPU that has it, unless the settings say otherwise."""
    wanted = settings.precision
    if device.type != "cuda":
        return "float32" if wanted == "auto" else wanted
    able = torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted == "bf16" and not able:
        raise Unsupported(
            "--training.precision bf16: this GPU has no bf16 arithmetic; use float32 or auto"
        )
    if wanted != "auto":
        return wanted
    if not able:
        say("float32 throughout: this GPU has no bf16 (--training.precision float32 says the same)")
    return "bf16" if able else "float32"


def placed(
    data: Dataset, settings: Training, device: torch.device, dtype: torch.dtype, say: Say
) -> Dataset:
    """The data of a run in its precision, moved to the device if that pays.

    On a CPU ragged samples are collated: that pads less, and costs little compared with a step.
    """
    if dtype == torch.float64:
        data = data.astype(dtype)
    try:
        if device.type != "cuda" or not isinstance(data, Ragged):
            return data.to(device)
        if why := _not_on_the_device(data, device):
            say(f"batches are collated on the CPU and steps run eagerly: {why}")
            return data
        return Packed(data, device=device, batch=min(settings.batch, len(data)))
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"the {len(data)} samples do not fit into the memory of {device}: train on fewer of "
            "them (--count.train) or at a lower resolution, or use --device cpu"
        ) from error


def _not_on_the_device(data: Ragged, device: torch.device) -> str | None:
    if why := unpackable(data):
        return f"samples differ in size and {why}"
    size, room = packed_bytes(data), torch.cuda.get_device_properties(device).total_memory
    if size > SHARE_OF_MEMORY * room:
        return f"samples of {size / 2**30:.1f} GiB are more than half of the GPU's memory"
    return None


def refuse_fewer_points(model: Operator, settings: Training) -> None:
    """Refuse random subsets of sensors for a system that is bound to its input points."""
    bound = model.needs & ALL_POINTS
    if settings.points_least is not None and bound:
        raise Unsupported(
            f"--training.points-least hides input points, and {model.name} needs "
            f"{' and '.join(sorted(need.value for need in bound))}: leave it out, or choose a "
            "system that takes any points"
        )


def refuse_unindexable(model: Operator, draws: Draws, device: torch.device) -> None:
    """Refuse a batch whose tensors have more elements than kernels can index, and say what fits.

    The latent operators take their inputs in chunks; queries and all else are taken at once.
    """
    if device.type != "cuda":
        return
    size, points, queries, _ = draws.shape()
    width = getattr(model.config, "width", 1)
    for name, rows in (("queries", queries), ("points", points)):
        if name == "points" and isinstance(model, LatentOperator):
            continue
        if size * rows * width < INDEX_RANGE:
            continue
        fitting = (INDEX_RANGE - 1) // (rows * width) * draws.world
        advice = f"lower --training.{name}"
        if fitting:
            advice = f"lower --training.batch to {fitting} or --training.{name}"
        raise Unsupported(
            f"a batch of {size} samples with {rows} {name} and a width of {width} makes tensors "
            f"of {size * rows * width} elements, and kernels count to {INDEX_RANGE}: {advice}"
        )
