"""`ipot reproduce`: the paper's tables and figures, ours beside the printed numbers."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import torch

from ipot import files
from ipot.commands.flags.reproduce import Reproduce
from ipot.commands.output import Generation, emit, say, show
from ipot.commands.parsing import parse
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import RunError, UnknownName, Unsupported, shown
from ipot.recipes.ledger import add
from ipot.reproduce import plan, records
from ipot.reproduce.items import CELLS, ITEMS, Cell
from ipot.reproduce.jobs import ORIGINALS, Way
from ipot.reproduce.plan import Data, Task
from ipot.reproduce.records import Result
from ipot.training.trainer import Stopped


def main(arguments: list[str]) -> int:
    """Run the command."""
    flags = parse(Reproduce, arguments, "reproduce")
    words = [word for word in flags.items if word != "settings"]
    if len(words) < len(flags.items):
        from ipot.reproduce import settings

        print(settings.markdown())
        if not words:
            return 0
    if not words and not flags.list and not flags.merge:
        known = ", ".join([*ITEMS, "settings"])
        raise UnknownName(f"name what to reproduce: {known}; or all. --list shows every cell")
    cells = plan.chosen(words) if words else list(CELLS)
    out = flags.out or Path("runs") / ("reproduction-small" if flags.small else "reproduction")
    ledger = flags.record or (
        out / "reproduction-ledger.json" if flags.small else Path("results/reproduction.json")
    )
    way, data = Way(minutes=flags.minutes, small=flags.small), Data(files=_files(flags.files))
    for other in flags.merge:
        taken = _merged(other, ledger)
        say(f"{taken} records of {other} are in {ledger}")
    known = records.read(ledger)
    if not words and not flags.list:
        return 0
    if flags.list:
        _list(plan.results(cells, known, data, way), flags, way)
        return 0
    found = plan.shard(plan.tasks(cells, data, way, flags.seeds), flags.shard)
    waiting = [task for task in found if plan.left(task, known)]
    _announce(cells, found, waiting, flags, data)
    command = shlex.join(["ipot", "reproduce", *arguments])
    try:
        _run(found, out, ledger, command, flags)
    except (Stopped, KeyboardInterrupt) as stop:
        say(f"ipot reproduce: stopped; the same command goes on: {command}")
        return 128 + getattr(stop, "signal", signal.SIGINT)
    finally:
        _write(cells, out, ledger, data, way, Store(flags.data), flags.device)
    results = plan.results(cells, records.read(ledger), data, way)
    _list(results, flags, way)
    say(f"written: {out}/reproduction.md, .json and .tex")
    return 0


def _merged(other: Path, ledger: Path) -> int:
    """Take over the records of another ledger, each of them whole."""
    if not other.is_file():
        raise RunError(f"--merge {other}: there is no such file")
    found = records.read(other)
    records.read(ledger)
    add(ledger, found, replacing=True)
    return len(found)


def _files(words: tuple[str, ...]) -> dict[str, str]:
    """Folders by problem."""
    problems = {cell.job.problem for cell in CELLS if cell.job} | set(ORIGINALS)
    found = {}
    for word in words:
        name, equal, folder = word.partition("=")
        if not equal or name not in problems or not folder:
            known = ", ".join(sorted(problems))
            raise Unsupported(
                f"--files must be PROBLEM=FOLDER with one of {known}, got {shown(word)}"
            )
        found[name] = folder
    return found


def _announce(
    cells: list[Cell], found: list[Task], waiting: list[Task], flags: Reproduce, data: Data
) -> None:
    """Say what will be run, and for how long, before anything is."""
    from ipot.report import tables

    place = choose(flags.device)
    gpu = place.type == "cuda"
    costs = {task.identity: plan.cost(task, gpu=gpu) for task in waiting}
    if not flags.quiet and waiting:
        rows = [
            [
                task.identity,
                "unknown"
                if (known := costs[task.identity][0]) is None
                else tables.seconds(60 * known),
                costs[task.identity][1],
                ", ".join(cell.name for cell in task.cells[:3]) + ", ..." * (len(task.cells) > 3),
            ]
            for task in waiting
        ]
        show(tables.table("to run", ["run", "about", "estimated for", "serves"], rows))
    total = sum(known for known, _ in costs.values() if known is not None)
    unknown = sum(known is None for known, _ in costs.values())
    where = torch.cuda.get_device_name(place) if gpu else "this CPU"
    say(
        f"{len(waiting)} of {len(found)} runs are left, about {tables.seconds(60 * total)} on "
        f"{where}" + f", and {unknown} of unknown length" * bool(unknown)
    )
    for cell in cells:
        if cell.impossible:
            say(f"{cell.name} is left out: {cell.impossible}")
    for sentence in data.missing(cells):
        say(sentence)


def _run(found: list[Task], out: Path, ledger: Path, command: str, flags: Reproduce) -> None:
    """Run what the ledger lacks; another process may have added to it meanwhile."""
    from ipot.reproduce import running

    store = Store(flags.data)
    place = running.Place(
        out=out,
        ledger=ledger,
        store=store,
        device=flags.device,
        command=command,
        quiet=flags.quiet,
        report=Generation(store, quiet=flags.quiet),
    )
    for number, task in enumerate(found, 1):
        rest = plan.left(task, records.read(ledger))
        if rest is None:
            running.draw(task, place)
            continue
        if not flags.quiet:
            say(f"{task.identity} ({number} of {len(found)})")
        outcome = running.execute(rest, place)
        if not flags.quiet:
            say(f"  {outcome}")


def _write(
    cells: list[Cell],
    out: Path,
    ledger: Path,
    data: Data,
    way: Way,
    store: Store,
    device: str,
) -> None:
    """Tables of what there is, and the figures that are made of measurements."""
    from ipot.reproduce import figures, measuring, tables

    results = plan.results(cells, records.read(ledger), data, way)
    items = list(dict.fromkeys(cell.item for cell in cells))
    pages = [f"## {item}\n\n{tables.markdown(item, results)}\n" for item in items]
    files.write_text(out / "reproduction.md", "\n".join(pages))
    files.write_text(out / "reproduction.tex", "\n".join(tables.latex(i, results) for i in items))
    files.write_json(out / "reproduction.json", tables.as_json(results, way))
    figures.scaling([r for r in results if r.cell.item == "figure5"], out / "figures/figure5.png")
    for result in results:
        if result.cell.item == "interpolated" and result.records:
            seen = measuring.masked_and_filled("era5", store, device, is_small=way.small)
            figures.interpolated(*seen, figures.path(out, result.cell))


def _list(results: list[Result], flags: Reproduce, way: Way) -> None:
    from ipot.report import tables
    from ipot.reproduce import tables as ours

    if flags.json:
        emit(ours.as_json(results, way))
        return
    gpu = choose(flags.device).type == "cuda"
    columns = ["cell", "ours", "paper", "state", "cost"]
    chosen = [ours.COLUMNS.index(name) for name in columns]
    rows = [[row[i] for i in chosen] for row in ours.details(results, gpu=gpu)]
    reasons = {}
    for row in rows:  # sentences would make the table wrap
        row[3], _, reason = row[3].partition(": ")
        if reason:
            reasons[row[0]] = reason
    show(tables.table("the paper", columns, rows))
    for name, reason in reasons.items():
        say(f"{name}: {reason}")
    say(f"{ours.STAND_IN}: made-up weather in place of ERA5; ?: a printed number in doubt")
    say("Each cell, row or table is run by its name: ipot reproduce " + results[0].cell.name)
