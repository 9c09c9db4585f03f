"""The errors of a fitted model as lines of text, with advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipot.formats.series.description import Series
from ipot.formats.trajectories import KIND, lines
from ipot.report.tables import percent
from ipot.spec import Spec


def in_and_out(spec: Spec, about: Mapping[str, Any], series: Series | None) -> list[str]:
    """Inputs and outputs of a model, with their times if there are any."""
    if series is not None:
        return list(series.lines())
    columns = about.get("columns", {})
    if columns.get("kind") == KIND and {"history", "lead", "every"} <= set(columns):
        return list(lines(columns))
    given = [*spec.inputs, *spec.parameters] or ["the places of the points"]
    return [f"in: {', '.join(given)}", f"out: {', '.join(spec.outputs)}"]


def summary(scores: Mapping[str, Any], about: Mapping[str, Any], model: str = "ipot") -> list[str]:
    """The model's error beside those of simple predictors; for several outputs, the error of each.

    Scores that a model does not have are left out.
    """
    counts = about.get("samples", {})
    if "held_out" not in scores:
        return [*_of_validation(scores, about, counts), *who_answers(scores, about)]
    kind = "weighted relative L2 error" if scores.get("weighted") else "relative L2 error"
    count = counts.get("held out")
    if scores.get("constant") and not scores.get("per_channel", {}).keys() - scores["constant"]:
        return [*constant_lines(scores["constant"]), "nothing is left to score"]
    lines = [f"{kind} on {count or 'some'} samples held out:"]
    simple = sorted(scores.get("baselines", {}).items(), key=lambda pair: -pair[1])
    parts = scores.get("parts", {})
    name = f"{model}, {_whose(about)}" if parts else model
    rows = {name: scores["held_out"], **parts, **dict(simple)}
    width = max(map(len, rows))
    lines += [f"  {name:<{width}}  {percent(error)}" for name, error in rows.items()]
    lines += _of_channels(scores)
    lines += who_answers(scores, about)
    worse = bool(simple) and scores["held_out"] > simple[-1][1]
    if worse:
        lines.append(f"a simple predictor ({simple[-1][0]}) is better here")
    return [*lines, *_advice(scores.get("course"), worse)]


def who_answers(scores: Mapping[str, Any], about: Mapping[str, Any]) -> list[str]:
    """Which part of a fit answers, the network, the simple predictor or both, and the error of each
    by itself on the validation samples that this was chosen by."""
    shares = about.get("simple predictor", {}).get("shares", {})
    each = scores.get("validation of each", {})
    if not shares or not each:
        return []
    kind = about["simple predictor"]["kind"]
    said = {name: _answerer(share, kind) for name, share in shares.items()}
    if len(set(said.values())) == 1:
        line = f"what answers: {next(iter(said.values()))}"
    else:
        line = f"what answers: {'; '.join(f'{name}, {part}' for name, part in said.items())}"
    errors = ", ".join(f"{name} {percent(error)}" for name, error in each.items())
    if any(shares.values()) and "validation" in scores:
        errors = f"{errors}, as it answers {percent(scores['validation'])}"
    return [line, f"on the validation samples that chose this: {errors}"]


def _answerer(share: float, kind: str) -> str:
    if share >= 1:
        return f"the {kind} alone, and nothing of the network"
    if share <= 0:
        return f"the network alone, and nothing of the {kind}"
    return f"both, {100 * share:.0f} % {kind} and {100 * (1 - share):.0f} % network"


def _whose(about: Mapping[str, Any]) -> str:
    """What a row of errors is of, where a network has a simple predictor beside it."""
    told = about.get("simple predictor", {})
    shares = told.get("shares", {}).values()
    return f"by its {told['kind']} alone" if shares and min(shares) >= 1 else "blended"


def constant_lines(constants: Mapping[str, float]) -> list[str]:
    """Lines about outputs that are constant in all samples."""
    return [
        f"{name} is {value:g} in all samples: answered as that, and not scored"
        for name, value in constants.items()
    ]


OVERFITTING, UNDERTRAINED, LEVEL = "overfitting", "undertrained", "level"
GAP = 0.6
"""An error in training of less than this part of that on validation samples is known by heart."""
RISEN, FALLING = 1.05, 0.97
"""How far a validation error must have moved to count as a rise, or as a fall."""


def course(rows: Sequence[Mapping[str, Any]]) -> str:
    """How a training went, from its journal.

    overfitting     the error on training samples went on falling when that on validation
                    samples no longer did
    undertrained    the validation error was still falling at the end, and the training error
                    was not far below it
    level           neither
    """
    seen = [(r["loss"], r["validation"]) for r in rows if r.get("validation") and r.get("loss")]
    if len(seen) < 4:
        return LEVEL
    losses, errors = zip(*seen, strict=True)
    best, last = min(errors), max(1, len(seen) // 5)
    end = sum(losses[-last:]) / last
    rise = sum(errors[-last:]) / last > RISEN * best
    at_best = losses[errors.index(best)]
    if end < GAP * best and (rise or at_best < GAP * best or end < GAP * at_best):
        return OVERFITTING
    before = min(errors[: max(1, len(seen) - 2 * last)])
    return (
        UNDERTRAINED
        if best < FALLING * before and errors.index(best) >= len(seen) - 2 * last
        else LEVEL
    )


def _advice(course: str | None, worse: bool) -> list[str]:
    """Advice on what to do next, if there is any."""
    if course == OVERFITTING:
        return [
            "it knows its own samples better than others (overfitting): longer training does not "
            'help; more samples do, or a smaller model (model={"width": 32})'
        ]
    if course == UNDERTRAINED:
        return ["the error was still falling at the end: train longer (minutes=...)"]
    if worse:
        return ["training longer would change little: give more samples, or tell more of each"]
    return []


def _of_validation(
    scores: Mapping[str, Any], about: Mapping[str, Any], counts: Mapping[str, int]
) -> list[str]:
    if "validation" not in scores:
        return ["no scores"]
    error, count = percent(scores["validation"]), counts.get("validation", 0)
    # The error that the best weights were chosen by, in which every output has its own size.
    kind = "balanced error" if scores.get("balanced") else "error"
    if "run" in about:
        return [f"relative L2 error on {count} validation samples: {error}"]
    if not count:
        return [f"{kind} on the training samples: {error}; too few to hold any out"]
    each = "sample" if count == 1 else "samples"
    chosen = "the weights and the blend" if "blend" in about else "the weights"
    they = "it" if count == 1 else "they"
    others = f"too few to hold more out: {they} chose {chosen}, and it is a little too low"
    if held := counts.get("held out"):  # a fit that was stopped between its end and its scores
        others = f"not scored yet on the {held} held out"
    return [f"{kind} on {count} validation {each}: {error}; {others}"]


def _of_channels(scores: Mapping[str, Any]) -> list[str]:
    """A line for each of several outputs, beside its best simple predictor. In the total the
    largest output decides."""
    own = scores.get("per_channel", {})
    if len(own) < 2:
        return []
    simple = scores.get("baselines_per_channel", {}).values()
    width = max(map(len, own))
    kind = ", unweighted" if scores.get("weighted") else ""
    lines = [f"of each output, beside the better of the others{kind}:"]
    for name, error in own.items():
        others = [per[name] for per in simple if name in per]
        beside = f", {percent(min(others))}" if others else ""
        lines.append(f"  {name:<{width}}  {percent(error)}{beside}")
    return lines
