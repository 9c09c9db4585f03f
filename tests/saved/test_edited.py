"""Any edit of config.json or of the weights either loads or is refused by file, entry and fix."""

import json
import shutil
from copy import deepcopy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ipot
from ipot.errors import RunError
from ipot.saved.card import card, scales_of
from ipot.saved.folder import read_folder
from saved.folders import at, change, rewrite, saved

ODD = st.one_of(
    st.sampled_from(
        [None, True, 0, -1, 3, 10**12, 10**400, 1e-300, 1e300, float("nan"), float("inf")]
    ),
    st.sampled_from(["", "u", "ipot", "7", "\ud800", "\x00", "a\n|b", "../x", "é" * 99]),
    st.sampled_from([[], {}, [[]], [None], [float("nan")], {"": {}}, [1, "a"], [[0, 1]] * 3]),
    st.integers(0, 300).map(lambda depth: json.loads("[" * depth + "]" * depth or "0")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=5,
    ),
)


def paths(content, so_far=()):
    """The places of all entries."""
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in inner:
        yield (*so_far, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*so_far, key))


CONTENT = json.loads(json.dumps(saved(series={"inputs": ["t"], "places": [1.0, None]}).as_dict()))
PLACES = sorted(paths(CONTENT), key=str)


@pytest.fixture(scope="module")
def edited(tmp_path_factory, written):
    return shutil.copytree(written, tmp_path_factory.mktemp("edited") / "model")


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(PLACES), how=st.sampled_from(["put", "drop", "name"]), value=ODD)
def test_settings(edited, path, how, value):
    content = deepcopy(CONTENT)
    inside = content
    for key in path[:-1]:
        inside = inside[key]
    if how == "put":
        inside[path[-1]] = value
    elif how == "drop":
        del inside[path[-1]]
    elif isinstance(inside, dict):
        inside[str(value)[:9]] = inside.pop(path[-1])
    else:
        inside.append(value)
    (edited / "config.json").write_text(json.dumps(content))
    if said := refusal(edited):
        assert str(edited) in said
        fixes = ("put", "install", "earlier release", "copy", "pass ", "undo")
        assert any(word in said.lower() for word in fixes)


def refusal(folder, *, edited=False):
    """Why a folder is not read; nothing where it is, and can be saved again."""
    try:
        model, found = read_folder(folder, edited=edited)
    except RunError as error:
        return str(error)
    card(found.as_dict(), scales_of(model))
    return ""


def _nan(tensor):
    return tensor * float("nan") if tensor.is_floating_point() else tensor


TENSORS = {
    "lost": lambda tensors, name: tensors.pop(name),
    "named otherwise": lambda tensors, name: tensors.update({f"{name}_": tensors.pop(name)}),
    "one more": lambda tensors, name: tensors.update({f"{name}.more": torch.zeros(2)}),
    "longer": lambda tensors, name: tensors.update({name: torch.zeros(99, 2)}),
    "no axes": lambda tensors, name: tensors.update({name: torch.tensor(1.0)}),
    "empty": lambda tensors, name: tensors.update({name: torch.zeros(0)}),
    "double": lambda tensors, name: tensors.update({name: tensors[name].to(torch.float64)}),
    "half": lambda tensors, name: tensors.update({name: tensors[name].to(torch.bfloat16)}),
    "whole numbers": lambda tensors, name: tensors.update({name: tensors[name].to(torch.int64)}),
    "truths": lambda tensors, name: tensors.update({name: tensors[name].to(torch.bool)}),
    "nan": lambda tensors, name: tensors.update({name: _nan(tensors[name])}),
}


HARMLESS = {("bounds", "one more"), ("bounds", "double"), ("bounds", "half")}


@pytest.mark.parametrize("how", sorted(TENSORS))
@pytest.mark.parametrize(
    ("file", "name"), [("model", "inner.encoder.latents"), ("bounds", "everywhere.quantiles")]
)
def test_tensors(place, file, name, how):
    rewrite(place, lambda tensors: TENSORS[how](tensors, name), f"{file}.safetensors")
    said = refusal(place)
    if (file, how) in HARMLESS:
        assert "bounds.safetensors changed after the model was saved" in said
        assert not refusal(place, edited=True)
    else:
        assert f"{place / file}.safetensors" in said
        assert name in said or file == "bounds"
        assert any(word in said for word in ("copy", "Copy", "remove"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (at("layout", "origin", value=[1.0]), "origin has 1 numbers; points have 2 coordinates"),
        (at("layout", "origin", value=[1.0, "2"]), r"origin\[1\] must be a number, got '2'"),
        (at("layout", "origin", value=[1.0, float("nan")]), r"origin\[1\] must be a number"),
        (at("layout", "times", value=[0.2, 0.1]), "times must rise from above 0"),
        (at("layout", "times", value=[0.1, 0.2, 0.3]), "no more than the 2 of spec.steps"),
        (at("layout", "colour", value=1), "layout: unknown settings colour"),
        (at("about", value=[]), r"about must be an object with names, got \[\]"),
        (at("about", "samples", value=3), "about.samples must be an object"),
        (at("about", "samples", "train", value="3"), "about.samples.train must be a whole number"),
        (at("scores", "held_out", value="low"), "scores.held_out must be a number, got 'low'"),
        (at("scores", "baselines", value=[1]), "scores.baselines must be an object"),
        (at("license", value=["mit"]), "license must be a text"),
        (at("spec", "units", value=["K"]), "units has 1 entries for 2 outputs"),
        (at("spec", "periods", value=[0.0, None]), "periods must be positive, or null"),
        (at("about", "note", value="\ud800"), "about.note is no text"),
        (at("about", "note", value=json.loads("[" * 99 + "]" * 99)), "more than 32 lists"),
    ],
)
def test_what_is_said(place, edit, message):
    change(place, edit)
    with pytest.raises(RunError, match=message) as error:
        ipot.load(place, device="cpu")
    assert str(error.value).startswith(f"{place / 'config.json'}: ")
    assert str(error.value).endswith("Put back what was saved, or save the model anew.")
