"""Answers: N points in, M queries out, by ours, the plain version and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ipot import registry
from ipot.accelerate import accelerate, replay
from ipot.bench import plain_model
from ipot.bench.counts import Work, inference_work
from ipot.bench.measuring import Terms, forget, free_memory, peak_of, time_calls
from ipot.bench.rows import OURS, PLAIN, Row, lacks, with_ratios
from ipot.bench.samples import check_room, random_question
from ipot.device import out_of_memory
from ipot.errors import DataError, IpotError, UnknownName, Unsupported, shown
from ipot.evaluation.predict import predict
from ipot.models.base import Operator
from ipot.recipes.experiment import Experiment, build, experiment, small
from ipot.samples import Batch
from ipot.training.step import fast_products

PATIENCE = 60.0
"""Seconds of one call beyond which a version is left out."""
EFFICIENCY = 0.1
"""The share of the ceiling that a call is expected to reach when its time is predicted."""
FEW = 1 << 16
"""Points that fit anywhere: a probe of this many says what more of them will take."""
SOME = 4096
"""Points at which answers are compared."""
SHARE = 0.8
"""Of the free memory, what a call may be predicted to take where running out ends the process."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked: a problem in a preset, how many points and queries, of how many samples."""

    problem: str
    preset: str
    points: int
    queries: int | None = None
    batch: int = 1
    small: bool = False
    precision: str = "auto"
    """Of all but the plain version; auto is bf16 on a GPU that has it, else float32."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the settings of IPOT, ours and the plain version: like latents=512."""


def rivals(words: Sequence[str]) -> list[str]:
    """The versions that are meant by names; `none` means none."""
    names = [word.strip().replace("-", "_").lower() for word in words if word.strip()]
    names = [] if names == ["none"] else list(dict.fromkeys(names))
    for name in names:
        if name != PLAIN and name not in registry.names("models"):
            known = ", ".join([PLAIN, *registry.names("models")])
            raise UnknownName(
                f"unknown version {shown(name)} in --against. Known: {known}; or none"
            )
    return [name for name in names if name != "ipot"]


def check_question(question: Question, device: torch.device) -> None:
    """Refuse what cannot be asked, before any work."""
    if question.batch < 1:
        raise DataError(f"--batch must be at least 1, got {question.batch}")
    spec = _settings(question, "ipot").problem.spec
    check_room(spec, question.points, question.queries, device, question.batch)


def measure_inference(
    question: Question, terms: Terms, *, against: Sequence[str] = (PLAIN,)
) -> list[Row]:
    """Ours first, then the others; what cannot be measured has a row that says why."""
    rows = []
    for version in (OURS, *against):
        terms.tell(f"{question.problem}, {question.points:,} points: {version}")
        forget()
        rows.append(measure_version(question, version, terms))
    return with_ratios(rows)


def measure_version(question: Question, version: str, terms: Terms) -> Row:
    """One version, or why it is left out."""
    row = Row(
        problem=question.problem,
        version=version,
        batch=question.batch,
        points=question.points,
        queries=question.queries or question.points,
    )
    try:
        return _measure(question, version, terms, row)
    except IpotError as error:
        reason = str(error).split(". ")[0].rstrip(".")
    except (RuntimeError, MemoryError) as error:
        # Systems that are not ours may have limits of their own, which end no measurement.
        if version == OURS and not out_of_memory(error):
            raise
        reason = "out of memory" if out_of_memory(error) else str(error).splitlines()[0]
    return replace(row, reason=reason)


def _measure(question: Question, version: str, terms: Terms, row: Row) -> Row:
    settings = _settings(question, "ipot" if version in (OURS, PLAIN) else version)
    model = build(settings).to(terms.device).eval()
    batch = _asked(model, question, terms.device)
    work = inference_work(model, batch, plain=version in (OURS, PLAIN))
    precision = _precision(question, settings, terms.device, version)
    call = answer(model, precision, terms.device, plainly=version == PLAIN)
    row = replace(
        row,
        points=batch.values.shape[1],
        queries=batch.queries.shape[-2],
        steps=len(batch.times),
        precision=precision,
    )
    if version != OURS:
        _refuse_endless(work, terms)
        _refuse_large(model, question, call, terms)
    timing = time_calls(lambda: call(batch), terms.device, seconds=terms.seconds)
    # A replayed answer works in memory that was set aside when it was captured: ask it anew.
    replay.forget(model)
    memory = peak_of(lambda: call(batch), terms.device)
    row = row.timed(timing, memory, work, terms.top)
    most = row.batch * max(row.points, row.queries)
    row = replace(row, ns_per_point=1e6 * timing.ms / most)
    if version != OURS:
        return row
    off, usual = _differences(model, precision, question, terms.device)
    row = replace(row, notes=(*row.notes, *lacks(terms.device, precision)))
    if row.precision == "bf16":
        row = replace(
            row, notes=(*row.notes, f"torch's own operators in bf16 are off by {usual:.1e}")
        )
    return replace(row, difference=off)


def answer(
    model: Operator, precision: str, device: torch.device, *, plainly: bool = False
) -> Callable[[Batch], Tensor]:
    """How a version answers: by `predict` as in evaluation, or plainly."""

    def ours(batch: Batch) -> Tensor:
        with _as_evaluated(precision, device):
            return predict(model, batch)

    @torch.inference_mode()
    def slowly(batch: Batch) -> Tensor:
        with plain_model.plainly():
            return plain_model.forward(model, batch)

    return slowly if plainly else ours


@contextmanager
def _as_evaluated(precision: str, device: torch.device) -> Iterator[None]:
    """The arithmetic that a model is validated in while it trains."""
    bf16 = precision == "bf16"
    with fast_products(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        yield


def _precision(question: Question, settings: Experiment, device: torch.device, version: str) -> str:
    if version != PLAIN and question.precision != "auto":
        return question.precision
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    wanted = settings.training.precision in ("auto", "bf16")
    return "bf16" if able and wanted and version != PLAIN else "float32"


def _settings(question: Question, model: str) -> Experiment:
    """A system at the sizes of its recipe."""
    settings = experiment(question.problem, model, question.preset)
    if question.small:
        settings = small(settings)
    if model == "ipot":
        settings = replace(settings, model=replace(settings.model, **question.model))
    return settings


def _asked(model: Operator, question: Question, device: torch.device) -> Batch:
    keys = {"needs": model.needs, "batch": question.batch}
    return random_question(model.spec, question.points, question.queries, device, **keys)


def _refuse_endless(work: Work, terms: Terms) -> None:
    """Leave out a call whose arithmetic alone would take minutes."""
    if work.flops is None:
        return
    seconds = work.flops / (EFFICIENCY * terms.top.flops)
    if seconds > PATIENCE:
        raise Unsupported(f"left out: about {seconds:.0f} s a call by its arithmetic")


def _refuse_large(
    model: Operator, question: Question, call: Callable[[Batch], Tensor], terms: Terms
) -> None:
    """Leave out, on a CPU, a call that would take more memory than there is: the system would end
    the process. What fewer points take says it beforehand."""
    if terms.device.type != "cpu" or question.points <= FEW:
        return
    queries = None if question.queries is None else min(question.queries, FEW)
    few = _asked(model, replace(question, points=FEW, queries=queries), terms.device)
    taken, free = peak_of(lambda: call(few), terms.device).above, free_memory(terms.device)
    needed = (taken or 0.0) * max(question.points, question.queries or 0) / FEW
    if free is not None and needed > SHARE * free:
        raise Unsupported(f"left out: about {needed:.0f} GiB needed, {free:.0f} GiB are free")


def _differences(
    model: Operator, precision: str, question: Question, device: torch.device
) -> tuple[float, float]:
    """How far ours lies from the plain version, at a few points, relative; and how far the same
    does by torch's own operators, in the same precision. A model that was never trained answers
    with means of numbers that nearly cancel, of which rounding leaves less than of others."""
    batch = _asked(model, replace(question, points=SOME, queries=None), device)
    call = answer(model, precision, device)
    ours = call(batch).double()
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        fused = accelerate(model, attention="fused")
    usual = answer(fused, precision, device)(batch).double()
    exact = answer(model, precision, device, plainly=True)(batch).double()
    size = exact.norm()
    return float((ours - exact).norm() / size), float((usual - exact).norm() / size)
