"""From a job to the settings of its run: published, within a budget of minutes, or small."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ipot import registry
from ipot.recipes import paper, published
from ipot.recipes.compare import PLENTY
from ipot.recipes.experiment import Experiment, experiment, small
from ipot.recipes.studies import Question
from ipot.reproduce.items import MINUTES, Cell, Job

ORIGINALS = {name: stand_in for stand_in, name in paper.STAND_INS.items()}
"""Problems whose data cannot be generated, and what stands in for them."""
SLOWER_ON_A_CPU = 400.0
"""Two cores against an H200, per sample of Darcy in training (docs/speed.md)."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """How runs are made: by their published schedules, or in so many minutes, or small."""

    minutes: float | None = None
    small: bool = False

    @property
    def words(self) -> str:
        """For folders, records and tables; empty for the published schedule."""
        words = [f"{self.minutes:g} min"] if self.minutes else []
        return ", ".join(words + (["small"] if self.small else []))


def with_data(job: Job, files: dict[str, str]) -> Job:
    """The job on published files where they are named, or on what stands in for missing ones."""
    if job.problem in files:
        return replace(job, files=files[job.problem])
    return replace(job, problem=ORIGINALS.get(job.problem, job.problem))


def settings(job: Job, way: Way, *, seed: int = 0) -> Experiment:
    """All settings of a run."""
    made = experiment(job.problem, job.model, "paper")
    if job.files is not None:
        made = replace(made, problem=replace(made.problem, files=str(Path(job.files))))
    changes = dict(job.model_changes)
    if way.small:
        made = small(made)
        changes = {name: max(4, value // 8) for name, value in changes.items()}
    training = replace(made.training, seed=seed)
    if way.small:
        training = replace(training, epochs=2, batch=min(training.batch, 8), validate_every=1)
    if way.minutes is not None:
        # Halvings by the epoch do not know of a budget: a cosine stretches over it.
        kind = "cosine" if training.schedule == "step" else training.schedule
        training = replace(training, epochs=PLENTY, minutes=way.minutes, schedule=kind)
    return replace(
        made,
        problem=replace(made.problem, **dict(job.problem_changes)),
        model=replace(made.model, **changes),
        training=training,
    )


def question(cell: Cell, made: Experiment, way: Way) -> Question:
    """How a cell sees its test data; a small problem has resolutions in proportion."""
    asked = cell.question
    if not way.small or asked.resolution is None:
        return asked
    problem, whole = made.problem, registry.find("problems", made.problem_name)
    scaled = asked.resolution * problem.resolution // whole.resolution
    return replace(asked, resolution=min(scaled, problem.size))


def minutes(job: Job, *, gpu: bool) -> tuple[float | None, str]:
    """About how long a published schedule takes, and where that number comes from."""
    whole = paper.STAND_INS.get(job.problem, job.problem)
    key = "-".join([whole, *(f"{value:g}" for _, value in job.problem_changes)])
    factor, place = (1.0, "H200") if gpu else (SLOWER_ON_A_CPU, "two cores, from an H200's")
    if (known := MINUTES.get((key, job.model))) is not None:
        return factor * known, place
    printed = published.quoted(whole, job.model, "seconds", viscosity=_viscosity(job))
    if printed is None or printed.seconds is None:
        return None, "unknown"
    epochs = experiment(job.problem, job.model, "paper").training.epochs
    place = "the paper's RTX 3090" if gpu else "two cores, from the paper's RTX 3090"
    return factor * printed.seconds * epochs / 60, place


def _viscosity(job: Job) -> float | None:
    """Which Navier-Stokes it is."""
    usual = getattr(registry.find("problems", job.problem), "viscosity", None)
    return dict(job.problem_changes).get("viscosity", usual)
