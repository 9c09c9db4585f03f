"""Inputs that are few, double, padded or in another space: a relay takes them, or says why not."""

import pytest
import torch

from ipot.accelerate import accelerate
from ipot.errors import DataError, Unsupported
from ipot.models.relay import Config, Relay
from ipot.samples import Sample, collate
from ipot.spec import Spec

SQUARE = ((0.0, 1.0), (0.0, 1.0))
SIZES = {"width": 8, "heads": 2, "latents": 3, "states": 4, "cross_heads": 2, "blocks": 2}
SIZES |= {"bins": (2,), "max_frequency": (4.0,)}
DIFFERENT = pytest.mark.parametrize("changes", [{}, {"stencil": 4}, {"mixing": False}], ids=str)


def spec(**changes) -> Spec:
    facts = {"name": "odd", "inputs": ("a",), "outputs": ("u",), "domain": SQUARE}
    return Spec(**facts | changes)


def relay(points=None, *, facts=None, **changes) -> Relay:
    """A relay that has been shown some points, as a training does first."""
    torch.manual_seed(0)
    net = Relay(Config(**SIZES | changes), facts or spec())
    if points is not None:
        net.measure(points)
    return net.double()


def sample(points, queries=None, *, channels=1, parameters=None) -> Sample:
    torch.manual_seed(len(points))
    points = points.double()
    queries = torch.rand(5, 2).double() if queries is None else queries.double()
    return Sample(
        points=points,
        values=torch.randn(len(points), channels, dtype=torch.float64),
        queries=queries,
        targets=torch.zeros(1, len(queries), 1, dtype=torch.float64),
        parameters=parameters,
    )


def answers(net, batch):
    """Of the model as it stands and of the quick one, with gradients that are finite."""
    quick = accelerate(net, training=True)
    out = net(batch)
    torch.testing.assert_close(quick(batch), out, atol=1e-9, rtol=1e-7)
    assert out.isfinite().all()
    for way in (net, quick):
        net.zero_grad()
        way(batch).square().sum().backward()
        found = [p.grad for p in net.parameters() if p.grad is not None]
        assert found
        assert all(g.isfinite().all() for g in found)
    return out.detach()


SCATTERED = torch.rand(6, 2, generator=torch.Generator().manual_seed(1))
ODD = {
    "one point": torch.tensor([[0.4, 0.6]]),
    "two points": SCATTERED[:2],
    "all at one place": SCATTERED[:1].repeat(5, 1),
    "every point twice": SCATTERED.repeat(2, 1),
    "a grid with one row": torch.cartesian_prod(torch.linspace(0, 1, 7), torch.tensor([0.5])),
    "a grid with one column": torch.cartesian_prod(torch.tensor([0.5]), torch.linspace(0, 1, 7)),
    "points outside of the domain": 3 * SCATTERED - 1,
}


@DIFFERENT
@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("neighbours", [1, 8])
def test_odd_points(case, changes, neighbours):
    """Eight neighbours are more than most of these have."""
    points = ODD[case]
    net = relay(points, neighbours=neighbours, **changes)
    assert (net.surroundings.delta > 0).all()
    answers(net, collate([sample(points)]))


def test_a_point_that_is_there_twice_is_heard_in_its_place_as_if_it_were_one():
    """With both values, were they different, at half of the weight each."""
    around = relay(SCATTERED).surroundings
    once, field = SCATTERED.double()[None], torch.randn(1, 6, 3, dtype=torch.float64)
    twice = around.near(once.repeat_interleave(2, 1), once)
    found = twice.look_up(field.repeat_interleave(2, 1))
    torch.testing.assert_close(found, field, atol=1e-5, rtol=0)
    apart = torch.stack([field[0], -field[0]], 1).flatten(0, 1)
    torch.testing.assert_close(twice.look_up(apart[None]), 0 * field, atol=1e-5, rtol=0)


@DIFFERENT
def test_parameters_alone(changes):
    facts = spec(inputs=(), parameters=("p", "q"))
    net = relay(facts=facts, **changes)
    one, other = (
        sample(torch.zeros(0, 2), SCATTERED, channels=0, parameters=torch.tensor(p).double())
        for p in ([0.1, 0.7], [0.9, 0.2])
    )
    out = answers(net, collate([one, other]))
    assert (out[0] - out[1]).abs().max() > 1e-6


def test_no_points_and_no_parameters_are_refused():
    with pytest.raises(DataError, match="no input points and no parameters"):
        sample(torch.zeros(0, 2))


@DIFFERENT
def test_a_padded_sample_answers_as_alone(changes):
    """Of sizes that differ, one of them a single point: padding is nobody's neighbour."""
    net = relay(torch.rand(20, 2), **changes)
    samples = [sample(torch.rand(n, 2)) for n in (1, 3, 12)]
    together = answers(net, collate(samples))
    for out, each in zip(together, samples, strict=True):
        torch.testing.assert_close(out, net(collate([each]))[0], atol=1e-9, rtol=1e-7)


def test_a_padded_sample_without_points_has_its_parameters():
    facts = spec(parameters=("p",))
    net = relay(torch.rand(9, 2), facts=facts)
    number = torch.tensor([0.3]).double()
    samples = [sample(p, parameters=number) for p in (torch.zeros(0, 2), torch.rand(4, 2))]
    together = answers(net, collate(samples))
    for out, each in zip(together, samples, strict=True):
        torch.testing.assert_close(out, net(collate([each]))[0], atol=1e-9, rtol=1e-7)


def test_a_query_at_an_input_hears_that_input():
    points = torch.rand(30, 2).double()
    around = relay(points).surroundings
    field = torch.randn(1, 30, 4, dtype=torch.float64)
    found = around.near(points[None], points[None, 4:9]).look_up(field)
    torch.testing.assert_close(found, field[:, 4:9], atol=1e-5, rtol=0)
    # A little beside it, the answer is a little another.
    net = relay(points)
    at, beside = (net(collate([sample(points, points[:5] + d)])) for d in (0.0, 1e-9))
    torch.testing.assert_close(at, beside, atol=1e-4, rtol=1e-4)


def test_inputs_and_queries_in_different_spaces():
    facts = spec(domain=((0.0, 1.0),), query_domain=((0.0, 1.0),) * 3)
    net = relay(torch.rand(6, 1), facts=facts)
    answers(net, collate([sample(torch.rand(6, 1), torch.rand(4, 3))]))
    for wrong, message in (
        ({"decoder": "both"}, r"model\.decoder both .* odd lie in different spaces"),
        ({"change": True}, r"model\.change .* inputs of odd"),
    ):
        with pytest.raises(Unsupported, match=message):
            relay(facts=facts, **wrong)


@pytest.mark.parametrize("name", ["neighbours", "stencil", "states", "latents", "step_blocks"])
def test_sizes_that_are_none_are_refused_by_name(name):
    with pytest.raises(Unsupported, match=f"model.{name} must be"):
        relay(**{name: 0})
