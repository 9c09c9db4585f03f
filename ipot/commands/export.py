"""`ipot export`: a trained model as one file that runs elsewhere."""

from __future__ import annotations

from typing import Any

from ipot.api import load
from ipot.commands.flags.export import Export
from ipot.commands.output import emit, refuse_there, say
from ipot.commands.parsing import parse
from ipot.data.layout import Layout
from ipot.data.scaling import Scaling
from ipot.errors import Unsupported
from ipot.report.tables import bytes_
from ipot.saved.export import export
from ipot.saved.parts_folder import export_parts


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Export, arguments, "export")
    refuse_there(flags.out, overwrite=flags.overwrite)
    surrogate = load(flags.folder, device="cpu", trusted=flags.trust, edited=flags.edited)
    layout = surrogate.layout
    how: dict[str, Any] = {
        **({} if flags.tolerance is None else {"tolerance": flags.tolerance}),
        "origin": layout.origin,
        "scalings": _beside_origin(layout),
        "points": not layout.alone,
    }
    if flags.parts:
        refuse_beside_parts(flags)
        summary = export_parts(surrogate.model, surrogate.spec, flags.out, **how)
    else:
        format = flags.format or flags.out.suffix.removeprefix(".")
        how |= {"format": format, "steps": flags.steps, "say": say}
        summary = export(surrogate.model, surrogate.spec, flags.out, **how)
    if flags.json:
        emit(summary)
        return
    say(
        f"{summary['path']}: {bytes_(summary['bytes'])}, within {summary['difference']:.1e} of the "
        f"model at {summary['combinations']} sizes drawn at random; {summary['facts']} says how to "
        "call it"
    )


def refuse_beside_parts(flags: Export) -> None:
    """Refuse what means nothing beside --parts."""
    if flags.format not in (None, "onnx"):
        raise Unsupported(f"--format {flags.format}: parts are ONNX graphs. Leave it out.")
    if flags.steps is not None:
        raise Unsupported("--steps: parts take any number of steps. Leave it out.")


def _beside_origin(layout: Layout) -> dict[str, Scaling]:
    """The changes of units of a model that are more than one origin of all places."""
    found = layout.scalings()
    if not (layout.origin_scale or layout.query_origin or layout.query_scale):
        found = {n: s for n, s in found.items() if n not in ("points", "queries")}
    return found
