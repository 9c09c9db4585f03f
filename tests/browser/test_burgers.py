"""The scene of Burgers: a wave is drawn, seen by fewer sensors, and solved beside the model."""

import numpy as np
import pytest

from ipot.solvers import burgers as equation

NODES = 32


@pytest.fixture
def page(visit):
    return visit("burgers")


def box(page):
    high = page.read("Number(document.querySelector('.marks .bottom:last-child').textContent)")
    place = page.read(
        "parseFloat(document.querySelector('.marks .bottom:last-child').style.bottom)"
    )
    reach = high / (2 * place / 100 - 1)
    return ((0, 1), (-reach, reach))


def test_it_opens_with_an_answer(page, same):
    found = same(page, "burgers")
    assert found["points"].shape == found["values"].shape == found["queries"].shape == (NODES, 1)
    np.testing.assert_allclose(found["points"][:, 0], np.arange(NODES) / NODES)
    assert abs(found["values"].mean()) < 1e-6
    assert 0.01 < np.abs(found["values"]).max() < 3


def test_the_wave_goes_where_the_pointer_is(page, same):
    page.press("Flat")
    page.settle()
    assert not same(page, "burgers")["values"].any()
    area = box(page)
    height = 0.5 * area[1][1]
    page.stroke("Start", [(0.5, height)], box=area)
    page.settle()
    found = same(page, "burgers")
    assert found["values"][NODES // 2, 0] == pytest.approx(height, rel=0.05)
    assert found["values"].argmax() == NODES // 2
    assert found["values"][0, 0] < 0
    assert abs(found["values"].mean()) < 1e-6


def test_a_wave_unlike_the_training_is_told(page):
    caption = page.page.locator("figure", has_text="Start").locator(".caption").first
    page.press("Flat")
    page.settle()
    assert caption.text_content() == f"{NODES} sensors"
    area = box(page)
    page.stroke("Start", [(0.5, 0.1), (0.5, area[1][1])], box=area)
    page.settle()
    assert "than any wave in training." in caption.text_content()
    page.press("Flat")
    assert caption.text_content() == f"{NODES} sensors"


def test_fewer_sensors_see_the_same_wave(page, same):
    whole = same(page, "burgers")["values"]
    page.slide("Along the circle", 0)
    page.settle()
    found = same(page, "burgers")
    assert found["points"].shape == (8, 1)
    np.testing.assert_array_equal(found["values"], whole[::4])
    assert found["prediction"].shape == (1, NODES, 1)


def test_the_solver_beside_the_model(page, same, models):
    page.slide("Along the circle", 0)  # the solver is given the wave and not what sensors see
    page.settle()
    page.press("Solve")
    found = same(page, "burgers")
    truth = page.read("state.truth.values")
    wave = page.read("state.curve").astype(np.float64)
    import torch

    start = np.interp(np.arange(64) / 64, np.arange(NODES) / NODES, wave, period=1.0)
    wanted = equation.solve(torch.from_numpy(start)[None], viscosity=0.01)[0, -1, ::2].numpy()
    np.testing.assert_allclose(truth, wanted, atol=1e-5)
    error = np.linalg.norm(found["prediction"].ravel() - truth) / np.linalg.norm(truth)
    said = page.numbers()["relative error"]
    assert float(said.removesuffix("%")) == pytest.approx(100 * error, rel=0.06)
    assert page.figure("Error of the model").is_visible()
    page.press("Random draw")
    page.settle()
    assert not page.figure("Error of the model").is_visible()
    assert page.numbers() == {}


def test_a_sample_has_its_solution_with_it(page, same, models):
    with np.load(models["burgers"] / "samples.npz") as samples:
        values, targets = samples["values"], samples["targets"]
    for index in (0, 1, 0):
        page.press("Test sample")
        page.settle()
        np.testing.assert_array_equal(same(page, "burgers")["values"], values[index])
        np.testing.assert_array_equal(page.read("state.truth.values"), targets[index].ravel())


def test_by_the_keys_alone(page, same):
    page.press("Flat")
    page.settle()
    page.figure("Start").focus()
    for key in ("Shift+ArrowUp", "Space", "Shift+ArrowRight", "Space"):
        page.page.keyboard.press(key)
    page.settle()
    values = same(page, "burgers")["values"]
    assert values[20:22].min() == pytest.approx(0.15, abs=0.03)  # up by 5 steps of 0.03, right too


def test_on_a_phone(phone, same):
    found = phone("burgers")
    same(found, "burgers")
    found.press("Solve")
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert found.figure("Error of the model").is_visible()
