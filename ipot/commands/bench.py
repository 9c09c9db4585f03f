"""`ipot bench`: how fast it is, always beside the plain version of the same mathematics."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from ipot import files, registry
from ipot.bench import generate, infer, scale, train
from ipot.bench.measuring import SECONDS, Terms, check_device, check_seconds
from ipot.bench.rows import PLAIN, Report, Row, geometric_mean
from ipot.bench.samples import check_count
from ipot.commands.common import parse, say, show, small_if_asked
from ipot.errors import DataError, shown
from ipot.recipes.experiment import experiment
from ipot.recipes.paper import TABLE
from ipot.report.style import SUFFIXES

Problems = Annotated[tuple[str, ...], tyro.conf.Positional]
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]


@dataclass(kw_only=True)
class Common:
    """Flags that all of them have."""

    device: str = "auto"
    """auto, cpu or cuda."""
    seconds: float = SECONDS
    """Time for one measurement, behind its warm-up."""
    json: File = None
    """Write all numbers there, with the machine, versions and commit."""
    small: bool = False
    """Sizes for a first look: a small problem and small systems."""


@dataclass(kw_only=True)
class Train(Common):
    """Time training steps on random data in the shape of a problem, ours and the plain version.

        ipot bench train darcy airfoil
        ipot bench train all --json train.json
        ipot bench train darcy --batch 4 --device cpu
        ipot bench train airfoil --ragged 0.5

    Ours is the trainer's own step, with all that it chooses by itself. The plain version has the
    same weights and batches: float32, eager, softmax(QK)V written out, features for every sample.
    `all` are the eight problems of the paper. Nothing is solved and nothing is kept.
    """

    problems: Problems
    """Problems, or all."""
    preset: str = "paper"
    """paper: the published settings; default: our own."""
    batch: int | None = None
    """Samples a step; the preset's unless said."""
    precision: Literal["auto", "float32", "bf16", "float64"] = "auto"
    """Of ours; the plain version is float32, or float64 beside float64."""
    step: Literal["auto", "eager", "compiled", "graph"] = "auto"
    """How our step runs; auto chooses as training does."""
    against: Literal["plain", "none"] = "plain"
    """What to hold it against."""
    ragged: float | None = None
    """Also time samples of uneven sizes, like 0.5: from half of the problem's points and queries to
    one and a half times as many, and as many in all. Uneven samples have no mesh in common, so they
    are held against equal ones that have meshes of their own too, and not against ours, which
    computes what depends on a shared mesh alone once for a batch."""


@dataclass(kw_only=True)
class OneProblem(Common):
    """Flags of those that time the answers of one problem's systems."""

    which: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[PROBLEM]", help_behavior_hint="(default: darcy)"),
    ] = None
    """The problem that the systems are built for."""
    problem: Annotated[
        str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="(default: darcy)")
    ] = None
    """The problem as a flag."""
    preset: str = "paper"
    """paper: the published settings; default: our own."""

    @property
    def asked(self) -> str:
        """The problem, in whichever way it was said."""
        if self.which and self.problem and self.which != self.problem:
            raise DataError(
                f"{self.which} and --problem {self.problem}: one problem is timed at a time; leave "
                "one of them out"
            )
        return self.which or self.problem or "darcy"


@dataclass(kw_only=True)
class Infer(OneProblem):
    """Time an answer: so many points in, so many queries out, for one sample unless said.

        ipot bench infer --points 1e6
        ipot bench infer --points 1e8 --against none
        ipot bench infer navier_stokes --points 1e5 --against plain,fno
        ipot bench infer --points 7225 --batch 4 --device cpu --precision bf16 --against plain

    Points lie anywhere in the domain, or on a grid for systems that need one. Other systems have
    the sizes of their recipes. What does not fit or cannot be asked is listed with the reason.
    """

    points: float = 1e6
    """Input points, like 1e6; at most 1e9."""
    queries: float | None = None
    """Queries of their own; at the input points unless said."""
    batch: int = 1
    """Samples at a time, on the same points."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """Of all but the plain version, which is float32; auto is bf16 on a GPU, float32 on a CPU."""
    against: str = "plain,transformer,fno,transolver,lno"
    """plain and names of systems, with commas between them; or none."""


@dataclass(kw_only=True)
class Scale(OneProblem):
    """Time answers from few points to many: ours, the plain version and the plain transformer.

        ipot bench scale --plot scaling.png
        ipot bench scale --from 1e3 --to 1e5 --per-decade 2 --device cpu

    A version that does not fit, or would take minutes, is left out from there on; nothing is
    extrapolated.
    """

    from_: Annotated[float, tyro.conf.arg(name="from")] = 1e3
    """Fewest points."""
    to: float | None = None
    """Most points; 1e8 on a GPU and 1e6 on a CPU unless said."""
    per_decade: int = 1
    """Sizes for every power of ten."""
    against: str = ",".join(scale.VERSIONS)
    """plain and names of systems, with commas between them; or none."""
    plot: File = None
    """Draw time and memory against points there: .png, .pdf or .svg."""


@dataclass(kw_only=True)
class Generate(Common):
    """Time our generators of data, and the same samples one by one on a CPU.

    ipot bench generate darcy burgers --count 50
    """

    problems: Problems
    """Problems, or all that are generated."""
    count: int | None = None
    """Samples together; on a GPU as many as are stored in one file, on a CPU four unless said."""


ABOUT = """
usage: ipot bench {train,infer,scale,generate} [...]    (ipot bench train --help tells more)

How fast it is on this machine, beside the plain version of the same mathematics.

  train     training steps on random data in the shape of a problem
  infer     an answer for up to 1e9 points
  scale     the same from few points to many, as a table and a plot
  generate  samples a second of the generators of data
"""


def main(arguments: list[str]) -> int:
    """Run the command."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name not in TASKS:
        helped = name in ("-h", "--help")
        unknown = f"ipot bench: unknown {shown(name)}\n\n" if name and not helped else ""
        print(unknown + cleandoc(ABOUT), file=sys.stdout if helped else sys.stderr)
        raise SystemExit(0 if helped else 2)
    kind, task = TASKS[name]
    flags = parse(kind, rest, f"bench {name}")
    check_seconds(flags.seconds)
    _check_file(flags.json)
    _check_file(getattr(flags, "plot", None), SUFFIXES)
    device = check_device(flags.device)
    measure = task(flags, device)
    terms = Terms.of(flags.device, flags.seconds, say)
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
        settings = small_if_asked(
            experiment(problem, "ipot", flags.preset), ["--small"] if flags.small else []
        )
        changes: dict[str, Any] = {"precision": flags.precision, "step": flags.step}
        if flags.batch is not None:
            changes["batch"] = flags.batch
        elif flags.small:
            changes["batch"] = min(settings.training.batch, settings.data.train)
        chosen.append(replace(settings, training=replace(settings.training, **changes)))
        train.check_training(chosen[-1], device, flags.ragged)

    def measure(terms: Terms) -> tuple[list[Row], dict[str, Any]]:
        plain = flags.against == "plain"
        rows = []
        for settings in chosen:
            rows += train.measure_training(settings, terms, plain=plain, ragged=flags.ragged)
        ratios = [row.ratio for row in rows if row.version == PLAIN and row.ratio]
        return rows, {"geometric_mean": geometric_mean(ratios)}

    return measure


def _infer(flags: Infer, device: torch.device) -> Measure:
    queries = None if flags.queries is None else check_count("queries", flags.queries)
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


TASKS: dict[str, tuple[type, Callable[[Any, torch.device], Measure]]] = {
    "train": (Train, _train),
    "infer": (Infer, _infer),
    "scale": (Scale, _scale),
    "generate": (Generate, _generate),
}


def _problems(names: tuple[str, ...], everything: list[str]) -> list[str]:
    return everything if names == ("all",) else list(dict.fromkeys(names))


def _check_file(path: Path | None, suffixes: tuple[str, ...] = ()) -> None:
    """Refuse a name that nothing can be written to, before any time is spent."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: there is no folder {path.absolute().parent}; make it first")
    if path.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file")
    if suffixes and path.suffix.lower() not in suffixes:
        raise DataError(f"--plot {path}: the name must end in {', '.join(suffixes)}")


def _show(report: Report, flags: Any) -> None:
    from ipot.report import benchmarks, plots, tables
    from ipot.report.benchmarks import scaling

    if flags.json is not None:
        files.write_json(flags.json, report.as_dict())
    columns, rows = benchmarks.cells(report)
    show(tables.table(benchmarks.heading(report), columns, rows))
    for line in benchmarks.remarks(report):
        print(line)
    plot = getattr(flags, "plot", None)
    if plot is not None and benchmarks.drawn(report.rows):
        title = f"{flags.asked}, preset {flags.preset}, {report.device}"
        plots.save(scaling(report.rows, title=title), plot)
    written = [str(path) for path in (flags.json, plot) if path is not None]
    if written:
        say(f"written: {', '.join(written)}")
