"""A picture of a sample and what a model answers to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipot.data.own_given import is_whole, path_given
from ipot.errors import DataError, shown
from ipot.report import plots
from ipot.samples import Sample
from ipot.surrogate.compatibility import refuse_other_sample


def picture(
    model: Any, sample: Sample, path: Path | str | None, *, channel: str | int, time: int
) -> Any:
    """What goes in, the truth if it is known, the answer of a `Surrogate`, and the error."""
    outputs = model.spec.outputs
    refuse_other_sample(model.spec, sample)
    path = None if path is None else path_given("path", path)
    which = channel
    if isinstance(channel, str) and channel in outputs:
        which = outputs.index(channel)
    if isinstance(which, str) or not is_whole(which):
        raise DataError(f"channel={shown(channel)} is no output. Known: {', '.join(outputs)}")
    if not is_whole(time):
        raise DataError(f"time must be the number of one, like 0 or -1, got {shown(time)}")
    seen, answer = model.drawn(sample)
    figure = plots.fields(seen, answer, spec=model.spec, channel=which, time=time)
    if path is not None:
        plots.save(figure, path)
    return figure
