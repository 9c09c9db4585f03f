"""A saved model whose settings or files were changed is noticed, and taken where that is said."""

import json

import pytest
import torch

import ipot
from ipot.errors import RunError
from ipot.saved.folder import read_folder
from saved.folders import at, change, rewrite, saved

NAME = "inner.decoder.head.1.bias"
CHANGED = {
    "model": at("model", "config", "output_scale", value=2.0),
    "spec": at("spec", "dt", value=0.2),
    "layout": at("layout", "origin", value=[0.2, 2.0]),
    "series": at("series", value={"inputs": ["t"]}),
}


def refused(place, name):
    with pytest.raises(RunError, match=f"config.json: {name} changed after") as error:
        read_folder(place)
    assert "edited=True" in str(error.value)
    assert "--edited" in str(error.value)
    read_folder(place, edited=True)


@pytest.mark.parametrize("name", CHANGED)
def test_settings_that_decide_an_answer(place, name):
    change(place, CHANGED[name])
    refused(place, name)


def test_weights(place):
    rewrite(place, lambda tensors: tensors[NAME].add_(1))
    refused(place, "model.safetensors")


def test_bounds(place):
    rewrite(place, lambda t: t["everywhere.quantiles"].mul_(0.5), "bounds.safetensors")
    refused(place, "bounds.safetensors")


def test_checksums_that_were_edited(place):
    change(place, at("checksums", "model", value="0" * 64))
    refused(place, "model")
    change(place, at("checksums", value={}))
    with pytest.raises(RunError, match=r"model, spec, layout, series, model\.safetensors, bounds"):
        read_folder(place)
    for odd in ([], {"model": 3}, "x"):
        change(place, at("checksums", value=odd or [1]))
        with pytest.raises(RunError, match="checksums"):
            read_folder(place)


def test_words_about_a_model_are_free(place):
    change(place, at("license", value="cc-by-4.0"))
    change(place, at("about", "note", value="mine"))
    change(place, at("scores", "held_out", value=0.5))
    (place / "README.md").write_text("another card")
    assert read_folder(place)[1].about["note"] == "mine"


def test_bounds_may_be_removed(place):
    (place / "bounds.safetensors").unlink()
    assert read_folder(place)[1].bounds is None


def test_bounds_that_are_a_link_to_nowhere_are_no_absence(place):
    (place / "bounds.safetensors").unlink()
    (place / "bounds.safetensors").symlink_to("elsewhere")
    with pytest.raises(RunError, match=r"bounds\.safetensors"):
        read_folder(place)


def _shortest(text):
    return int(text.removesuffix(".0")) if text.endswith(".0") else float(text)


def test_how_the_file_is_written_does_not_matter(place):
    file = place / "config.json"
    content = json.loads(
        file.read_text(), parse_float=lambda t: int(t[:-2]) if t[-2:] == ".0" else float(t)
    )
    assert content["model"]["config"]["output_scale"] == 1
    file.write_text(json.dumps(content, sort_keys=True))
    read_folder(place)


def test_an_edit_becomes_the_models_own_when_it_is_saved(place, tmp_path):
    change(place, CHANGED["spec"])
    with pytest.raises(RunError, match="edited"):
        ipot.load(place, device="cpu")
    ipot.load(place, device="cpu", edited=True).save(tmp_path / "anew")
    assert ipot.load(tmp_path / "anew", device="cpu").spec.dt == 0.2


def test_no_checksum_is_in_what_a_model_says_of_itself(place):
    assert "checksums" not in read_folder(place)[1].as_dict()
    assert torch.is_tensor(saved().bounds["everywhere.quantiles"])
