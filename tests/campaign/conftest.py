"""What the tests of attacks on operations share."""

import contextlib

import pytest

from campaign.attack import Place
from campaign.attacks import _operations, _own, _prepared


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Operations that are quick, each done once undisturbed."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "operations").mkdir()
    wanted = (_operations.Train(), _operations.Generate(), _own.Predict("npy"))
    _prepared.make(folder / "operations", {op.name: op for op in wanted})
    return folder


@pytest.fixture
def attempt(shared, tmp_path):
    """Tries a case of an attack here."""

    def run(attack, operation, *changes, **more):
        case = {"operation": operation, "changes": list(changes), **more}
        attack.run(case, Place(shared, tmp_path))

    return run


@pytest.fixture
def unsafe():
    """What `files.atomic` must not be: the file itself is written to."""

    @contextlib.contextmanager
    def atomic(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path

    return atomic
