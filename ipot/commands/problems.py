"""`ipot problems`: what can be solved, one problem in full, and pictures of samples."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from ipot import registry
from ipot.commands.flags.problems import Problems
from ipot.commands.help import field_docs
from ipot.commands.output import Generation, emit, say, show
from ipot.commands.parsing import parse
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import DataError
from ipot.problems.base import Problem
from ipot.typed_json import to_dict

SAMPLES = 3
"""How many samples a picture of the gallery shows."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    named = bool(arguments) and not arguments[0].startswith("-")
    flags = parse(Problems, arguments[named:], "problems")
    names = [arguments[0]] if named else registry.names("problems")
    found = {name: registry.find("problems", name) for name in names}
    if flags.small:
        found = {name: problem.small() for name, problem in found.items()}
    if flags.gallery:
        _draw(found, flags)
        return
    rows = [_facts(name, problem) for name, problem in found.items()]
    if flags.json:
        emit(rows[0] if named else rows)
    elif named:
        _describe(rows[0])
    else:
        _list(rows)


def _list(rows: list[dict[str, Any]]) -> None:
    from ipot.report.tables import table

    columns = ["problem", "in → out", "points", "steps", "train/val/test", "symmetries", "data"]
    cells = [
        [
            f"{r['name']}\n{r['about']}",
            f"{r['channels']} → {r['outputs']}",
            r["points"],
            r["steps"],
            "/".join(str(v) for v in r["splits"].values()),
            ", ".join(r["symmetries"]) or "none",
            r["source"],
        ]
        for r in rows
    ]
    show(table("Problems", columns, cells))


def _describe(facts: dict[str, Any]) -> None:
    """One problem in full."""
    from ipot.report.tables import table

    units = facts["units"]
    outputs = [f"{o} ({u})" if u else o for o, u in zip(facts["output_names"], units, strict=True)]
    splits = ", ".join(f"{count} {split}" for split, count in facts["splits"].items())
    cells = [
        ["what", facts["about"]],
        ["data", facts["source"]],
        ["inputs", _names(facts["input_names"])],
        ["parameters", _names(facts["parameters"]) or "none"],
        ["outputs", _names(outputs)],
        ["points", f"{facts['points']} in {facts['dimension']} dimension(s)"],
        ["steps", f"{facts['steps']} of {facts['dt']:g}"],
        ["samples", splits],
        ["symmetries", ", ".join(facts["symmetries"]) or "none"],
        ["structure", ", ".join(facts["provides"]) or "none"],
        ["masks", ", ".join(facts["masks"]) or "those of any problem"],
        ["one sample", f"{facts['bytes']} bytes on disk" if facts["bytes"] else "not stored"],
        ["published files", "\n".join(facts["files"]) or "none"],
        ["--small", ", ".join(f"{k} {v}" for k, v in facts["small"].items()) or "as it is"],
    ]
    show(table(facts["name"], ["", ""], cells))
    settings = [
        [f"--problem.{name.replace('_', '-')}", str(value), facts["docs"].get(name, "")]
        for name, value in facts["settings"].items()
    ]
    show(table("Settings", ["flag", "default", "meaning"], settings))
    made = f"ipot generate {facts['name']} --small    " if facts["bytes"] else ""
    say(f"next: {made}ipot train {facts['name']} --small")


def _names(names: list[str]) -> str:
    """Names in a row; of many the first and the last."""
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]} … {names[-1]}"


def _facts(name: str, problem: Problem) -> dict[str, Any]:
    spec = problem.spec
    settings = to_dict(problem, infinite=True)
    units = [*spec.units, *[""] * (len(spec.outputs) - len(spec.units))]
    return {
        "name": name,
        "about": problem.about,
        "dimension": spec.dimension,
        "points": _points(problem),
        "channels": spec.channels,
        "input_names": list(spec.inputs),
        "outputs": len(spec.outputs),
        "output_names": list(spec.outputs),
        "units": units,
        "steps": spec.steps,
        "dt": spec.dt,
        "parameters": list(spec.parameters),
        "splits": dict(problem.sizes),
        "symmetries": list(spec.symmetries),
        "provides": sorted(need.name.lower() for need in spec.provides),
        "masks": list(problem.masks),
        "source": problem.source,
        "bytes": problem.bytes_each(problem.storage(None, None)) if problem.generated else 0,
        "files": list(problem.published),
        "small": dict(problem.reduced),
        "settings": settings,
        "docs": field_docs(type(problem)),
    }


def _points(problem: Problem) -> str:
    """The grid of the inputs in words."""
    side, shape = getattr(problem, "resolution", None), getattr(problem, "shape", None)
    if side is None or shape is None:
        return "scattered"
    return " x ".join(str(n) for n in shape(side))


def _draw(found: dict[str, Problem], flags: Problems) -> None:
    """A picture for each problem; one whose data are not at hand is left out, with the reason."""
    from ipot.report import plots
    from ipot.report.gallery import gallery

    if flags.out is None:
        raise DataError("--gallery needs --out DIR, a folder for the pictures")
    store, device, written = Store(flags.data), choose(flags.device), []
    for name, problem in found.items():
        problem = dataclasses.replace(problem, **problem.shown)
        report = partial(Generation(store, quiet=flags.quiet), "test")
        # Measured windows follow each other: take some from all over the split.
        count = SAMPLES if problem.generated else problem.sizes["test"]
        try:
            data = problem.load("test", count, store=store, device=device, report=report)
        except DataError as error:
            say(f"{name} is left out: {error}")
            continue
        chosen = [n * (count - 1) // (SAMPLES - 1) for n in range(SAMPLES)]
        figure = gallery([data[n] for n in chosen], problem.spec, name)
        written.append(str(plots.save(figure, flags.out / f"{name}.png")))
    if flags.json:
        emit(written)
    else:
        print("\n".join(written))
