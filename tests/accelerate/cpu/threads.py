"""The same with one thread and with several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def with_one_and_with_three(call: Callable[[], Any]) -> list[Any]:
    """What a call gives with one thread and with three."""
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(call())
    finally:
        torch.set_num_threads(before)
    return found
