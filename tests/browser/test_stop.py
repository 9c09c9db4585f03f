"""A forecast at work is stopped: by its button, by a newer question, by leaving the scene."""

import re
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
from javascript import call
from serve.small import untrained

import ipot
from ipot.recipes.experiment import build

STEPS, WIDTH, BLOCKS = 400, 160, 4
"""So many, and so much work in each, that the answer takes seconds on any machine."""


@pytest.fixture(scope="module")
def long(serve, chromium, models, tmp_path_factory):
    """A server with a model of very many steps, and another one."""
    folder = tmp_path_factory.mktemp("long") / "long"
    slow = untrained("navier_stokes", "lattice", steps=STEPS).settings
    sizes = {"width": WIDTH, "most_width": WIDTH, "blocks": BLOCKS, "finest": BLOCKS}
    slow = replace(slow, model=replace(slow.model, **sizes))
    ipot.Surrogate.of_experiment(build(slow), slow).save(folder)
    return serve(folder, models["burgers"])


@pytest.fixture
def page(open_page, long):
    found = open_page(f"{long.address}?model=long")
    found.page.get_by_role("button", name="Stop", exact=True).wait_for()
    return found


def running(long):
    """Questions that are at work on the server."""
    with urllib.request.urlopen(f"{long.address}metrics") as answer:
        text = answer.read().decode()
    return float(re.search(r"^ipot_questions_running (\S+)$", text, re.M)[1])


def idle(page, long):
    """Waits until nothing is at work, in the page and on the server."""
    page.page.wait_for_function("!window.ipot.room.asked.busy")
    for _ in range(600):
        if not running(long):
            return
        page.page.wait_for_timeout(50)
    raise AssertionError("the server is still at work")


def test_by_its_button(page, long):
    page.press("Stop")
    idle(page, long)
    assert page.read("room.asked.stopped") == 1
    assert page.read("room.last") is None, "it was answered"
    assert "Stopped" in page.page.locator(".time").text_content()
    assert not page.page.get_by_role("button", name="Stop", exact=True).is_visible()
    assert not page.page.locator(".error:visible").count()


def test_it_is_seen_on_a_phone(open_page, long):
    """Without a scroll, though the controls are below the figures."""
    page = open_page(f"{long.address}?model=long", viewport={"width": 390, "height": 844})
    button = page.page.get_by_role("button", name="Stop", exact=True)
    button.wait_for()
    box = button.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 844
    page.press("Stop")
    idle(page, long)


def test_by_a_newer_question(page, long):
    page.press("Still water")
    page.page.wait_for_function("window.ipot.room.asked.stopped === 1")
    assert page.read("room.last") is None
    page.settle()
    values = page.last()["inputs"]["values"]
    np.testing.assert_array_equal(values[:, 0], 0)  # of the first frame
    assert page.read("room.asked.sent") == 2
    assert page.read("room.asked.answered") == 1


def test_by_leaving_the_scene(page, long):
    page.page.get_by_role("link", name="Burgers").click()
    page.settle()
    idle(page, long)
    assert page.page.locator("h1").text_content() == "Burgers"


ASKER = """
(async () => {
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  const shown = [];
  const asker = new m.Asker({
    question: ({ moving }) => ({ inputs: state, moving }),
    // Ends by itself only where that is asked for.
    ask: (inputs, signal) => new Promise((done, failed) => {
      if (inputs.quick) setTimeout(() => done(inputs.name), 0);
      else if (inputs.slow) setTimeout(() => done(inputs.name), inputs.slow);
      signal.addEventListener("abort", () => failed(signal.reason));
    }),
    show: (answer) => shown.push(answer),
    fail: (error) => shown.push(`failed: ${error}`),
  });
  let state = null;
  const ask = (name, how, moving = false) => {
    state = { name, ...how };
    asker.changed({ moving });
  };
  const idle = async () => { while (asker.busy) await wait(5); };
  BODY
  return { shown, stopped: asker.stopped, busy: asker.busy };
})()
"""


@pytest.mark.parametrize(
    ("body", "shown", "stopped"),
    [
        # What is answered at once is shown, however often one asks.
        ("for (const n of 'abc') { ask(n, { quick: true }); await idle(); }", ["a", "b", "c"], 0),
        ("ask('a', { quick: true }); ask('b', { quick: true }); await idle();", ["a", "b"], 0),
        # What would take for ever gives way to what is newer.
        ("ask('a', {}); ask('b', { quick: true }); await idle();", ["b"], 1),
        ("ask('a', {}); await wait(300); ask('b', { quick: true }); await idle();", ["b"], 1),
        # While something moves a slow answer is waited for, and then the last state wins.
        (
            "ask('a', { slow: 400 }); ask('b', {}, true); ask('c', { quick: true }, true);"
            "await idle();",
            ["a", "c"],
            0,
        ),
        (
            "ask('a', {}); ask('b', {}, true); await wait(300); ask('c', { quick: true });"
            "await idle();",
            ["c"],
            1,
        ),
        # Nothing is asked after a stop, until something changes.
        ("ask('a', {}); ask('b', { quick: true }); asker.stop(); await idle();", [], 1),
        (
            "ask('a', {}); asker.stop(); await idle(); ask('b', { quick: true }); await idle();",
            ["b"],
            1,
        ),
        ("ask('a', {}); asker.close(); await idle(); ask('b', { quick: true });", [], 1),
    ],
)
def test_which_questions_are_stopped(body, shown, stopped):
    found = call("shell/asker.js", ASKER.replace("BODY", body))
    assert found["shown"] == shown
    assert found["stopped"] == stopped
