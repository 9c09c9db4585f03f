"""Settings to JSON and back, and the run folder."""

import json
from dataclasses import dataclass, replace

import pytest

from ipot import registry
from ipot.errors import IpotError, RunError
from ipot.recipes.experiment import PRESETS, Experiment, experiment
from ipot.run_folder import FORMAT, Run, environment
from ipot.training.settings import Training
from ipot.typed_json import from_dict, to_dict


@dataclass(frozen=True, kw_only=True)
class Settings:
    count: int = 1
    rate: float | None = None
    sizes: tuple[int, ...] = (1,)


def test_round_trip_through_json():
    settings = Settings(count=3, rate=1e-300, sizes=(4, 5))
    content = json.loads(json.dumps(to_dict(settings)))
    assert from_dict(Settings, content, "here") == settings


def test_a_setting_that_is_not_there_takes_its_default():
    assert from_dict(Settings, {"count": 2}, "here") == Settings(count=2)


def test_a_setting_that_is_unknown_is_named_with_the_known():
    with pytest.raises(RunError, match=r"here: unknown settings colour; known: count, rate, sizes"):
        from_dict(Settings, {"colour": 2}, "here")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("problem", registry.names("problems"))
def test_experiments_survive_a_run_folder(tmp_path, problem, preset):
    if preset != "default" and problem == "sst":
        pytest.skip("not a problem of the paper")
    plain = experiment(problem, preset=preset)
    changed = replace(plain, training=replace(plain.training, minutes=2.5, clip=None, points=0.5))
    for number, settings in enumerate((plain, changed)):
        run = Run.create(
            tmp_path / str(number), settings.as_dict() | {"environment": environment()}
        )
        content = Run.open(run.path).config()
        assert Experiment.from_dict(content, "config.json") == settings


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    run = Run.create(tmp_path / "run", {"a": 1})
    with pytest.raises(RunError, match=rf"already holds a run.*--resume {run.path}"):
        Run.create(run.path, {"a": 2})
    assert run.config() == {"format": FORMAT, "a": 1}


def test_a_folder_that_merely_exists_may_be_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    Run.create(tmp_path, {"a": 1})
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match=r"cannot write to .*Choose another --out"):
            Run.create(out, {})


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_not_a_run_folder(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"is not a run folder: it has no config\.json"):
        Run.open(tmp_path / name)


@pytest.mark.parametrize("found", [FORMAT + 1, 0, None, "1"])
def test_another_layout_is_refused_by_its_version(tmp_path, found):
    run = Run.create(tmp_path, {"format": found})
    with pytest.raises(RunError, match=rf"layout version {found}.*reads version {FORMAT}"):
        Run.open(run.path)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"not json"])
def test_a_damaged_config(tmp_path, text):
    run = Run.create(tmp_path, {})
    run.config_file.write_bytes(text)
    with pytest.raises(RunError, match=r"cannot read .*config\.json"):
        Run.open(tmp_path)


@pytest.mark.parametrize("content", ["[]", "3", "null", "{}"])
def test_a_config_that_is_no_config(tmp_path, content):
    Run(tmp_path).config_file.write_text(content)
    with pytest.raises(RunError, match="layout version None"):
        Run.open(tmp_path)


def broken(**changes):
    """The content of a config.json with something wrong in it; a value of ... takes a key away."""
    content = experiment("darcy").as_dict()
    for path, value in changes.items():
        *outer, last = path.split("__")
        place = content
        for key in outer:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return content


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": ...},
        {"preset": ...},
        {"problem": "darcy"},
        {"model": ["ipot"]},
        {"training": None},
        {"training": "short"},
        {"data": 3},
        {"problem__name": ...},
        {"problem__name": "no_such_problem"},
        {"problem__name": 3},
        {"model__name": "no.such.model"},
        {"model__name": "json.decoder"},
        {"training__epochs": "many"},
        {"training__epochs": 0},
        {"training__momentum": 0.9},
    ],
    ids=str,
)
def test_settings_that_are_damaged_are_refused_in_words(changes):
    with pytest.raises(IpotError):
        Experiment.from_dict(broken(**changes), "config.json")


def test_the_environment_is_plain(tmp_path):
    found = environment()
    assert json.loads(json.dumps(found)) == found
    assert {"ipot", "torch", "python", "gpu"} <= found.keys()


def test_training_settings_keep_their_types():
    settings = Training(average=0.99, minutes=1.0)
    again = from_dict(Training, to_dict(settings), "here")
    assert again == settings
    assert all(type(getattr(again, n)) is type(v) for n, v in vars(settings).items())
