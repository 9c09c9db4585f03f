"""`ipot generate`: fill the data folder, or write the published files."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ipot.commands.flags.generate import Generate
from ipot.commands.output import Generation, emit
from ipot.commands.parsing import parse_with_settings, split_names
from ipot.data.store import Fields, Store
from ipot.device import choose
from ipot.errors import DataError, UnknownName, Unsupported
from ipot.lock import is_blank, locked
from ipot.problems.base import SPLITS, GridProblem, Problem
from ipot.recipes.experiment import Experiment, experiment, small


def main(arguments: list[str]) -> None:
    """Run the command."""
    names, rest = split_names(arguments, ["problem"], Generate, "generate")
    base = experiment(names["problem"])
    base = small(base) if "--small" in rest else base
    command = f"generate {names['problem']}"
    settings, flags = parse_with_settings(base, Generate, rest, command, parts=("problem", "data"))
    with locked(flags.out, "generating") if flags.out is not None else nullcontext():
        _generate(settings, flags)


def _generate(settings: Experiment, flags: Any) -> None:
    _check(settings.problem, flags)
    made = {split: _fill(settings, split, flags) for split in flags.splits}
    rows = [row for row, _ in made.values()]
    written: list[Path] = []
    if flags.format == "original":
        splits = {split: fields for split, (_, fields) in made.items()}
        written = settings.problem.write(splits, flags.out)
    if flags.json:
        emit({"splits": rows, "files": [str(path) for path in written]} if written else rows)
        return
    for row in rows:
        size = f"{row['samples']:6d} samples  {row['megabytes']:9.1f} MB"
        print(f"{row['split']:>10}  {size}  {row['folder']}")
        if quality := row["quality"]:
            numbers = f"median {quality['median']:.2e}, worst {quality['worst']:.2e}"
            print(f"{'':>10}  {quality['name']}: {numbers}")
    for path in written:
        print(f"{'file':>10}  {path.stat().st_size / 1e6:9.1f} MB  {path}")


def whole(problem: Problem, asked: int | None) -> int | None:
    """The resolution that the published layout is written at.

    The nodes of a closed grid are those of all its cells: thinned, they would no longer say where
    they are. A periodic one can be written at any.
    """
    if asked is None and isinstance(problem, GridProblem) and not problem.periodic:
        return problem.nodes
    return problem.storage(asked, None)


def _check(problem: Problem, flags: Any) -> None:
    """Refuse before the work what cannot be done after it."""
    unknown = set(flags.splits) - set(SPLITS)
    if unknown or not flags.splits:
        raise UnknownName(f"unknown splits {sorted(unknown)}. Known: {', '.join(SPLITS)}")
    if not problem.generated:
        raise Unsupported(
            f"{problem.name} is measured: there is nothing to generate. "
            f"`ipot train {problem.name}` reads its data."
        )
    if problem.files is not None:
        raise Unsupported("--problem.files is for reading: leave it out to generate the data")
    original = flags.format == "original"
    if original and not problem.published:
        raise Unsupported(f"{problem.name} has no published layout to write: leave --format out")
    if original != (flags.out is not None):
        raise Unsupported("--format original and --out DIR go together: give both or neither")
    if original and not is_blank(flags.out):
        raise DataError(
            f"{flags.out} is not empty: files there would be replaced or mixed with these. Choose "
            "another --out, or empty it; all --splits are written together."
        )


def _fill(settings: Experiment, split: str, flags: Any) -> tuple[dict[str, Any], Fields]:
    """One split, where it lies and how well it converged."""
    problem, count, store = settings.problem, getattr(settings.data, split), Store(flags.data)
    if count < 1:
        raise DataError(f"the {split} split needs at least one sample, got {count}")
    seed, device, report = (
        settings.data.seed,
        choose(flags.device),
        Generation(store, quiet=flags.quiet),
    )
    original, asked = flags.format == "original", flags.resolution
    stored = whole(problem, asked) if original else problem.storage(asked, None)
    fields = problem.fetch(
        split, count, stored, store, seed, device, lambda *progress: report(split, *progress)
    )
    folder = store.folder(problem.recipe(split, seed, stored))
    row = {
        "split": split,
        "samples": count,
        "folder": str(folder),
        "megabytes": sum(file.stat().st_size for file in folder.glob("*.*")) / 1e6,
        "quality": _quality(problem, fields),
    }
    return row, fields


def _quality(problem: Problem, fields: Fields) -> dict[str, Any] | None:
    """Median and worst of the field that records convergence, where there is one."""
    if not problem.quality:
        return None
    found = fields[problem.quality].double()
    median, worst = float(found.quantile(0.5)), float(found.max())
    return {"name": problem.quality, "median": median, "worst": worst}
