"""The scene of the airfoil: bent by the corners of its box, beside the solver."""

import re

import numpy as np
import pytest
import torch

from ipot.solvers import airfoil_mesh

BOX = ((-0.45, 1.45), (-0.6, 0.6))
FIGURE = "Mach number, by the model"
CORNER = 6  # above the wing, a quarter behind its nose


@pytest.fixture
def page(visit):
    return visit("airfoil")


def straight(page):
    page.press("Straight")
    page.settle()


def departure(moved):
    """What the problem gives a model for a wing: how far each of 45 x 11 nodes is up."""
    both = torch.tensor([moved, [0.0] * 8], dtype=torch.float64)
    bent, plain = airfoil_mesh.c_mesh(both)[:, ::5, ::5, 1].float()
    return (bent - plain).reshape(-1, 1).numpy()


def test_it_opens_with_an_answer(page, same):
    found = same(page, "airfoil")
    assert found["points"].shape == (495, 2)
    assert found["prediction"].shape == (1, 495, 1)
    moved = page.read("state.moved")
    assert moved[0] == 0
    np.testing.assert_allclose(found["values"], departure(moved), atol=1e-6)
    assert "s on the server for 495 places" in page.page.locator(".time").text_content()


def test_a_corner_is_dragged(page, same):
    straight(page)
    before = same(page, "airfoil")
    assert not before["values"].any()
    page.stroke(FIGURE, [(0.25, 0.1), (0.4, 0.13)], box=BOX)
    page.settle()
    found = same(page, "airfoil")
    moved = page.read("state.moved")
    assert moved[CORNER] == pytest.approx(0.03, abs=0.003)
    assert np.count_nonzero(moved) == 1  # it goes up and down, and no other goes along
    np.testing.assert_allclose(found["values"], departure(moved), atol=1e-6)
    assert np.abs(found["prediction"] - before["prediction"]).max() > 1e-6


def test_what_was_not_seen_in_training_is_said(page, same):
    straight(page)
    assert "farther than" not in page.page.locator("main").text_content()
    page.stroke(FIGURE, [(0.25, 0.1), (0.25, 0.5)], box=BOX)
    page.settle()
    assert page.read("state.moved")[CORNER] == pytest.approx(0.08)
    assert "farther than any wing in training" in page.page.locator("main").text_content()
    same(page, "airfoil")


def test_the_first_corner_stays(page):
    straight(page)
    page.stroke(FIGURE, [(-0.25, -0.1), (-0.25, 0.0)], box=BOX)
    assert not np.any(page.read("state.moved"))


def test_by_the_keys_alone(page, same):
    straight(page)
    page.figure(FIGURE).focus()
    keyboard = page.page.keyboard
    for key in ("Shift+ArrowLeft",) * 4 + ("ArrowUp",) * 2 + ("Space",) + ("ArrowUp",) * 3:
        keyboard.press(key)
    keyboard.press("Space")
    page.settle()
    moved = page.read("state.moved")
    assert moved[CORNER] == pytest.approx(0.03, abs=1e-6)
    np.testing.assert_allclose(same(page, "airfoil")["values"], departure(moved), atol=1e-6)


def test_while_something_moves_fewer_nodes_are_asked(page):
    given = page.read("room.asked.question({ moving: true, rows: 100 })")
    assert given["coarse"]
    points = given["inputs"]["points"]["data"].reshape(-1, 2)
    queries = given["inputs"]["queries"]["data"].reshape(-1, 2)
    nodes = given["mesh"]["nodes"]
    assert len(queries) == len(nodes) <= 100
    np.testing.assert_array_equal(queries, points[nodes])
    # They are those around the wing, with the whole of it and what is seen behind it among them.
    places = np.reshape(given["mesh"]["points"], (-1, 2))
    mesh = airfoil_mesh.c_mesh(torch.tensor([page.read("state.moved")], dtype=torch.float64))
    np.testing.assert_allclose(places, mesh[0, ::5, ::5].reshape(-1, 2)[nodes], atol=1e-9)
    assert places[:, 0].min() < -0.45
    assert 1.45 < places[:, 0].max() < 40
    assert 0.6 < np.abs(places[:, 1]).max() < 10


def test_the_solver_beside_the_model(page, same):
    straight(page)
    page.page.evaluate(
        """() => {
            window.said = [];
            const all = [...document.querySelectorAll("button")];
            const button = all.find((one) => one.textContent === "Solve");
            const tell = () => window.said.push(button.textContent);
            new MutationObserver(tell).observe(button, { childList: true });
        }"""
    )
    page.press("Solve")
    found = same(page, "airfoil")
    truth = page.read("room.scene.compared.truth.values")
    # The flow of a straight wing is its own mirror image, slow at the nose and at 0.8 far away.
    field = truth.reshape(45, 11)
    np.testing.assert_allclose(field, field[::-1], atol=0.02)
    assert field[:, 0].min() < 0.5
    assert field[10:35, -1] == pytest.approx(0.8, abs=0.02)
    answer = found["prediction"].ravel()
    error = np.linalg.norm(answer - truth) / np.linalg.norm(truth)
    said = float(page.numbers()["relative error"].removesuffix("%"))
    assert said == pytest.approx(100 * error, rel=0.05)
    assert page.figure("Error of the model").is_visible()
    assert any("%" in text for text in page.page.evaluate("window.said"))
    page.press("Random draw")
    page.settle()
    assert not page.figure("Error of the model").is_visible()


@pytest.mark.parametrize("how", ["Cancel", "Test sample", "another scene"])
def test_a_solver_at_work_is_ended(page, how):
    """Its question is never answered here: only a page that hangs up comes to an end."""
    asked, ended = [], []
    page.page.route("**/solve", lambda route: asked.append(route))
    page.page.on("requestfailed", lambda request: ended.append((request.url, request.failure)))
    assert page.page.get_by_role("button", name="Cancel").count() == 0
    page.page.get_by_role("button", name="Solve", exact=True).click()
    page.page.get_by_text("Solving …").wait_for()
    assert not page.page.locator(".error").is_visible()
    if how == "another scene":
        page.page.locator("nav a", has_text="Darcy").click()
        page.page.get_by_text("Permeability").first.wait_for()
    else:
        page.press(how)
        page.page.get_by_role("button", name="Solve", exact=True).wait_for()
        assert page.page.get_by_role("button", name="Cancel").count() == 0
        assert "Solving" not in page.page.locator("main").inner_text()
    page.settle()
    assert len(asked) == 1
    assert [(url.rpartition("/")[2], why) for url, why in ended] == [("solve", "net::ERR_ABORTED")]
    if how == "another scene":
        return
    assert page.figure("Mach number, solved").is_visible() == (how == "Test sample")
    page.page.unroute("**/solve")
    page.press("Solve")
    assert "by finite volumes" in page.page.locator("main").text_content()


def test_a_solver_is_ended_when_something_else_is_shown(page):
    straight(page)
    page.page.get_by_role("button", name="Solve", exact=True).click()
    page.page.get_by_text(re.compile(r"Solving … \d")).wait_for()
    page.press("Random draw")
    page.page.get_by_role("button", name="Solve", exact=True).wait_for()
    page.settle()
    assert not page.figure("Mach number, solved").is_visible()


def test_a_sample_with_its_solution(page, same, models):
    page.press("Test sample")
    page.settle()
    found = same(page, "airfoil")
    with np.load(models["airfoil"] / "samples.npz") as kept:
        np.testing.assert_array_equal(found["values"], kept["values"][0])
        truth = kept["targets"][0].ravel()
    moved = page.read("state.moved")  # the handles are where the sample's were
    np.testing.assert_allclose(departure(moved), found["values"], atol=1e-5)
    answer = found["prediction"].ravel()
    said = float(page.numbers()["relative error"].removesuffix("%"))
    error = np.linalg.norm(answer - truth) / np.linalg.norm(truth)
    assert said == pytest.approx(100 * error, rel=0.05)


def test_what_is_read_under_the_pointer_and_painted(page):
    """The field is painted where the mesh has it, and nothing of it inside of the wing."""
    straight(page)
    canvas = page.figure(FIGURE)
    area = canvas.bounding_box()

    def read(x, y):
        across = area["x"] + (x - BOX[0][0]) / (BOX[0][1] - BOX[0][0]) * area["width"]
        down = area["y"] + (BOX[1][1] - y) / (BOX[1][1] - BOX[1][0]) * area["height"]
        page.page.mouse.move(across, down)
        return page.page.locator("figcaption").first.get_attribute("data-reading")

    assert read(0.5, 0.0) == ""
    answer = page.last()["answer"]["prediction"].ravel()
    mesh = airfoil_mesh.c_mesh(torch.zeros(1, 8, dtype=torch.float64))[0, ::5, ::5].reshape(-1, 2)
    place = np.array([0.5, 0.35])
    node = np.argmin(np.linalg.norm(mesh.numpy() - place, axis=1))
    assert float(read(*place)) == pytest.approx(answer[node], rel=0.01, abs=1e-5)
    painted = page.pixels(FIGURE)
    assert (painted[..., 3] == 255).all()
    # Nothing is drawn on the wake, where the mesh meets itself.
    height, width = painted.shape[:2]
    behind = painted[height // 2 - 6 : height // 2 + 6, round(0.85 * width), :3].astype(int)
    assert np.abs(np.diff(behind, axis=0)).max() < 40


def test_on_a_phone(phone, same):
    same(phone("airfoil"), "airfoil")
