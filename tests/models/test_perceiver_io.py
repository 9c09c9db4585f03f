"""Perceiver IO: its arithmetic by numpy, its size, its cost, what it refuses."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._wrappers import Autoregressive, wrap
from ipot.models.base import parameter_count
from ipot.models.perceiver_io import Config, PerceiverIO
from ipot.samples import Batch, collate
from ipot.spec import Spec
from tests.models import toy

from .by_hand import ByHand, Largest, disturb

SMALL = Config(
    latents=5, width=8, blocks=2, heads=4, cross_heads=2, bins=(4, 3), max_frequency=(8.0, 6.0)
)

spec = partial(toy.spec, side=(-1.0, 1.0))


def build(facts: Spec, **changes) -> PerceiverIO:
    torch.manual_seed(0)
    return PerceiverIO(dataclasses.replace(SMALL, **changes), facts).double().eval()


class Numpy(ByHand):
    """The whole of it for one sample, from the equations."""

    def position(self, x: np.ndarray) -> np.ndarray:
        pairs = zip(SMALL.bins, SMALL.max_frequency, strict=True)
        phase = [
            np.outer(x[:, d], np.pi * np.linspace(1, highest / 2, bins))
            for d, (bins, highest) in enumerate(pairs)
        ]
        phase = np.concatenate(phase, 1)
        return np.concatenate([x, np.sin(phase), np.cos(phase)], 1)

    def __call__(self, points, values, queries, parameters, repeats: int) -> np.ndarray:
        inputs = np.concatenate([self.position(points), values], 1)
        if parameters is not None:
            slope, offset = (self.w[f"encoder.parameter_{n}"] for n in ("slope", "offset"))
            inputs = np.concatenate([inputs, parameters[:, None] * slope + offset])
        z = self.block("encoder.block", self.w["encoder.latents"], inputs, SMALL.cross_heads)
        for i in list(range(SMALL.blocks)) * repeats:
            z = self.block(f"blocks.{i}", z, None, SMALL.heads)
        asked = self.position(queries)
        return self.linear("out", self.block("decoder", asked, z, SMALL.cross_heads, False))


@pytest.mark.parametrize("p", [0, 2])
@pytest.mark.parametrize("repeats", [1, 3])
def test_the_forward_pass_in_numpy(p, repeats, make_sample):
    model = build(spec(c=2, k=3, p=p), repeats=repeats)
    disturb(model)
    samples = [
        make_sample(n, m, c=2, k=3, p=p, seed=n, dtype=torch.float64) for n, m in ((6, 4), (9, 3))
    ]
    got, by_hand = model(collate(samples)).detach().numpy(), Numpy(model)
    for row, s in enumerate(samples):
        given = None if s.parameters is None else s.parameters.numpy()
        expected = by_hand(s.points.numpy(), s.values.numpy(), s.queries.numpy(), given, repeats)
        assert np.ptp(expected, axis=0).min() > 1e-3
        np.testing.assert_allclose(got[row, 0, : len(expected)], expected, atol=1e-10)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("multiplier", [1, 4])
def test_the_number_of_parameters_by_formula(repeats, multiplier):
    def linear(a: int, b: int) -> int:
        return a * b + b

    def block(query: int, context: int, inner: int, cross: bool) -> int:
        norms = 2 * query + (2 * context if cross else 0) + 2 * query
        attend = linear(query, inner) + linear(context, 2 * inner) + linear(inner, query)
        return (
            norms + attend + linear(query, multiplier * query) + linear(multiplier * query, query)
        )

    position, d, c, k = 2 + 2 * (4 + 3), 8, 2, 3
    inputs = position + c
    expected = 5 * d + block(d, inputs, inputs, True) + 2 * block(d, d, d, False)
    expected += block(position, d, d, True) + linear(position, k)
    model = build(spec(c=c, k=k), repeats=repeats, feed_forward=multiplier)
    assert inputs % SMALL.cross_heads == 0
    assert parameter_count(model) == expected


def test_the_start():
    model = build(spec(), width=128, latents=64)
    assert model.encoder.latents.detach().std() == pytest.approx(0.0176, rel=0.05)
    weight = model.blocks[0].attend.to_key_value.weight
    assert weight.detach().std() == pytest.approx(128**-0.5, rel=0.05)
    assert not model.blocks[0].attend.to_key_value.bias.any()


def test_it_goes_on_in_physical_space():
    model = wrap(build(spec(history=1, steps=2)), Statistics.identity(1, 1, 0))
    assert isinstance(model, Autoregressive)


def test_no_table_of_points_by_queries_is_ever_made():
    n, m = 300, 500
    batch = Batch(
        points=torch.rand(1, n, 2).double(),
        values=torch.rand(1, n, 1).double(),
        queries=torch.rand(1, m, 2).double(),
    )
    with torch.no_grad(), Largest() as largest:
        build(spec())(batch)
    assert m <= largest.size < n * m / 3


def test_a_sample_of_padding_alone_is_finite_and_does_not_read_it():
    model = build(spec())
    mask = torch.tensor([[True] * 5, [False] * 5])
    batch = Batch(
        points=torch.rand(2, 5, 2).double(),
        values=torch.rand(2, 5, 1).double(),
        queries=torch.rand(2, 3, 2).double(),
        point_mask=mask,
    )
    out = model(batch)
    out.square().sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert out.isfinite().all()
    assert all(g.isfinite().all() for g in grads)
    poisoned = torch.where(mask.unsqueeze(-1), batch.values, 1e6)
    torch.testing.assert_close(model(dataclasses.replace(batch, values=poisoned)), out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latents": 0}, "model.latents must be positive, got 0"),
        ({"repeats": 0}, "model.repeats must be positive, got 0"),
        ({"heads": 3}, "model.width must be a multiple of model.heads, got 8 and 3"),
        ({"cross_heads": 3}, "model.width must be a multiple of model.cross_heads, got 8 and 3"),
        ({"bins": (0,)}, r"model.bins must be positive, got \(0,\)"),
        ({"max_frequency": (1.0,)}, "model.max_frequency must be 2 at least"),
    ],
)
def test_settings_without_sense_are_refused(change, message):
    with pytest.raises(Unsupported, match=message):
        dataclasses.replace(SMALL, **change)
