"""What the server says of a model: what goes in and out, how good it is, what may be asked."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipot.serve import truth
from ipot.serve.limits import Limits
from ipot.serve.models import Served

if TYPE_CHECKING:
    from ipot.problems.base import Problem
    from ipot.spec import Spec
    from ipot.surrogate.surrogate import Surrogate

MOST_CARD = 1 << 20
CARD = "README.md"
COUNTED = ("values", "targets", "parameters", "points")
SPEC = (
    *("dimension", "query_dimension", "inputs", "outputs", "parameters", "history", "steps", "dt"),
    *("domain", "query_domain", "periods", "query_periods", "sphere", "geographic", "shape"),
    *("units", "input_units", "parameter_units"),
)


def facts_of(served: Served, limits: Limits) -> dict[str, Any]:
    """All that a client may want to know of a model; it is loaded for it."""
    if "facts" not in served.kept:
        served.kept["facts"] = _facts(served, limits)
    return served.kept["facts"]


def _facts(served: Served, limits: Limits) -> dict[str, Any]:
    model = served.model()
    problem = None if model.problem is None else model.problem.name
    return {
        "name": served.name,
        "problem": problem,
        "title": served.title or served.name,
        "shipped": served.shipped,
        "spec": {name: _plain(getattr(model.spec, name)) for name in SPEC},
        "settings": settings_of(model.problem),
        "ranges": ranges_of(model),
        "usual": ranges_of(model, usual=True),
        "seen": seen_by(model),
        "alone": model.layout.alone,
        "box": box_of(model),
        "error": _plain(model.scores),
        "bounds": model.bounds is not None,
        "highest_level": None if model.bounds is None else float(model.bounds.highest_level),
        "series": model.series is not None,
        "samples": count_of(served),
        "solver": truth.why_not(problem) is None,
        "card": _card(served.folder),
        "limits": limits.as_dict(),
    }


def settings_of(problem: Problem | None) -> dict[str, Any]:
    """The settings of a problem of the package; where its files lie is nobody's business."""
    if problem is None:
        return {}
    return {name: _plain(value) for name, value in asdict(problem).items() if name != "files"}


def ranges_of(model: Surrogate, *, usual: bool = False) -> dict[str, list[list[float]]]:
    """The range of every channel in training, or between which numbers it `usual`ly was; of models
    that do not know it, a mean and three deviations on either side."""
    from ipot.models._wrappers import Normalized

    layout, spec = model.layout, model.spec
    scales = next((m for m in model.model.modules() if isinstance(m, Normalized)), None)
    found = {}
    for name, prefix, count in (
        ("values", "input", spec.channels),
        ("targets", "output", len(spec.outputs)),
        ("parameters", "parameter", len(spec.parameters)),
    ):
        low, high = layout.usual(name) if usual else layout.span(name)
        if not low and scales is not None:
            mean, scale = (t.double().tolist() for t in scales.of_channels(prefix))
            low = [m - 3 * s for m, s in zip(mean, scale, strict=True)]
            high = [m + 3 * s for m, s in zip(mean, scale, strict=True)]
        held = layout.scaling(name)
        ends = [
            [_given(held, end, i) for end in pair]
            for i, pair in enumerate(zip(low, high, strict=True))
        ]
        found[name] = ends if len(ends) == count else []
    return found


def seen_by(model: Surrogate) -> dict[str, list[dict[str, list[float]] | None]]:
    """What every channel of the inputs was in training, and beyond which numbers an input is far
    from that (`surrogate/new_data.py`), in the units of the data: for a page that answers by
    itself. Null where the model does not know its ranges."""
    from ipot.surrogate.new_data import seen_in_training

    found: dict[str, list[dict[str, list[float]] | None]] = {}
    for name, seen in seen_in_training(model.model, model.layout).items():
        held = model.layout.scaling(name)
        parts = {part: getattr(seen, part) for part in ("all", "usual", "single", "many")}
        found[name] = [
            None
            if seen.known is not None
            else {part: [_given(held, end[i], i) for end in ends] for part, ends in parts.items()}
            for i in range(len(seen.all[0]))
        ]
    return found


def box_of(model: Surrogate) -> list[list[float]]:
    """The smallest and the largest coordinates of queries in training, in the units of the data."""
    held = model.layout.scaling("queries")
    return [
        [_given(held, end, axis) for end in pair]
        for axis, pair in enumerate(model.spec.query_domain)
    ]


def _given(held: Any, number: float, channel: int) -> float:
    """A number in the units that it was given in."""
    number = float(number)
    return number if held is None else number * held.scale[channel] + held.offset[channel]


def _plain(value: Any) -> Any:
    """As JSON knows it: what is not finite is null."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)


def _card(folder: Path) -> str:
    """The model's card, where the folder has one."""
    from ipot import safe_read
    from ipot.errors import IpotError

    try:
        return safe_read.read_bytes(folder / CARD, most=MOST_CARD).decode("utf-8", "replace")
    except (IpotError, FileNotFoundError):
        return ""


def count_of(served: Served) -> int:
    """How many samples came with a model."""
    return len(samples_of(served))


def samples_of(served: Served) -> list[dict[str, Any]]:
    """The samples that came with a model, each with its arrays by name."""
    import numpy as np

    from ipot.formats.numpy_files import read_arrays

    if "samples" not in served.kept:
        found: list[dict[str, Any]] = []
        if served.samples is not None:
            arrays = read_arrays(served.samples)
            # The first of these that there is counts the samples: some models have geometry alone.
            count = len(next(arrays[n] for n in COUNTED if n in arrays))
            for i in range(count):
                one = {}
                for name, array in arrays.items():
                    # What all samples share has no axis for them, or one of length one.
                    own = name != "times" and array.ndim and len(array) in (1, count)
                    part = array[min(i, len(array) - 1)] if own else array
                    # A user's own numbers may be too far from zero for float32.
                    exact = served.problem is None and part.dtype == np.float64
                    real = part.dtype.kind == "f"
                    one[name] = np.asarray(part, np.float32 if real and not exact else None)
                found.append(one)
        served.kept["samples"] = found
    return served.kept["samples"]


def extras_of(served: Served) -> dict[str, Any] | None:
    """What the problem of a model has beside samples; None where it has nothing."""
    from ipot.serve.extras import EXTRAS

    if "extras" not in served.kept:
        problem = served.model().problem
        found = None if problem is None else EXTRAS.get(type(problem))
        served.kept["extras"] = None if found is None else found(problem)
    return served.kept["extras"]


def warm(served: Served) -> None:
    """Load a model and ask it once, so that nobody waits for its kernels to be compiled."""
    import torch

    from ipot.samples import Sample

    model = served.model()
    spec = model.spec
    points, shape = _places(model)
    means = [(low + high) / 2 for low, high in ranges_of(model)["values"]]
    values = torch.tensor(means).float().expand(len(points), -1).contiguous()
    numbers = [(low + high) / 2 for low, high in ranges_of(model)["parameters"]]
    queries = points if spec.query_dimension == spec.dimension else _middle(spec)
    sample = Sample(
        points=points,
        values=values,
        queries=queries,
        times=(spec.dt,),
        parameters=torch.tensor(numbers) if numbers else None,
        grid=shape,
        query_grid=shape if queries is points else None,
    )
    model.answers([sample])


def _places(model: Surrogate) -> Any:
    import torch

    from ipot.problems.base import GridProblem

    spec = model.spec
    if isinstance(model.problem, GridProblem):
        return torch.from_numpy(model.places()), tuple(spec.shape)
    if model.layout.alone:
        return torch.zeros(0, spec.dimension), None
    random = torch.Generator().manual_seed(0)
    box = torch.tensor(spec.domain)
    rows = torch.rand(1000, spec.dimension, generator=random)
    return box[:, 0] + rows * (box[:, 1] - box[:, 0]), None


def _middle(spec: Spec) -> Any:
    import torch

    box = torch.tensor(spec.query_domain)
    return box.mean(1).expand(1000, -1).contiguous()
