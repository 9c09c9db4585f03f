"""Pictures of samples, rollouts, studies, training runs and comparisons, ready to print.

Nothing here imports matplotlib until a picture is asked for, and no picture touches pyplot: an
interactive session keeps its backend and its open figures.
"""

from __future__ import annotations

from ipot.report.comparison import comparison
from ipot.report.curves import curve, training
from ipot.report.fields import fields
from ipot.report.overview import overview
from ipot.report.rollouts import rollout
from ipot.report.style import save

__all__ = ["comparison", "curve", "fields", "overview", "rollout", "save", "training"]
