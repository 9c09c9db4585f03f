"""What loading does not do: run code of others, import a trainer, ask the network."""

import socket
import sys

import pytest
import torch
from own import tiny

import ipot
from ipot import registry
from ipot.errors import RunError
from ipot.recipes.experiment import build_model
from ipot.saved.folder import read_folder, read_saved, write_folder
from saved.folders import at, change, saved
from saved.small import facts

OUTSIDE = """
from dataclasses import dataclass
import torch
from ipot.models.base import OneStep

@dataclass(frozen=True, kw_only=True)
class Config:
    width: int = 3

class Mean(OneStep):
    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.map = torch.nn.Linear(spec.channels, len(spec.outputs))

    def advance(self, batch):
        return self.map(batch.values.mean(1, keepdim=True)).expand(-1, batch.queries.shape[-2], -1)

MODEL = Mean
"""


@pytest.fixture
def forgotten():
    """Whatever a test imports of a module of somebody else is not there for the next test."""
    yield
    for module in ("theirs.mean", "theirs"):
        sys.modules.pop(module, None)


def test_code_outside_the_package_is_not_run_unless_trusted(tmp_path, monkeypatch, forgotten):
    home = tmp_path / "code"
    (home / "theirs").mkdir(parents=True)
    (home / "theirs" / "__init__.py").touch()
    (home / "theirs" / "mean.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(home)
    spec, name = facts(), "theirs.mean"
    settings = registry.module("models", name).Config()
    before = build_model(name, settings, spec)
    assert before.name == name
    told = saved(model_name=name, model=settings, spec=spec, layout={}, bounds=None)
    place = write_folder(tmp_path / "m", before, told)
    for module in ("theirs.mean", "theirs"):
        del sys.modules[module]
    with pytest.raises(RunError, match=r"'theirs\.mean', a module outside ipot.*trusted=True"):
        read_folder(place)
    assert "theirs" not in sys.modules
    after, found = read_folder(place, trusted=True)
    assert found.model_name == name
    assert torch.equal(after.inner.map.weight, before.inner.map.weight)


def test_a_model_of_ours_by_its_long_name_is_ours(place):
    change(place, at("model", "name", value="ipot.models.ipot"))
    assert read_saved(place).model_name == "ipot"
    change(place, at("model", "name", value="ipot.models..ipot"))
    with pytest.raises(RunError, match="outside ipot"):
        read_saved(place)


def test_no_trainer_is_imported():
    """By anything that reads a folder, now or when it is called."""
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("ipot", cache_dir=None)
    for package in ("training", "recipes", "problems"):
        chain = graph.find_shortest_chain("ipot.saved.folder", f"ipot.{package}", as_packages=True)
        assert chain is None


def test_the_network_is_not_asked(place, monkeypatch):
    def refuse(*given, **named):
        raise AssertionError("the network was asked")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    assert ipot.load(place, device="cpu").spec.name == "a test"


def test_the_run_inside_does_not_stand_in_for_a_damaged_model(tmp_path):
    ipot.fit(tiny.data("mesh", 12), epochs=1, out=tmp_path / "model", device="cpu", quiet=True)
    for content in (b"\x00\x01", None):
        file = tmp_path / "model" / "config.json"
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        with pytest.raises(RunError, match="missing or damaged"):
            ipot.load(tmp_path / "model")
    assert ipot.load(tmp_path / "model" / "training")
