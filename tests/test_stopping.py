"""Answers stop between two steps, whatever the model, and nothing is left of it."""

import threading
from dataclasses import replace

import pytest
from serve.small import PROBLEMS, untrained

import ipot
from ipot.recipes.experiment import build
from ipot.stopping import Stopped, stop_if_asked, stoppable

STEPS, ASKED = 40, 5
SMALL = {
    "ipot": {"width": 16, "latents": 8, "heads": 2, "cross_heads": 2, "blocks": 1},
    "lattice": {"width": 8, "most_width": 16, "blocks": 1, "heads": 2},
    "relay": {},
    "oformer": {},
    "fno": {},
}


def made(name):
    """A model that steps through time, with weights as they are drawn."""
    found = ipot.experiment("navier_stokes", name)
    problem = replace(found.problem, **PROBLEMS["navier_stokes"])
    found = replace(found, model=replace(found.model, **SMALL[name]), problem=problem)
    return ipot.Surrogate.of_experiment(build(found), found)


def question(model):
    points = model.places()
    values = 0.1 * points[:, :1].repeat(model.spec.channels, 1)
    return {"points": points, "values": values, "steps": STEPS}


@pytest.mark.parametrize("name", SMALL)
def test_a_rollout_stops_at_its_next_step(name):
    model = made(name)
    asked = question(model)
    whole, looks = model.predict(**asked), []

    def enough():
        looks.append(1)
        return len(looks) == ASKED

    with pytest.raises(Stopped), stoppable(enough):
        model.predict(**asked)
    assert len(looks) == ASKED, "it went on"
    # All steps look, and what was stopped left nothing behind.
    looks.clear()
    with stoppable(lambda: bool(looks.append(1))):
        again = model.predict(**asked)
    assert len(looks) >= STEPS
    assert (again == whole).all()


def test_chunks_of_queries_stop_too():
    model = untrained("darcy")
    x = model.places()
    looks = []
    with stoppable(lambda: bool(looks.append(1))):
        model.predict(x, x[:, :1], rows=16)
    assert len(looks) >= len(x) / 16


def test_only_the_thread_that_said_so_stops():
    with stoppable(lambda: True):
        ended = []
        other = threading.Thread(target=lambda: ended.append(stop_if_asked()))
        other.start()
        other.join()
        assert ended == [None]
        with stoppable(lambda: False):
            stop_if_asked()
        with pytest.raises(Stopped):
            stop_if_asked()
    stop_if_asked()
