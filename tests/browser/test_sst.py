"""The scene of sea-surface temperature: sensors are removed, weeks forecast, errors in kelvin."""

import numpy as np
import pytest

from ipot.problems.sst import Sst

STEPS, HISTORY = 4, 8
BOX = ((-1.02, 1.02), (-1.02, 1.02))
NAMES = ("Model", "Persistence", "Damped persistence", "Season alone")


@pytest.fixture
def page(visit):
    return visit("sst")


@pytest.fixture(scope="module")
def problem():
    return Sst(steps=STEPS)


@pytest.fixture(scope="module")
def window(problem):
    """The first window of the test split, and the simple forecasts of it."""
    data = problem.dataset(problem.read("test", 2, None), None, None)
    return data[0], problem.references(data, "test")


def kelvin(difference, sample):
    weights = sample.weights.numpy()
    return float(np.sqrt((weights * difference**2).mean() / weights.mean()))


def test_it_asks_what_the_problem_asks(page, same, window):
    sample, _ = window
    found = same(page, "sst")
    np.testing.assert_allclose(found["points"], sample.points, atol=1e-6)
    np.testing.assert_allclose(found["queries"], sample.queries, atol=1e-6)
    np.testing.assert_allclose(found["values"], sample.values, atol=2e-3)
    np.testing.assert_allclose(found["parameters"], sample.parameters, atol=1e-6)
    assert found["prediction"].shape == (STEPS, 2040, 1)


def test_the_errors_are_those_of_the_problem(page, same, window):
    sample, references = window
    answer = same(page, "sst")["prediction"]
    forecasts = {
        "Model": answer,
        "Persistence": references["persistence"][0].numpy(),
        "Damped persistence": references["damped persistence"][0].numpy(),
        "Season alone": references["climatology"][0].numpy(),
    }
    for week in (3, 0):
        page.page.get_by_label("time", exact=True).fill(str(week))
        numbers = page.numbers()
        for name in NAMES:
            gap = (forecasts[name] - sample.targets.numpy())[week, :, 0]
            wanted = kelvin(gap, sample)
            assert float(numbers[name].removesuffix(" K")) == pytest.approx(wanted, abs=2e-3), name
        dates = page.read("[state.weeks.date(state.first), state.weeks.date(state.first + 3)]")
        assert dates[week == 3] in page.page.locator("main").text_content()


def test_removed_sensors_are_not_asked(page, same):
    whole = same(page, "sst")["points"]
    page.choose("Remove")
    page.stroke("Sensors", [(0.0, 0.0), (-0.3, 0.0)], box=BOX)
    page.settle()
    found = same(page, "sst")
    assert len(found["points"]) == len(found["values"]) < 2040
    assert found["queries"].shape == (2040, 3)
    eye = np.array(page.read("state.globe.view.toEye"))
    angle = np.degrees(np.arccos(np.clip(found["points"] @ eye, -1, 1)))
    assert angle.min() > 11.5  # the brush is 12 degrees around the middle
    assert f"{len(found['points']):,} sensors left" in page.page.locator("main").text_content()
    page.choose("Restore")
    page.stroke("Sensors", [(0.0, 0.0), (-0.3, 0.0)], box=BOX)
    page.settle()
    np.testing.assert_array_equal(same(page, "sst")["points"], whole)


def test_sensors_of_a_region(page, same, window):
    sample, _ = window
    before = page.numbers()
    page.press("Remove")  # the tropics
    page.settle()
    found = same(page, "sst")
    north = np.degrees(np.arcsin(found["points"][:, 2]))
    assert (np.abs(north) >= 19.99).all()
    assert len(north) == (np.abs(np.degrees(np.arcsin(sample.points.numpy()[:, 2]))) >= 20).sum()
    after = page.numbers()
    # Persistence knows less as well; the season needs no sensors.
    assert float(after["Persistence"][:5]) > float(before["Persistence"][:5])
    assert after["Season alone"] == before["Season alone"]
    page.page.get_by_label("Region", exact=True).select_option("South of the equator")
    page.press("Remove")
    page.settle()
    assert (same(page, "sst")["points"][:, 2] > 0.3).all()
    page.page.get_by_label("Region", exact=True).select_option("North of the equator")
    page.press("Remove")
    assert "last sensors" in page.page.locator(".error").text_content()
    assert (same(page, "sst")["points"][:, 2] > 0.3).all()
    page.press("All")
    page.settle()
    assert len(same(page, "sst")["points"]) == 2040
    assert page.numbers() == before


def test_another_week(page, same, problem):
    last = page.read("Number(document.querySelectorAll('aside input[type=range]')[1].max)")
    page.slide("From the week of", last)
    page.settle()
    count = len(problem.weeks("test", problem.record_and_climate()[0].day))
    data = problem.dataset(problem.read("test", count, None), None, None)
    found = same(page, "sst")
    np.testing.assert_allclose(found["values"], data[count - 1].values, atol=2e-3)
    np.testing.assert_allclose(found["parameters"], data[count - 1].parameters, atol=1e-6)


def test_what_is_shown(page):
    """Three views with fixed scales; errors are on the model's and on persistence's globe."""
    bars = {}
    for view in ("Anomaly", "°C", "Error"):
        page.choose(view)
        bars[view] = [text.split() for text in page.page.locator(".bar:visible").all_inner_texts()]
    anomaly = ["−4", "−2", "0", "2", "4", "K"]
    assert bars["Anomaly"] == [anomaly] * 4
    assert bars["°C"] == [["0", "10", "20", "30", "°C"]] * 4
    assert bars["Error"] == [anomaly] * 2 + [["0", "1", "2", "3", "4", "K"]] * 2


def test_by_the_keys_alone(page, same):
    page.page.get_by_label("Remove", exact=True).first.focus()
    page.page.keyboard.press("Space")
    page.figure("Sensors").focus()
    for key in ("ArrowRight", "Space", "Space"):
        page.page.keyboard.press(key)
    page.settle()
    assert 1900 < len(same(page, "sst")["points"]) < 2040
    page.page.get_by_label("time", exact=True).focus()
    page.page.keyboard.press("End")
    assert page.read("state.player.frame") == STEPS - 1
    assert f"week {STEPS}" in page.page.locator(".player").text_content()


def test_on_a_phone(phone, same):
    same(phone("sst"), "sst")
