"""Trajectories on one grid as samples: windows of frames in, the frames after them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipot.data.argument_checks import whole
from ipot.data.own import Dataset, InTime
from ipot.data.quantities import Agreement
from ipot.errors import DataError
from ipot.formats.case_units import trajectories_in_units
from ipot.formats.fields import Trajectories, TrajectoryField
from ipot.formats.limits import check_memory
from ipot.formats.roles import unknown
from ipot.spec import Spec

KIND = "trajectories"


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """Samples of frames, and which frames of which trajectory each one is of."""

    data: Dataset
    owners: np.ndarray
    starts: np.ndarray
    span: int
    """Frames from the first of a window to its last."""
    columns: dict[str, Any]
    """What the model needs to be told again when it is asked."""


def windows_of(
    source: Trajectories,
    *,
    inputs: Sequence[str] = (),
    targets: Sequence[str] = (),
    parameters: Sequence[str] | None = None,
    history: int = 1,
    lead: int = 1,
    every: int = 1,
    stride: int | None = None,
    name: str = "own data",
) -> Windows:
    """Samples of `history` frames in and `lead` out, `every` frames apart.

    Targets are all fields that change by default, inputs the targets. Windows start `stride`
    frames apart, or one after the other.
    """
    history, lead, every = whole("history", history), whole("lead", lead), whole("every", every)
    stride = None if stride is None else whole("stride", stride)
    moving = [n for n, f in source.fields.items() if not f.steady]
    targets = _known(source, targets or moving, "target")
    inputs = _known(source, inputs or targets, "input")
    scalars = list(source.parameters) if parameters is None else list(parameters)
    span = (history + lead - 1) * every + 1
    frames = len(source.times)
    if frames < span:
        raise DataError(
            f"{source.source}: {history} frames in and {lead} out, {every} apart, take {span} "
            f"frames, and trajectories have {frames}. Lower --history, --lead or --every."
        )
    starts = range(0, frames - span + 1, stride or lead * every)
    names = {"inputs": inputs, "targets": targets, "parameters": scalars}
    columns = {"kind": KIND, "history": history, "lead": lead, "every": every} | names
    out = sum(len(source.fields[n].components) for n in targets)
    rows = len(source) * len(starts) * len(source.points)
    numbers = len(_channels(source, inputs, history)) + lead * out
    # As they are in the file, and once more in float32.
    stored = np.result_type(*(source.fields[n].dtype for n in dict.fromkeys((*inputs, *targets))))
    check_memory(f"the windows of {source.source}", (stored.itemsize + 4) * rows * numbers)
    values, answers, owners = [], [], []
    for trajectory in range(len(source)):
        read = {n: source.fields[n].read(trajectory) for n in dict.fromkeys((*inputs, *targets))}
        for start in starts:
            past = [start + every * i for i in range(history)]
            ahead = [past[-1] + every * (i + 1) for i in range(lead)]
            values.append(_frames(source, read, inputs, past))
            told = [np.concatenate([read[n][t] for n in targets], -1) for t in ahead]
            answers.append(np.stack(told))
            owners.append(trajectory)
    numbered = _scalars(source, scalars)
    told = {
        c: source.units[n] for n in targets if n in source.units for c in _components(source, n)
    } | {c: source.units.get(n, "") for n in inputs for c in _channels(source, [n], history)}
    data = Dataset.from_arrays(
        points=source.points,
        values=np.stack(values),
        targets=np.stack(answers),
        times=[float(i + 1) for i in range(lead)],
        parameters=None if numbered is None else numbered[owners],
        inputs=_channels(source, inputs, history),
        outputs=[c for n in targets for c in source.fields[n].components],
        parameter_names=scalars or None,
        units={c: unit for c, unit in told.items() if unit} or None,
        periods=source.periods or None,
        name=name,
    )
    data.in_time = InTime(lines(columns))
    return Windows(
        data=data,
        owners=np.asarray(owners),
        starts=np.tile(np.asarray(starts), len(source)),
        span=span,
        columns=columns,
    )


def lines(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """What comes in at which frames, and what comes out at which."""
    history, lead, every = (int(columns[n]) for n in ("history", "lead", "every"))
    apart = f", every {every} steps of the file" if every > 1 else ""

    def frames(first: int, last: int) -> str:
        count = last - first + 1
        said = [f"t{every * i:+d}" if i else "t" for i in dict.fromkeys((first, last))]
        plural = "" if count == 1 else "s"
        return f"{' .. '.join(said)} ({count} frame{plural}{apart if count > 1 else ''})"

    numbers = columns["parameters"]
    beside = f"; parameters: {', '.join(numbers)}" if numbers else ""
    return (
        f"in: {', '.join(columns['inputs'])} at {frames(1 - history, 0)}{beside}",
        f"out: {', '.join(columns['targets'])} at {frames(1, lead)}",
    )


def as_trained(source: Trajectories, columns: Mapping[str, Any], spec: Spec) -> Trajectories:
    """Trajectories in the units that a model was trained in."""
    units = dict(zip(spec.inputs, spec.input_units, strict=False))
    units |= dict(zip(spec.outputs, spec.units, strict=False))
    wanted = {}
    for name in dict.fromkeys((*columns["inputs"], *columns["targets"])):
        for component in _components(source, name)[:1]:
            wanted[name] = units.get(component) or units.get(f"{component}[0]", "")
    agreed = Agreement("the model")
    found = trajectories_in_units(source, wanted, agreed)
    agreed.say()
    return found


def latest(source: Trajectories, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The last frames of every trajectory, as a model that was trained on windows takes them."""
    history, every = int(columns["history"]), int(columns["every"])
    inputs = _known(source, columns["inputs"], "input")
    past = [len(source.times) - 1 - every * i for i in reversed(range(history))]
    if past[0] < 0:
        raise DataError(
            f"{source.source} has {len(source.times)} frames, and the model takes {history}, "
            f"{every} apart"
        )
    values = []
    for trajectory in range(len(source)):
        read = {n: source.fields[n].read(trajectory) for n in inputs}
        values.append(_frames(source, read, inputs, past))
    given = {"points": source.points, "values": np.stack(values)}
    numbers = _scalars(source, columns["parameters"])
    return given if numbers is None else given | {"parameters": numbers}


def carried_on(
    source: Trajectories, columns: Mapping[str, Any], answer: np.ndarray
) -> Trajectories:
    """Answers (S, T, N, K) as trajectories on the grid of the frames that they come from."""
    times = after(source, columns, answer.shape[1])
    fields, first = {}, 0
    for name in columns["targets"]:
        components = _components(source, name)
        part = answer[..., first : first + len(components)]
        first += len(components)
        fields[name] = TrajectoryField(
            shape=part.shape,
            dtype=part.dtype,
            components=components,
            steady=False,
            pieces=lambda trajectory, chosen, part=part: part[trajectory, chosen],
        )
    return replace(source, fields=fields, times=times, notes=())


def after(source: Trajectories, columns: Mapping[str, Any], steps: int) -> np.ndarray:
    """The times of so many steps after the last frame."""
    gaps = np.diff(source.times)
    step = float(gaps.mean()) if len(gaps) else 1.0
    return source.times[-1] + step * int(columns["every"]) * np.arange(1, steps + 1)


def _frames(
    source: Trajectories, read: Mapping[str, np.ndarray], inputs: Sequence[str], past: list[int]
) -> np.ndarray:
    """Channels (N, C): frame by frame from the oldest, then what is steady."""
    moving = [n for n in inputs if not source.fields[n].steady]
    given = [read[n][t] for t in past for n in moving]
    given += [read[n][0] for n in inputs if source.fields[n].steady]
    return np.concatenate(given, -1)


def _channels(source: Trajectories, inputs: Sequence[str], history: int) -> list[str]:
    """The names of the same."""
    moving = [c for n in inputs if not source.fields[n].steady for c in _components(source, n)]
    lags = [f"{c}[{i - history + 1}]" for i in range(history) for c in moving]
    steady = [c for n in inputs if source.fields[n].steady for c in _components(source, n)]
    return [*(lags if history > 1 else moving), *steady]


def _components(source: Trajectories, name: str) -> tuple[str, ...]:
    return source.fields[name].components if name in source.fields else ()


def _scalars(source: Trajectories, names: Sequence[str]) -> np.ndarray | None:
    """Numbers of every trajectory (S, P)."""
    for name in names:
        if name not in source.parameters:
            raise unknown(name, "parameter", source.source, list(source.parameters))
    return np.stack([source.parameters[n] for n in names], -1) if names else None


def _known(source: Trajectories, names: Sequence[str], what: str) -> list[str]:
    for name in names:
        if name not in source.fields:
            raise unknown(name, f"{what} field", source.source, list(source.fields))
    if not names:
        raise DataError(f"{source.source} has no field that changes in time: name the {what}s")
    return list(names)
