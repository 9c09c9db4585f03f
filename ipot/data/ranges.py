"""The ranges of training data: what a model has seen, so that it can say what it has not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ipot.data.dataset import Dataset
from ipot.data.layout import CHANNELS, spans_held

UNUSUAL = 1e-3
"""The part of the numbers of a channel that lies beyond either end of its usual range. Less would
be the range of the few wildest of a million numbers; more would leave out what every sample has,
like the foot of a wave or the tip of a shock. Of a thousand numbers it leaves out one."""
MOST = 1 << 22
"""Numbers of all channels that the usual range is taken of; of more, some are drawn."""
FEWEST = 1000
"""Rows that it is taken of at the least, of however many channels."""


def ranges_held(data: Dataset) -> dict[str, Any]:
    """The smallest and largest numbers of all channels, and the ends of their usual ranges, as
    fields of a `Layout`."""
    return spans_held(data) | _usual_held(data)


def _usual_held(data: Dataset) -> dict[str, Any]:
    found: dict[str, tuple[float, ...]] = {}
    for place, name in enumerate(CHANNELS):
        pieces = [
            column.reshape(-1, column.shape[-1])
            for columns in data.columns()
            if (column := columns[place]) is not None and column.numel()
        ]
        if not pieces:
            continue
        count = sum(map(len, pieces))
        share = min(1.0, max(FEWEST, MOST // pieces[0].shape[1]) / count)
        # Drawn and not taken at even distances, which could all be at the edge of a grid.
        random = torch.Generator().manual_seed(0)
        rows = []
        for piece in pieces:
            if share < 1:
                wanted = max(1, round(share * len(piece)))
                piece = piece[torch.randint(len(piece), (wanted,), generator=random)]
            rows.append(piece.detach().double().cpu())
        ends = np.quantile(torch.cat(rows).numpy(), (UNUSUAL, 1 - UNUSUAL), axis=0)
        for end, numbers in zip(("low", "high"), ends, strict=True):
            found[f"{name.removesuffix('s')}_usual_{end}"] = tuple(numbers.tolist())
    return found
