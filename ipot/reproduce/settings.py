"""The appendix's tables of data sets, architectures and training, printed from our settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipot.models.base import parameter_count
from ipot.recipes import paper
from ipot.recipes.experiment import Experiment, build, experiment
from ipot.report import tables

Column = tuple[str, Callable[[Experiment], Any]]


def _list(values: Any) -> str:
    """One number if it serves all axes, else the list, as in the paper."""
    return f"{values[0]:g}" if len(values) == 1 else f"[{', '.join(f'{v:g}' for v in values)}]"


def _inputs(e: Experiment) -> str:
    return ", ".join(e.spec.inputs) if len(e.spec.inputs) < 4 else f"{len(e.spec.inputs)} frames"


DATA: list[Column] = [
    ("view", lambda e: ", ".join(f"{k} {v}" for k, v in _view(e)) or "as it is"),
    ("inputs", lambda e: _inputs(e) or "the points themselves"),
    ("input channels", lambda e: len(e.spec.inputs)),
    ("coordinates", lambda e: len(e.spec.domain)),
    ("outputs", lambda e: ", ".join(e.spec.outputs)),
    ("steps", lambda e: e.spec.steps),
    ("training samples", lambda e: e.data.train),
    ("validation", lambda e: e.data.validation),
    ("test", lambda e: e.data.test),
    ("grid", lambda e: " x ".join(map(str, e.spec.shape)) if e.spec.shape else "-"),
]
ARCHITECTURE: list[Column] = [
    ("frequency bins", lambda e: _list(e.model.bins)),
    ("max frequency", lambda e: _list(e.model.max_frequency)),
    ("inducing points", lambda e: e.model.latents),
    ("latent channels", lambda e: e.model.width),
    ("heads, encoder and decoder", lambda e: e.model.cross_heads),
    ("heads, processor", lambda e: e.model.heads),
    ("blocks", lambda e: e.model.blocks),
    ("blocks share weights", lambda e: "yes" if e.model.tied else "no"),
    ("parameters", lambda e: f"{parameter_count(build(e)):,}"),
]
TRAINING: list[Column] = [
    ("batch", lambda e: e.training.batch),
    ("epochs", lambda e: f"{e.training.epochs:,}"),
    ("learning rate", lambda e: f"{e.training.learning_rate:g}"),
    ("decay", lambda e: f"0.5 every {e.training.step_epochs} epochs"),
    ("weight decay", lambda e: f"{e.training.weight_decay:g}"),
    ("limit on gradients", lambda e: "none" if e.training.clip is None else e.training.clip),
    ("precision", lambda e: e.training.precision),
]
TITLES = {"Data sets": DATA, "Architecture": ARCHITECTURE, "Training": TRAINING}


def _view(e: Experiment) -> list[tuple[str, Any]]:
    return list(paper.PROBLEM.get(e.problem_name, {}).items())


def rows(columns: list[Column]) -> tuple[list[str], list[list[str]]]:
    """A row for each of the paper's problems, from the settings that `--preset paper` trains."""
    made = {name: experiment(name, "ipot", "paper") for name in paper.TABLE}
    head = ["problem", *(name for name, _ in columns)]
    return head, [[name, *(str(get(e)) for _, get in columns)] for name, e in made.items()]


def markdown() -> str:
    """The three tables."""
    parts = [f"**{title}**\n\n{tables.markdown(*rows(c)).strip()}" for title, c in TITLES.items()]
    return "\n\n".join(parts)
