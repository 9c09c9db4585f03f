"""Transolver: its arithmetic by numpy, its two projections, its start, what it refuses."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from ipot.data.dataset import from_samples
from ipot.errors import DataError, Unsupported
from ipot.models._grid_or_points import Position
from ipot.models.base import parameter_count
from ipot.models.transolver import Config, Transolver
from ipot.nn.slices import PhysicsAttention
from ipot.samples import Batch, Sample
from ipot.spec import Need, Spec
from tests.models import toy

from .by_hand import ByHand, disturb, gelu, physics_attention, pointwise

ON_A_GRID = frozenset({Need.GRID, Need.SAME_POINTS})
SMALL = Config(width=8, blocks=2, heads=2, slices=3, reference=3)

spec = partial(toy.spec, side=(0.0, 2.0), provides=frozenset({Need.SAME_POINTS}))


def build(facts: Spec, **changes) -> Transolver:
    torch.manual_seed(0)
    return Transolver(dataclasses.replace(SMALL, **changes), facts).double()


def cloud(n=7, c=1, p=0, grid=None) -> Batch:
    torch.manual_seed(1)
    points = 2 * torch.rand(2, n, 2).double()
    return Batch(
        points=points,
        values=torch.randn(2, n, c).double(),
        queries=points,
        parameters=torch.randn(2, p).double() if p else None,
        grid=grid,
    )


@pytest.mark.parametrize("reference", [0, 3])
def test_the_forward_pass_in_numpy(reference):
    model, batch = build(spec(c=2, k=2, p=1), reference=reference), cloud(c=2, p=1)
    disturb(model)
    hand, got = ByHand(model), model(batch).detach().numpy()[:, 0]
    for row in range(2):
        x = batch.points[row].numpy() / 2
        if reference:
            line = [0.0, 0.5, 1.0]
            nodes = np.array([(a, b) for a in line for b in line])
            x = np.sqrt(((x[:, None] - nodes) ** 2).sum(-1))
        parameter = np.repeat(batch.parameters[row].numpy()[None], len(x), 0)
        values = np.concatenate([batch.values[row].numpy(), parameter], 1)
        h = hand.linear("lift.from_position", x) + hand.linear("lift.from_value", values)
        h = hand.linear("lift.out", gelu(h))
        for i, block in enumerate(model.blocks):
            seen = hand.norm(f"blocks.{i}.norm", h)
            h = h + physics_attention(block.attend, pointwise, seen)
            h = h + hand.feed_forward(f"blocks.{i}.feed_forward", h)
        expected = hand.linear("out", hand.norm("norm", h))
        assert np.ptp(expected) > 1e-3
        np.testing.assert_allclose(got[row], expected, atol=1e-10)


@pytest.mark.parametrize(
    ("projection", "dimension", "provides", "convolves"),
    [
        ("auto", 2, ON_A_GRID, True),
        ("auto", 3, ON_A_GRID, True),
        ("auto", 1, ON_A_GRID, False),
        ("auto", 2, frozenset({Need.SAME_POINTS}), False),
        ("points", 2, ON_A_GRID, False),
        ("grid", 1, ON_A_GRID, True),
    ],
)
def test_it_needs_a_grid_where_it_convolves(projection, dimension, provides, convolves):
    model = build(spec(d=dimension, provides=provides), projection=projection)
    assert (Need.GRID in model.needs) == convolves
    assert Need.SAME_POINTS in model.needs
    kernels = {m.project.weight.ndim for m in model.modules() if isinstance(m, PhysicsAttention)}
    assert kernels == {2 + dimension if convolves else 2}


def test_the_globe_is_a_grid_of_two_axes():
    facts = dataclasses.replace(spec(d=3, provides=ON_A_GRID), sphere=True)
    assert isinstance(build(facts).blocks[0].attend.project, torch.nn.Conv2d)


def test_the_published_size_for_darcy():
    """2.83 million: the weights of the paper's code, without a placeholder that it never uses."""
    d, s, head, taps, reference = 128, 64, 16, 9, 64
    lift = (reference + 1) * 2 * d + 2 * d + 2 * d * d + d
    attention = 2 * (taps * d * d + d) + head * s + s + 8 + 3 * head * head + d * d + d
    block = 2 * d + attention + 2 * d + 2 * (d * d + d)
    model = Transolver(Config(), spec(provides=ON_A_GRID))
    assert parameter_count(model) == lift + 8 * block + 2 * d + d + 1 == 2_826_817


def test_the_placeholder_stands_for_values_that_are_not_there():
    assert build(spec()).placeholder is None
    assert build(spec(c=0, p=1)).placeholder is None
    model, batch = build(spec(c=0)), cloud(c=0)
    before = model(batch)
    with torch.no_grad():
        model.placeholder.add_(torch.linspace(-1, 1, 8))
    assert not torch.allclose(model(batch), before)


def test_the_start():
    model = build(spec(), width=64, slices=8)
    weights = model.blocks[0].attend.to_slice.weight
    torch.testing.assert_close(weights @ weights.T, torch.eye(8).double(), atol=1e-6, rtol=0)
    assert model.blocks[0].feed_forward.into.weight.detach().std() == pytest.approx(
        0.0176, rel=0.05
    )
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    assert all(not b.any() for b in biases)


def test_a_point_on_a_node_has_a_slope():
    points = torch.tensor([[[0.0, 0.0], [1.0, 2.0], [0.3, 0.4]]]).requires_grad_()
    distances = Position(3, spec())(points)
    assert distances.shape == (1, 3, 9)
    distances.sum().backward()
    assert points.grad is not None
    assert points.grad.isfinite().all()


def test_a_lost_grid_is_refused_with_the_way_out():
    model = build(spec(provides=ON_A_GRID))
    with pytest.raises(DataError, match="this batch has none: use --model"):
        model(cloud(6))
    x = torch.rand(6, 2).double()
    sample = Sample(points=x, values=x[:, :1], queries=x, targets=x[None, :, :1])
    with pytest.raises(Unsupported, match="view of the data has none: use --model"):
        model.examine(from_samples([sample]))
    model.examine(from_samples([dataclasses.replace(sample, grid=(2, 3))]))
    assert model(cloud(6, grid=(2, 3))).shape == (2, 1, 6, 1)


def test_queries_elsewhere_are_refused():
    model, batch = build(spec()), cloud()
    with pytest.raises(DataError, match="answers at its input points: 7 points and 3 queries"):
        model(batch.take_queries(torch.arange(3)))


def test_a_grid_is_refused_where_there_is_none_or_too_many_axes():
    with pytest.raises(Unsupported, match="Transolver needs points that form a regular grid"):
        build(spec(), projection="grid")
    with pytest.raises(Unsupported, match="one to three axes, toy has 4: use --model"):
        build(spec(d=4, provides=ON_A_GRID), projection="grid")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slices": 0}, "model.slices must be positive, got 0"),
        ({"blocks": -1}, "model.blocks must be positive, got -1"),
        ({"heads": 3}, "model.width must be a multiple of model.heads, got 8 and 3"),
        ({"reference": -1}, "model.reference must not be negative, got -1"),
    ],
)
def test_settings_without_sense_are_refused(change, message):
    with pytest.raises(Unsupported, match=message):
        dataclasses.replace(SMALL, **change)
