"""The page with the trained models of the package: every one opens and answers as Python does.

With IPOT_PICTURES=FOLDER the pictures of README and docs are taken on the way (`make pictures`).
"""

from __future__ import annotations

import io
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ipot
from ipot import trained

WIDE = {"width": 1280, "height": 800}
FRAME_SECONDS = 0.14


@pytest.fixture(scope="module")
def shipped(serve, chromium):
    """`ipot serve` as it is started without a word: with all models of the package."""
    return serve()


@pytest.fixture
def opened(open_page, shipped):
    """Open the scene of a model of the package."""

    def start(name):
        page = open_page(f"{shipped.address}?model={name}", viewport=WIDE)
        page.page.set_default_timeout(120_000)  # a rollout takes long on a busy machine
        page.settle()
        page.press("Close this text")  # pictures are of the scene
        return page

    return start


@pytest.fixture
def pictures():
    """Where pictures go; None if nobody wants them."""
    folder = os.environ.get("IPOT_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) if folder else None


@pytest.mark.parametrize("name", trained.names())
def test_every_model_answers_as_in_python(opened, pictures, name):
    page = opened(name)
    last = page.last()
    inputs = {k: v.item() if not v.ndim else v for k, v in map(_array, last["inputs"].items())}
    wanted = ipot.load(name, device="cpu").predict(**inputs)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(last["answer"]["prediction"], wanted, rtol=1e-4, atol=1e-4 * scale)
    if pictures:
        if name == "airfoil":
            page.press("Test sample")
            page.settle()
        _image(page.page.screenshot()).save(pictures / f"{name}.webp", quality=75)


def test_the_pressure_follows_the_brush(opened, pictures):
    page = opened("darcy")
    page.press("Clear")
    page.settle()
    frames, answers = [_frame(page)], [page.read("state.answer.values")]
    page.slide("Width", 0.08)
    for stroke in _strokes():
        page.stroke("Permeability", stroke, steps=1)
        page.settle()
        frames.append(_frame(page))
        answers.append(page.read("state.answer.values"))
    changes = [np.abs(b - a).max() for a, b in itertools.pairwise(answers)]
    assert min(changes) > 1e-5
    # Water that passes easily needs less pressure.
    assert answers[-1].mean() < 0.97 * answers[0].mean()
    if pictures:
        _animate(frames, pictures / "painting.webp")


def _array(entry):
    return entry[0], np.asarray(entry[1])


def _strokes():
    """A wave from left to right, in pieces."""
    x = np.linspace(0.06, 0.94, 19)
    y = 0.5 + 0.28 * np.sin(2 * np.pi * x)
    places = list(zip(x.tolist(), y.tolist(), strict=True))
    return [places[i : i + 2] for i in range(len(places) - 1)]


def _frame(page):
    area = page.page.locator(".figures").bounding_box()
    return page.page.screenshot(clip=area)


def _image(screenshot):
    return Image.open(io.BytesIO(screenshot)).convert("RGB")


def _animate(frames, path):
    """The frames as one picture that moves."""
    images = [_image(frame) for frame in frames]
    images = [image.resize((720, round(720 * image.height / image.width))) for image in images]
    lengths = [round(1000 * FRAME_SECONDS)] * len(images)
    lengths[-1] = 2000
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=lengths, loop=0, quality=70
    )
