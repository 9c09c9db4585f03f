"""A relay over inputs in chunks answers as one that holds them all, and holds a part of them."""

import pytest
import torch

from ipot.accelerate import accelerate, relay_streaming
from ipot.accelerate.relay_streaming import StreamedPoints
from ipot.data.statistics import Statistics
from ipot.evaluation.predict import predict
from ipot.models._wrappers import wrap
from ipot.models.relay import Config, Relay
from ipot.nn.points import Lift
from ipot.samples import Batch
from ipot.spec import Spec

SIZES = {"width": 8, "heads": 2, "latents": 3, "states": 4, "cross_heads": 2, "blocks": 3}
SIZES |= {"bins": (2,), "max_frequency": (4.0,)}
B, N, M = 2, 60, 40
SQUARE = ((0.0, 1.0), (0.0, 1.0))


def build(*, points=N, parameters=0, **changes):
    facts = {"name": "toy", "inputs": ("a", "b"), "outputs": ("u",), "domain": SQUARE, "steps": 2}
    facts |= {k: changes.pop(k) for k in ("periods", "history", "query_domain") if k in changes}
    spec = Spec(**facts, parameters=tuple("pq"[:parameters]))
    torch.manual_seed(0)
    net = Relay(Config(**SIZES | changes), spec)
    net.measure(torch.rand(points, 2))
    scales = Statistics.identity(2, 1, parameters)
    return wrap(net, scales).double().eval()


def batch(*, shared=False, masked=False, parameters=0, grid=False, points=N, axes=2):
    random = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.rand(shape, generator=random, dtype=torch.float64)

    places = draw(1 if shared or grid else B, points, 2)
    if grid:
        line = torch.linspace(0, 1, 8, dtype=torch.float64)
        places = torch.cartesian_prod(line, line)[None]
    count = places.shape[1]
    mask = torch.arange(count) < torch.tensor([[count], [count // 3]]) if masked else None
    return Batch(
        points=places,
        values=draw(B, count, 2),
        queries=draw(1, M, axes),
        times=(1.0, 2.0),
        parameters=draw(B, parameters) if parameters else None,
        point_mask=mask,
    )


CASES = {
    "scattered": ({}, {}),
    "a shared mesh": ({}, {"shared": True}),
    "a grid": ({}, {"grid": True}),
    "padding": ({}, {"masked": True}),
    "parameters": ({"parameters": 2}, {"parameters": 2}),
    "a torus": ({"periods": (1.0, None)}, {}),
    "stencils of four": ({"stencil": 4}, {}),
    "no stencils": ({"mixing": False}, {}),
    "one neighbour": ({"neighbours": 1}, {}),
    "changes": ({"history": 2, "change": True}, {}),
    "answers from the state": ({"decoder": "global"}, {}),
    "queries in space": ({"query_domain": ((0.0, 1.0),) * 3}, {"axes": 3}),
    "one point": ({}, {"points": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_in_chunks_as_at_once(case, monkeypatch):
    monkeypatch.setattr(relay_streaming, "FEW", 1)
    built, given = CASES[case]
    rows = 15 if case == "a grid" else 25
    model, question = build(**built), batch(**given)
    with torch.no_grad():
        wanted = model(question)
    found = predict(model, question, rows=rows)
    torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-8)


def test_many_points_are_streamed_unasked(monkeypatch):
    model, question = build(), batch()
    with torch.no_grad():
        wanted = model(question)
        quick = accelerate(model)
        assert not isinstance(quick.encode(question).seen, StreamedPoints)
        monkeypatch.setattr(relay_streaming, "NUMBERS_HELD", B * N * SIZES["width"] - 1)
        assert isinstance(quick.encode(question).seen, StreamedPoints)
        torch.testing.assert_close(quick(question), wanted, atol=1e-10, rtol=1e-8)
    assert not isinstance(quick.encode(question).seen, StreamedPoints), "gradients want all of them"


def test_points_that_go_on_in_time_are_held():
    model, question = build(stepping="points"), batch()
    with torch.no_grad():
        wanted = model(question)
    torch.testing.assert_close(predict(model, question, rows=7), wanted, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("points", [2_000, 8_000])
def test_what_is_held_does_not_grow_with_the_points(points, monkeypatch):
    """Rows that are lifted at once: a chunk of close points and what surrounds it, blocks deep. So
    also around queries, which lie far apart."""
    seen, chunk = [], 500
    before = Lift.forward

    def spy(self, position, value=None):
        seen.append(position.shape[-2])
        return before(self, position, value)

    monkeypatch.setattr(Lift, "forward", spy)
    monkeypatch.setattr(relay_streaming, "FEW", 1)
    predict(build(points=points), batch(shared=True, points=points), rows=chunk)
    assert max(seen) <= 4 * chunk
    # Every pass and every answer goes over all of it.
    assert sum(seen) > 4 * points
