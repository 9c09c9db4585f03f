"""Run folders that were damaged or made to harm are refused in words, at once, without memory."""

import json
import os
import resource
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from saved.old import copied, edit

import ipot
from ipot.data.store import Store
from ipot.errors import IpotError, RunError
from ipot.models import _shapes
from ipot.recipes.compare_table import read_test
from ipot.recipes.experiment import build, build_model, experiment, refuse_sizes
from ipot.recipes.running import ended, restore, resume, run
from ipot.run_folder import Run
from ipot.training import journal

DEEP = "[" * 100_000


@pytest.fixture
def folder(tmp_path):
    return copied("run", tmp_path / "run")


HUGE = {
    "width": ({"model__width": 10**9}, r"model\.width is 1000000000, and no tensor"),
    "latents": ({"model__latents": 10**8}, r"model\.latents is 100000000"),
    "depth": ({"model__blocks": 10**6}, r"model\.blocks is 1000000"),
    "some depth": ({"model__blocks": 4000}, "a model of more tensors than the"),
    "some width": ({"model__width": 4096}, "do not fit its settings"),
    "a list": ({"model__bins": [1] * 10**6}, r"model\.bins must be a list"),
    "samples": ({"data__train": 10**15}, r"data\.train is 1000000000000000"),
    "points": ({"problem__resolution": 10**9}, r"problem\.resolution is 1000000000"),
    "digits": ({"training__seed": 10**400}, r"training\.seed must be a whole number"),
    "workers": ({"training__workers": 10**6}, r"training\.workers is 1000000"),
}


@pytest.mark.parametrize("case", HUGE)
def test_sizes_are_refused_before_they_get_memory(folder, case):
    entries, message = HUGE[case]
    edit(folder, **entries)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RunError, match=message) as error:
        ipot.load(folder, device="cpu")
    assert str(folder) in str(error.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


TYPES = {
    "text for a number": ({"model__width": "4"}, r"model\.width must be a whole number, got '4'"),
    "truth for a number": ({"model__blocks": True}, r"model\.blocks must be a whole number"),
    "nan": ({"training__learning_rate": float("nan")}, r"training\.learning_rate must be a number"),
    "nan of a problem": ({"problem__low": float("nan")}, r"problem\.low must be a number"),
    "negative": ({"model__width": -4}, r"model\.width must be positive"),
    "infinite": ({"training__learning_rate": float("inf")}, r"training\.learning_rate must be pos"),
    "half a number": ({"data__train": 1.5}, r"data\.train must be a whole number"),
    "a word": ({"training__schedule": "never"}, r"training\.schedule must be 'cosine' or 'step'"),
    "a list": ({"problem__size": [15]}, r"problem\.size must be a whole number"),
    "no object": ({"model": 3}, "model must be an object with names"),
    "no text": ({"preset": 3}, "preset must be a text"),
    "no truth": ({"normalize": 1}, "normalize must be true or false"),
    "unknown": ({"model__colour": 1}, "unknown settings colour"),
}


@pytest.mark.parametrize("case", TYPES)
def test_settings_of_other_types_are_refused_by_file_and_key(folder, case):
    entries, message = TYPES[case]
    edit(folder, **entries)
    for call in (restore, resume):
        with pytest.raises(RunError, match=rf"config\.json: .*{message}"):
            call(folder)


@pytest.mark.parametrize("start", [3, ["a"], {}, "a\0b", "/dev/null", "/nowhere"])
def test_a_start_that_is_none(folder, start):
    (folder / "last.safetensors").unlink()
    edit(folder, start_from=start)
    with pytest.raises(RunError, match=r"start_from|cannot read|config"):
        resume(folder, device="cpu")


# Settings that are typed.


def test_a_model_that_no_memory_holds_is_refused_with_the_numbers(monkeypatch):
    settings = experiment("darcy", "ipot")
    monkeypatch.setattr(_shapes, "free_memory", lambda: 10**6)
    with pytest.raises(RunError, match=r"the weights of ipot take .*MiB.* 977 KiB are free"):
        build_model("ipot", settings.model, settings.problem.spec)
    monkeypatch.undo()
    for changes, message in (
        ({"width": 10**9, "heads": 1, "cross_heads": 1}, r"model\.width is 1000000000"),
        ({"blocks": 10**6}, "more than 20000 tensors"),
        ({"width": 2**20, "heads": 1, "cross_heads": 1}, "of memory, and .* are free"),
    ):
        with pytest.raises(RunError, match=message):
            build_model("ipot", replace(settings.model, **changes), settings.problem.spec)


def test_training_takes_four_times_the_weights(monkeypatch, small, store, tmp_path):
    whole = sum(t.numel() * t.element_size() for t in build(small()).state_dict().values())
    monkeypatch.setattr(_shapes, "free_memory", lambda: 2 * whole)
    with pytest.raises(RunError, match="gradients and the optimiser's two moments take"):
        run(small(), tmp_path / "run", store=store, device="cpu", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("data", {"train": 10**15}, r"data\.train is"),
        ("data", {"train": 10**8}, r"100000000 samples for train .* are free"),
        ("problem", {"size": 10**9}, r"problem\.size is"),
        ("problem", {"size": 99_999, "resolution": 99_999}, "are free"),
    ],
)
def test_data_that_no_memory_holds(tmp_path, part, changes, message):
    settings = experiment("darcy", "ipot")
    settings = replace(settings, **{part: replace(getattr(settings, part), **changes)})
    with pytest.raises(IpotError, match=message):
        run(settings, tmp_path / "run", store=Store(tmp_path / "data"), device="cpu", quiet=True)
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "run").exists()


def test_limits_are_no_harm_to_what_there_is():
    for name in ("burgers", "darcy", "navier_stokes", "shallow_water", "era5"):
        refuse_sizes(experiment(name))


# Files.


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a pipe", "link to a device"])
def test_files_that_are_none(folder, name, kind):
    (folder / name).unlink()
    if kind == "folder":
        (folder / name).mkdir()
    elif kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "link to a pipe":
        os.mkfifo(folder / "pipe")
        (folder / name).symlink_to("pipe")
    else:
        (folder / name).symlink_to(os.devnull)
    read = {"config.json": restore, "result.json": lambda p: ended(Run(p))}
    read["metrics.jsonl"] = lambda p: journal.read(Run(p).metrics)
    with pytest.raises(RunError, match=f"{name} is a"):
        read[name](folder)


@pytest.mark.parametrize("weights", ["best", "last"])
def test_weights_that_are_no_file(folder, weights):
    (folder / f"{weights}.safetensors").unlink()
    os.mkfifo(folder / f"{weights}.safetensors")
    with pytest.raises(RunError, match="is a named pipe"):
        restore(folder, weights=weights)


def test_a_run_of_links_is_read(folder, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for file in folder.iterdir():
        (linked / file.name).symlink_to(file)
    assert restore(linked)[1] == restore(folder)[1]


def test_a_journal_is_never_written_through_a_link(tmp_path):
    for name, there in (("there", True), ("not there", False)):
        target, link = tmp_path / name, tmp_path / f"{name}.jsonl"
        if there:
            target.write_text("mine")
        link.symlink_to(target)
        journal.Journal(link).write({"step": 1})
        assert journal.read(link) == [{"step": 1}]
        assert (target.read_text() == "mine") if there else not target.exists()


BAD_LINES = [
    *("{", DEEP, "3", "[]", "null", '{"step": "1"}', '{"step": -1}', '{"step": true}', "\x00"),
    *('{"epoch": 1}', '{"step": 1, "loss": "low"}', '{"step": 1, "loss": [1]}', '{"step": 1e9}'),
    *('{"step": 1, "epoch": null}', '{"step": 1' + "0" * 5000 + "}", '{"step": 1, "step": 2}'),
]


def test_damaged_lines_of_a_journal_are_left_out_and_others_kept(tmp_path):
    rows = [json.dumps({"epoch": i, "step": i, "loss": 0.5}) for i in range(1, len(BAD_LINES) + 1)]
    mixed = [line for pair in zip(rows, BAD_LINES, strict=True) for line in pair]
    (tmp_path / "m.jsonl").write_text("\n".join(mixed))
    assert [row["step"] for row in journal.read(tmp_path / "m.jsonl")] == [*range(1, len(rows) + 1)]


@pytest.mark.parametrize(
    "text",
    ["", "{", DEEP, "3", "[]", "null", "{}", '{"steps": 1}', '{"a": 1, "a": 1}', "\ufeff\x00"],
)
def test_a_damaged_result(folder, text):
    (folder / "result.json").write_text(text)
    with pytest.raises(RunError, match=r"result\.json.*Remove it, and the run goes on"):
        ended(Run(folder))
    (folder / "config.json").write_text(text)
    with pytest.raises(RunError, match=r"config\.json|layout version"):
        restore(folder)


@pytest.mark.parametrize("entry", [{"steps": "4"}, {"steps": float("nan")}, {"loss": None}])
def test_a_result_with_other_types(folder, entry):
    content = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(content | {"validation": float("nan")}))
    assert ended(Run(folder)).validation != ended(Run(folder)).best_validation
    (folder / "result.json").write_text(json.dumps(content | entry))
    with pytest.raises(RunError, match=next(iter(entry))):
        ended(Run(folder))


@pytest.mark.parametrize(
    "text", ["", DEEP, "[]", "{}", '{"relative_l2": "x"}', '{"relative_l2": 1, "mean_field": 1}']
)
def test_a_damaged_score_of_a_comparison(tmp_path, text):
    (tmp_path / "test.json").write_text(text)
    with pytest.raises(RunError, match=r"test\.json.*Remove it to score again"):
        read_test(tmp_path / "test.json")


def rewritten(folder, name="last", state=None, **tensors):
    file = folder / f"{name}.safetensors"
    content = load_file(file) | tensors
    with torch.no_grad():
        save_file(content, file, metadata=None if state is None else {"state": state})


@pytest.mark.parametrize("state", [DEEP, "[]", "3", "{", '{"model": 1, "model": 2}', '"\\ud800"'])
def test_hostile_headers_of_weights(folder, state):
    rewritten(folder, "best", state)
    with pytest.raises(RunError, match=r"best\.safetensors"):
        restore(folder)
    rewritten(folder, "last", state)
    with pytest.raises(RunError, match=r"last\.safetensors"):
        resume(folder, device="cpu", store=Store(folder / "data"), quiet=True)


@pytest.mark.parametrize(
    "extra",
    [
        {"optimizer/0/exp_avg": torch.zeros(3, 3, 3)},
        {"optimizer/999999/exp_avg": torch.zeros(1)},
        {"optimizer/x": torch.zeros(1)},
        {"objective/code": torch.zeros(1)},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_hostile_states_of_an_optimiser(folder, extra, monkeypatch):
    monkeypatch.setattr(journal, "_tensorboard", lambda path: None)
    edit(folder, training__epochs=3)
    with _header(folder / "last.safetensors") as state:
        rewritten(folder, "last", state, **extra)
    with pytest.raises(RunError, match=r"last\.safetensors"):
        resume(folder, device="cpu", store=Store(folder / "data"), quiet=True)


def _header(file):
    from contextlib import nullcontext

    from safetensors import safe_open

    with safe_open(file, "pt") as content:
        return nullcontext(content.metadata()["state"])


@pytest.mark.parametrize("entry", [{"step": "2"}, {"step": float("nan")}, {"seconds": None}])
def test_counters_of_other_types(folder, entry):
    with _header(folder / "last.safetensors") as state:
        rewritten(folder, "last", json.dumps(json.loads(state) | entry))
    with pytest.raises(RunError, match=r"last\.safetensors"):
        resume(folder, device="cpu", store=Store(folder / "data"), quiet=True)
