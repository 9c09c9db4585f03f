"""What `import ipot` offers."""

from __future__ import annotations

from ipot.data.own import Dataset
from ipot.own.compare import compare
from ipot.own.fit import fit
from ipot.recipes.experiment import Experiment, experiment
from ipot.recipes.running import resume, run
from ipot.recipes.studies import Question, ask
from ipot.samples import Sample
from ipot.surrogate.loading import from_pretrained, load
from ipot.surrogate.surrogate import Surrogate

Fitted = Surrogate
"""What a model of `ipot.fit` was called before there was one class for all of them."""

__all__ = [
    "Dataset",
    "Experiment",
    "Fitted",
    "Question",
    "Sample",
    "Surrogate",
    "ask",
    "compare",
    "experiment",
    "fit",
    "from_pretrained",
    "load",
    "resume",
    "run",
]
