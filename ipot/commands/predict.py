"""`ipot predict`: answer at any queries for inputs from a file."""

from __future__ import annotations

from pathlib import Path

from ipot.api import load
from ipot.commands.flags.predict import Predict
from ipot.commands.output import emit, refuse_there, say
from ipot.commands.parsing import data_given, parse, without_old_input
from ipot.errors import DataError
from ipot.surrogate.files import answer_files


def main(arguments: list[str]) -> None:
    """Run the command."""
    arguments, old = without_old_input(arguments, "predict")
    flags = parse(Predict, arguments, "predict")
    cases = data_given(flags.cases, old)
    if cases is None:
        raise DataError(
            f"what is to be answered? Give a file or a folder: ipot predict {flags.run} case.npz "
            f"--out {flags.out}"
        )
    surrogate = load(flags.run, device=flags.device, trusted=flags.trust, edited=flags.edited)
    _refuse_own_input(flags, cases)
    refuse_there(flags.out, overwrite=flags.overwrite)
    summary = answer_files(
        surrogate,
        cases,
        flags.out,
        queries=flags.queries,
        grid=flags.grid,
        all_times=flags.all_times,
        interval=flags.interval,
        steps=flags.steps,
        fill=flags.fill,
        rows=flags.rows,
        precision=flags.precision,
    )
    if flags.json:
        emit(summary)
        return
    shape = f", shape {tuple(summary['shape'])}" if "shape" in summary else ""
    say(f"{flags.out}: {summary['cases']} case(s), {', '.join(summary['outputs'])}{shape}")


def _refuse_own_input(flags: Predict, cases: Path) -> None:
    """Refuse to write the answer over what it is made from."""
    output = flags.out.resolve()
    for source in (cases, flags.queries):
        if source is None:
            continue
        inside = source.is_dir() and output.parent == source.resolve() and output.exists()
        if output == source.resolve() or inside:
            raise DataError(f"{flags.out} is among the inputs: choose another --out")
