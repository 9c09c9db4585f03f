"""Numbers of others, as printed."""

import pytest

from ipot import registry
from ipot.recipes.published import ELSEWHERE, NUMBERS, RELATIVE_L2, SOURCES, quoted, remark

IPOT = SOURCES["ipot"]


@pytest.mark.parametrize(
    ("problem", "model", "parameters", "seconds", "memory", "error"),
    [
        ("darcy", "deeponet", 420_000, 2.73, 2.40, 4.61e-2),
        ("darcy", "ffno", 410_000, 3.36, 1.99, 7.70e-3),
        ("darcy", "ipot", 150_000, 2.70, 1.82, 1.73e-2),
        ("airfoil", "meshgraphnet", 220_000, 10.92, 6.38, 5.57e-2),
        ("elasticity", "oformer", 2_560_000, 5.58, 2.98, 1.83e-2),
        ("plasticity", "ffno", 570_000, 66.47, 16.86, 4.70e-3),
        ("era5", "fno", 2_370_000, 9.23, 13.04, 1.21e-2),
        ("era5", "ipot", 510_000, 9.83, 10.58, 6.64e-3),
    ],
)
def test_the_papers_table(problem, model, parameters, seconds, memory, error):
    found = quoted(problem, model)
    assert found.source == IPOT
    assert (found.parameters, found.seconds) == (parameters, seconds)
    assert (found.memory, found.error) == (memory, error)


def test_navier_stokes_has_a_viscosity():
    assert quoted("navier_stokes", "fno", viscosity=1e-3).error == 1.28e-2
    assert quoted("navier_stokes", "fno", "seconds", viscosity=0.001).seconds == 53.73
    assert quoted("navier_stokes", "ipot", viscosity=1e-5).error == 1.48e-1
    assert quoted("navier_stokes", "perceiver_io", viscosity=1e-4).error == 2.59e-1
    assert quoted("navier_stokes", "transolver", viscosity=1e-5).error == 0.09
    assert quoted("navier_stokes", "transolver", viscosity=1e-3) is None
    assert quoted("navier_stokes", "fno") is None


@pytest.mark.parametrize(("model", "printed"), [("fno", 5.08e-2), ("oformer", 1.83e-2)])
def test_what_repeats_another_row_is_kept_and_not_quoted(model, printed):
    row = next(n for n in NUMBERS if (n.problem, n.model, n.source) == ("plasticity", model, IPOT))
    assert row.error == printed
    assert not row.trusted("error")
    assert row.trusted("parameters")
    other = quoted("plasticity", model)
    assert other is None or other.source != IPOT
    assert bool(remark("plasticity", model)) == (other is None)


def test_a_count_that_does_not_add_up_is_not_quoted():
    assert quoted("navier_stokes", "ipot", viscosity=1e-3).error == 8.85e-3
    assert quoted("navier_stokes", "ipot", "parameters", viscosity=1e-3) is None
    assert "0.12 M" in remark("navier_stokes", "ipot", "parameters", viscosity=1e-3)


def test_other_conditions_and_metrics_are_not_the_test_error():
    conditions = {n.condition: n.error for n in NUMBERS if (n.problem, n.model) == ("era5", "ipot")}
    assert conditions["inputs at 0.25°"] == 8.66e-3
    assert conditions["land masked"] == 2.83e-2
    assert conditions["64 inducing points"] == 1.45e-2
    assert conditions["512 inducing points"] == 6.44e-3
    assert quoted("era5", "ipot").error == conditions[""]
    swe = {(n.model, n.condition): n.error for n in NUMBERS if n.problem == "shallow_water"}
    assert swe["dino", "t = 0 to 10"] == 1.06e-4
    assert swe["ipot", "t = 30 to 40"] == 1.11e-3
    assert all(n.metric != RELATIVE_L2 for n in NUMBERS if n.problem == "shallow_water")
    assert quoted("shallow_water", "ipot") is None
    assert remark("era5", "transformer") == "it did not converge"
    assert remark("burgers", "ipot") == ""


@pytest.mark.parametrize(
    ("model", "errors"),
    [
        ("transolver", (0.0064, 0.0012, 0.0053, 0.0057)),
        ("lno", (0.0052, 0.0029, 0.0051, 0.0049)),
        ("lrsa", (0.0031, 0.00047, 0.0038, 0.0043)),
    ],
)
def test_later_systems(model, errors):
    problems = ("elasticity", "plasticity", "airfoil", "darcy")
    assert tuple(quoted(problem, model).error for problem in problems) == errors


def test_every_name_is_known():
    known = {*registry.names("models"), *ELSEWHERE}
    assert {n.model for n in NUMBERS} <= known
    assert {n.problem for n in NUMBERS} <= set(registry.names("problems"))
    assert not set(ELSEWHERE) & set(registry.names("models"))
    assert all(n.source for n in NUMBERS)
