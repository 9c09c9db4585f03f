"""The scene of models that have no other, on a page that was exported."""

import base64
import gzip
import json
import re
import shutil

import numpy as np
import pytest

import ipot
from ipot.serve.static import write_asset


@pytest.fixture
def scene(open_page):
    """Open the scene of a model of a page in its folder."""
    return lambda page, name: open_page(f"{(page / 'index.html').as_uri()}#{name}")


def test_a_sample_and_what_only_a_server_has(scene, exported, alone):
    page = scene(exported, "far")
    page.settle()
    last = page.last()
    with np.load(alone["far"] / "samples.npz") as kept:
        np.testing.assert_array_equal(last["inputs"]["values"], kept["values"][0])
    wanted = ipot.load(alone["far"], device="cpu").predict(**last["inputs"])
    np.testing.assert_allclose(last["answer"]["prediction"], wanted, rtol=0, atol=1e-4)
    assert "in this browser" in page.page.locator(".time").text_content()
    text = page.page.locator("main").text_content()
    assert "only a server reads files and knows bounds" in text
    assert not page.page.locator("input[type=file]").count()
    assert not page.page.get_by_text("50 %").count()


def test_parameters_alone(scene, exported, alone):
    page = scene(exported, "parameters")
    page.settle()
    last = page.last()
    wanted = ipot.load(alone["parameters"], device="cpu").predict(**last["inputs"])
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(last["answer"]["prediction"], wanted, rtol=1e-4, atol=1e-4 * scale)


def test_without_samples(scene, exported, tmp_path):
    bare = tmp_path / "page"
    shutil.copytree(exported, bare)
    packed = re.search(r',"([^"]*)"\)', (bare / "assets" / "models.json.js").read_text("ascii"))[1]
    facts = json.loads(gzip.decompress(base64.b64decode(packed)))
    for model in facts:
        model["samples"] = 0
    write_asset(bare / "assets", "models.json", json.dumps(facts).encode())
    page = scene(bare, "far")
    page.page.wait_for_selector(".missing:visible")
    text = page.page.locator("main").text_content()
    assert "Run ipot serve, or export it with samples.npz" in text
