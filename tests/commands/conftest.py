"""A trained run of a few seconds, shared by all tests of the command line."""

from __future__ import annotations

import json

import pytest

from ipot.cli import main

TINY = [
    *("--problem.size", "29", "--problem.resolution", "15"),
    *("--model.latents", "8", "--model.width", "16", "--model.blocks", "1"),
    *("--model.heads", "2", "--model.cross-heads", "2", "--model.bins", "4"),
    *("--count.train", "8", "--count.validation", "4", "--count.test", "4"),
    *("--training.epochs", "2", "--training.batch", "4"),
]


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def run(tmp_path_factory, store):
    out = str(tmp_path_factory.mktemp("runs") / "darcy")
    assert main(["train", "darcy", "ipot", "--out", out, "--data", store, "--quiet", *TINY]) == 0
    return out


@pytest.fixture
def ask(capsys):
    """Run a command and read its JSON."""

    def call(*arguments):
        capsys.readouterr()
        assert main([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def fails(capsys):
    """Run a command that must fail, without a traceback, and return what it said."""

    def call(*arguments, code=1):
        capsys.readouterr()
        try:
            status = main(list(arguments))
        except SystemExit as stop:
            status = stop.code
        said = capsys.readouterr()
        assert status == code, said.err
        assert "Traceback" not in said.err + said.out
        return said.err + said.out

    return call
