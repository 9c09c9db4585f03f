"""Recipes of the other systems: every row builds, and has the sizes that were published."""

from dataclasses import replace

import pytest

from ipot import registry
from ipot.errors import UnknownName, Unsupported
from ipot.models.base import parameter_count
from ipot.recipes import paper, systems
from ipot.recipes.experiment import build, experiment

OTHERS = [name for name in registry.names("models") if name != "ipot"]

# Counts that agree with a printed one, in real numbers: (system, problem) -> count.
COUNTS = {
    ("deeponet", "darcy"): 415_361,  # 0.42 M
    ("deeponet", "elasticity"): 1_025_025,  # 1.03 M
    ("fno", "navier_stokes"): 926_357,  # 0.93 M
    ("fno", "era5_synthetic"): 2_368_193,  # 2.37 M
    ("ffno", "darcy"): 404_674,  # 0.41 M
    ("ffno", "plasticity"): 568_968,  # 0.57 M
    ("oformer", "navier_stokes"): 1_851_265,  # 1.85 M
    ("oformer", "airfoil"): 1_277_665,  # 1.28 M
    ("lno", "darcy"): 762_113,  # 0.76 M
}


def test_every_system_has_recipes():
    assert set(systems.SYSTEMS) | {"ipot", "transformer"} == set(registry.names("models"))
    assert set(systems.SMALL) == set(registry.names("models"))


@pytest.mark.parametrize("system", OTHERS)
def test_rows_are_of_problems_that_are_there(system):
    rows = systems.SYSTEMS[system].rows if system in systems.SYSTEMS else {}
    assert set(rows) <= set(registry.names("problems"))


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("problem", [p for p in registry.names("problems") if p != "era5"])
@pytest.mark.parametrize("system", OTHERS)
def test_a_row_builds_or_says_what_is_missing(system, problem, preset):
    if system == "transformer" and preset == "paper" and problem not in paper.TABLE:
        pytest.skip("a row of the paper's own tables")
    settings = experiment(problem, system, preset)
    row = systems.SYSTEMS.get(system, systems.System({}, {})).rows.get(problem)
    try:
        build(settings)
    except Unsupported:
        assert row is None, "a row for a problem that the system cannot do"
    if preset == "default":
        assert settings.training.schedule in ("cosine", "one-cycle")
        assert settings.training.clip is not None


def test_penalties_and_derivatives_are_as_published():
    def training(system, problem, preset="paper"):
        return experiment(problem, system, preset).training

    for preset in ("default", "paper"):
        assert training("fno", "darcy", preset).decay == "coupled"
        assert training("deeponet", "darcy", preset).decay == "coupled"
        assert training("oformer", "darcy", preset).decay == "coupled"
        assert training("oformer", "navier_stokes", preset).decay == "decoupled"
        assert training("ffno", "darcy", preset).decay == "decoupled"
        assert training("transolver", "darcy", preset).decay == "decoupled"
        # Two relative errors at 0.1 each are about 0.2 of our joint one.
        for system in ("transolver", "oformer"):
            assert training(system, "darcy", preset).gradient_loss == 0.2
    assert training("oformer", "darcy").epochs * 1000 // 8 == 32_000
    assert training("oformer", "navier_stokes").grow == 0.16
    assert training("transolver", "darcy").precision == "float32"


def test_published_schedules_see_every_sample_in_every_epoch():
    for system in ("ipot", *OTHERS):
        assert experiment("darcy", system, "paper").training.last_batch == "fill"
        assert experiment("darcy", system).training.last_batch == "leave"


def test_the_preset_of_the_authors_is_ipots_alone():
    mine, theirs = (experiment("darcy", "ipot", preset) for preset in ("paper", "authors"))
    assert theirs.training == mine.training
    assert theirs.model == replace(mine.model, raw_keys=True, encoder_feed_forward=0)
    with pytest.raises(UnknownName, match="fno has no preset `authors`"):
        experiment("darcy", "fno", "authors")


@pytest.mark.parametrize(("system", "problem"), COUNTS)
def test_the_sizes_are_the_published_ones(system, problem):
    model = build(experiment(problem, system, "paper"))
    assert parameter_count(model) == COUNTS[system, problem]


def test_the_published_schedule_is_kept_by_its_preset():
    fno = experiment("darcy", "fno", "paper").training
    assert (fno.epochs, fno.batch, fno.schedule, fno.step_epochs) == (500, 20, "step", 100)
    transolver = experiment("darcy", "transolver").training
    assert (transolver.batch, transolver.clip, transolver.schedule) == (4, 0.1, "one-cycle")


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize(
    ("system", "facts"),
    [
        ("transolver", {"warmup": 0.3, "gradient_loss": 0.2, "batch": 4, "precision": "float32"}),
        ("lno", {"warmup": 0.2, "gradient_loss": 0.0, "clip": 1000.0, "weight_decay": 5e-5}),
        ("oformer", {"warmup": 0.2, "gradient_loss": 0.2, "batch": 8, "learning_rate": 8e-4}),
        ("flare", {"warmup": 0.1, "gradient_loss": 0.0, "batch": 2, "learning_rate": 1e-3}),
        ("lrsa", {"warmup": 0.3, "gradient_loss": 0.2, "batch": 4, "precision": "auto"}),
    ],
)
def test_rivals_on_darcy_have_the_losses_and_schedules_of_their_papers(system, facts, preset):
    training = experiment("darcy", system, preset).training
    assert training.schedule == "one-cycle"
    assert {name: getattr(training, name) for name in facts} == facts


@pytest.mark.parametrize("system", registry.names("models"))
def test_small_sizes_are_smaller(system):
    problem = "navier_stokes"
    full = experiment(problem, system)
    small = systems.small(system, full.model)
    spec = full.problem.small().spec
    kind = registry.find("models", system)
    assert parameter_count(kind(small, spec)) < parameter_count(kind(full.model, spec))
    assert parameter_count(kind(small, spec)) < 500_000
