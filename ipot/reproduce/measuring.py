"""Cells without a training: time and memory of answers, and what interpolation does to inputs."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from ipot import registry
from ipot.bench.infer import Question, measure_version
from ipot.bench.measuring import Terms, forget
from ipot.bench.rows import OURS, Row
from ipot.data.dataset import Dataset, Stacked
from ipot.data.store import Store
from ipot.device import choose
from ipot.recipes import studies
from ipot.recipes.experiment import Experiment, experiment, small
from ipot.reproduce.items import Measurement
from ipot.reproduce.jobs import ORIGINALS, reduced
from ipot.reproduce.plan import Task

KEPT = ("problem", "version", "points", "ms", "above_gib", "peak_gib", "precision", "reason")
SECONDS, QUICK = 1.5, 0.05
"""Of one measurement, and of one in a small run."""
FEW = (1_000, 2_000)
INTERPOLATED = "relative L2 of interpolated inputs, where they are hidden"


def processor() -> str:
    """This machine, where there is no GPU."""
    return f"{os.cpu_count()} cores, {platform.machine()}"


def measure(task: Task, store: Store, device: str) -> dict[str, Any]:
    """What a record of a measurement has beside its facts."""
    wanted = task.cells[0].measurement
    assert wanted is not None
    if wanted.kind == "scaling":
        rows = _scaling(wanted, device, quick=task.way.small)
        timed = any(row["ms"] is not None for row in rows)
        outcome = {} if timed else {"outcome": rows[0]["reason"]}
        return {"rows": rows, "tests": {}, **outcome}
    data, hidden = masked_and_filled(wanted.problem, store, device, is_small=task.way.small)
    error = float((data["filled"] - data["truth"])[:, hidden].norm())
    return {"rows": [], "tests": {INTERPOLATED: error / float(data["truth"][:, hidden].norm())}}


def _scaling(wanted: Measurement, device: str, *, quick: bool) -> list[dict[str, Any]]:
    """Time and memory of one version, from few points to many; beyond a failure it stops."""
    terms = Terms.of(device, QUICK if quick else SECONDS)
    changes = reduced(dict(wanted.model_changes)) if quick else dict(wanted.model_changes)
    version = OURS if wanted.model == "ipot" else wanted.model
    rows: list[Row] = []
    for points in FEW if quick else wanted.points:
        forget()
        asked = Question(
            problem=wanted.problem, preset="paper", points=points, small=quick, model=changes
        )
        rows.append(measure_version(asked, version, terms))
        if rows[-1].reason:
            break
    return [{name: getattr(row, name) for name in KEPT} for row in rows]


def masked_and_filled(
    problem: str, store: Store, device: str, *, is_small: bool
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The last input of every test sample (S, N), as it is and interpolated from the sea, where the
    points lie (N, 2), and which of them are hidden."""
    made = experiment(_at_hand(problem), "ipot", "paper")
    made = small(made) if is_small else made
    plain = _test(made, studies.Question(), store, device)
    filled = _test(made, studies.Question(mask="sea", fill="cubic"), store, device)
    points = plain.data.points[0]
    low, high = torch.tensor(made.problem.spec.domain).unbind(-1)
    hidden = ~made.problem.masks["sea"]((points.cpu() - low) / (high - low))
    fields = {"truth": plain.data.values[..., -1], "filled": filled.data.values[..., -1]}
    return fields | {"points": points}, hidden


def _at_hand(problem: str) -> str:
    """The problem, or what stands in for it: pictures of inputs need no published number."""
    generated = registry.find("problems", problem).generated
    return problem if generated else ORIGINALS[problem]


def _test(made: Experiment, asked: studies.Question, store: Store, device: str) -> Stacked:
    data: Dataset = studies.seen_test_data(made, asked, store=store, device=choose(device))
    assert isinstance(data, Stacked)
    return data
