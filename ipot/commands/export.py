"""`ipot export`: a trained model as one file that runs elsewhere."""

from __future__ import annotations

from ipot.api import load
from ipot.commands.flags.export import Export
from ipot.commands.output import emit, refuse_there, say
from ipot.commands.parsing import parse
from ipot.data.layout import Layout
from ipot.data.scaling import Scaling
from ipot.report.tables import bytes_
from ipot.saved.export import export


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Export, arguments, "export")
    refuse_there(flags.out, overwrite=flags.overwrite)
    surrogate = load(flags.folder, device="cpu", trusted=flags.trust, edited=flags.edited)
    layout = surrogate.layout
    summary = export(
        surrogate.model,
        surrogate.spec,
        flags.out,
        format=flags.format or flags.out.suffix.removeprefix("."),
        tolerance=flags.tolerance,
        origin=layout.origin,
        scalings=_beside_origin(layout),
        points=not layout.alone,
    )
    if flags.json:
        emit(summary)
        return
    say(
        f"{summary['path']}: {bytes_(summary['bytes'])}, within {summary['difference']:.1e} of the "
        f"model at {summary['combinations']} sizes drawn at random; {summary['facts']} says how to "
        "call it"
    )


def _beside_origin(layout: Layout) -> dict[str, Scaling]:
    """The changes of units of a model that are more than one origin of all places."""
    found = layout.scalings()
    if not (layout.origin_scale or layout.query_origin or layout.query_scale):
        found = {n: s for n, s in found.items() if n not in ("points", "queries")}
    return found
