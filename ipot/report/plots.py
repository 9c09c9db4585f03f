"""Pictures of samples, rollouts, studies and training runs, ready to print.

Nothing here imports matplotlib until a picture is asked for, and no picture touches pyplot: an
interactive session keeps its backend and its open figures.
"""

from __future__ import annotations

from ipot.report.curves import curve, training
from ipot.report.fields import fields
from ipot.report.overview import overview
from ipot.report.rollouts import rollout
from ipot.report.style import save

__all__ = ["curve", "fields", "overview", "rollout", "save", "training"]
