"""Pages and guides run as they stand, but for sizes: a model that a CPU steps in a millisecond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipot.own import sizing


def shrunk(text: str, sizes: dict[str, str]) -> str:
    """A text with other sizes; each that is to be replaced must be there."""
    for before, after in sizes.items():
        assert before in text, f"{before!r} is gone: say here what sets the size now"
        text = text.replace(before, after)
    return text


def use_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever `fit` is given, on a CPU, it takes a tiny model and few points at a time."""
    sizes = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "cross_heads": 2}
    tiny = replace(sizing.BUDGETS["cpu"], **sizes, points=64, queries=64)
    monkeypatch.setitem(sizing.BUDGETS, "cpu", tiny)
