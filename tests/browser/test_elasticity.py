"""The scene of elasticity: the edge of a hole dragged, beside the solver."""

import numpy as np
import pytest
from javascript import call

BOX = ((-0.02, 1.02), (-0.02, 1.02))
FIGURE = "Stress, by the model"
CENTRE = 0.5
pytestmark = pytest.mark.filterwarnings("ignore:inputs far outside")


@pytest.fixture
def page(visit):
    return visit("elasticity")


def asked(theta):
    """The places around a hole, and the radius towards each."""
    found = call("problems/elasticity.js", "m.inputs(theta)", theta=theta)
    return np.reshape(found["queries"], (-1, 2)), np.reshape(found["values"], (-1, 1))


def edge(theta, angle):
    radius = call("problems/elasticity.js", "m.radius(theta, angle)", theta=theta, angle=angle)
    return CENTRE + radius * np.cos(angle), CENTRE + radius * np.sin(angle)


def round_hole(page):
    page.press("Round")
    page.settle()


def test_it_opens_with_an_answer(page, same):
    found = same(page, "elasticity")
    assert found["prediction"].shape == (1, 972, 1)
    places, values = asked(page.read("state.theta"))
    np.testing.assert_allclose(found["points"], places, atol=1e-6)
    np.testing.assert_allclose(found["values"], values, atol=1e-6)


def test_the_edge_is_dragged(page, same):
    round_hole(page)
    before = same(page, "elasticity")
    np.testing.assert_allclose(before["values"], 0.3, atol=1e-6)
    page.stroke(FIGURE, [(0.8, 0.5), (0.84, 0.5)], box=BOX)
    page.settle()
    found = same(page, "elasticity")
    theta = page.read("state.theta")
    assert edge(theta, 0.0)[0] == pytest.approx(0.84, abs=0.004)
    assert edge(theta, np.pi)[0] == pytest.approx(0.2, abs=0.02)  # far away little changes
    places, values = asked(theta)
    np.testing.assert_allclose(found["points"], places, atol=1e-6)
    np.testing.assert_allclose(found["values"], values, atol=1e-6)
    assert np.abs(found["prediction"] - before["prediction"]).max() > 1e-6


def test_what_is_rare_in_training_is_said(page):
    round_hole(page)
    assert "as unusual" not in page.page.locator("main").text_content()
    page.stroke(FIGURE, [(0.8, 0.5), (0.99, 0.5)], box=BOX)
    page.settle()
    for angle in (np.pi / 6, np.pi / 2):  # rings beside it, towards the middle
        taken = edge(page.read("state.theta"), angle)
        page.stroke(FIGURE, [taken, (CENTRE, CENTRE)], box=BOX)
        page.settle()
    assert "as unusual as this" in page.page.locator("main").text_content()


def test_by_the_keys_alone(page, same):
    round_hole(page)
    page.figure(FIGURE).focus()
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "Space", *("ArrowLeft",) * 2, "Space"):
        page.page.keyboard.press(key)
    page.settle()
    theta = page.read("state.theta")
    assert edge(theta, 0.0)[0] == pytest.approx(0.76, abs=1e-6)
    np.testing.assert_allclose(same(page, "elasticity")["values"], asked(theta)[1], atol=1e-6)


def said(page, name):
    return float(page.numbers()[name].removesuffix("%"))


def test_the_solver_beside_the_model(page, same):
    round_hole(page)
    page.press("Solve")
    answer = same(page, "elasticity")["prediction"].ravel()
    truth = page.read("room.scene.compared.truth.values")
    places = asked([0] * 10)[0]
    # The sheet is pulled at its top: it tears beside the hole and not above or below it.
    beside = truth[np.linalg.norm(places - [0.82, 0.5], axis=1) < 0.06]
    below = truth[np.linalg.norm(places - [0.5, 0.18], axis=1) < 0.06]
    assert min(len(beside), len(below)) > 3
    assert beside.mean() > 3 * below.mean() > 0
    error = 100 * np.linalg.norm(answer - truth) / np.linalg.norm(truth)
    assert said(page, "relative error") == pytest.approx(error, rel=0.05)
    page.press("Random draw")
    page.settle()
    assert not page.figure("Error of the model").is_visible()


def test_a_sample_with_its_solution(page, same, models):
    page.press("Test sample")
    page.settle()
    found = same(page, "elasticity")
    with np.load(models["elasticity"] / "samples.npz") as kept:
        np.testing.assert_array_equal(found["values"], kept["values"][0])
        truth = kept["targets"][0].ravel()
    # The rings lie on the edge of the sample's own hole.
    np.testing.assert_allclose(asked(page.read("state.theta"))[1], found["values"], atol=0.01)
    answer = found["prediction"].ravel()
    error = 100 * np.linalg.norm(answer - truth) / np.linalg.norm(truth)
    assert said(page, "relative error") == pytest.approx(error, rel=0.05)


def test_on_a_phone(phone, same):
    same(phone("elasticity"), "elasticity")
