"""A saved model comes back as it was."""

import json
import os
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ipot
from ipot import registry
from ipot.data.layout import Layout
from ipot.errors import RunError, Unsupported
from ipot.evaluation.predict import predict
from ipot.models import _shapes
from ipot.recipes.experiment import build_model
from ipot.samples import collate
from ipot.saved.config_file import spec_from_dict
from ipot.saved.folder import read_folder, read_saved, write_folder
from ipot.spec import Need, Spec
from ipot.typed_json import from_dict, plain, to_dict
from saved.folders import SPEC, saved
from saved.small import config, facts, model


@pytest.mark.parametrize("name", ["ipot", "transformer"])
@pytest.mark.parametrize("geographic", [False, True])
def test_a_model_comes_back_as_it_was(tmp_path, make_sample, name, geographic):
    spec = facts(geographic=geographic, domain=((0.0, 350.0), (-80.0, 80.0)))
    before = model(spec, name)
    told = saved(model_name=name, model=config(name), spec=spec, layout={}, bounds=None)
    write_folder(tmp_path / "m", before, told)
    after, found = read_folder(tmp_path / "m")
    assert not after.training
    assert found.spec == spec
    assert found.model == config(name)
    batch = collate([make_sample(7, 6, c=2, k=2)])
    assert torch.equal(predict(after, batch), predict(before, batch))


def test_all_that_is_told_comes_back(place):
    found, told = read_saved(place), saved()
    for name in ("model_name", "model", "spec", "layout", "about", "scores", "license"):
        assert getattr(found, name) == getattr(told, name)
    assert found.bounds is not None
    assert all(torch.equal(found.bounds[n], t) for n, t in told.bounds.items())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"about": {}, "scores": {}, "bounds": None},
        {"about": {"license": "cc-by-4.0", "note": "é | <b>", "date": None, "list": [1, None]}},
        {"scores": {"validation": float("nan"), "per_channel": {"u": 0.5, "v": None}}},
    ],
)
def test_what_is_loaded_is_saved_as_it_was(tmp_path, changes):
    layout = Layout(flat_values=True, origin=(0.1, 2.0), times=(0.1, 0.2)).as_dict()
    first = write_folder(tmp_path / "1", model(SPEC), saved(layout=layout, **changes))
    second = ipot.load(first, device="cpu").save(tmp_path / "2")
    assert {p.name for p in first.iterdir()} == {p.name for p in second.iterdir()}
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes(), file.name


def test_a_licence_is_on_the_card(tmp_path):
    first = write_folder(tmp_path / "1", model(SPEC), saved(about={}))
    fitted = ipot.load(first, device="cpu")
    assert "license" not in fitted.about
    fitted.about["license"] = "mit"
    second = fitted.save(tmp_path / "2")
    assert "license: mit" in (second / "README.md").read_text()
    assert json.loads((second / "config.json").read_text())["license"] == "mit"


def test_the_folder_has_the_files_that_it_should(written, place):
    names = {"README.md", "bounds.safetensors", "config.json", "model.safetensors"}
    assert {p.name for p in place.iterdir()} == names
    assert written.stat().st_mode & 0o777 == 0o777 & ~_umask()
    assert {p.stat().st_mode & 0o777 for p in written.iterdir()} == {0o666 & ~_umask()}
    assert json.loads((place / "config.json").read_text())["kind"] == "ipot-surrogate"
    assert os.listdir(place.parent) == ["model"]


def test_a_model_without_bounds_has_none(tmp_path):
    place = write_folder(tmp_path / "m", model(SPEC), saved(bounds=None))
    assert not (place / "bounds.safetensors").exists()
    assert read_saved(place).bounds is None


def test_the_scales_of_the_data_are_among_the_weights(place):
    loaded, before = read_folder(place)[0], model(SPEC)
    assert not torch.equal(before.input_mean, torch.zeros(2))
    for name in ("input_mean", "input_scale", "output_mean", "output_scale", "parameter_mean"):
        assert torch.equal(getattr(loaded, name), getattr(before, name))


@pytest.mark.parametrize("name", registry.names("models"))
def test_what_a_model_holds_is_known_before_it_is_built(name):
    spec = facts(
        inputs=("u0", "v0", "s"),
        history=1,
        provides=frozenset(Need),
        shape=(4, 4),
        steps=2 if name != "deeponet" else 1,
    )
    kind = registry.module("models", name).Config()
    assert from_dict(type(kind), json.loads(json.dumps(to_dict(kind))), "here") == kind
    built = _shapes.shapes_of(build_model(name, kind, spec).state_dict())
    assert _shapes.wanted_shapes(name, kind, spec, built, "here") == built


@pytest.mark.parametrize("name", ["burgers", "darcy", "sst", "era5_synthetic"])
def test_the_facts_of_problems_come_back(name):
    spec = registry.find("problems", name).spec
    assert spec_from_dict(json.loads(json.dumps(to_dict(spec))), "here") == spec


numbers = st.floats(-1e30, 1e30, allow_nan=False)
boxes = st.lists(st.tuples(numbers, numbers).filter(lambda b: b[0] < b[1]), min_size=1, max_size=3)


@given(
    name=st.text(max_size=9),
    outputs=st.lists(st.text(max_size=4), min_size=1, max_size=3).map(tuple),
    box=boxes.map(tuple),
    period=st.none() | st.floats(1e-30, 1e30),
    dt=st.floats(1e-300, 1e300),
    provides=st.frozensets(st.sampled_from(Need)),
    shape=st.lists(st.integers(1, 1 << 40), max_size=3).map(tuple),
    geographic=st.booleans(),
)
def test_any_facts_come_back_exactly(name, outputs, box, period, dt, provides, shape, geographic):
    spec = Spec(
        name=name,
        inputs=(*outputs, "more"),
        outputs=outputs,
        domain=box,
        periods=(period,) * len(box),
        dt=dt,
        history=1,
        provides=provides,
        shape=shape,
        geographic=geographic,
    )
    assert spec_from_dict(json.loads(json.dumps(to_dict(spec))), "here") == spec


def test_numbers_of_numpy_are_saved_and_odd_ones_become_null():
    told = {"a": torch.tensor([1.0, float("nan")]), "b": float("inf"), "c": {"d": (1, "x", None)}}
    assert plain(told, "scores") == {"a": [1.0, None], "b": None, "c": {"d": [1, "x", None]}}
    with pytest.raises(RunError, match=r"scores\.f holds a function"):
        plain({"f": plain}, "scores")


def test_a_folder_that_is_moved_still_loads(tmp_path, place):
    shutil.move(place, tmp_path / "elsewhere" / "deep")
    read_folder(tmp_path / "elsewhere" / "deep")


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_rounded_weights_come_back_rounded_and_others_to_the_bit(tmp_path):
    before = model(SPEC)
    write_folder(tmp_path / "whole", before, saved())
    write_folder(tmp_path / "half", before, saved(), precision="float16")
    whole, half = (read_folder(tmp_path / name)[0] for name in ("whole", "half"))
    weights, rounded = dict(before.named_parameters()), half.state_dict()
    changed = []
    for name, tensor in before.state_dict().items():
        assert torch.equal(whole.state_dict()[name], tensor)
        found = rounded[name]
        assert found.dtype == tensor.dtype
        if name in weights and tensor.ndim > 1:
            assert torch.equal(found, tensor.to(torch.float16).to(tensor.dtype))
            changed += [name] if not torch.equal(found, tensor) else []
        else:
            assert torch.equal(found, tensor)
    assert changed
    size = {n: (tmp_path / n / "model.safetensors").stat().st_size for n in ("whole", "half")}
    assert size["half"] < 0.9 * size["whole"]
    # What is loaded is saved whole again, and once more rounded it is the same.
    write_folder(tmp_path / "again", half, saved(), precision="float16")
    again = read_folder(tmp_path / "again")[0].state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in rounded.items())


def test_rounded_weights_are_told_of_and_not_guessed(tmp_path):
    folder = write_folder(tmp_path / "m", model(SPEC), saved(), precision="float16")
    content = json.loads((folder / "config.json").read_text())
    assert content["stored"] == "float16"
    for edited, said in (
        ({k: v for k, v in content.items() if k != "stored"}, "other shape or type"),
        (content | {"stored": "float8"}, "stored must be one of float32, float16, got 'float8'"),
        (content | {"stored": [1]}, "stored must be one of"),
    ):
        (folder / "config.json").write_text(json.dumps(edited))
        with pytest.raises(RunError, match=said):
            read_folder(folder)


def test_weights_that_cannot_be_rounded_are_refused(tmp_path):
    large = model(SPEC)
    name, weight = next((n, p) for n, p in large.named_parameters() if p.ndim > 1)
    with torch.no_grad():
        weight.flatten()[0] = 1e5
    with pytest.raises(RunError, match=rf"{name} has weights beyond 65504"):
        write_folder(tmp_path / "m", large, saved(), precision="float16")
    assert not (tmp_path / "m").exists()
    with pytest.raises(Unsupported, match="precision must be float32 or float16, got 'int8'"):
        write_folder(tmp_path / "m", large, saved(), precision="int8")
