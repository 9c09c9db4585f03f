"""The cells: all that the paper prints, and a way to each."""

from dataclasses import replace

import pytest

from ipot.errors import Unsupported
from ipot.recipes.experiment import build, experiment
from ipot.recipes.published import NUMBERS
from ipot.reproduce.items import CELLS, ITEMS, THIS_PAPER
from ipot.reproduce.jobs import Way, minutes, settings, with_data

JOBS = sorted({with_data(c.job, {}) for c in CELLS if c.job}, key=lambda job: job.name)


def test_every_printed_number_has_a_cell():
    def known(n):
        return n.problem, n.model, n.viscosity, n.condition, n.error

    printed = {known(number) for number in NUMBERS if number.source == THIS_PAPER}
    assert printed == {known(cell.published) for cell in CELLS if cell.published}


def test_names_are_those_of_one_cell_of_a_known_item():
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)
    assert {cell.item for cell in CELLS} == set(ITEMS)
    assert all(bool(cell.job) != bool(cell.measurement) for cell in CELLS)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_can_be_built_or_says_why_not(job):
    refused = any(c.impossible for c in CELLS if c.job and with_data(c.job, {}) == job)
    made = settings(job, Way(small=True))
    if refused:
        with pytest.raises(Unsupported, match="grid"):
            build(made)
    else:
        build(made)


def test_published_schedules_are_honoured_unless_there_is_a_budget():
    job = next(job for job in JOBS if job.name == "darcy-ipot-clip=1")
    whole = settings(job, Way(), seed=3).training
    assert (whole.epochs, whole.schedule, whole.minutes, whole.seed) == (1000, "step", None, 3)
    boxed = settings(job, Way(minutes=2)).training
    assert (boxed.minutes, boxed.schedule) == (2, "cosine")


def test_changes_reach_the_settings():
    slow = next(job for job in JOBS if job.name == "navier_stokes-viscosity=0.0001-ipot")
    assert settings(slow, Way()).problem.viscosity == 1e-4
    assert settings(slow, Way()).spec.steps == 20
    few = next(job for job in JOBS if job.name == "era5_synthetic-ipot-latents=64")
    assert settings(few, Way()).model.latents == 64


def test_files_take_the_place_of_a_stand_in():
    cell = next(cell for cell in CELLS if cell.name == "table1/era5/ipot")
    assert with_data(cell.job, {}).name == "era5_synthetic-ipot"
    real = with_data(cell.job, {"era5": "weather"})
    assert real.name == "era5-published-ipot"
    assert settings(real, Way()).problem.files == "weather"


def test_a_cost_says_where_it_comes_from():
    costs = {job.name: minutes(job, gpu=True) for job in JOBS}
    assert costs["darcy-ipot-clip=1"] == (1, "H200")
    assert costs["airfoil-fno"] == (pytest.approx(2.63 * 500 / 60), "RTX 3090")
    assert costs["era5_synthetic-transformer"] == (None, "unknown")
    assert minutes(JOBS[0], gpu=False)[1] == "CPU"


def test_the_ablation_takes_one_thing_at_a_time():
    cells = {(c.row, c.column): c for c in CELLS if c.item == "ablation"}
    plain = settings(cells["normalised-keys", "with-feed-forward"].job, Way())
    raw = settings(cells["raw-keys", "with-feed-forward"].job, Way())
    assert raw == replace(plain, model=replace(plain.model, raw_keys=True))
    both = settings(cells["raw-keys", "without"].job, Way()).model
    assert both == experiment("darcy", "ipot", "authors").model
    assert plain.training.clip == 1.0
    exact = settings(cells["float32", "authors"].job, Way()).training
    assert (exact.precision, exact.clip) == ("float32", None)
