"""Facts of a problem that only tests know."""

from __future__ import annotations

from typing import Any

from ipot.spec import Spec


def spec(
    c: int = 1,
    k: int = 1,
    p: int = 0,
    d: int = 2,
    side: tuple[float, float] = (0.0, 1.0),
    **facts: Any,
) -> Spec:
    """`c` channels in, `k` out and `p` parameters on a cube of `d` axes."""
    found: dict[str, Any] = {
        "name": "toy",
        "inputs": tuple(f"a{i}" for i in range(c)),
        "outputs": tuple(f"u{i}" for i in range(k)),
        "parameters": tuple(f"p{i}" for i in range(p)),
        "domain": (side,) * d,
    }
    return Spec(**found | facts)
