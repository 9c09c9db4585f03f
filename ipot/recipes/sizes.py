"""Refuse settings that no machine can take, before memory or time is spent on them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from ipot.errors import IpotError, RunError, Unsupported
from ipot.memory import free_memory, in_words
from ipot.models._shapes import refuse_tensors
from ipot.models.base import Operator
from ipot.problems.base import Problem
from ipot.recipes.own_data import OwnData
from ipot.spec import Need
from ipot.training.settings import Training

MOST = 1 << 20
"""The largest size among the settings of a problem: points a side, steps, frames."""
MOST_STEPS = 1_000_000
LIMITS = {
    "data": dict.fromkeys(("train", "validation", "test"), 1_000_000_000),
    "training": {"batch": 1 << 31, "workers": 4096, "epochs": 10**12, "step_epochs": 10**12},
}
WHOLE = frozenset({Need.GRID, Need.FIXED_POINTS, Need.SAME_POINTS, Need.EDGES})
"""Needs that are met by all input points together, and not by some of them."""


def refuse_sizes(settings: Any, where: str = "") -> None:
    """Refuse sizes of an experiment that are beyond any machine; `where` is the file, if any."""
    problem = settings.problem
    numbers = [(f"problem.{f.name}", getattr(problem, f.name), MOST) for f in fields(problem)]
    for group, limits in LIMITS.items():
        part = getattr(settings, group)
        numbers += [(f"{group}.{name}", getattr(part, name), most) for name, most in limits.items()]
    for name, value, most in numbers:
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, int) and abs(number) > most and not name.endswith("seed"):
                raise RunError(f"{where}{name} is {number}: {most} is the most. Choose less.")
    if isinstance(problem, OwnData) and problem.facts is None:
        return
    try:
        steps = problem.spec.steps
    except IpotError:
        raise
    except Exception as error:  # settings of any problem, put together in any way
        raise RunError(f"{where}the settings of {problem.name} do not fit: {error!r}") from error
    if not 1 <= steps <= MOST_STEPS:
        raise RunError(f"{where}problem: {steps} steps, and 1 to {MOST_STEPS} can be taken")


def refuse_data(problem: Problem, split: str, count: int, view: dict[str, Any]) -> None:
    """Refuse samples that do not fit into memory, before any is generated."""
    if problem.files is not None or not problem.generated or count < 1:
        return
    asked = {name: view.get(name) for name in ("resolution", "query_resolution")}
    for name, value in asked.items():
        if value is not None and abs(value) > MOST:
            raise RunError(f"{name} is {value}: {MOST} is the most. Choose less.")
    each, free = problem.bytes_each(problem.storage(**asked)), free_memory()
    if free is not None and count * each > free:
        raise RunError(
            f"{count} samples for {split} (data.{split}) of {problem.name} take "
            f"{in_words(count * each)}, {in_words(each)} each, and {in_words(free)} of memory are "
            "free. Choose fewer samples, or a smaller problem.resolution or problem.size."
        )


def refuse_training(model: Operator, place: torch.device) -> None:
    """Refuse a model whose weights, gradients and two moments of each do not fit into memory."""
    if place.type == "cpu":
        refuse_tensors(model, "weights, gradients and the optimiser's two moments", 4)


def refuse_subsets(model: Operator, training: Training) -> None:
    """Refuse random subsets where a model, or cutting trajectories, takes all of a mesh."""
    bound = {"points": WHOLE, "queries": {Need.SAME_POINTS}}
    for name, needs in bound.items():
        if getattr(training, name) == 1:
            continue
        if found := sorted(need.value for need in needs & model.needs):
            raise Unsupported(
                f"{model.name} needs {found[0]} and takes them all: set --training.{name} 1"
            )
        if training.unroll is not None:
            raise Unsupported(
                f"--training.unroll starts from true frames at all points: set --training.{name} 1"
            )
