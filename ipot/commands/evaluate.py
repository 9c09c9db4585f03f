"""`ipot evaluate`: score a trained model on samples that it has not seen."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ipot.api import load
from ipot.commands.flags.evaluate import Evaluate
from ipot.commands.output import Generation, is_emitted, refuse_there, show
from ipot.commands.parsing import data_given, parse, without_old_input
from ipot.data.store import Store
from ipot.errors import DataError, Unsupported
from ipot.evaluation.evaluate import Scores, leads
from ipot.recipes import ledger
from ipot.recipes.studies import Answer, Question, ask_model
from ipot.surrogate.loading import folder_of
from ipot.surrogate.surrogate import Surrogate


def main(arguments: list[str]) -> None:
    """Run the command."""
    arguments, old = without_old_input(arguments, "evaluate")
    flags = parse(Evaluate, arguments, "evaluate")
    cases = data_given(flags.cases, old)
    refuse_there(flags.out, overwrite=flags.overwrite)
    model = load(
        flags.run,
        device=flags.device,
        weights=flags.weights,
        trusted=flags.trust,
        edited=flags.edited,
    )
    if cases is not None or model.settings is None:
        if flags.symmetric:
            raise Unsupported("--symmetric is for built-in problems, whose symmetries are known")
        if flags.record is not None:
            raise Unsupported("--record is for runs on the test data of a built-in problem")
        _evaluate_file(flags, model, cases)
        return
    if flags.targets_from is not None:
        raise Unsupported("--targets-from is for a series of your own, and none is given")
    store = Store(flags.data)
    question = Question(
        keep=flags.keep,
        resolution=flags.resolution,
        query_resolution=flags.query_resolution,
        mask=flags.mask,
        fill=flags.fill,
        steps=flags.steps,
        samples=flags.samples,
        seed=flags.seed,
        symmetric=flags.symmetric,
    )
    answer = ask_model(
        model.model,
        model.settings,
        question,
        store=store,
        batch=flags.batch,
        report=Generation(store, quiet=flags.quiet),
    )
    if flags.record is not None:
        tests = {_seen(question, flags.weights): answer.scores.relative_l2}
        ledger.add(flags.record, [ledger.record_of(folder_of(flags.run), tests=tests)])
    if is_emitted(answer.as_dict(), flags):
        return
    from ipot.report.tables import table

    scores = answer.scores
    rows = [
        ["relative L2", f"{scores.relative_l2:.5f}"],
        ["the mean field instead", _or_dash(answer.mean_field)],
        ["median / worst sample", f"{answer.median:.5f} / {max(scores.per_sample):.5f}"],
        ["samples", str(len(scores.per_sample))],
        ["inputs → queries", f"{answer.points} → {answer.queries}"],
    ]
    if scores.weighted_relative_l2 is not None:
        rows.insert(1, ["weighted relative L2", f"{scores.weighted_relative_l2:.5f}"])
    if len(scores.per_time) > 1:
        first, last = scores.per_time[0], scores.per_time[-1]
        rows.append(["first / last step", f"{first:.5f} / {last:.5f}"])
    rows += _channels(answer.outputs, scores)
    show(table(f"{flags.run}: {question.describe()}", ["", "value"], rows))
    if answer.references or len(scores.rmse_per_time) > 1:
        show(table("beside simple forecasts", *forecasts(answer)))


def _seen(question: Question, weights: str) -> str:
    """How the test data were seen, and whatever else makes a number another one."""
    words = [question.describe()]
    words += [] if question.samples is None else [f"{question.samples} samples"]
    words += [] if weights == "best" else [f"{weights} weights"]
    return ", ".join(words)


def _evaluate_file(flags: Evaluate, model: Surrogate, cases: Path | None) -> None:
    """Score a model on samples in a file or a folder."""
    if cases is None:
        raise DataError(
            f"{flags.run} was trained on data of your own, which have no test samples here. Give "
            f"a file or folder like those it was trained on: ipot evaluate {flags.run} new_cases"
        )
    seen = ("keep", "resolution", "query_resolution", "mask", "fill", "steps", "samples", "seed")
    default = {f.name: f.default for f in fields(Evaluate)}
    if other := [n for n in seen if getattr(flags, n) != default[n]]:
        said = ", ".join(f"--{name.replace('_', '-')}" for name in other)
        raise Unsupported(f"{said}: for the test data of a built-in problem, not for {cases}")
    scores = model.evaluate(cases, targets=flags.targets_from)
    errors = scores.per_sample
    median = statistics.median(errors)
    if is_emitted({**scores.as_dict(), "median": median, "samples": len(errors)}, flags):
        return
    from ipot.report.tables import table

    rows = [
        ["relative L2", f"{scores.relative_l2:.5f}"],
        ["median / worst sample", f"{median:.5f} / {max(errors):.5f}"],
        ["samples", str(len(errors))],
        *_channels(model.spec.outputs, scores),
    ]
    if scores.weighted_relative_l2 is not None:
        rows.insert(1, ["weighted relative L2", f"{scores.weighted_relative_l2:.5f}"])
    show(table(f"{flags.run}: {cases}", ["", "value"], rows))
    if scores.references:
        show(table("beside simple forecasts", *forecasts(scores)))


def _channels(names: Sequence[str], scores: Scores) -> list[list[str]]:
    """A row for each of several channels."""
    if len(names) < 2:
        return []
    return [[n, f"{e:.5f}"] for n, e in zip(names, scores.per_channel, strict=True)]


def forecasts(answer: Answer | Scores) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: the model and every reference, each with its errors."""
    own = answer.scores if isinstance(answer, Answer) else answer
    steps = leads(len(own.rmse_per_time))
    columns = ["", "relative L2", *(f"RMSE, step {step}" for step in steps)]
    rows = [
        [
            name,
            f"{scores.relative_l2:.5f}",
            *(f"{scores.rmse_per_time[step - 1]:#.4g}" for step in steps),
        ]
        for name, scores in {"this model": own, **answer.references}.items()
    ]
    return columns, rows


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"
