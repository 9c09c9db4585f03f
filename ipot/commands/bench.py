"""`ipot bench`: how fast it is, always beside the plain version of the same mathematics."""

from __future__ import annotations

import mimetypes
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from inspect import cleandoc
from pathlib import Path
from typing import Any

import torch

from ipot import files, registry
from ipot.bench import generate, infer, scale, serve, train
from ipot.bench.measuring import Terms, check_device, check_seconds
from ipot.bench.rows import PLAIN, Report, Row, geometric_mean
from ipot.bench.samples import check_count
from ipot.commands.flags.bench import ABOUT, FLAGS, Generate, Infer, Scale, Serve, Train
from ipot.commands.output import emit, refuse_there, say, show
from ipot.commands.parsing import parse
from ipot.errors import DataError, shown
from ipot.recipes.experiment import experiment, small
from ipot.recipes.paper import TABLE
from ipot.report.style import SUFFIXES


def main(arguments: list[str]) -> int:
    """Run the command."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name not in TASKS:
        unknown = f"ipot bench: unknown {shown(name)}\n\n" if name else ""
        print(unknown + cleandoc(ABOUT), file=sys.stderr)
        raise SystemExit(2)
    task = TASKS[name]
    flags = parse(FLAGS[name], rest, f"bench {name}")
    check_seconds(flags.seconds)
    for path in flags.out:
        _check_file(path, drawn=name == "scale", overwrite=flags.overwrite)
    device = check_device(flags.device)
    measure = task(flags, device)
    terms = Terms.of(flags.device, flags.seconds, (lambda text: None) if flags.quiet else say)
    rows, summary = measure(terms)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    command = shlex.join(["ipot", "bench", *arguments])
    report = Report(
        task=name, command=command, device=where, ceilings=terms.top, rows=rows, summary=summary
    )
    _show(report, flags)
    return 0 if any(row.ms is not None for row in rows) else 1


Measure = Callable[[Terms], tuple[list[Row], dict[str, Any]]]


def _train(flags: Train, device: torch.device) -> Measure:
    """All settings, checked before the first of them is measured."""
    chosen = []
    for problem in _problems(flags.problems, list(TABLE)):
        settings = experiment(problem, "ipot", flags.preset)
        settings = small(settings) if flags.small else settings
        changes: dict[str, Any] = {"precision": flags.precision, "step": flags.step}
        if flags.batch is not None:
            changes["batch"] = flags.batch
        elif flags.small:
            changes["batch"] = min(settings.training.batch, settings.data.train)
        chosen.append(replace(settings, training=replace(settings.training, **changes)))
        train.check_training(chosen[-1], device, flags.ragged)

    def measure(terms: Terms) -> tuple[list[Row], dict[str, Any]]:
        plain = flags.against == ("plain",)
        rows = []
        for settings in chosen:
            rows += train.measure_training(settings, terms, plain=plain, ragged=flags.ragged)
        ratios = [row.ratio for row in rows if row.version == PLAIN and row.ratio]
        return rows, {"geometric_mean": geometric_mean(ratios)}

    return measure


def _infer(flags: Infer, device: torch.device) -> Measure:
    queries = (
        None if flags.query_points is None else check_count("query-points", flags.query_points)
    )
    question = infer.Question(
        problem=flags.asked,
        preset=flags.preset,
        points=check_count("points", flags.points),
        queries=queries,
        batch=flags.batch,
        small=flags.small,
        precision=flags.precision,
    )
    against = infer.rivals(flags.against)
    infer.check_question(question, device)
    return lambda terms: (infer.measure_inference(question, terms, against=against), {})


def _scale(flags: Scale, device: torch.device) -> Measure:
    most = flags.to if flags.to is not None else 1e8 if device.type == "cuda" else 1e6
    counts = scale.sizes(flags.from_, most, flags.per_decade)
    question = infer.Question(
        problem=flags.asked, preset=flags.preset, points=counts[-1], small=flags.small
    )
    against = infer.rivals(flags.against)
    infer.check_question(question, device)

    def measure(terms: Terms) -> tuple[list[Row], dict[str, Any]]:
        rows = scale.measure_scaling(question, counts, terms, against=against)
        return rows, scale.summary(rows)

    return measure


def _generate(flags: Generate, device: torch.device) -> Measure:
    known = [n for n in registry.names("problems") if registry.find("problems", n).generated]
    found = {name: registry.find("problems", name) for name in _problems(flags.problems, known)}
    if flags.small:
        found = {name: problem.small() for name, problem in found.items()}
    for name, problem in found.items():
        generate.check_generation(name, problem, flags.count)

    def measure(terms: Terms) -> tuple[list[Row], dict[str, Any]]:
        rows = []
        for name, problem in found.items():
            rows += generate.measure_generation(name, problem, terms, count=flags.count)
        return rows, {}

    return measure


def _serve(flags: Serve, device: torch.device) -> Measure:
    load = serve.Load(
        model=flags.served or "",
        clients=flags.clients,
        points=check_count("points", flags.points),
        words=("--device", flags.device),
    )
    serve.check_load(load)

    def measure(terms: Terms) -> tuple[list[Row], dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="ipot-bench-") as folder:
            given = flags.served or str(_as_drawn(Path(folder), small_one=flags.small))
            return serve.measure_serving(replace(load, model=given), terms)

    return measure


def _as_drawn(folder: Path, *, small_one: bool) -> Path:
    """A model as it is before it is trained: its answers take as long."""
    from ipot.recipes.experiment import build
    from ipot.surrogate.surrogate import Surrogate

    settings = experiment("darcy")
    settings = small(settings) if small_one else settings
    Surrogate.of_experiment(build(settings), settings).save(folder / "darcy")
    return folder / "darcy"


TASKS: dict[str, Callable[[Any, torch.device], Measure]] = {
    "train": _train,
    "infer": _infer,
    "scale": _scale,
    "generate": _generate,
    "serve": _serve,
}


def _problems(names: tuple[str, ...], everything: list[str]) -> list[str]:
    return everything if names == ("all",) else list(dict.fromkeys(names))


def _check_file(path: Path, *, drawn: bool, overwrite: bool) -> None:
    """Refuse a name that nothing can be written to, before any time is spent."""
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: there is no folder {path.absolute().parent}; make it first")
    if path.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file")
    if _is_picture(path) and not drawn:
        raise DataError(f"--out {path}: only `ipot bench scale` draws; the name must end in .json")
    if _is_picture(path) and path.suffix.lower() not in SUFFIXES:
        raise DataError(f"--out {path}: the name must end in {', '.join(SUFFIXES)}, or in .json")
    refuse_there(path, overwrite=overwrite)


def _is_picture(path: Path) -> bool:
    guess = mimetypes.guess_type(path.name)[0] or ""
    return guess.startswith("image/") or path.suffix.lower() in SUFFIXES


def _show(report: Report, flags: Any) -> None:
    from ipot.report import benchmarks, plots, tables
    from ipot.report.benchmarks import scaling

    pictures = [path for path in flags.out if _is_picture(path)]
    if not benchmarks.drawn(report.rows):
        pictures = []
    for path in pictures:
        title = f"{flags.asked}, preset {flags.preset}, {report.device}"
        plots.save(scaling(report.rows, title=title), path)
    numbers = [path for path in flags.out if not _is_picture(path)]
    for path in numbers:
        files.write_json(path, report.as_dict())
    if flags.json:
        emit(report.as_dict())
    else:
        columns, rows = benchmarks.cells(report)
        show(tables.table(benchmarks.heading(report), columns, rows))
        for line in benchmarks.remarks(report):
            print(line)
    if numbers or pictures:
        say(f"written: {', '.join(map(str, [*numbers, *pictures]))}")
