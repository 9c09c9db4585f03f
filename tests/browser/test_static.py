"""The page without a server answers as Python does, from a web server and from a folder."""

from __future__ import annotations

import functools
import http.server
import threading

import numpy as np
import pytest

import ipot

RANDOM = np.random.default_rng(5)
HERE, THERE = RANDOM.random((70, 2)), RANDOM.random((9, 2))
GROUND = RANDOM.choice([3.0, 12.0], (70, 1))
PAST = RANDOM.standard_normal((70, 10))
SPHERE = (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))(RANDOM.normal(size=(20_070, 3)))
NUMBERS = RANDOM.random(3)
QUESTIONS = {
    "other points and queries": ("darcy", {"points": HERE, "values": GROUND, "queries": THERE}),
    "at the points": ("darcy", {"points": HERE, "values": GROUND}),
    "one point": ("darcy", {"points": HERE[:1], "values": GROUND[:1], "queries": THERE}),
    "on a grid": (
        "darcy",
        {"points": HERE, "values": GROUND, "queries": RANDOM.random((3, 4, 2))},
    ),
    "more queries than at once": (
        "darcy",
        {"points": HERE, "values": GROUND, "queries": RANDOM.random((40_000, 2))},
    ),
    "steps": ("navier_stokes", {"points": HERE, "values": PAST, "queries": THERE}),
    "fewer steps": ("navier_stokes", {"points": HERE, "values": PAST, "steps": 2}),
    "more steps": ("navier_stokes", {"points": HERE, "values": PAST, "steps": 5}),
    "times": ("navier_stokes", {"points": HERE, "values": PAST, "times": [1.0, 4.0]}),
    "one graph of all steps": (
        "shallow_water",
        {"points": SPHERE[:70], "values": PAST[:, :2], "queries": SPHERE[70:], "steps": 2},
    ),
    "parameters alone": ("parameters", {"queries": THERE, "parameters": NUMBERS}),
    "far from zero, at times of its own": (
        "far",
        {
            "points": 5e6 + 10 * HERE,
            "values": 1e9 + GROUND[:, 0] / 10,
            "queries": 5e6 + 10 * THERE,
            "parameters": 1e-35 * NUMBERS,
        },
    ),
}
OWN_SCALE = {"far": 1.0}
"""What differences are measured by where the numbers themselves say nothing of it."""


@pytest.fixture(scope="module")
def address(exported):
    """The page on a plain web server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=exported)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["a web server", "a folder"])
def page(request, open_page, exported):
    """The page, opened in either way."""
    if request.param == "a folder":
        where = (exported / "index.html").as_uri()
    else:
        where = request.getfixturevalue("address")
    found = open_page(where)
    found.settle()
    found.worker = request.param == "a web server"
    return found


ASK = """
(async () => {
  const arrays = ["points", "values", "queries", "parameters"];
  const inputs = Object.fromEntries(Object.entries(given.question).map(([name, value]) => {
    if (!arrays.includes(name)) return [name, value];
    return [name, { data: Float64Array.from(value.data), shape: value.shape }];
  }));
  return (await (await ipot.backend(given.name)).predict(inputs)).prediction;
})()
"""


def ask(page, name, question):
    """What a model of the page answers."""
    plain = {
        key: {"data": value.ravel().tolist(), "shape": value.shape}
        if isinstance(value, np.ndarray)
        else value
        for key, value in question.items()
    }
    found = page.read(ASK, {"name": name, "question": plain})
    return np.reshape(found["data"], [int(n) for n in found["shape"]])


@pytest.mark.filterwarnings("ignore:inputs far outside")
def test_as_python_answers(page, alone):
    for kind, (name, question) in QUESTIONS.items():
        found = ask(page, name, question)
        wanted = ipot.load(alone[name], device="cpu").predict(**question)
        assert found.shape == wanted.shape, kind
        scale = OWN_SCALE.get(name, np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * scale, err_msg=kind)
    assert bool(page.page.workers) == page.worker, "a worker, where there may be one"


def test_a_scene_without_a_server(page, alone):
    assert "in this browser" in page.page.locator(".time").text_content()
    before = page.last()
    page.stroke("Permeability", [(0.2, 0.3), (0.8, 0.3)])
    page.settle()
    last = page.last()
    assert not np.array_equal(last["inputs"]["values"], before["inputs"]["values"])
    wanted = ipot.load(alone["darcy"], device="cpu").predict(**last["inputs"])
    np.testing.assert_allclose(
        last["answer"]["prediction"], wanted, rtol=0, atol=1e-4 * np.abs(wanted).max()
    )
    assert not page.page.get_by_role("button", name="Solve", exact=True).count()


def test_what_needs_a_server_is_said(page):
    question = {"points": HERE, "values": GROUND, "interval": 0.9}
    with pytest.raises(Exception, match="Bounds need a server: run `ipot serve`"):
        ask(page, "darcy", question)
    with pytest.raises(Exception, match="More than 1 steps need a server"):
        ask(page, "darcy", {"points": HERE, "values": GROUND, "steps": 2})
    with pytest.raises(Exception, match="More than 3 steps need a server"):
        ask(page, "shallow_water", {"points": SPHERE, "values": SPHERE[:, :2], "steps": 4})
    with pytest.raises(Exception, match="must increase and be multiples"):
        ask(page, "navier_stokes", {"points": HERE, "values": PAST, "times": [1.5]})
    with pytest.raises(Exception, match="The model needs values"):
        ask(page, "darcy", {"points": HERE})


STOP = """
(async () => {
  const rows = given.points.length / 2;
  const question = {
    points: { data: Float64Array.from(given.points), shape: [rows, 2] },
    values: { data: new Float64Array(10 * rows).fill(0.1), shape: [rows, 10] },
  };
  const model = await ipot.backend("navier_stokes");
  await model.predict({ ...question, steps: 1 });
  const leaving = new AbortController();
  setTimeout(() => leaving.abort(), 100);
  // Steps that would take an hour, of which the last is wanted.
  const long = model.predict({ ...question, times: [1e6] }, { signal: leaving.signal });
  const said = await long.then(() => "answered", (error) => error.name);
  const { prediction } = await model.predict({ ...question, steps: 2 });
  return { said, shape: prediction.shape };
})()
"""


def test_a_rollout_stops_and_the_next_question_is_answered(page):
    found = page.read(STOP, {"points": HERE.ravel().tolist()})
    assert found == {"said": "AbortError", "shape": [2, 70, 1]}


def test_nothing_but_the_page_s_own_files_is_asked_for(page, exported):
    root = page.address.removesuffix("index.html")
    names = {url.removeprefix(root).partition("#")[0] for url in page.requests}
    assert names <= {"", "index.html"} | {
        path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()
    }
    assert "assets/runtime.wasm.js" in names


FORBIDDEN = {
    "code as text": "new Function('return 1')()",
    "a request to another place": "fetch('https://example.com/')",
    "a request to its own place": "fetch('page.js')",
    "a script in the page": """(() => {
        const made = document.createElement("script");
        made.textContent = "globalThis.slipped = true";
        document.head.append(made);
        if (!globalThis.slipped) throw new Error("Content Security Policy");
    })()""",
}


def test_the_policy_of_the_page(page):
    for kind, words in FORBIDDEN.items():
        # A browser's tools may do what the page may not, until they wait for something.
        later = f"new Promise((done) => setTimeout(done)).then(() => {words})"
        with pytest.raises(Exception, match=r"Content Security Policy|Failed to fetch"):
            page.read(later)
        if kind != "code as text":  # of which the console says nothing more
            page.forgive("Content Security Policy")
