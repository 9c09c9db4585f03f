"""docs/serve.md as somebody follows it: a model is fitted, served, and asked as the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from ipot.commands import serve
from ipot.formats import read_cases
from ipot.serve.limits import MIB, Limits
from ipot.serve.schema import document
from tests.docs.pages import ROOT, blocks, commands, parse_command
from tests.docs.small import shrunk, use_small_models

PAGE = "docs/serve.md"
TEXT = (ROOT / PAGE).read_text()
INSTALLS = {"pip install ipot[serve]"}
"""Commands that are not run."""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serves what the page's first program fits, as its command says but for the port."""
    monkeypatch.chdir(tmp_path)
    use_small_models(monkeypatch)
    first = next(block for block in blocks(PAGE) if block.language == "python")
    names: dict = {}
    exec(shrunk(first.text, {"minutes=1": "epochs=1"}), names)
    command = [sys.executable, "-m", "ipot", "serve", "surrogate", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        said = process.stderr.readline()
        yield re.search(r"http://127\.0\.0\.1:\d+/", said)[0], names
        process.terminate()


def test_the_page_can_be_followed(server):
    """From top to bottom: commands of ours have flags that are right, and the others are run."""
    address, names = server
    assert shutil.which("curl"), "the page asks by curl"
    first = next(block for block in blocks(PAGE) if block.language == "python")
    met, said = set(), []
    for block in blocks(PAGE):
        if block == first:
            continue
        if block.language == "python":
            exec(block.text.replace("http://127.0.0.1:8000/", address), names)
            continue
        for words in commands(block.text.replace("http://127.0.0.1:8000/", address)):
            if words[0] == "ipot":
                parse_command(words[1:])
            elif words[0] == "curl":
                done = subprocess.run([*words, "--silent"], capture_output=True, check=True)
                said.append(done.stdout)
            else:
                met.add(shlex.join(words).replace("'", ""))
    assert met == INSTALLS
    models, facts, answer, file, refused = said
    assert json.loads(models)["models"][0]["name"] == "surrogate"
    assert json.loads(facts)["spec"]["dimension"] == 2
    assert np.shape(json.loads(answer)["prediction"]) == (1,)
    assert file == b""
    assert len(next(iter(read_cases("answer.csv")[0].fields.values()))) == 300
    told = re.search(r"```text\n(\{\"error.*)\n```", TEXT)[1]
    assert json.loads(refused) == json.loads(told)
    answer = names["answer"]
    assert answer["prediction"].shape == (10_000,)
    assert (answer["low"] <= answer["prediction"]).all()
    wanted = names["model"].predict(
        points=names["x"], values=names["a"][0], queries=names["anywhere"], interval=0.9
    )
    for name, array in zip(("prediction", "low", "high"), wanted, strict=True):
        np.testing.assert_allclose(answer[name], array, rtol=1e-4, atol=1e-5)


def test_the_table_of_addresses_is_whole():
    told = set(re.findall(r"^\| `(GET|POST) (/[^`?]+)(?:\?[^`]*)?` \|", TEXT, re.M))
    paths = document(Limits())["paths"]
    known = {(method.upper(), path) for path, found in paths.items() for method in found}
    assert told == known - {("GET", "/v1/models/{name}/extras")}  # of the page alone


def test_the_table_of_statuses_is_whole():
    rows = re.findall(r"^\| (\d{3}(?:, \d{3})*) \|", TEXT, re.M)
    told = {status for row in rows for status in row.split(", ")}
    paths = document(Limits())["paths"].values()
    known = {s for found in paths for operation in found.values() for s in operation["responses"]}
    assert told == known - {"200", "500"} | {"405"}


def test_the_table_of_limits_is_that_of_the_server():
    limits = Limits()
    for row in (
        f"| bytes of a body | {limits.body // MIB} MiB |",
        "| bytes that a body unpacks to | four times that |",
        f"points likewise | {limits.rows:,} |",
        f"in a question or an answer | {limits.numbers:,} |",
        f"| samples at once | {limits.samples} |",
        f"| steps of a rollout | {limits.steps} |",
        f"| questions that wait | {limits.waiting} |",
        f"| seconds for an answer; a question waits as long for its turn | {limits.seconds:g} |",
        f"| seconds for a solution | {limits.solve_seconds:g} |",
        f"for a body | {limits.head_seconds:g}; {limits.body_seconds:g} |",
        f"open connections | {limits.connections}; {2 * limits.connections} |",
        f"| bytes of all bodies and answers at a time | {limits.held // MIB} MiB, or four bodies |",
    ):
        assert row in TEXT, row
    assert limits.unpacked == 4 * limits.body
    assert limits.solves == 3
    flags = set(re.findall(r"\| `(--[\w-]+)` \|$", TEXT, re.M))
    given = [word for flag in sorted(flags) for word in (flag, "7")]
    assert serve._limits(serve._parse(["m", *given])) != limits
