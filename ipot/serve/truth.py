"""Which problems have a solver that answers to given inputs, and why others have none."""

from __future__ import annotations

SOLVED = (
    *("airfoil", "burgers", "darcy", "elasticity", "navier_stokes", "plasticity"),
    "shallow_water",
)
REASONS = {
    "sst": "sea-surface temperatures are measured: no equation of ours has them as its solution",
    "era5": "temperatures of ERA5 are measured: no equation of ours has them as its solution",
    "era5_synthetic": "its fields are drawn from seeds and not solved for from given inputs",
}


def why_not(problem: str | None) -> str | None:
    """Why a problem cannot be solved here; None where it can."""
    if problem in SOLVED:
        return None
    if problem is None:
        return "this model was trained on data of its user's own, of which no solver is known"
    return REASONS.get(problem, f"there is no solver for given inputs of {problem}")
