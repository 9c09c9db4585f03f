"""The scene of Navier-Stokes: samples, painted vortices, the rollout in time and the solver."""

import numpy as np
import pytest
import torch

from ipot.solvers import navier_stokes as equation

SIDE, HISTORY, STEPS = 8, 10, 3


@pytest.fixture
def page(visit):
    return visit("navier_stokes")


@pytest.fixture
def samples(models):
    with np.load(models["navier_stokes"] / "samples.npz") as content:
        return dict(content)


def scrub(page, frame):
    page.page.get_by_label("time", exact=True).fill(str(frame))


def spread(page, title):
    """How much the colours of a figure differ."""
    return page.pixels(title)[..., :3].astype(float).std()


def test_it_opens_with_a_sample(page, same, samples):
    found = same(page, "navier_stokes")
    np.testing.assert_array_equal(found["values"], samples["values"][0])
    np.testing.assert_allclose(found["points"], samples["points"][0])
    assert found["prediction"].shape == (STEPS, SIDE**2, 1)
    np.testing.assert_array_equal(
        page.read("state.rollout.truth.data"), samples["targets"][0].ravel()
    )
    assert f"{SIDE**2} places at {STEPS} times" in page.page.locator(".time").text_content()


def test_scrubbing_shows_that_time(page, same, samples):
    answer = same(page, "navier_stokes")["prediction"][..., 0]
    truth = samples["targets"][0, ..., 0]
    errors = np.linalg.norm(answer - truth, axis=1) / np.linalg.norm(truth, axis=1)
    assert len({round(100 * e, 1) for e in errors}) == STEPS
    pictures = []
    for frame in range(STEPS):
        scrub(page, frame)
        numbers = page.numbers()
        said = numbers[f"relative error, t = {frame + 1}"]
        assert float(said.removesuffix("%")) == pytest.approx(100 * errors[frame], rel=0.06)
        whole = np.linalg.norm(answer - truth) / np.linalg.norm(truth)
        said = numbers["relative error, all times"]
        assert float(said.removesuffix("%")) == pytest.approx(100 * whole, rel=0.06)
        pictures.append(page.pixels("Solver"))
        # The picture has the value of the truth at its middle, in the colour of the scale.
        value = truth[frame].reshape(SIDE, SIDE)[SIDE // 2, SIDE // 2]
        colour = page.read("state.rollout.scale().css(given)", float(value))
        high, wide, _ = pictures[-1].shape
        middle = pictures[-1][high // 2, wide // 2, :3]
        wanted = [int(part) for part in colour[4:-1].split()]
        assert np.abs(middle.astype(int) - wanted).max() < 25
    assert not np.array_equal(pictures[0], pictures[-1])


def test_it_plays_and_stops(page):
    page.page.get_by_role("button", name="Play").click()
    page.page.wait_for_function("() => window.ipot.room.scene.state.rollout.frame === 2")
    page.page.get_by_role("button", name="Pause").click()
    frame = page.read("state.rollout.frame")
    page.page.wait_for_timeout(500)
    assert page.read("state.rollout.frame") == frame


def test_it_plays_by_itself_unless_things_are_to_keep_still(visit, page):
    assert not page.read("state.rollout.player.playing")
    moving = visit("navier_stokes", reduced_motion="no-preference")
    moving.page.wait_for_function("() => window.ipot.room.scene.state.rollout.frame > 0")
    assert moving.page.locator(".numbers").get_attribute("aria-live") == "off"
    moving.page.get_by_role("button", name="Pause").click()
    assert moving.page.locator(".numbers").get_attribute("aria-live") == "polite"


def test_a_solution_that_comes_too_late_is_not_shown(page):
    button = page.page.get_by_role("button", name="Solv")
    button.click()
    page.press("Still water")
    assert page.read("state.rollout.truth") is None
    page.page.wait_for_function("(b) => !b.disabled", arg=button.element_handle())
    page.settle()
    assert page.read("state.rollout.truth") is None
    assert not page.figure("Solver").is_visible()


def test_a_vortex_is_dragged_and_stays(page, same):
    page.press("Still water")
    page.settle()
    values = same(page, "navier_stokes")["values"]
    assert not values[:, 0].any()
    assert values[:, -1].any()  # the water is stirred all the time
    page.choose("Clockwise")
    page.stroke("Start", [(0.25, 0.25), (0.5, 0.75)])
    page.settle()
    first = same(page, "navier_stokes")["values"][:, 0].reshape(SIDE, SIDE)
    lowest = np.unravel_index(first.argmin(), (SIDE, SIDE))
    assert lowest == (4, 6)  # where it was let go, and no trace of where it was taken
    assert np.abs(first[2, 2]) < 0.05 * np.abs(first).max()
    assert abs(first.mean()) < 1e-6
    page.choose("Counterclockwise")
    page.stroke("Start", [(0.25, 0.25)])
    page.settle()
    values = same(page, "navier_stokes")["values"]
    first = torch.from_numpy(values[:, 0].reshape(1, SIDE, SIDE)).double()
    assert first[0, 2, 2] > 0 > first[0, 4, 6]
    # The model sees what came of it until now.
    times = [float(t) for t in range(1, HISTORY)]
    wanted = equation.solve(first, viscosity=1e-3, times=times)[0].flatten(1).T
    np.testing.assert_allclose(values[:, 1:], wanted, atol=1e-4 * np.abs(values).max())
    assert not page.figure("Solver").is_visible()


def test_a_start_unlike_the_training_is_told(page):
    caption = page.page.locator("figure", has_text="Start").locator(".caption").first
    assert caption.text_content() == "t = −9. Press and drag to put a vortex in."
    page.stroke("Start", [(0.5, 0.5)])
    page.settle()
    assert np.abs(page.read("state.frames[0]")).max() > 1.15
    assert caption.text_content() == "t = −9. Stronger than any start in training."
    page.press("Still water")
    page.settle()
    assert "Stronger" not in caption.text_content()


def test_the_solver_beside_the_model(page, same):
    page.stroke("Start", [(0.5, 0.5)])
    page.settle()
    found = same(page, "navier_stokes")
    page.press("Solve")
    truth = page.read("state.rollout.truth.data").reshape(STEPS, SIDE, SIDE)
    last = torch.from_numpy(found["values"][:, -1].reshape(1, SIDE, SIDE)).double()
    waves = torch.fft.fftshift(torch.fft.fft2(last))
    wide = torch.zeros(1, 16, 16, dtype=waves.dtype)
    wide[:, 4:12, 4:12] = waves
    fine = torch.fft.ifft2(torch.fft.ifftshift(wide, dim=(-2, -1))).real * 4
    frames = equation.solve(fine.float(), viscosity=1e-3, times=[1.0, 2.0, 3.0])[0]
    np.testing.assert_allclose(truth, frames[:, ::2, ::2].numpy(), atol=1e-3)
    assert "by Fourier's method" in page.page.locator("main").text_content()
    assert page.figure("Error").is_visible()
    scale, wrong = page.read("[state.rollout.scale(), state.rollout.scale().forErrors()]")
    assert wrong["high"] - wrong["low"] == scale["high"] - scale["low"]


def test_by_the_keys_alone(page, same):
    page.press("Still water")
    page.settle()
    page.figure("Start").focus()
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "Space", "Space"):
        page.page.keyboard.press(key)
    page.settle()
    values = same(page, "navier_stokes")["values"][:, 0].reshape(SIDE, SIDE)
    assert np.unravel_index(values.argmax(), values.shape) == (6, 4)  # at 0.5 + 10 steps of 0.03
    page.page.get_by_label("time", exact=True).focus()
    page.page.keyboard.press("ArrowRight")
    assert page.read("state.rollout.frame") == 1


def test_on_a_phone(phone, same):
    found = phone("navier_stokes")
    same(found, "navier_stokes")
    assert spread(found, "Start") > 10
