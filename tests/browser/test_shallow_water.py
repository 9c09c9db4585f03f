"""The scene of shallow water: a globe that is turned, painted on and followed in time."""

import numpy as np
import pytest

from ipot.problems.shallow_water import SCALES

ROWS, STEPS = 8, 3
BOX = ((-1.02, 1.02), (-1.02, 1.02))


@pytest.fixture
def page(visit):
    return visit("shallow_water")


@pytest.fixture
def samples(models):
    with np.load(models["shallow_water"] / "samples.npz") as content:
        return dict(content)


def eye(page):
    """The place in the middle of the globe, as a unit vector."""
    return np.array(page.read("state.globe.view.toEye"))


def test_it_opens_with_a_sample(page, same, samples):
    found = same(page, "shallow_water")
    np.testing.assert_array_equal(found["values"], samples["values"][0])
    np.testing.assert_array_equal(found["points"], samples["points"][0])
    assert found["prediction"].shape == (STEPS, 2 * ROWS**2, 2)


def test_scrubbing_shows_that_hour_of_both_fields(page, same, samples):
    answer = same(page, "shallow_water")["prediction"]
    truth = samples["targets"][0]
    for name, channel, unit in (("Vorticity", 1, 86400), ("Height", 0, 1)):
        page.choose(name)
        for frame in (2, 0):
            page.page.get_by_label("time", exact=True).fill(str(frame))
            gap = (answer - truth)[frame, :, channel]
            error = np.linalg.norm(gap) / np.linalg.norm(truth[frame, :, channel])
            numbers = page.numbers()
            said = numbers[f"relative error, {frame + 1} h"]
            assert float(said.removesuffix("%")) == pytest.approx(100 * error, rel=0.06)
            most, *_ = numbers[f"largest error, {frame + 1} h"].split()
            wanted = unit * np.abs(gap).max() / SCALES[name.lower()]
            assert float(most) == pytest.approx(wanted, rel=0.01)


def test_the_globe_is_turned_by_pointer_and_keys(page, same):
    before, asked = eye(page), page.last()["inputs"]["values"]
    picture = page.pixels("Solver")
    page.stroke("Start", [(0.0, 0.0), (0.5, 0.0)], box=BOX)
    after = eye(page)
    assert before @ after < 0.95
    assert not np.array_equal(page.pixels("Solver"), picture)  # all globes turn
    # What was under the pointer has followed it, and north is up as before.
    assert page.read("state.globe.view.project(given)", before.tolist())[0] > 0.3
    assert after[2] == pytest.approx(before[2])
    page.figure("Start").focus()
    page.page.keyboard.press("ArrowUp")
    assert eye(page)[2] > after[2]
    page.settle()
    np.testing.assert_array_equal(same(page, "shallow_water")["values"], asked)


def test_the_picture_shows_the_field(page, samples):
    """The middle of the globe has the colour of the value there."""
    page.choose("Height")
    field = samples["values"][0, :, 0] / SCALES["height"]
    nearest = samples["points"][0] @ eye(page)
    row = int(nearest.argmax())
    x, y, z = page.read("state.globe.view.project(given)", samples["points"][0, row].tolist())
    assert z > 0.9
    canvas = page.pixels("Start")
    side = canvas.shape[0]
    at = [round(side * (1.02 - y) / 2.04), round(side * (x + 1.02) / 2.04)]
    colour = page.read("state.rollout.scale().css(given)", float(field[row]))
    wanted = np.array([int(part) for part in colour[4:-1].split()])
    assert np.abs(canvas[at[0], at[1], :3].astype(int) - wanted).max() < 25
    assert canvas[2, 2, 3] == 0  # beside the globe


@pytest.mark.parametrize(("tool", "channel"), [("Vortex", 1), ("Hill", 0)])
def test_what_is_painted_is_asked(page, same, tool, channel):
    page.press("Calm")
    page.settle()
    assert not same(page, "shallow_water")["values"].any()
    page.choose(tool)
    page.slide("Width", 20)
    page.stroke("Start", [(-0.4, -0.4), (0.0, 0.0)], box=BOX)
    page.settle()
    found = same(page, "shallow_water")
    field = found["values"][:, channel]
    place = found["points"][np.abs(field).argmax()]
    assert place @ eye(page) > 0.8  # where it was let go
    assert field[np.abs(field).argmax()] > 0
    if tool == "Hill":
        assert not found["values"][:, 1].any()
    page.choose("↻ or hollow")
    page.press("Calm")
    page.stroke("Start", [(0.0, 0.0)], box=BOX)
    page.settle()
    field = same(page, "shallow_water")["values"][:, channel]
    assert field[np.abs(field).argmax()] < 0
    assert not page.figure("Solver").is_visible()


def test_the_solver_beside_the_model(page, same, models):
    from ipot.serve.solvers import problem_in, solved

    page.choose("Hill")
    page.stroke("Start", [(0.0, 0.0)], box=BOX)
    page.settle()
    found = same(page, "shallow_water")
    page.press("Solve")
    truth = page.read("state.rollout.truth.data").reshape(STEPS, -1, 2)
    given = {name: found[name] for name in ("points", "values")}
    tells = {"steps": STEPS, "times": None, "rows": 1 << 20}
    wanted = solved(problem_in(models["shallow_water"]), given, tells)["targets"]
    np.testing.assert_allclose(truth, wanted, atol=1e-5)
    assert page.figure("Error").is_visible()


def test_painting_by_the_keys_alone(page, same):
    page.press("Calm")
    page.settle()
    page.choose("Hill")
    page.figure("Start").focus()
    for key in ("ArrowRight", "Space", "Space"):
        page.page.keyboard.press(key)
    page.settle()
    found = same(page, "shallow_water")
    place = found["points"][found["values"][:, 0].argmax()]
    assert found["values"].max() > 0
    assert place @ eye(page) > 0.8


def test_on_a_phone(phone, same):
    same(phone("shallow_water"), "shallow_water")
