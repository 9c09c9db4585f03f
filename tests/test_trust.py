"""Code outside the package: found where a command is typed, remembered, and told apart later."""

import json
import re
import shutil
import sys

import pytest
from own import files, tiny

import ipot
from ipot import registry, trust
from ipot.cli import main
from ipot.errors import RunError, UnknownName, Untrusted, shown
from ipot.own.sizing import named_model
from ipot.recipes.experiment import experiment
from ipot.recipes.running import restore

PROBLEM = """
from dataclasses import dataclass
import helper_of_mine
from training.toys import Smoothing

@dataclass(frozen=True, kw_only=True)
class Rough(Smoothing):
    factor: float = 2.0

@dataclass(frozen=True, kw_only=True)
class Bare(Smoothing):
    factor: float

ready = Rough(factor=3.0)
number = 4
"""
MODELS = """
from dataclasses import dataclass
import torch
from ipot.models.base import OneStep
from ipot.models.fno import FNO

@dataclass(frozen=True, kw_only=True)
class Config:
    start: float = 0.5

@dataclass(frozen=True, kw_only=True)
class OtherConfig:
    begin: float = 0.25

class Mine(OneStep):
    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.scale = torch.nn.Parameter(torch.tensor(0.5))

    def advance(self, batch):
        return self.scale * batch.values

class Other(Mine):
    def __init__(self, config: OtherConfig, spec):
        super().__init__(config, spec)
"""
LONELY = """
from dataclasses import dataclass
from models_of_mine import Mine

class Plain(Mine):
    pass

@dataclass(frozen=True, kw_only=True)
class Needy:
    width: int

class Asking(Mine):
    def __init__(self, config: Needy, spec):
        super().__init__(config, spec)
"""
OWN = ("rough_of_mine", "models_of_mine", "helper_of_mine", "lonely_of_mine")


def forget():
    for name in [n for n in sys.modules if n.split(".")[0] in OWN]:
        del sys.modules[name]


def write(folder):
    folder.mkdir()
    (folder / "rough_of_mine.py").write_text(PROBLEM)
    (folder / "models_of_mine.py").write_text(MODELS)
    (folder / "helper_of_mine.py").write_text("")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with code of somebody's own, in which commands are typed."""
    folder = write(tmp_path / "here")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)
    yield folder
    forget()


@pytest.fixture
def typed(here):
    with registry.looking_in(str(here)):
        yield here


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A run of a problem and a model of one's own, whose code was in the folder beside it."""
    home = tmp_path_factory.mktemp("once")
    write(home / "here")
    words = ["train", "rough_of_mine.Rough", "models_of_mine.Other", "--out", str(home / "run")]
    words += ["--data", str(home / "data"), "--training.epochs", "1", "--count.train", "4"]
    with pytest.MonkeyPatch.context() as there:
        there.chdir(home / "here")
        there.setattr("ipot.training.journal._tensorboard", lambda folder: None)
        assert main([*words, "--count.validation", "2", "--quiet", "--problem.size", "8"]) == 0
    forget()
    return home


@pytest.fixture
def trained(once, here, tmp_path, monkeypatch):
    """The same in folders of the test, and a process that has imported none of the code."""
    for name in ("run", "data"):
        shutil.copytree(once / name, tmp_path / name)
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace(str(once / "here"), str(here)))
    monkeypatch.setenv("IPOT_DATA", str(tmp_path / "data"))
    return tmp_path / "run"


# ---- found


def test_it_is_found_where_a_command_is_typed_and_nowhere_else(here):
    with pytest.raises(UnknownName, match=r"cannot import 'rough_of_mine\.Rough'"):
        registry.find("problems", "rough_of_mine.Rough")
    path = list(sys.path)
    with registry.looking_in(str(here)):
        assert registry.find("problems", "rough_of_mine.Rough").factor == 2.0
    assert sys.path == path


def test_no_folder_is_on_the_path_that_nothing_was_named_in(typed):
    """A folder of data is no place to import other things from."""
    (typed / "lonely_of_mine.py").write_text("")
    registry.find("models", "fno")
    experiment("training.toys")
    assert str(typed) not in sys.path
    with pytest.raises(ModuleNotFoundError):
        __import__("lonely_of_mine")


def test_what_is_installed_comes_first_for_what_own_code_imports_later(typed):
    registry.find("problems", "rough_of_mine.Rough")
    assert sys.path[-1] == str(typed)


@pytest.mark.parametrize(("name", "factor"), [("Rough", 2.0), ("ready", 3.0)])
def test_problems_are_classes_and_objects(typed, name, factor):
    found = experiment(f"rough_of_mine.{name}")
    assert found.problem.factor == factor
    assert found.problem_name == f"rough_of_mine.{name}"


def test_of_a_model_the_settings_are_those_of_its_constructor(typed):
    for name, setting in (("Mine", "start"), ("Other", "begin")):
        path = f"models_of_mine.{name}"
        config = registry.config_of(path)()
        assert hasattr(config, setting)
        assert registry.name_of(registry.find("models", path)) == path
        assert named_model({"name": path, setting: 1.0}) == (path, {setting: 1.0})


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("problems", "rough_of_mine.number", "is no problem: a class that derives from ipot.prob"),
        ("problems", "rough_of_mine.Bare", "cannot be made without arguments"),
        ("problems", "rough_of_mine.Smoth", "nor has rough_of_mine .*anything called 'Smoth'"),
        ("models", "rough_of_mine.Rough", "is no model"),
        ("models", "models_of_mine.FNO", r"is no model.*there are models_of_mine\.Mine"),
        ("models", "models_of_mine.torch", "is no model"),
        ("problems", "rough_of_mine", r"rough_of_mine\.py is here: rough_of_mine\.PROBLEM"),
        ("models", "ipot.models.fno.FNO", "cannot import"),
        ("models", "models_of_mine.", "not the dotted path"),
    ],
)
def test_what_will_not_do_is_said(typed, kind, name, said):
    with pytest.raises(UnknownName, match=said):
        registry.find(kind, name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Plain", r"lonely_of_mine\.Plain has no Config, .*docs/extend\.md"),
        ("Asking", r"Config of lonely_of_mine\.Asking .*give each of its fields a default"),
    ],
)
def test_a_model_without_settings_is_refused_by_every_verb(typed, capsys, name, said):
    (typed / "lonely_of_mine.py").write_text(LONELY)
    path, data = f"lonely_of_mine.{name}", tiny.data("mesh")
    for call in (
        lambda: experiment("darcy", path),
        lambda: ipot.fit(data, model=path),
        lambda: ipot.fit(data, model={"name": path, "width": 3}),
    ):
        with pytest.raises(UnknownName, match=said):
            call()
    ipot.compare(data, [path], minutes=0.001)  # which goes on with others, and says why
    assert re.search(said, capsys.readouterr().err)
    assert main(["train", "darcy", path]) == 2
    assert "Config" in capsys.readouterr().err
    assert main(["fit", "none.npz", "--model", path, "--model.width", "3"]) == 2
    assert "Config" in capsys.readouterr().err


def test_a_missing_library_is_no_missing_class(typed):
    (typed / "lonely_of_mine.py").write_text("import nothing_of_that_name")
    with pytest.raises(UnknownName, match="No module named 'nothing_of_that_name'"):
        registry.find("models", "lonely_of_mine.Mine")


# ---- remembered, and trusted or not


def test_a_run_remembers_file_and_hash(trained, here):
    code = json.loads((trained / "config.json").read_text())["code"]
    assert {what: known["file"] for what, known in code.items()} == {
        "problem": str(here / "rough_of_mine.py"),
        "model": str(here / "models_of_mine.py"),
    }
    assert code["model"]["module"] == "models_of_mine"
    assert len(code["problem"]["sha256"]) == 64


def test_a_run_of_ours_has_nothing_to_remember(tmp_path):
    found = registry.code_of(problem="darcy", model="fno")
    assert found == {}


def refused(words, capsys):
    """The last line of what is said where a folder is not trusted."""
    capsys.readouterr()
    assert main(words) == 1
    assert not set(OWN) & set(sys.modules)
    said = capsys.readouterr().err
    return said, said.strip().splitlines()[-1].strip()


@pytest.mark.usefixtures("here")
def test_the_command_that_trusts_is_printed(trained, capsys, here, tmp_path):
    words = ["plot", str(trained), "--kind", "fields", "--out", "my pictures"]
    said, again = refused(words, capsys)
    assert again == f"ipot plot {trained} --kind fields --out 'my pictures' --trust"
    assert f"from the file {here / 'rough_of_mine.py'}. Pass" in said
    with pytest.raises(Untrusted):
        ipot.load(trained)
    assert main([*words, "--trust"]) == 0


def test_elsewhere_the_command_says_where_the_code_is(trained, capsys, here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said, again = refused(["evaluate", "run"], capsys)
    assert again == f"PYTHONPATH={here} ipot evaluate run --trust"
    assert f"it was trained with {here / 'rough_of_mine.py'}" in said
    assert main(["evaluate", "run", "--trust"]) == 1
    assert f"put {here} into PYTHONPATH" in capsys.readouterr().err


def test_a_file_that_has_changed_is_said(trained, here, capsys, caplog):
    with (here / "models_of_mine.py").open("a") as file:
        file.write("# another line\n")
    with registry.looking_in(str(here)):
        restore(trained, trusted=True)
    changed = (
        f"'models_of_mine.Other' is the code in {here / 'models_of_mine.py'}, which has changed"
    )
    assert [r.getMessage() for r in caplog.records if changed in r.getMessage()]
    assert not [r for r in caplog.records if "rough_of_mine" in r.getMessage()]
    forget()
    (here / "rough_of_mine.py").write_text(PROBLEM + "\n")
    said, _ = refused(["evaluate", str(trained)], capsys)
    assert "rough_of_mine.py, which has changed since the model was trained. Pass" in said


def test_another_file_is_said(trained, here, tmp_path, monkeypatch, capsys):
    other = tmp_path / "other"
    here.rename(other)
    monkeypatch.chdir(other)
    said, again = refused(["evaluate", str(trained)], capsys)
    assert f"{other}/rough_of_mine.py, where the model was trained with" in said
    assert shown(f"{here}/rough_of_mine.py") in said
    assert again == f"ipot evaluate {trained} --trust"


def test_a_saved_model_keeps_no_folders(trained, here, tmp_path):
    with registry.looking_in(str(here)):
        ipot.load(trained, trusted=True).save(tmp_path / "saved")
    content = (tmp_path / "saved" / "config.json").read_text()
    assert json.loads(content)["about"]["code"]["model"]["file"] == "models_of_mine.py"
    assert str(here) not in content
    forget()
    with pytest.raises(Untrusted, match=r"'models_of_mine\.Other', a module outside ipot"):
        ipot.load(tmp_path / "saved")
    with registry.looking_in(str(here)):
        assert ipot.load(tmp_path / "saved", trusted=True).model.name == "models_of_mine.Other"


def test_a_fit_with_a_model_of_ones_own(here, tmp_path, capsys):
    path, out = files.npz(tmp_path / "a.npz"), str(tmp_path / "m")
    words = ["fit", str(path), "--model", "models_of_mine.Mine", "--epochs", "1", "--device", "cpu"]
    assert main([*words, "--out", out]) == 0, capsys.readouterr().err
    forget()
    answer = ["predict", out, str(path), "--out", str(tmp_path / "b.npz")]
    _, again = refused(answer, capsys)
    assert again == f"ipot {' '.join(answer)} --trust"
    assert main([*answer, "--trust"]) == 0


# ---- what a hostile folder could try


def hostile(trained, **entries):
    file = trained / "config.json"
    content = json.loads(file.read_text())
    for name, value in entries.items():
        content[name] = value
    file.write_text(json.dumps(content))
    return trained


@pytest.mark.parametrize(
    "code",
    [
        *(3, [], {"problem": 3}, {"problem": {"file": 3, "sha256": None}}),
        {"problem": {"file": "a\0b", "sha256": ""}},
        {"problem": {"file": "/" * 9000 + "rough_of_mine.py", "sha256": "x" * 9000}},
        {"problem": {"file": "/etc/rough_of_mine.py", "sha256": "x"}},
    ],
    ids=str,
)
def test_whatever_stands_there_instead_nothing_is_imported(trained, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile(trained, code=code)
    with pytest.raises(Untrusted, match=r"not found on the path of Python\. Pass") as told:
        ipot.load(trained)
    assert told.value.home is None
    assert not set(OWN) & set(sys.modules)


def test_a_class_of_an_imported_module_is_no_leave_to_import_or_call(trained, tmp_path):
    """`subprocess` has been imported by many a program; `Popen()` is not called for a file."""
    for name in ("subprocess.Popen", "torch.nn", "os.path", "logging.PlaceHolder"):
        hostile(trained, problem={"name": name})
        with pytest.raises(Untrusted, match="a module outside ipot"):
            ipot.load(trained)
        with pytest.raises(RunError):
            ipot.load(trained, trusted=True)


def test_a_module_beside_a_class_of_the_same_name_is_not_imported(typed, tmp_path):
    """A program has imported a package with a class; a file means that, and not another file."""
    package = typed / "lonely_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text(MODELS)
    (package / "Mine.py").write_text("raise SystemExit")
    registry.module("models", "models_of_mine.Mine")
    sys.path.append(str(typed))
    __import__("lonely_of_mine")
    found = trust.named_in_file("models", "lonely_of_mine.Mine", "a", trusted=False)
    assert registry.find("models", found).__name__ == "Mine"


def test_what_the_program_has_imported_is_loaded(trained, here, tmp_path):
    with registry.looking_in(str(here)):
        settings = experiment("rough_of_mine.Rough", "models_of_mine.Other")
        assert restore(trained)[1].problem_name == settings.problem_name
