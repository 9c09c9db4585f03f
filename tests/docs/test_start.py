"""The Python of README.md and docs/start.md runs as it stands, on a run that is small."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import ipot
from ipot.recipes import default
from ipot.recipes.experiment import Data

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """`ipot.experiment` gives a tiny experiment, and all files go to a folder of the test."""
    whole = ipot.experiment

    def tiny(*names, **options):
        settings = whole(*names, **options)
        return replace(
            settings,
            problem=replace(settings.problem, size=29, resolution=15),
            data=Data(train=8, validation=4, test=4),
            model=replace(settings.model, latents=8, width=16, blocks=1, heads=2, cross_heads=2),
            training=replace(settings.training, epochs=1, batch=4),
        )

    fit = ipot.fit

    def brief(data, **options):
        sizes = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "cross_heads": 2}
        return fit(data, epochs=1, model=sizes, quiet=True)

    monkeypatch.setattr("ipot.api.fit", brief)
    monkeypatch.setattr("ipot.api.experiment", tiny)
    monkeypatch.setenv("IPOT_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert default.recipe("darcy").training.epochs > 1


@pytest.mark.plain  # the pages are for users, who may write 10 for 10.0
@pytest.mark.usefixtures("traced_only")
@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_python_of_a_page_runs(page, small, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert names["u"].shape[-1] == 1
    assert names["surrogate"].settings.data.train == 8


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/own-data.md"])
def test_what_a_page_draws_is_the_same_every_time(page):
    text = (ROOT / page).read_text()
    assert not re.findall(r"np\.random\.(?!default_rng\(\w)\w+\(", text)
