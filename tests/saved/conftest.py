"""One folder that is written once, and a copy of it for every test that edits it."""

import shutil

import pytest

from ipot.saved.folder import write_folder
from saved.folders import SPEC, saved
from saved.small import model


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("written") / "model", model(SPEC), saved())


@pytest.fixture
def place(tmp_path, written):
    return shutil.copytree(written, tmp_path / "model")
