"""Commands to go on with, which work as they are printed: names are those of the file, quoted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ipot.formats.case import Trajectories, Variable
from ipot.formats.tally import FIELD, PARAMETER

OUT = "surrogate"
FRAMES = (4, 2, 1)
"""Frames in, and as many out: the most that the data allow."""


def fit_command(
    path: Path | str,
    *,
    inputs: Sequence[str] = (),
    targets: Sequence[str] = (),
    parameters: Sequence[str] = (),
    frames: int = 0,
) -> str:
    """The command that trains on these columns."""
    words = ["ipot", "fit", str(path)]
    told = {"--inputs": inputs, "--parameters": parameters, "--targets": targets}
    for flag, names in told.items():
        words += [flag, *names] if names else []
    words += ["--history", str(frames), "--lead", str(frames)] if frames else []
    return shlex.join([*words, "--out", OUT])


def of_cases(path: str, variables: Sequence[Variable], *, cases: int, moving: bool) -> str:
    """A field from another, or from the numbers of a case, or from its places if they differ
    (`moving`). `variables` are those that can be learned from, of all cases."""
    if cases < 2:
        return ""
    fields = [v for v in variables if v.role.startswith(FIELD)]
    points = [v.name for v in fields if v.role == FIELD]
    cells = [v.name for v in fields if v.role != FIELD]
    numbers = [v.name for v in variables if v.role.startswith(PARAMETER)]
    pool = next((p for p in (points, cells) if len(p) > 1), [*points, *cells])
    if len(set(pool)) > 1:
        return fit_command(path, inputs=pool[:1], targets=pool[-1:])
    if pool and (numbers or moving):
        return fit_command(path, parameters=numbers, targets=pool[:1])
    return ""


def of_trajectories(path: str, found: Trajectories, whole: Sequence[str]) -> str:
    """The next frames of a field from its last; `whole` are fields without missing values."""
    moving = [n for n in whole if not found.fields[n].steady]
    # Windows of one trajectory alone are cut in time, and the later share no frame with the others.
    least = 4 if len(found) == 1 else 2
    frames = next((k for k in FRAMES if len(found.times) >= least * k), 0)
    return fit_command(path, targets=moving[:1], frames=frames) if moving and frames else ""
