"""The scene of Darcy flow: painted, with fewer sensors, at other resolutions, beside the solver."""

import re

import numpy as np
import pytest


@pytest.fixture
def page(visit):
    return visit("darcy")


def test_it_opens_with_an_answer(page, same):
    found = same(page, "darcy")
    assert found["points"].shape == (4096, 2)
    assert found["queries"].shape == (4096, 2)
    assert found["prediction"].shape == (1, 4096, 1)
    assert set(np.unique(found["values"])) == {3.0, 12.0}
    assert re.match(
        r"[\d.]+\sm?s on the server for 4,096 places", page.page.locator(".time").text_content()
    )


def test_painting_changes_what_is_asked(page, same):
    before = same(page, "darcy")
    page.press("Clear")
    page.settle()
    assert (same(page, "darcy")["values"] == 3).all()
    page.stroke("Permeability", [(0.2, 0.3), (0.8, 0.3)])
    page.settle()
    found = same(page, "darcy")
    line = np.abs(found["points"][:, 1] - 0.3) < 0.05
    inside = line & (np.abs(found["points"][:, 0] - 0.5) < 0.3)
    assert (found["values"][inside] == 12).all()
    assert (found["values"][found["points"][:, 1] > 0.4] == 3).all()
    assert not np.allclose(found["prediction"], before["prediction"], atol=1e-6)
    page.choose("Erase")
    page.stroke("Permeability", [(0.2, 0.3), (0.8, 0.3)])
    page.settle()
    assert (same(page, "darcy")["values"] == 3).all()


def test_sensors_are_removed(page, same):
    page.choose("Remove sensors")
    page.stroke("Permeability", [(0.25, 0.5), (0.75, 0.5)])
    page.settle()
    points = same(page, "darcy")["points"]
    assert 3000 < len(points) < 4096
    near = np.abs(points - [0.5, 0.5]) < [0.25, 0.05]
    assert not near.all(1).any()
    page.press("Scatter")
    page.settle()
    assert same(page, "darcy")["points"].shape == (512, 2)


@pytest.mark.parametrize(("stop", "side"), [(0, 16), (9, 256)])
def test_another_resolution(page, same, stop, side):
    page.slide("Resolution", stop)
    page.settle()
    found = same(page, "darcy")
    assert found["prediction"].shape == (1, side * side, 1)
    assert f"asked at {side} × {side} places" in page.page.locator("main").text_content()


def test_the_solver_beside_the_model(page, same):
    page.press("Solve")
    found = same(page, "darcy")
    truth = page.read("state.truth.values").reshape(64, 64)
    # The walls hold it at zero, and it is largest inside.
    assert truth.min() > 0
    assert truth[1:-1, 1:-1].max() == truth.max() > 5 * truth[0].max()
    answer = found["prediction"].reshape(64, 64)
    error = np.linalg.norm(answer - truth) / np.linalg.norm(truth)
    said = page.numbers()["relative error"]
    assert float(said.removesuffix("%")) == pytest.approx(100 * error, rel=0.02)
    assert page.figure("Pressure, solved").is_visible()
    page.press("Random draw")
    page.settle()
    assert not page.figure("Pressure, solved").is_visible()


def test_what_is_unlike_the_training_is_told(page):
    caption = page.page.locator("figure", has_text="Permeability").locator(".caption")
    assert caption.text_content() == "4,096 sensors, one in each cell."
    page.press("Clear")
    assert "0 % is easy to pass, there it was 30 to 70 %" in caption.text_content()
    page.slide("Width", 0.2)
    page.stroke("Permeability", [(0.0, 0.5), (1.0, 0.5)])  # 40 %
    assert "easy to pass" not in caption.text_content()
    page.slide("Scattered", 0)
    assert caption.text_content() == "64 sensors."
    page.choose("Remove sensors")
    page.stroke("Permeability", [(0.0, 0.5), (1.0, 0.5)])
    assert "sensors. So few see little of the ground." in caption.text_content()
    page.settle()


def test_by_the_keys_alone(page, same):
    page.press("Clear")
    page.settle()
    page.figure("Permeability").focus()
    keyboard = page.page.keyboard
    keyboard.press("Space")
    for _ in range(3):
        keyboard.press("Shift+ArrowRight")
    keyboard.press("Space")
    page.settle()
    found = same(page, "darcy")
    painted = found["points"][found["values"][:, 0] == 12]
    assert 0.4 < painted[:, 0].min() < 0.5 < 0.7 < painted[:, 0].max() < 0.85
    assert np.abs(painted[:, 1] - 0.5).max() < 0.07


def test_on_a_phone(phone, same):
    found = phone("darcy")
    same(found, "darcy")
    tabs = found.page.locator("nav a")
    ends = [(at["x"], at["x"] + at["width"]) for at in (tab.bounding_box() for tab in tabs.all())]
    assert len(ends) > 5
    assert all(0 <= left < right <= 360 for left, right in ends)  # none is cut off
    hidden = "(list) => list.scrollWidth - list.clientWidth"
    assert found.page.locator("nav ul").evaluate(hidden) <= 0
