"""Rollouts by Triton's kernels: one tower where blocks are as they were made, else the blocks."""

import pytest
import torch

from ipot.accelerate import accelerate, cuda

from .models import batch_for, build
from .test_contract import CHANGES, assert_same

pytestmark = [
    pytest.mark.plain,  # shapes of the same models are checked elsewhere, in half the time
    pytest.mark.skipif(not cuda.installed(), reason="Triton is not installed"),
    pytest.mark.skipif(not cuda.interpreted(), reason="float32 by kernels is for tests alone"),
]
SMALL = {"size": 1, "n": 4, "m": 6, "shared": True, "times": (1.0, 2.0)}
DECODERS = ("full", "unlifted")


@pytest.fixture
def towers(monkeypatch):
    """How often blocks went as one function."""
    from ipot.accelerate.cuda import tower

    calls, known = [], tower.roll
    monkeypatch.setattr(tower, "roll", lambda *given: calls.append(1) or known(*given))
    return calls


BLOCKS = {
    *("another class", "wrapped layers", "a forward of its own", "norms without a shift"),
    *("norms without anything", "norms with another epsilon", "no biases", "biases of keys alone"),
    *("parametrized", "compiled by itself", "steps of its own", "a constructor of its own"),
    "what the authors leave out",
}
"""Changes after which blocks, or the rollout, are called as they are."""


@pytest.mark.parametrize("name", CHANGES)
def test_layers_that_somebody_changed_do_what_they_do(name, towers):
    model = build(decoder=DECODERS[len(name) % 2], outputs=1, heads=1)
    CHANGES[name](model)
    assert_same(model, batch_for(model, **SMALL), learn=(True,), attention=("kernel",))
    assert bool(towers) == (name not in BLOCKS)


def test_lists_of_states_are_decoded_as_they_are():
    model = accelerate(build(), training=True, attention="kernel")
    batch = batch_for(model, **SMALL | {"times": (1.0, 2.0, 3.0)})
    answers, states = model(batch), model.rollout(batch)
    states.reverse()
    torch.testing.assert_close(model.decode_all(states, batch.queries), answers.flip(1))
    states[0] = states[2]
    found = model.decode_all(states[:2], batch.queries)
    torch.testing.assert_close(found, answers[:, [0, 1]])


def test_states_have_gradients_of_their_own():
    model = accelerate(build(), training=True, attention="kernel")
    batch = batch_for(model, **SMALL)
    states, seen = model.rollout(batch), []
    states[1].state.register_hook(seen.append)
    out = model.decode_all(states, batch.queries)
    (slope,) = torch.autograd.grad(out[:, 1].sum(), states[1].state, retain_graph=True)
    out.sum().backward()
    assert slope.abs().sum() > 0
    assert len(seen) >= 1
