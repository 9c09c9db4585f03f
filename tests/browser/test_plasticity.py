"""The scene of the forged block: the die shaped by its knots, time played, beside the solver."""

import numpy as np
import pytest
import torch

from ipot.problems import plasticity

# Small models are untrained, and so have seen no dies.
pytestmark = pytest.mark.filterwarnings("ignore:inputs far outside")

BOX = ((-56, 6.7), (-2, 30))
FIGURE = "Displacement, by the model"
SIZE = 21
GRID = (SIZE, 7, 20)
KNOT = 3  # the one in the middle
MIDDLE = 0.35 - 25  # its x in mm
LAST = 19


@pytest.fixture
def page(visit):
    return visit("plasticity")


def die(heights):
    """What the problem makes of heights."""
    found = plasticity.profiles(torch.tensor([heights], dtype=torch.float64), SIZE)
    return found.float().reshape(-1, 1).numpy()


def flat(page):
    page.press("Flat")
    page.settle()


def knot(page, index=KNOT):
    """How high a knot is at first, above its own zero."""
    heights = torch.tensor([page.read("state.heights")], dtype=torch.float64)
    return plasticity.profiles(heights, 9)[0, index + 1].item()


def scrub(page, frame):
    page.page.get_by_label("time", exact=True).evaluate(
        "(slider, frame) => { slider.value = frame; slider.dispatchEvent(new Event('input')); }",
        frame,
    )


def test_it_opens_with_an_answer(page, same):
    found = same(page, "plasticity")
    assert found["points"].shape == (SIZE, 1)
    assert found["prediction"].shape == (1, np.prod(GRID), 4)
    np.testing.assert_allclose(found["values"], die(page.read("state.heights")), rtol=1e-6)
    lines = [np.linspace(0, 1, n) for n in GRID]
    every = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, 3)
    np.testing.assert_allclose(found["queries"], every, atol=1e-6)


def test_a_knot_is_dragged(page, same):
    flat(page)
    before = same(page, "plasticity")
    assert page.read("room.scene.player.frame") == LAST
    down = 0.3 * LAST  # the die has come down, and its knots with it
    start = knot(page) - down
    page.stroke(FIGURE, [(MIDDLE, start), (MIDDLE + 5, start + 4)], box=BOX)
    page.settle()
    found = same(page, "plasticity")
    heights = page.read("state.heights")
    assert heights[KNOT] == pytest.approx(4, abs=0.1)
    assert np.count_nonzero(heights) == 1
    np.testing.assert_allclose(found["values"], die(heights), rtol=1e-6)
    assert np.abs(found["prediction"] - before["prediction"]).max() > 1e-6


def test_the_lowest_knot_dragged_down_lifts_the_others(page, same):
    """The die always begins just above the block. While the pointer stays nothing runs away."""
    flat(page)
    start = knot(page) - 0.3 * LAST
    page.stroke(FIGURE, [(MIDDLE, start), (MIDDLE, start - 3)], box=BOX, steps=20)
    page.settle()
    assert page.read("state.heights")[KNOT] == pytest.approx(-3, abs=0.1)
    values = same(page, "plasticity")["values"]
    np.testing.assert_allclose(values, die(page.read("state.heights")), rtol=1e-6)
    assert values.min() == pytest.approx(15, abs=0.2)


def test_what_was_not_seen_in_training_is_said(page):
    flat(page)
    assert "differ more" not in page.page.locator("main").text_content()
    start = knot(page) - 0.3 * LAST
    page.stroke(FIGURE, [(MIDDLE, start), (MIDDLE, 29)], box=BOX)
    page.settle()
    assert page.read("state.heights")[KNOT] == pytest.approx(1.4 * 7.7)
    assert "Heights differ more than in any die" in page.page.locator("main").text_content()


def test_by_the_keys_alone(page, same):
    flat(page)
    page.figure(FIGURE).focus()
    keyboard = page.page.keyboard
    for key in ("ArrowUp", "Space", *("ArrowUp",) * 4, "Space"):
        keyboard.press(key)
    page.settle()
    heights = page.read("state.heights")
    assert heights[KNOT] == pytest.approx(2, abs=1e-6)
    np.testing.assert_allclose(same(page, "plasticity")["values"], die(heights), rtol=1e-6)


def test_time_is_scrubbed_and_played(page, same):
    """The block that is painted is that of the frame."""
    flat(page)
    answer = same(page, "plasticity")["prediction"].reshape(*GRID, 4)
    text = page.page.locator(".player output")

    def painted():
        figure = page.read("state.painted.answer")
        return np.reshape(figure["points"], (*GRID[:2], 2)), figure["values"].reshape(GRID[:2])

    for frame in (0, 7, LAST):
        scrub(page, frame)
        assert text.text_content() == f"{frame / 10:.1f} ms"
        places, length = painted()
        np.testing.assert_allclose(places, answer[:, :, frame, :2], rtol=1e-6)
        wanted = np.linalg.norm(answer[:, :, frame, 2:], axis=-1)
        np.testing.assert_allclose(length, wanted, rtol=1e-5)
    page.choose("Upwards")
    np.testing.assert_allclose(painted()[1], answer[:, :, LAST, 3], rtol=1e-6)
    page.press("Play")
    page.page.wait_for_function("() => window.ipot.room.scene.player.frame === 2")
    page.press("Pause")
    assert not page.read("room.scene.player.playing")


def test_while_something_moves_one_frame_is_asked(page):
    scrub(page, 7)
    given = page.read("room.asked.question({ moving: true, rows: 100 })")
    assert given["coarse"]
    queries = given["inputs"]["queries"]["data"].reshape(-1, 3)
    assert 20 < len(queries) <= 100
    np.testing.assert_allclose(queries[:, 2], 7 / 19, rtol=1e-6)
    assert given["lines"][2] == [7]
    for axis, count in ((0, SIZE), (1, 7)):
        places = np.unique(queries[:, axis])
        assert places.min() == 0
        assert places.max() == 1
        steps = np.array(given["lines"][axis])
        np.testing.assert_allclose(places, steps / (count - 1), atol=1e-6)


def said(page, name):
    return float(page.numbers()[name].removesuffix("%"))


def distance(answer, truth):
    return 100 * np.linalg.norm(answer - truth) / np.linalg.norm(truth)


def test_the_solver_beside_the_model(page, same):
    flat(page)
    page.press("Solve")
    answer = same(page, "plasticity")["prediction"].reshape(*GRID, 4)
    truth = page.read("room.scene.compared.truth.values").reshape(*GRID, 4)
    assert not truth[:, :, 0, 2:].any()  # at first nothing has moved
    assert -6 < truth[..., 3].min() < -5  # the block follows the die, as far as it goes
    below = die(page.read("state.heights"))[10, 0] - 0.3 * np.arange(20)
    np.testing.assert_allclose(truth[10, 0, 3:, 1], below[3:], atol=0.01)  # and touches it
    assert said(page, "relative error") == pytest.approx(distance(answer, truth), rel=0.05)
    moved = distance(answer[..., 2:], truth[..., 2:])
    assert said(page, "relative error of the displacement") == pytest.approx(moved, rel=0.05)
    page.press("Random draw")
    page.settle()
    assert not page.figure("Error of the model").is_visible()


def test_a_sample_with_its_solution(page, same, models):
    page.press("Test sample")
    page.settle()
    found = same(page, "plasticity")
    with np.load(models["plasticity"] / "samples.npz") as kept:
        np.testing.assert_array_equal(found["values"], kept["values"][0])
        truth = kept["targets"][0]
    np.testing.assert_allclose(die(page.read("state.heights")), found["values"], atol=0.4)
    wanted = distance(found["prediction"], truth)
    assert said(page, "relative error") == pytest.approx(wanted, rel=0.05)


def test_on_a_phone(phone, same):
    same(phone("plasticity"), "plasticity")
