"""The demo from end to end, with seconds of training instead of minutes."""

from __future__ import annotations

import json

from ipot.cli import main
from ipot.recipes.demo import COARSE, FINE, demo


def test_demo_ends_in_a_table_and_a_picture(tmp_path, capsys, fails):
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--minutes", "0.02"]) == 0
    said = capsys.readouterr()
    assert "25 % of the sensors" in said.out
    assert "the mean field" in said.out
    assert "mean over the square's 8 symmetries" in said.out
    assert (out / "demo.png").stat().st_size > 50_000
    assert json.loads((out / "run" / "config.json").read_text())["preset"] == "demo"
    # What stands in the way and is no run is not removed.
    (out / "run" / "config.json").unlink()
    assert "not a run" in fails("demo", "--out", str(out), "--minutes", "0.02")
    assert (out / "run" / "best.safetensors").exists()


def test_the_features_stay_below_what_the_sensors_resolve():
    """Higher ones are free between the training queries, and finer queries then go wrong."""
    settings = demo()
    assert max(settings.model.max_frequency) / 2 < COARSE / 2
    assert settings.problem.thins(FINE, COARSE)
