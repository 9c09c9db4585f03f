"""The files are the registry."""

import subprocess
import sys

import pytest

from ipot import registry
from ipot.errors import UnknownName


def test_names_are_the_files_without_the_base():
    assert {"burgers", "darcy", "navier_stokes"} <= set(registry.names("problems"))
    assert "ipot" in registry.names("models")
    assert not {"base", "__init__"} & {*registry.names("problems"), *registry.names("models")}


@pytest.mark.parametrize("kind", ["problems", "models"])
def test_every_file_can_be_found(kind):
    for name in registry.names(kind):
        assert registry.find(kind, name) is registry.find(kind, f"ipot.{kind}.{name}")


def test_a_hyphen_serves_as_an_underscore():
    assert registry.find("problems", "navier-stokes").name == "navier_stokes"


def test_an_unknown_name_lists_the_known_and_suggests():
    with pytest.raises(
        UnknownName, match=r"unknown problem 'darcie'\. Did you mean 'darcy'\?"
    ) as e:
        registry.find("problems", "darcie")
    for name in registry.names("problems"):
        assert name in str(e.value)
    with pytest.raises(UnknownName) as e:
        registry.find("models", "qqqq")
    assert "Did you mean" not in str(e.value)


def test_a_dotted_path_that_is_not_there_is_said():
    with pytest.raises(UnknownName, match=r"cannot import 'nowhere\.at_all'"):
        registry.find("models", "nowhere.at_all")


def test_a_module_without_the_name_is_said():
    with pytest.raises(UnknownName, match=r"ipot\.seeds defines no PROBLEM"):
        registry.find("problems", "ipot.seeds")


def test_what_only_some_commands_need_is_not_imported():
    module = "ipot.recipes.experiment"
    code = f"import sys, {module}, ipot.report.tables; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(answer.stdout.split())
    assert module in loaded
    assert not loaded & {"matplotlib", "tyro", "tensorboard", "xarray", "h5py", "rich"}
