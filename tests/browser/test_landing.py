"""What ipot is, in a few sentences above the scene: seen at first, put away, asked for again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIZES = {"wide": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
TEXT = "#landing"


@pytest.mark.parametrize("size", SIZES)
def test_it_is_seen_with_the_scene_below_it(visit, size):
    page = visit("darcy", viewport=SIZES[size])
    text = page.page.locator(TEXT)
    assert text.is_visible()
    said = text.text_content()
    for part in ("trained operator", "sensors", "Solve", "ipot fit", "ipot serve model"):
        assert part in said, part
    figure = page.page.locator("figure:visible").first.locator("canvas").bounding_box()
    seen = SIZES[size]["height"] - figure["y"]
    assert seen >= min(figure["height"], 200), "the first figure is below the fold"
    assert page.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]


def test_it_is_put_away_and_asked_for_again(visit):
    page = visit("darcy")
    text, about = page.page.locator(TEXT), page.page.get_by_role("button", name="About")
    assert about.get_attribute("aria-expanded") == "true"
    page.press("Close this text")
    assert text.is_hidden()
    assert about.evaluate("(button) => button === document.activeElement")
    page.go()
    page.settle()
    assert text.is_hidden(), "what was put away came back"
    page.press("About")
    assert text.is_visible()
    page.go()
    page.settle()
    assert text.is_visible()


def test_a_page_without_a_server_has_no_solver_in_it(browser, open_page, models, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    command = [sys.executable, "-m", "ipot", "serve", models["burgers"], "--export", tmp_path / "p"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    page = open_page((tmp_path / "p" / "index.html").as_uri())
    page.settle()
    said = page.page.locator(TEXT).text_content()
    assert "ipot fit" in said
    assert "Test sample" in said
    assert "Solve" not in said
    page.press("Close this text")
    assert page.page.locator(TEXT).is_hidden()
