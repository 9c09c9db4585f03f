"""No way of loading a folder imports code that this package does not contain, unless trusted."""

import sys

import pytest
from own import tiny
from saved.old import copied, edit

import ipot
from ipot.cli import main
from ipot.data.store import Store
from ipot.errors import RunError, Untrusted
from ipot.recipes.compare import compare, shared
from ipot.recipes.experiment import experiment
from ipot.recipes.running import restore, resume, run
from ipot.recipes.studies import Question, ask
from ipot.registry import source_of
from ipot.trust import named_in_file

CODE = """
from ipot.models.ipot import MODEL, Config
from ipot.problems.darcy import PROBLEM
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A module that nobody has imported, and notices when it is."""
    home = tmp_path / "code"
    (home / "theirs").mkdir(parents=True)
    (home / "theirs" / "__init__.py").touch()
    (home / "theirs" / "code.py").write_text(CODE)
    monkeypatch.syspath_prepend(home)
    yield home / "theirs" / "code.py"
    for name in ("theirs.code", "theirs"):
        sys.modules.pop(name, None)


@pytest.fixture(params=["problem", "model"])
def folder(request, code, tmp_path):
    return copied("run", tmp_path / "run", **{f"{request.param}__name": "theirs.code"})


def refused(code, call, *arguments, **options):
    with pytest.raises(RunError, match=r"'theirs\.code', a module outside ipot") as error:
        call(*arguments, **options)
    assert str(code) in str(error.value)
    assert "trusted=True (--trust" in str(error.value)
    assert "theirs" not in sys.modules


def test_loading_a_run(code, folder):
    refused(code, ipot.load, folder, device="cpu")
    refused(code, restore, folder)
    refused(code, resume, folder, device="cpu")
    refused(code, ask, folder, Question(), device="cpu")
    # The program imports it by itself, or the caller trusts the folder.
    ipot.load(folder, device="cpu", trusted=True)
    ipot.load(folder, device="cpu")


def test_starting_from_a_run(code, folder, tmp_path):
    settings = experiment("darcy", "ipot")
    refused(code, run, settings, tmp_path / "new", start_from=folder, device="cpu")
    second = copied("run", tmp_path / "second", start_from=str(folder))
    (second / "last.safetensors").unlink()
    refused(code, resume, second, device="cpu")


def test_fitting(code, tmp_path):
    other = copied("fit", tmp_path / "other")
    edit(other / "training", model__name="theirs.code")
    refused(code, ipot.fit, tiny.data("mesh"), start_from=other, device="cpu", quiet=True)
    stopped = copied("fit_stopped", tmp_path / "stopped")
    edit(stopped / "training", model__name="theirs.code")
    refused(code, ipot.fit, tiny.data("mesh"), resume=stopped, device="cpu", quiet=True)


@pytest.mark.parametrize("part", ["problem", "model"])
def test_the_experiment_that_a_saved_model_keeps(code, tmp_path, part):
    """Whoever edits it can write down new checksums as well."""
    kept = ipot.load(copied("run", tmp_path / "run"), device="cpu").save(tmp_path / "saved")
    edit(kept, **{f"experiment__{part}__name": "theirs.code"})
    refused(code, ipot.load, kept, device="cpu", edited=True)


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "RUN"],
        ["predict", "RUN", "a.npz", "--out", "b.npz"],
        ["plot", "RUN"],
        ["export", "RUN", "--out", "a.pt2"],
        ["train", "--resume", "RUN"],
        ["train", "darcy", "--start-from", "RUN", "--out", "OUT"],
        ["train", "darcy", "--start-from", "RUN", "--out", "OUT", "--seeds", "0"],
    ],
    ids=" ".join,
)
def test_commands(code, tmp_path, capsys, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = copied("run", tmp_path / "run", model__name="theirs.code")
    names = {"RUN": str(place), "OUT": str(tmp_path / "new")}
    assert main([names.get(word, word) for word in words]) == 1
    said = capsys.readouterr().err
    assert "'theirs.code', a module outside ipot" in said
    assert str(code) in said
    assert "--trust" in said
    assert "theirs" not in sys.modules


def test_a_command_that_is_told_to_trust(code, tmp_path):
    place = copied("run", tmp_path / "run", model__name="theirs.code")
    assert main(["plot", str(place), "--kind", "loss", "--trust", "--out", str(tmp_path)]) == 0
    assert main(["export", str(place), "--out", str(tmp_path / "no" / "a.xy"), "--trust"]) == 1
    assert "theirs.code" in sys.modules


def test_systems_that_a_folder_is_named_for(code, tmp_path):
    (tmp_path / "out" / "theirs.code").mkdir(parents=True)
    (tmp_path / "out" / "theirs.code" / "test.json").write_text('{"reason": "none"}')
    base = shared("darcy")
    store = Store(tmp_path / "data")
    refused(code, compare, base, [], tmp_path / "out", minutes=1, device="cpu", store=store)


@pytest.mark.parametrize(
    "name",
    [
        *("..os", ".os", "os.", "a..b", "a.b c", "ipot.models..ipot", "ipot.models.ipot.MODEL"),
        *(
            "ipot.models.x.y",
            "ipot.__main__",
            "ipot.commands.demo",
            "ipot.models._wrappers",
            "ipot.",
        ),
        *("ipot.problems.darcy", "_wrappers", "base", "", "../x", "a\0.b", 3, None, ["ipot"]),
    ],
)
@pytest.mark.parametrize("trusted", [False, True])
def test_odd_names_are_refused_whoever_trusts_them(name, trusted):
    with pytest.raises(RunError, match=r"a/config\.json: "):
        named_in_file("models", name, "a/config.json", trusted=trusted)


@pytest.mark.parametrize(
    "file", ["/", "//", "/.", "", ".", "a\0b", "/\ud83d", "/x" * 9999, 3, None]
)
@pytest.mark.parametrize("name", ["nowhere.code", "theirs.code"])
def test_odd_records_of_code_say_nothing(code, name, file):
    """What a file says of the module that it was trained with may be anything."""
    recorded = {"module": name, "file": file, "sha256": "0"}
    with pytest.raises(Untrusted, match="a module outside ipot"):
        named_in_file("models", name, "config.json", trusted=False, recorded=recorded)
    for odd in (recorded | {"sha256": []}, [recorded], file):
        with pytest.raises(Untrusted):
            named_in_file("models", name, "config.json", trusted=False, recorded=odd)


def test_our_own_by_short_and_long_names():
    for name in ("fno", "ipot.models.fno", "FNO"):
        assert named_in_file("models", name, "", trusted=False).lower() == "fno"


def test_the_file_is_found_without_importing(code, tmp_path, monkeypatch):
    home = code.parents[1]
    (home / "theirs" / "inner").mkdir()
    (home / "theirs" / "inner" / "__init__.py").write_text("raise SystemExit")
    (home / "bare" / "deep").mkdir(parents=True)
    (home / "bare" / "deep" / "file.py").touch()
    assert source_of("theirs.code") == code
    assert source_of("theirs.inner") == home / "theirs" / "inner" / "__init__.py"
    assert source_of("bare.deep.file") == home / "bare" / "deep" / "file.py"
    assert source_of("theirs.none") is None
    assert source_of("nowhere.at.all") is None
    assert not {"theirs", "bare"} & set(sys.modules)


def test_what_the_caller_names_himself_is_his_word(code, tmp_path):
    """A run that was started with a module goes on in the program that has named it again."""
    place = copied("run", tmp_path / "run", model__name="theirs.code", training__epochs=2)
    experiment("darcy", "theirs.code")
    assert restore(place)[1].model_name == "theirs.code"


def test_a_module_of_another_kind_is_not_used(tmp_path, code):
    place = copied("run", tmp_path / "run", model__name="json.decoder")
    refused_name = r"'json\.decoder', a module outside ipot"
    with pytest.raises(RunError, match=refused_name):
        restore(place)
    edit(place, model__name="theirs.code")
    code.write_text("MODEL = Config = print")
    with pytest.raises(RunError, match="has no MODEL and Config"):
        restore(place, trusted=True)
