"""How to train: the settings of the loop, and the learning rate that they give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from ipot.errors import Unsupported

PATIENCE = 600.0
"""Seconds that a process waits for another one that does not answer, unless said."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of the loop; a run ends after `epochs`, or after `minutes` where given."""

    epochs: int = 500
    """Passes over the training set; only a limit where `minutes` is given."""
    minutes: float | None = None
    """Box the run by time instead: the schedule stretches over these minutes."""
    patience: float | None = None
    """Stop before the end once so large a part of the run brought no lower validation error, e.g.
    0.5; None goes to the end. The best weights are kept either way."""
    batch: int = 10
    """Samples a step, over all processes."""
    last_batch: Literal["leave", "fill"] = "leave"
    """What becomes of samples that make no whole batch at the end of an epoch: leave them to other
    epochs, or fill their batch with samples of this one, so that every epoch sees all."""
    learning_rate: float = 1e-3
    """At its highest."""
    weight_decay: float = 1e-4
    """How much weights are drawn to zero; `decay` says how."""
    decay: Literal["decoupled", "coupled"] = "decoupled"
    """decoupled: AdamW's; coupled: the L2 penalty of Adam, whose gradient is added to that of the
    loss."""
    schedule: Literal["cosine", "step", "one-cycle"] = "cosine"
    """cosine: warm up, then fall to zero; step: multiply by 1/2 every `step_epochs`; one-cycle:
    rise from 1/25 of the rate and fall to 1/250,000 of it, both by a cosine."""
    warmup: float = 0.02
    """Fraction of the run over which a cosine or one-cycle schedule rises."""
    step_epochs: int = 200
    """Epochs between two halvings of the step schedule."""
    clip: float | None = 1.0
    """Largest norm of the gradient; None leaves it alone."""
    gradient_loss: float = 0.0
    """Weight of a second loss, the relative L2 error of gradients in space: by central differences
    on a grid, by planes through the nearest neighbours on scattered queries."""
    average: float | None = None
    """Decay of an exponential average of the weights, e.g. 0.999; None uses the weights as such."""
    points: float = 1.0
    """Fraction of the input points seen in a step, drawn anew each time; of each sample's own where
    samples differ in size."""
    points_least: float | None = None
    """Least fraction of the input points: every step draws whether it sees the fraction `points`, a
    half of that, a quarter and so on down to this one, so that fewer sensors are learnt as well as
    all; None always takes `points`."""
    queries: float = 1.0
    """Fraction of the queries asked in a step, drawn in the same way."""
    unroll: int | None = None
    """Steps that a rollout is trained over: trajectories are cut into pieces of so many, each
    starting from true frames. 1 is teacher forcing, None the whole rollout."""
    pieces: int | None = None
    """How many pieces of each trajectory a step takes, drawn anew; None takes them all."""
    grow: float = 0.0
    """Fraction of the run over which rollouts grow, from one step over two, four and so on to all
    of them; 0 trains whole rollouts from the start."""
    change: bool = False
    """Answer with the change since the last input frame, which is added to it: interpolated where
    queries are not the input points. For problems with past frames among their inputs."""
    each_point: bool = False
    """Scale answers at each point of a grid by their mean and deviation there over the training
    samples, as some systems were published; else each channel has one mean and deviation."""
    augment: bool = False
    """Turn every sample by a random symmetry of the problem."""
    precision: Literal["auto", "float32", "bf16", "float64"] = "auto"
    """auto: bf16 arithmetic with float32 weights on a GPU that has it, float32 elsewhere."""
    step: Literal["auto", "eager", "compiled", "graph"] = "auto"
    """How a step runs; auto chooses by device and data, and does with less where that fails."""
    validate_every: int = 0
    """Epochs between two validations; 0 spreads about fifty over the run."""
    save_seconds: float = 60.0
    """Seconds between two checkpoints; one is also written at the end and on a signal."""
    workers: int = 0
    """Processes that collate ragged batches which do not lie on a GPU; 0 does it in the loop."""
    seed: int = 0
    """Initial weights, order, subsets and symmetries."""

    def __post_init__(self) -> None:
        # Written so that NaN, which compares as False, is refused as well.
        def check(fits: bool, name: str, wanted: str) -> None:
            if not fits:
                raise Unsupported(f"training.{name} must {wanted}, got {getattr(self, name)}")

        for name in ("epochs", "batch", "learning_rate", "step_epochs"):
            check(0 < getattr(self, name) < math.inf, name, "be positive")
        for name in ("minutes", "clip", "unroll", "pieces"):
            value = getattr(self, name)
            check(value is None or value > 0, name, "be positive or None")
        for name in ("weight_decay", "gradient_loss", "validate_every", "save_seconds", "workers"):
            check(getattr(self, name) >= 0, name, "not be negative")
        for name in ("points", "queries"):
            check(0 < getattr(self, name) <= 1, name, "lie in (0, 1]")
        least = self.points_least
        check(least is None or 0 < least <= self.points, "points_least", "lie in (0, points]")
        check(
            least is None or self.unroll is None,
            "points_least",
            "be left out with training.unroll, which needs true frames at all input points",
        )
        check(self.pieces is None or self.unroll is not None, "pieces", "come with training.unroll")
        check(
            not self.each_point or (self.queries == 1 and not self.augment),
            "each_point",
            "be left out with training.queries and training.augment, which ask at other points",
        )
        check(self.patience is None or 0 < self.patience <= 1, "patience", "lie in (0, 1]")
        check(self.gradient_loss < math.inf, "gradient_loss", "be finite")
        check(0 <= self.grow <= 1, "grow", "lie in [0, 1]")
        check(0 <= self.warmup < 1, "warmup", "lie in [0, 1)")
        check(self.average is None or 0 < self.average < 1, "average", "lie in (0, 1)")
        for name in ("schedule", "precision", "step", "decay", "last_batch"):
            known = get_args(get_type_hints(type(self))[name])
            check(getattr(self, name) in known, name, f"be one of {', '.join(known)}")


def shares(settings: Training) -> list[float]:
    """The fractions of the input points that a step may take, the largest first."""
    found, least = [settings.points], settings.points_least
    if least is None:
        return found
    while found[-1] / 2 > least:
        found.append(found[-1] / 2)
    return list(dict.fromkeys([*found, least]))


def learning_rate(settings: Training, *, epoch: float, progress: float) -> float:
    """The rate at a (fractional) epoch and a progress in [0, 1] through the run."""
    if settings.schedule == "step":
        return settings.learning_rate * 0.5 ** (int(epoch) // settings.step_epochs)
    progress = min(max(progress, 0.0), 1.0)
    if settings.schedule == "one-cycle":
        low = settings.learning_rate / START
        ends = (low, settings.learning_rate, low / END)
        return _cycle(ends, progress, settings.warmup)
    if progress < settings.warmup:
        # Not from zero: the first step should already learn something.
        return settings.learning_rate * (0.01 + 0.99 * progress / settings.warmup)
    fall = (progress - settings.warmup) / max(1e-9, 1.0 - settings.warmup)
    return settings.learning_rate * 0.5 * (1.0 + math.cos(math.pi * fall))


START, END = 25.0, 1e4
"""One-cycle starts at the rate over the first, and ends at that over the second."""


def _cycle(ends: tuple[float, float, float], progress: float, rise: float) -> float:
    """A cosine from the first value to the second over a part of the run, then another to the
    third."""
    start, top, end = ends
    if progress < rise:
        return top + (start - top) * 0.5 * (1.0 + math.cos(math.pi * progress / rise))
    fall = (progress - rise) / max(1e-9, 1.0 - rise)
    return end + (top - end) * 0.5 * (1.0 + math.cos(math.pi * fall))


def refuse_gradients(settings: Training) -> None:
    """Refuse a loss on gradients if a step takes only some of the queries."""
    if settings.gradient_loss and settings.queries < 1:
        raise Unsupported(
            f"--training.gradient-loss needs the neighbours of every query, and "
            f"--training.queries {settings.queries} asks some of them only: set --training.queries "
            "1, or --training.gradient-loss 0"
        )
