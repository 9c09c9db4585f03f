"""What takes seconds and is made once: a folder, of which every test that edits it gets a copy, and
graphs of parts."""

import shutil
from pathlib import Path

import pytest

from ipot.saved import parts
from ipot.saved.folder import write_folder
from saved.folders import SPEC, saved
from saved.small import model


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("written") / "model", model(SPEC), saved())


@pytest.fixture
def place(tmp_path, written):
    return shutil.copytree(written, tmp_path / "model")


@pytest.fixture(scope="session")
def _graphs(tmp_path_factory):
    """What writes the graphs of a network, once for the same facts and weights."""
    kept = {}

    def once(network, spec, folder, write):
        weights = [t.numpy().tobytes() for t in network.state_dict().values()]
        key = spec, tuple(weights)
        if key not in kept:
            kept[key] = write(tmp_path_factory.mktemp("graphs"))
        files, states = kept[key]
        return {part: Path(shutil.copy(path, folder)) for part, path in files.items()}, states

    return once


@pytest.fixture
def traced_once(monkeypatch, _graphs):
    """Tracing a network takes seconds. Tests of what is done with its graphs afterwards share those
    of the same network."""
    of_parts, of_whole = parts._write_parts, parts._write_whole

    def write_parts(plan, spec, signature, folder):
        return _graphs(plan.model, spec, folder, lambda at: of_parts(plan, spec, signature, at))

    def write_whole(network, spec, signature, folder):
        def whole(at):
            return of_whole(network, spec, signature, at), ()

        return _graphs(network, spec, folder, whole)[0]

    monkeypatch.setattr(parts, "_write_parts", write_parts)
    monkeypatch.setattr(parts, "_write_whole", write_whole)
