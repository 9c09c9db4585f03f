"""Scenes in time on a page that was exported: the same answers, no solver, samples in its place."""

import numpy as np
import pytest

SCENES = ("burgers", "navier_stokes", "shallow_water", "sst")


@pytest.fixture(scope="session")
def models(alone):
    return alone


@pytest.fixture
def visit(open_page, exported):
    """Open the scene of a problem from its folder."""

    def start(problem):
        found = open_page(f"{(exported / 'index.html').as_uri()}#{problem}")
        found.settle()
        return found

    return start


@pytest.mark.parametrize("problem", SCENES)
def test_it_answers_as_python_does(visit, same, problem):
    page = visit(problem)
    found = same(page, problem)
    assert len(found["prediction"]) == {"burgers": 1, "sst": 4}.get(problem, 3)
    took = page.page.locator(".time").text_content()
    assert "in this browser" in took
    assert "in all" not in took  # there is no way to a server and back
    assert not page.page.get_by_role("button", name="Solve").count()
    said = page.page.locator("aside").text_content()
    assert ("Nothing is solved here" if problem == "sst" else "a solver needs one") in said


@pytest.mark.parametrize("problem", ["burgers", "navier_stokes", "shallow_water"])
def test_samples_have_their_solutions(visit, same, models, problem):
    page = visit(problem)
    with np.load(models[problem] / "samples.npz") as samples:
        values, targets = samples["values"], samples["targets"]
    for index in (0, 1):
        page.press("Test sample")
        page.settle()
        np.testing.assert_array_equal(same(page, problem)["values"], values[index])
        truth = page.read("(state.rollout?.truth ?? state.truth)")
        found = truth.get("data", truth.get("values"))
        np.testing.assert_array_equal(found, targets[index].ravel())
    assert "relative error" in " ".join(page.numbers())


def test_what_is_painted_is_answered(visit, same):
    page = visit("navier_stokes")
    page.press("Still water")
    page.stroke("Start", [(0.5, 0.5)])
    page.settle()
    assert same(page, "navier_stokes")["values"].max() > 0


def test_removed_sensors_are_not_asked(visit, same):
    page = visit("sst")
    page.press("Remove")
    page.settle()
    north = np.degrees(np.arcsin(same(page, "sst")["points"][:, 2]))
    assert np.abs(north).min() > 19.9
