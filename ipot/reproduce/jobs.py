"""From a job to the settings of its run: published, within a budget of minutes, or small."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ipot import registry
from ipot.problems.base import GridProblem
from ipot.recipes import paper, published
from ipot.recipes.compare import PLENTY
from ipot.recipes.experiment import Experiment, experiment, small
from ipot.recipes.studies import Question
from ipot.reproduce.items import MINUTES, Cell, Job

ORIGINALS = {name: stand_in for stand_in, name in paper.STAND_INS.items()}
"""Problems whose data cannot be generated, and what stands in for them."""
# How much longer two cores take for a sample of Darcy in training (docs/speed.md): than our kernels
# on an H200, than torch's operators on it, and than the paper's RTX 3090.
SLOWER_THAN_KERNELS, SLOWER_THAN_H200, SLOWER_THAN_3090 = 400.0, 42.0, 24.0


FLOAT32 = 25.0
"""Minutes of Darcy's schedule without our kernels, which are for bf16, on an H200."""


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
        changes = reduced(changes)
    training = replace(made.training, seed=seed, **dict(job.training_changes))
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


def reduced(changes: dict[str, int]) -> dict[str, int]:
    """Changes of a small model: an eighth of the inducing points, and blocks as they are."""
    return {name: value // 8 if name == "latents" else value for name, value in changes.items()}


def question(cell: Cell, made: Experiment, way: Way) -> Question:
    """How a cell sees its test data; a small problem has resolutions in proportion."""
    asked = cell.question
    problem, whole = made.problem, registry.find("problems", made.problem_name)
    if not way.small or asked.resolution is None or not isinstance(problem, GridProblem):
        return asked
    scaled = asked.resolution * problem.resolution // whole.resolution
    return replace(asked, resolution=min(scaled, problem.size))


def minutes(job: Job, *, gpu: bool) -> tuple[float | None, str]:
    """About how long a published schedule takes, and where that number comes from."""
    whole = paper.STAND_INS.get(job.problem, job.problem)
    key = replace(job, problem=whole).view
    if dict(job.training_changes).get("precision") == "float32":
        return (FLOAT32, "H200") if gpu else (SLOWER_THAN_H200 * FLOAT32, "CPU")
    if (known := MINUTES.get((key, job.model))) is not None:
        slower = SLOWER_THAN_KERNELS if job.model == "ipot" else SLOWER_THAN_H200
        return (known, "H200") if gpu else (slower * known, "CPU")
    printed = published.quoted(whole, job.model, "seconds", viscosity=_viscosity(job))
    if printed is None or printed.seconds is None:
        return None, "unknown"
    theirs = printed.seconds * experiment(job.problem, job.model, "paper").training.epochs / 60
    return (theirs, "RTX 3090") if gpu else (SLOWER_THAN_3090 * theirs, "CPU")


def _viscosity(job: Job) -> float | None:
    """Which Navier-Stokes it is."""
    usual = getattr(registry.find("problems", job.problem), "viscosity", None)
    return dict(job.problem_changes).get("viscosity", usual)
