"""Data: our generators with samples side by side, and one sample after the other on a CPU."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch

from ipot.bench.counts import Work
from ipot.bench.measuring import Memory, Terms, Timing, forget, peak_of, time_calls
from ipot.bench.rows import OURS, PLAIN, Row, with_ratios
from ipot.errors import DataError, Unsupported
from ipot.problems.base import Problem

CUT = ("shallow_water", "era5_synthetic")
"""Problems whose samples are cut from longer ones: one alone costs almost as much as all."""
ON_A_CPU = 4
"""Samples that are generated together on a CPU, by default."""


def check_generation(name: str, problem: Problem, count: int | None) -> None:
    """Refuse what cannot be measured, before any work."""
    if not problem.generated:
        raise Unsupported(f"{name} is measured: there is nothing to generate. Leave it out.")
    if count is not None and not 1 <= count <= 10**6:
        raise DataError(f"--count must lie in 1 to 1e6, got {count}")


def measure_generation(
    name: str, problem: Problem, terms: Terms, *, count: int | None = None
) -> list[Row]:
    """Samples a second together and, where that means something, one by one on a CPU."""
    check_generation(name, problem, count)
    forget()
    together = count or (problem.piece if terms.device.type == "cuda" else ON_A_CPU)
    terms.tell(f"{name}: {together} together")
    row = Row(problem=name, version=OURS, batch=together, kind="together")
    whole = range(together)
    timing, memory = _timed(problem, [whole], terms.device, terms)
    written = Work(flops=None, bytes=float(together * problem.bytes_each(_stored(problem))))
    rows = [_rated(row.timed(timing, memory, written, terms.top))]
    if problem.name in CUT:
        note = "samples are cut from longer ones, so that there is no plain version of a single one"
        return [replace(with_ratios(rows)[0], notes=(note,))]
    terms.tell(f"{name}: one by one on the CPU")
    single = [range(index, index + 1) for index in whole]
    timing, memory = _timed(problem, single, torch.device("cpu"), terms)
    timing = timing.scaled(together)
    row = replace(row, version=PLAIN, kind="one by one, cpu")
    rows.append(_rated(row.timed(timing, memory, written, terms.top)))
    return with_ratios(rows)


def _timed(
    problem: Problem, pieces: list[range], device: torch.device, terms: Terms
) -> tuple[Timing, Memory]:
    """Time and memory of a piece, one after the other and round again."""
    turns = itertools.cycle(pieces)

    def work() -> None:
        stored = _stored(problem)
        problem.generate("train", next(turns), seed=0, device=device, resolution=stored)

    return time_calls(work, device, seconds=terms.seconds), peak_of(work, device)


def _stored(problem: Problem) -> int | None:
    return problem.storage(None, None)


def _rated(row: Row) -> Row:
    return replace(row, samples_per_second=row.batch / (1e-3 * (row.ms or float("inf"))))
