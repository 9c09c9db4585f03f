"""The learning rate as a function of progress, free of state so that resuming is exact."""

from __future__ import annotations

import math

from ipot.training.settings import Training


def learning_rate(settings: Training, *, epoch: float, progress: float) -> float:
    """The rate at a (fractional) epoch and a progress in [0, 1] through the run."""
    if settings.schedule == "step":
        return settings.learning_rate * 0.5 ** (int(epoch) // settings.step_epochs)
    progress = min(max(progress, 0.0), 1.0)
    if progress < settings.warmup:
        # Not from zero: the first step should already learn something.
        return settings.learning_rate * (0.01 + 0.99 * progress / settings.warmup)
    fall = (progress - settings.warmup) / max(1e-9, 1.0 - settings.warmup)
    return settings.learning_rate * 0.5 * (1.0 + math.cos(math.pi * fall))
