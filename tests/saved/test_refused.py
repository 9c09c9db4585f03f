"""A saved model whose settings were edited is refused with what is wrong, or brought up to date."""

import resource

import pytest
import torch

from ipot.errors import IpotError, RunError
from ipot.models import _shapes
from ipot.saved import config_file
from ipot.saved.folder import is_saved, read_folder, read_saved
from saved.folders import SPEC, at, change, saved
from saved.small import model

REFUSED = {
    "kind": (at("kind", value="a-picture"), "kind 'a-picture'"),
    "no kind": (at("kind", drop=True), "kind None"),
    "later": (at("version", value=2), r"version 2; this ipot .* reads versions up to 1"),
    "text": (at("version", value="1"), "version '1'"),
    "truth": (at("version", value=True), "version True"),
    "earlier": (at("version", value=0), "version 0, which .* no longer reads"),
    "key": (at("colour", value=1), "unknown colour; known: kind"),
    "lost": (at("spec", drop=True), "spec missing"),
    "setting": (
        at("model", "config", "depth", value=1),
        "model: unknown settings depth; known: width",
    ),
    "fact": (at("spec", "gravity", value=1), "spec: unknown gravity"),
    "no outputs": (at("spec", "outputs", drop=True), "spec: outputs missing"),
    "text for a number": (
        at("model", "config", "width", value="8"),
        "width must be a whole number, got '8'",
    ),
    "truth for a number": (at("model", "config", "width", value=True), "width must be a whole"),
    "number for a truth": (at("model", "config", "tied", value=1), "tied must be true or false"),
    "one of a few": (
        at("model", "config", "decoder", value="wide"),
        "decoder must be 'full' or 'narrow', got 'wide'",
    ),
    "below zero": (at("model", "config", "width", value=-8), "width must be positive"),
    "indivisible": (at("model", "config", "heads", value=3), "multiple of model.heads"),
    "infinite": (at("spec", "dt", value=float("inf")), "dt must be a number, got inf"),
    "huge": (at("spec", "dt", value=10**400), "dt must be a number"),
    "standing still": (at("spec", "dt", value=0.0), "dt must be positive"),
    "many steps": (at("spec", "steps", value=10**12), "steps between 1 and"),
    "turned around": (at("spec", "domain", value=[[1, 0], [0, 1]]), "a side from 1.0 to 0.0"),
    "half a box": (at("spec", "domain", value=[[1], [0]]), r"domain\[0\] must be a list of 2"),
    "a list for a need": (at("spec", "provides", value=[[1]]), "must be one of GRID"),
    "a need": (at("spec", "provides", value=["MAGIC"]), "must be one of GRID"),
    "a spec": (at("spec", value=[1]), r"spec must be an object with names, got \[1\]"),
    "a model": (at("model", value="ipot"), "model must be an object with names"),
    "half a model": (at("model", "config", drop=True), "model must have a name and a config"),
    "a name": (at("model", "name", value=3), "model.name must be a text"),
    "no model": (at("model", "name", value="ipod"), "unknown model 'ipod'"),
    "a layout": (at("layout", value=3), "layout must be an object"),
    "more channels": (at("spec", "inputs", value=["a"]), "other shape or type: input_mean"),
    "other latents": (
        at("model", "config", "latents", value=5),
        r"other shape or type: inner\.encoder\.latents",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_were_edited_are_refused_by_name(place, case):
    edit, message = REFUSED[case]
    change(place, edit)
    with pytest.raises(RunError, match=message) as error:
        read_folder(place)
    assert str(place) in str(error.value)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("latents", 10**12, "latents is 1000000000000, and no tensor"),
        ("width", 10**9, "width is"),
        ("blocks", 10**9, "blocks is"),
        ("blocks", 4096, "a model of more tensors than the"),
        ("width", 4096, "other shape"),
        ("feed_forward", 4096, "other shape"),
        ("bins", [10**10], "bins is"),
        ("bins", [4096], "other shape"),
    ],
)
def test_settings_that_ask_for_memory_are_refused_before_they_get_it(
    place, monkeypatch, setting, value, message
):
    built = _shapes.built

    def only_without_memory(*given, device="cpu"):
        assert device == "meta", "the model was built"
        return built(*given, device=device)

    monkeypatch.setattr(_shapes, "built", only_without_memory)
    change(place, at("model", "config", setting, value=value))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RunError, match=message):
        read_folder(place)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000  # KiB; the largest of these would take terabytes


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "3", '{"kind": '])
def test_a_config_that_is_no_json_is_refused(place, text):
    (place / "config.json").write_text(text)
    assert not is_saved(place)
    with pytest.raises(RunError, match=r"config\.json"):
        read_folder(place)


def test_a_config_that_is_too_large_is_not_read(place, monkeypatch):
    monkeypatch.setattr(config_file, "LARGEST", 100)
    with pytest.raises(RunError, match="larger than"):
        read_saved(place)


def test_places_that_are_no_saved_model(tmp_path, place):
    for path, message in (
        (tmp_path / "nowhere", "is not there"),
        (place / "README.md", "is a file"),
        (tmp_path, r"no config\.json"),
    ):
        assert not is_saved(path)
        with pytest.raises(RunError, match=message):
            read_folder(path)
    assert is_saved(place)


# ---- older versions


def test_an_older_version_is_brought_up_to_date(place, monkeypatch):
    def from_zero(content):
        return content | {"layout": {"flat_values": False}}

    monkeypatch.setitem(config_file.MIGRATIONS, 0, from_zero)
    change(place, at("version", value=0))
    change(place, at("layout", drop=True))
    change(place, at("checksums", drop=True))  # of which that version knew nothing
    loaded, found = read_folder(place)
    assert found.layout == {"flat_values": False}
    assert found.scores == saved().scores
    assert torch.equal(loaded.output_mean, model(SPEC).output_mean)


def test_versions_are_gone_through_one_by_one(place, monkeypatch):
    monkeypatch.setattr(config_file, "VERSION", 3)
    order = []
    for version in (1, 2):

        def step(content, version=version):
            order.append((version, content["version"]))
            return content

        monkeypatch.setitem(config_file.MIGRATIONS, version, step)
    read_saved(place)
    assert order == [(1, 1), (2, 2)]


def test_errors_are_for_users():
    assert issubclass(RunError, IpotError)
