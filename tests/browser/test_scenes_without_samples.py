"""Scenes in time of models that came without samples: they begin with something to look at."""

import shutil

import numpy as np
import pytest

SCENES = ("burgers", "navier_stokes", "shallow_water")


@pytest.fixture(scope="module")
def address(browser, serve, models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    for name in SCENES:
        leave_out = shutil.ignore_patterns("samples.npz")
        shutil.copytree(models[name], folder / name, ignore=leave_out)
    return serve(*(folder / name for name in SCENES)).address


@pytest.mark.parametrize("problem", SCENES)
def test_it_begins_with_something_to_look_at(open_page, same, address, problem):
    page = open_page(f"{address}?model={problem}")
    page.settle()
    found = same(page, problem)
    assert np.ptp(found["values"]) > 0.1
    assert not page.page.get_by_role("button", name="Test sample").count()
    page.press("Solve")
    assert "relative error" in " ".join(page.numbers())
