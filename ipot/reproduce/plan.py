"""What is to be run: cells by their names, the runs that they need, what is left, what it costs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ipot.errors import UnknownName, Unsupported, shown
from ipot.reproduce import records
from ipot.reproduce.items import CELLS, ITEMS, Cell, Job
from ipot.reproduce.jobs import ORIGINALS, Way, minutes, with_data
from ipot.reproduce.records import Record, Result

MEASURING = 1.0
"""Minutes of a measurement, about."""
SMALL = 0.05
"""Minutes of a small run on a CPU, about."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run, or one measurement, and the cells that it serves."""

    job: Job | None
    seed: int
    way: Way
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """What its records are called."""
        return self.job.name if self.job else self.cells[0].name

    @property
    def identity(self) -> str:
        """What its record is known by."""
        return records.identity(self.name, self.way, self.seed)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which problems are read from published files, by their folders."""

    files: dict[str, str] = field(default_factory=dict)

    def job(self, cell: Cell) -> Job:
        """The job of a cell on these data, or on what stands in for them."""
        assert cell.job is not None
        return with_data(cell.job, self.files)

    def missing(self, cells: Sequence[Cell]) -> list[str]:
        """A sentence on each problem that something else stands in for."""
        names = {cell.job.problem for cell in cells if cell.job}
        names |= {cell.measurement.problem for cell in cells if cell.measurement}
        return [
            f"{name} needs files that are not here (`ipot {name}` says where to get them; then "
            f"--files {name}=FOLDER). {ORIGINALS[name]} stands in: its numbers are not those of "
            "the paper's data"
            for name in sorted(names & set(ORIGINALS) - set(self.files))
        ]


def chosen(words: Sequence[str]) -> list[Cell]:
    """The cells that are meant: items, rows of them, single cells; all of them by `all`."""
    found: list[Cell] = []
    for word in words:
        mine = [
            cell
            for cell in CELLS
            if word in ("all", cell.item, f"{cell.item}/{cell.row}", cell.name)
        ]
        if not mine:
            raise UnknownName(f"unknown item {shown(word)}. {_near(word)}")
        found += mine
    return list(dict.fromkeys(found))


def _near(word: str) -> str:
    """The names that come next: cells of the same row or item, or the items."""
    names = [name for cell in CELLS for name in (f"{cell.item}/{cell.row}", cell.name)]
    inside = [name for name in names if name.startswith(word.split("/")[0] + "/")]
    close = difflib.get_close_matches(word, inside, n=4, cutoff=0.3)
    known = ", ".join([*ITEMS, "settings"])
    return f"Near it: {', '.join(dict.fromkeys(close))}" if close else f"Known: {known}; or all"


def tasks(cells: Sequence[Cell], data: Data, way: Way, seeds: Sequence[int]) -> list[Task]:
    """The runs behind some cells, cheapest first and IPOT's own before all others."""
    groups: dict[Job | Cell, list[Cell]] = {}
    for cell in cells:
        if not cell.impossible:
            groups.setdefault(data.job(cell) if cell.job else cell, []).append(cell)
    found = []
    for key, mine in groups.items():
        job = key if isinstance(key, Job) else None
        for seed in seeds if job else (0,):
            found.append(Task(job=job, seed=seed, way=way, cells=tuple(mine)))
    return sorted(found, key=_order)


def _order(task: Task) -> tuple[bool, bool, float]:
    if task.job is None:
        return True, False, 0.0
    known, _ = minutes(task.job, gpu=True)
    return False, task.job.model != "ipot", known if known is not None else 1e6


def shard(found: Sequence[Task], words: str | None) -> list[Task]:
    """Every N-th task, from the I-th on: I/N, counted from 1."""
    if words is None:
        return list(found)
    first, slash, count = words.partition("/")
    if not (slash and first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise Unsupported(f"--shard must be I/N with 1 <= I <= N, like 2/4, got {shown(words)}")
    return list(found)[int(first) - 1 :: int(count)]


def left(task: Task, known: Sequence[Record]) -> Task | None:
    """What of a task is not in the ledger yet; None where nothing is."""
    record = next((r for r in known if r["id"] == task.identity), None)
    if record is None:
        return task
    if task.job is None:
        done = record["numerics"] == records.NUMERICS and record["outcome"] == records.ENDED
        return None if done else task
    if records.stale(record, task.job, task.way):
        return task
    if record["outcome"].startswith("diverged"):  # the same again would diverge again
        return None
    cells = tuple(cell for cell in task.cells if cell.asks not in record["tests"])
    return replace(task, cells=cells) if cells else None


def cost(task: Task, *, gpu: bool) -> tuple[float | None, str]:
    """About how many minutes a task takes on this device, and where that number comes from."""
    if task.way.small:
        return SMALL, "small"
    if task.job is None:
        return MEASURING, "about"
    if task.way.minutes is not None:
        return task.way.minutes, "its budget, without set-up"
    return minutes(task.job, gpu=gpu)


def results(cells: Sequence[Cell], known: Sequence[Record], data: Data, way: Way) -> list[Result]:
    """What there is of every cell: by its published schedule, else in the largest budget."""
    budgets = {r["way"] for r in known if r["way"].endswith(" min")}
    sizes = sorted((float(words.removesuffix(" min")) for words in budgets), reverse=True)
    ways = [way] if way.small else [Way(), *(Way(minutes=size) for size in sizes)]
    names = {record["job"] for record in known}
    found = []
    for cell in cells:
        if cell.job is None:
            found.append(records.measured(cell, known, replace(way, minutes=None)))
            continue
        # Published files that somebody has run with are better than any stand-in.
        real = replace(cell.job, files="recorded")
        job = real if real.name in names else data.job(cell)
        found.append(records.result(cell, job, known, ways))
    return found
