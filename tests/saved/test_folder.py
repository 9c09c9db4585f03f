"""A saved model comes back as it was, or is refused with what is wrong with it."""

import json
import os
import resource
import shutil
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ipot import registry
from ipot.errors import IpotError, RunError
from ipot.evaluation.predict import predict
from ipot.recipes.experiment import build_model
from ipot.samples import collate
from ipot.saved import disk, folder, weights
from ipot.saved.facts_json import from_dict, plain, spec_from_dict, spec_to_dict, to_dict
from ipot.saved.folder import Saved, is_saved, read_folder, read_saved, write_folder
from ipot.spec import Need, Spec
from saved.small import BOX, config, facts, model

SPEC = facts(parameters=("p",), units=("K", ""), periods=(1.0, None), steps=2, dt=0.1)


def saved(**changes) -> Saved:
    known = {
        "model_name": "ipot",
        "model": config(),
        "spec": SPEC,
        "layout": {"flat_values": True, "origin": [0.1, 2.0]},
        "about": {"samples": {"train": 3}, "seconds": 1.5, "date": "2024-05-01"},
        "scores": {"held_out": 0.1 + 0.2, "baselines": {"mean field": 1.0}},
        "bounds": {"scores": torch.tensor([1.0, float("inf")]), "count": torch.tensor(3)},
    }
    return Saved(**known | changes)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("written") / "model", model(SPEC), saved())


@pytest.fixture
def place(tmp_path, written):
    return shutil.copytree(written, tmp_path / "model")


def change(place, edit):
    """Edit config.json by hand."""
    file = place / "config.json"
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def rewrite(place, edit):
    """Edit the weights."""
    file = place / "model.safetensors"
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file)


# ---- what comes back


@pytest.mark.parametrize("name", ["ipot", "transformer"])
@pytest.mark.parametrize("geographic", [False, True])
def test_a_model_comes_back_as_it_was(tmp_path, make_sample, name, geographic):
    spec = facts(geographic=geographic, domain=((0.0, 350.0), (-80.0, 80.0)))
    before = model(spec, name)
    write_folder(tmp_path / "m", before, saved(model_name=name, model=config(name), spec=spec))
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
    built = weights.shapes_of(build_model(name, kind, spec).state_dict())
    assert weights.wanted_shapes(name, kind, spec, built, "here") == built


@pytest.mark.parametrize("name", ["burgers", "darcy", "sst", "era5_synthetic"])
def test_the_facts_of_problems_come_back(name):
    spec = registry.find("problems", name).spec
    assert spec_from_dict(json.loads(json.dumps(spec_to_dict(spec))), "here") == spec


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
    assert spec_from_dict(json.loads(json.dumps(spec_to_dict(spec))), "here") == spec


def test_numbers_of_numpy_are_saved_and_odd_ones_become_null():
    told = {"a": torch.tensor([1.0, float("nan")]), "b": float("inf"), "c": {"d": (1, "x", None)}}
    assert plain(told, "scores") == {"a": [1.0, None], "b": None, "c": {"d": [1, "x", None]}}
    with pytest.raises(RunError, match=r"scores\.f holds a function"):
        plain({"f": plain}, "scores")


# ---- what is refused


def _at(*keys, value=None, drop=False):
    def edit(content):
        for key in keys[:-1]:
            content = content[key]
        if drop:
            del content[keys[-1]]
        else:
            content[keys[-1]] = value

    return edit


REFUSED = {
    "kind": (_at("kind", value="a-picture"), "kind 'a-picture'"),
    "no kind": (_at("kind", drop=True), "kind None"),
    "later": (_at("version", value=2), r"version 2; this ipot .* reads versions up to 1"),
    "text": (_at("version", value="1"), "version '1'"),
    "truth": (_at("version", value=True), "version True"),
    "earlier": (_at("version", value=0), "version 0, which .* no longer reads"),
    "key": (_at("colour", value=1), "unknown colour; known: kind"),
    "lost": (_at("spec", drop=True), "spec missing"),
    "setting": (_at("model", "config", "depth", value=1), "model: unknown depth; known: width"),
    "fact": (_at("spec", "gravity", value=1), "spec: unknown gravity"),
    "no outputs": (_at("spec", "outputs", drop=True), "spec: outputs missing"),
    "text for a number": (
        _at("model", "config", "width", value="8"),
        "width must be a whole number, got '8'",
    ),
    "truth for a number": (_at("model", "config", "width", value=True), "width must be a whole"),
    "number for a truth": (_at("model", "config", "tied", value=1), "tied must be true or false"),
    "one of a few": (
        _at("model", "config", "decoder", value="wide"),
        "decoder must be 'full' or 'narrow', got 'wide'",
    ),
    "below zero": (_at("model", "config", "width", value=-8), "width must be positive"),
    "indivisible": (_at("model", "config", "heads", value=3), "multiple of model.heads"),
    "infinite": (_at("spec", "dt", value=float("inf")), "dt must be a number, got inf"),
    "huge": (_at("spec", "dt", value=10**400), "dt must be a number"),
    "standing still": (_at("spec", "dt", value=0.0), "dt must be positive"),
    "many steps": (_at("spec", "steps", value=10**12), "steps between 1 and"),
    "turned around": (_at("spec", "domain", value=[[1, 0], [0, 1]]), "a side from 1.0 to 0.0"),
    "half a box": (_at("spec", "domain", value=[[1], [0]]), r"domain\[0\] must be a list of 2"),
    "a list for a need": (_at("spec", "provides", value=[[1]]), "must be one of GRID"),
    "a need": (_at("spec", "provides", value=["MAGIC"]), "must be one of GRID"),
    "a spec": (_at("spec", value=[1]), r"spec must be an object with names, got \[1\]"),
    "a model": (_at("model", value="ipot"), "model must have a name and a config"),
    "a name": (_at("model", "name", value=3), "name must be a text"),
    "no model": (_at("model", "name", value="ipod"), "unknown model 'ipod'"),
    "a layout": (_at("layout", value=3), "layout must be an object"),
    "more channels": (_at("spec", "inputs", value=["a"]), "other shape or type: input_mean"),
    "other latents": (
        _at("model", "config", "latents", value=5),
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
    def never(*given, **named):
        raise AssertionError("the model was built")

    monkeypatch.setattr(folder, "build_model", never)
    change(place, _at("model", "config", setting, value=value))
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
    monkeypatch.setattr(folder, "LARGEST_CONFIG", 100)
    with pytest.raises(RunError, match="larger than"):
        read_saved(place)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_weights_cut_short_are_refused(place, keep):
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(RunError, match=r"model\.safetensors is damaged or cut short"):
        read_folder(place)


def test_a_pickle_in_place_of_weights_is_refused(place):
    torch.save({"weight": torch.zeros(1)}, place / "model.safetensors")
    with pytest.raises(RunError, match="damaged"):
        read_folder(place)


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, refuse)
    read_folder(write_folder(tmp_path / "m", model(SPEC), saved()))


def test_weights_that_are_not_there(place):
    (place / "model.safetensors").unlink()
    with pytest.raises(RunError, match="is not there: the folder is not whole"):
        read_folder(place)


NAME = "inner.decoder.head.1.bias"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop(NAME), f"missing: {NAME}"),
        (lambda t: t.update(surplus=torch.zeros(1)), "unknown: surplus"),
        (lambda t: t.update({NAME: torch.zeros(3)}), f"other shape or type: {NAME}"),
        (lambda t: t.update({NAME: t[NAME].double()}), f"other shape or type: {NAME}"),
        (lambda t: t[NAME].fill_(float("nan")), f"{NAME} holds 2 values that are not finite"),
        (lambda t: t[NAME].fill_(float("inf")), f"{NAME} holds 2 values that are not finite"),
    ],
)
def test_other_weights_are_refused_by_name(place, edit, message):
    rewrite(place, edit)
    with pytest.raises(RunError, match=message):
        read_folder(place)


def test_bounds_with_nan_are_refused(place):
    save_file({"scores": torch.tensor([float("nan")])}, place / "bounds.safetensors")
    with pytest.raises(RunError, match=r"bounds\.safetensors: scores"):
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

    monkeypatch.setitem(folder.MIGRATIONS, 0, from_zero)
    change(place, _at("version", value=0))
    change(place, _at("layout", drop=True))
    loaded, found = read_folder(place)
    assert found.layout == {"flat_values": False}
    assert found.scores == saved().scores
    assert torch.equal(loaded.output_mean, model(SPEC).output_mean)


def test_versions_are_gone_through_one_by_one(place, monkeypatch):
    monkeypatch.setattr(folder, "VERSION", 3)
    order = []
    for version in (1, 2):

        def step(content, version=version):
            order.append((version, content["version"]))
            return content

        monkeypatch.setitem(folder.MIGRATIONS, version, step)
    read_saved(place)
    assert order == [(1, 1), (2, 2)]


# ---- models of others

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


def test_code_outside_the_package_is_not_run_unless_trusted(tmp_path, monkeypatch):
    home = tmp_path / "code"
    (home / "theirs").mkdir(parents=True)
    (home / "theirs" / "__init__.py").touch()
    (home / "theirs" / "mean.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(home)
    spec, name = facts(), "theirs.mean"
    settings = registry.module("models", name).Config()
    before = build_model(name, settings, spec)
    assert before.name == name
    place = write_folder(tmp_path / "m", before, saved(model_name=name, model=settings, spec=spec))
    for module in ("theirs.mean", "theirs"):
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(RunError, match=r"'theirs\.mean', a module outside ipot.*trusted=True"):
        read_folder(place)
    assert "theirs" not in sys.modules
    after, found = read_folder(place, trusted=True)
    assert found.model_name == name
    assert torch.equal(after.inner.map.weight, before.inner.map.weight)


def test_a_model_of_ours_by_its_long_name_is_ours(place):
    change(place, _at("model", "name", value="ipot.models.ipot"))
    assert read_saved(place).model_name == "ipot"
    change(place, _at("model", "name", value="ipot.models..ipot"))
    with pytest.raises(RunError, match="outside ipot"):
        read_saved(place)


# ---- writing


def test_what_is_there_is_kept_unless_it_is_to_be_replaced(place):
    other = model(SPEC, seed=1)
    with pytest.raises(RunError, match=r"holds a saved model.*overwrite=True"):
        write_folder(place, other, saved())
    assert torch.equal(read_folder(place)[0].output_mean, model(SPEC).output_mean)
    write_folder(place, other, saved(bounds=None), overwrite=True)
    assert torch.equal(read_folder(place)[0].output_mean, other.output_mean)
    assert not (place / "bounds.safetensors").exists()
    assert os.listdir(place.parent) == ["model"]


def test_nothing_of_the_users_is_ever_removed(tmp_path, place):
    (place / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds notes\.txt besides"):
        write_folder(place, model(SPEC), saved(), overwrite=True)
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.png").touch()
    with pytest.raises(RunError, match=r"other things \(cat\.png\)"):
        write_folder(photos, model(SPEC), saved(), overwrite=True)
    with pytest.raises(RunError, match="is a file"):
        write_folder(place / "notes.txt", model(SPEC), saved(), overwrite=True)
    assert (place / "notes.txt").read_text() == "mine"
    assert (photos / "cat.png").exists()


def test_the_run_that_a_model_comes_from_stays_in_its_folder(tmp_path):
    place = tmp_path / "m"
    (place / "training").mkdir(parents=True)
    (place / "training" / "last").write_text("weights")
    for _ in range(2):
        write_folder(place, model(SPEC), saved(), overwrite=True)
        assert (place / "training" / "last").read_text() == "weights"
        read_folder(place)
    assert os.listdir(tmp_path) == ["m"]


def test_an_empty_folder_and_a_link_to_a_model_will_do(tmp_path, place):
    (tmp_path / "empty").mkdir()
    read_folder(write_folder(tmp_path / "empty", model(SPEC), saved()))
    link = tmp_path / "link"
    link.symlink_to(place)
    write_folder(link, model(SPEC, seed=1), saved(), overwrite=True)
    assert link.is_symlink()
    assert torch.equal(read_folder(place)[0].output_mean, model(SPEC, seed=1).output_mean)


@pytest.mark.parametrize("what", [OSError("disk"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("there", [False, True])
def test_an_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch, what, there):
    place = tmp_path / "m"
    if there:
        write_folder(place, model(SPEC), saved())

    def interrupted(*given):
        raise what

    monkeypatch.setattr(folder.files, "write_text", interrupted)
    with pytest.raises((RunError, type(what))):
        write_folder(place, model(SPEC, seed=1), saved(), overwrite=True)
    assert os.listdir(tmp_path) == (["m"] if there else [])
    if there:
        assert torch.equal(read_folder(place)[0].output_mean, model(SPEC).output_mean)


def test_a_rename_that_fails_puts_the_old_folder_back(tmp_path, place, monkeypatch):
    rename, count = os.rename, 0

    def second_fails(source, target):
        nonlocal count
        count += 1
        if count == 2:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(disk.os, "rename", second_fails)
    with pytest.raises(RunError, match="cannot write"):
        write_folder(place, model(SPEC, seed=1), saved(), overwrite=True)
    assert torch.equal(read_folder(place)[0].output_mean, model(SPEC).output_mean)
    assert os.listdir(tmp_path) == ["model"]


def test_a_full_disk_leaves_nothing(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    try:
        with pytest.raises(RunError, match="cannot write"):
            write_folder(tmp_path / "m", model(SPEC), saved())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_a_model_that_could_not_be_read_is_not_written(tmp_path):
    diverged = model(SPEC)
    diverged.inner.encoder.latents.data[0, 0] = float("nan")
    with pytest.raises(RunError, match=r"encoder\.latents is not finite"):
        write_folder(tmp_path / "m", diverged, saved())
    with pytest.raises(RunError, match="do not fit"):
        write_folder(tmp_path / "m", model(SPEC), saved(model=config(latents=5)))
    endless = facts(domain=((0.0, float("inf")), BOX[1]))
    odd = model(endless, local=False)
    with pytest.raises(RunError, match=r"domain\[0\]\[1\] is inf"):
        write_folder(tmp_path / "m", odd, saved(spec=endless, model=odd.config))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_moved_still_loads(tmp_path, place):
    shutil.move(place, tmp_path / "elsewhere" / "deep")
    read_folder(tmp_path / "elsewhere" / "deep")


def test_errors_are_for_users():
    assert issubclass(RunError, IpotError)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
