"""Numbers that others have printed (`published.toml`), each with its source and what stands against
it.

Relative L2 on the original files after the full schedule, unless a number names another metric.
Every value is as printed, also where it cannot be right: `remarks` says so, and `quoted` then looks
for another source.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources

RELATIVE_L2 = "relative L2"


@dataclass(frozen=True, kw_only=True)
class Number:
    """What one source prints of one system on one problem."""

    problem: str
    model: str
    source: str
    error: float | None = None
    parameters: int | None = None
    seconds: float | None = None
    """An epoch."""
    memory: float | None = None
    """GB on the GPU."""
    viscosity: float | None = None
    """Which Navier-Stokes."""
    condition: str = ""
    """What was unlike the problem's own test; empty where nothing was."""
    metric: str = RELATIVE_L2
    remarks: Mapping[str, str] = field(default_factory=dict)
    """By field: what stands against a value, or in the place of one."""

    def trusted(self, quantity: str) -> bool:
        """True if a field has a value that no remark stands against."""
        return getattr(self, quantity) is not None and quantity not in self.remarks


def quoted(
    problem: str, model: str, quantity: str = "error", *, viscosity: float | None = None
) -> Number | None:
    """The first source with a value for this field that nothing stands against."""
    found = _plain(problem, model, viscosity)
    return next((number for number in found if number.trusted(quantity)), None)


def remark(
    problem: str, model: str, quantity: str = "error", *, viscosity: float | None = None
) -> str:
    """Why there is nothing to quote although something was printed; empty without a reason."""
    if quoted(problem, model, quantity, viscosity=viscosity) is not None:
        return ""
    reasons = (number.remarks.get(quantity) for number in _plain(problem, model, viscosity))
    return next((reason for reason in reasons if reason), "")


def _plain(problem: str, model: str, viscosity: float | None) -> Iterator[Number]:
    """What was printed for a problem's own test, the IPOT paper first."""
    for number in NUMBERS:
        own = number.problem == problem and number.model == model
        if own and not number.condition and number.metric == RELATIVE_L2:
            alike = number.viscosity == viscosity
            if viscosity is not None and number.viscosity is not None:
                alike = math.isclose(viscosity, number.viscosity)
            if alike:
                yield number


_CONTENT = tomllib.loads(
    resources.files("ipot.recipes").joinpath("published.toml").read_text(encoding="utf-8")
)
SOURCES: Mapping[str, str] = _CONTENT["sources"]
"""Papers, by the short names that the data file has for them."""
ELSEWHERE = tuple(_CONTENT["systems"]["elsewhere"])
"""Systems that have numbers here and no file in `ipot/models`."""
NUMBERS = tuple(Number(**row | {"source": SOURCES[row["source"]]}) for row in _CONTENT["numbers"])
