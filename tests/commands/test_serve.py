"""`ipot serve` as a command, in a process of its own where it matters."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ipot import trained
from ipot.cli import main
from ipot.commands import serve
from ipot.errors import DataError
from ipot.serve.models import served
from tests.serve.running import ask
from tests.serve.small import untrained

ROOT = Path(__file__).parents[2]
QUESTION = {"points": [[0.2, 0.3], [0.7, 0.6]], "values": [[3.0], [12.0]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved model."""
    found = tmp_path_factory.mktemp("served") / "my model"
    untrained("darcy").save(found)
    return found


class Process:
    """The command in a process of its own."""

    def __init__(self, place, *words):
        self.log = place / "said.txt"
        command = [sys.executable, "-m", "ipot", "serve", *map(str, words), "--port", "0"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(ROOT)}
            )
        for _ in range(1200):
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", self.said):
                self.port = int(found[1])
                return
            assert self.process.poll() is None, self.said
            time.sleep(0.1)
        raise AssertionError(self.said)

    @property
    def said(self):
        return self.log.read_text()

    def ask(self, *words, **headers):
        return ask(self.port, *words, **headers)

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def begin(tmp_path):
    made = []

    def start(*words):
        made.append(Process(tmp_path, *words))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_a_page_and_answers(begin, folder):
    """From its start to Ctrl-C, with nothing said but where it is."""
    server = begin(folder)
    page = server.ask("GET", "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    (model,) = server.ask("GET", "/v1/models").json["models"]
    assert (model["name"], model["title"]) == ("my-model", "my model")
    assert (model["problem"], model["shipped"]) == ("darcy", False)
    found = server.ask("POST", "/v1/models/my-model/predict", json.dumps(QUESTION).encode())
    assert np.array(found.json["prediction"]).shape == (1, 2, 1)
    assert server.ask("GET", "/healthz").json["models"] == {"my-model": "ready"}
    for wrong in (b"{", b'{"points": [["secret"]]}', b"\xff" * 99, b'{"secret": 1}'):
        assert server.ask("POST", "/v1/models/my-model/predict", wrong).status in (400, 422)
    server.ask("GET", "/secret?secret=1", None, host="secret.example", cookie="secret")
    for sent in (
        b"secret\r\n\r\n",
        b"GET /secret HTTP/1.1\r\nUpgrade: secret\r\nConnection: Upgrade",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(sent)
    server.ask("POST", "/v1/models/my-model/files?name=secret.h5", b"secret")
    question = QUESTION | {"queries": [[0.5, 0.5]]}
    assert server.ask("POST", "/v1/models/my-model/solve", question).status == 200
    assert server.end() == 0
    assert server.said.splitlines() == [
        f"ipot serve: http://127.0.0.1:{server.port}/ (my-model)",
        "only this machine reaches it; Ctrl-C ends it",
        "ended",
    ]


def test_sigterm_ends_it_and_a_model_that_cannot_be_loaded_does_not(begin, folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    server = begin(broken, folder)
    assert server.ask("POST", "/v1/models/my-model/predict", QUESTION).status == 200
    found = server.ask("POST", "/v1/models/broken/predict", QUESTION)
    assert found.status == 500
    assert found.error.startswith("the model broken cannot be loaded: ")
    assert str(tmp_path) not in found.error
    assert server.ask("GET", "/healthz").json == {
        "status": "ready",
        "models": {"broken": "failed", "my-model": "ready"},
        "version": server.ask("GET", "/openapi.json").json["info"]["version"],
    }
    assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert server.said.count("ipot serve: the model broken cannot be loaded: ") == 1
    assert "Traceback" not in server.said


def test_the_page_needs_no_torch(folder):
    """Torch takes seconds to import; the address answers before."""
    code = (
        "import sys, ipot.commands.serve, ipot.serve.application, ipot.serve.listening\n"
        "from ipot.serve.models import Models, served\n"
        "app = ipot.serve.application.application(Models(served(sys.argv[1:])))\n"
        "assert app.server.page['']\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_help(capsys):
    for flag, said in (
        ("--help", ("--port", "--host-name", "ipot serve darcy airfoil", "[8000]", "[127.0.0.1]")),
        ("--help-all", ("--most-queries", "--waiting", "--trust", "there are no passwords")),
    ):
        with contextlib.suppress(SystemExit):
            main(["serve", flag])
        out = " ".join(capsys.readouterr().out.split())
        assert [part for part in said if part not in out] == []


@pytest.fixture
def idle(monkeypatch):
    """Fail where a server is started."""
    monkeypatch.setattr("ipot.serve.listening.listen", lambda *given: pytest.fail("it listens"))


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("nowhere is not there: give the folder of a saved model or of a run", ["nowhere"]),
        ("a.txt is a file: give the folder", ["a.txt"]),
        ("empty holds no config.json: it is no saved model and no run", ["empty"]),
        (f"above holds no config.json: it is no saved model and no run. There is one at {'above'}",
         ["above"]),
        ("--port must lie between 0 and 65535, got 99999", ["model", "--port", "99999"]),
        ("--port must lie between 0 and 65535, got -1", ["model", "--port", "-1"]),
        ("--waiting must be positive, got 0", ["model", "--waiting", "0"]),
        ("--most-megabytes must be positive, got -1", ["model", "--most-megabytes", "-1"]),
        ("--most-queries must be positive, got nan", ["model", "--most-queries", "nan"]),
        ("--answer-seconds must be positive, got 0", ["model", "--answer-seconds", "0"]),
        ("--solve-seconds must be positive, got inf", ["model", "--solve-seconds", "inf"]),
        ("unknown device 'gpu'; use auto, cpu or cuda", ["model", "--device", "gpu"]),
        ("--host 300.1.2.3: no address of this machine", ["model", "--host", "300.1.2.3"]),
        ("cannot listen on 192.0.2.1", ["model", "--host", "192.0.2.1"]),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(fails, folder, tmp_path, monkeypatch, said, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(folder)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    (tmp_path / "above").mkdir()
    (tmp_path / "above" / "model").symlink_to(folder)
    assert said in " ".join(fails("serve", *words).split())


@pytest.mark.usefixtures("idle")
def test_a_port_that_is_taken(fails, folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = fails("serve", str(folder), "--port", str(port))
    assert f"port {port} of 127.0.0.1 is taken" in said
    assert f"choose another by --port {port + 1}" in said


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_without_its_libraries(fails, folder, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert f"ipot serve needs {name}: pip install 'ipot[serve]' brings it" in fails(
        "serve", str(folder)
    )


@pytest.mark.usefixtures("idle")
def test_a_copy_without_trained_models_says_what_to_do(fails, monkeypatch):
    monkeypatch.setattr(trained, "names", tuple)
    said = " ".join(fails("serve").split())
    assert "this copy of ipot holds no trained models" in said
    assert "then ipot serve model" in said
    assert "Models in the package" not in fails("serve", "darcy")


@pytest.fixture
def shipped(folder, monkeypatch):
    """Two trained models as if they came with the package."""
    names = ("airfoil", "darcy")
    facts = {"problem": "darcy", "title": "Darcy flow"}
    monkeypatch.setattr(trained, "names", lambda: names)
    monkeypatch.setattr(trained, "facts", lambda name: facts)
    monkeypatch.setattr(trained, "folder", lambda name: folder.parent / name)
    return names


def test_all_in_the_package_unless_some_are_named(shipped, folder, fails):
    assert [(model.name, model.shipped) for model in served([])] == [(n, True) for n in shipped]
    (one,) = served(["darcy"])
    assert (one.name, one.title, one.folder) == ("darcy", "Darcy flow", folder.parent / "darcy")
    both = served(["darcy", str(folder), "darcy"])
    assert [model.name for model in both] == ["darcy", "my-model"]
    assert "Models in the package: airfoil, darcy" in fails("serve", "dracy")


def test_names_of_folders(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("a/darcy", "b/darcy", "ünïcode é", "..x/…"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).symlink_to(folder)
    (tmp_path / "fitted" / "training").mkdir(parents=True)
    (tmp_path / "fitted" / "training" / "config.json").write_text("{}")
    monkeypatch.setattr(Path, "resolve", Path.absolute)  # names of the links, not of the folder
    found = served(["a/darcy", "b/darcy", "ünïcode é", "fitted"])
    assert [model.name for model in found] == ["darcy", "darcy-2", "n-code", "fitted"]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", model.name) for model in found)


def test_flags_become_limits():
    given = ["m", "--most-queries", "1e3", "--most-megabytes", "200", "--waiting", "5"]
    limits = serve._limits(serve._parse([*given, "--answer-seconds", "2", "--solve-seconds", "3"]))
    assert (limits.rows, limits.body, limits.waiting) == (1000, 200 << 20, 5)
    assert (limits.seconds, limits.solve_seconds) == (2.0, 3.0)
    assert limits.held >= 4 * limits.body
    with pytest.raises(DataError, match="--waiting must be positive"):
        serve._limits(serve._parse(["m", "--waiting", "-1"]))


@pytest.mark.parametrize(
    ("host", "said"),
    [("127.0.0.1", "only this machine reaches it"), ("0.0.0.0", "whoever reaches this machine")],
)
def test_it_says_who_can_reach_it(folder, monkeypatch, capsys, host, said):
    asked = []
    monkeypatch.setattr(
        "ipot.serve.listening.listen",
        lambda app, listener, limits: (asked.append(listener.getsockname()[0]), listener.close()),
    )
    assert main(["serve", str(folder), "--port", "0", "--host", host]) == 0
    assert said in capsys.readouterr().err
    assert asked == [host]


def test_this_machine_alone_unless_said(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "ipot.serve.listening.listen",
        lambda app, listener, limits: (asked.append(listener.getsockname()), listener.close()),
    )
    assert main(["serve", str(folder), "--port", "0", "--quiet"]) == 0
    assert asked[0][0] == "127.0.0.1"
