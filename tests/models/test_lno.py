"""LNO: its arithmetic by numpy, its size, its cost, what it refuses."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from ipot.errors import Unsupported
from ipot.models.base import parameter_count
from ipot.models.lno import LNO, Config, over_points
from ipot.samples import Batch, collate
from ipot.spec import Spec
from tests.models import toy

from .by_hand import ByHand, Largest, disturb, gelu, softmax

SMALL = Config(width=8, modes=4, blocks=2, heads=2, layers=2)

spec = partial(toy.spec, side=(0.0, 2.0))


def build(facts: Spec, **changes) -> LNO:
    torch.manual_seed(0)
    model = LNO(dataclasses.replace(SMALL, **changes), facts).double().eval()
    disturb(model)
    return model


class Numpy(ByHand):
    """The whole of it for one sample, from the equations."""

    def network(self, name: str, x: np.ndarray) -> np.ndarray:
        x = gelu(self.linear(f"{name}.into", x))
        for i in range(SMALL.layers):
            x = x + gelu(self.linear(f"{name}.hidden.{i}", x))
        return self.linear(f"{name}.out", x)

    def modes(self, points, values, parameters) -> np.ndarray:
        """z_j = Σ_i exp(s_ij) b_i / Σ_i exp(s_ij), written out, and the parameters."""
        x = (points / 2 - 0.5) * np.sqrt(12)
        scores = self.network("score", self.network("trunk", x))
        said = self.network("branch", np.concatenate([x, values], 1))
        z = np.zeros((SMALL.modes, SMALL.width))
        for j in range(SMALL.modes):
            weights = np.exp(scores[:, j])
            z[j] = sum(w * b for w, b in zip(weights, said, strict=True)) / weights.sum()
        if parameters is not None:
            z = z + self.linear("from_parameters", parameters).reshape(z.shape)
        return z

    def __call__(self, points, values, queries, parameters, trunk="trunk") -> np.ndarray:
        z = self.modes(points, values, parameters)
        for i in range(SMALL.blocks):
            z = self.block(f"blocks.{i}", z, None, SMALL.heads)
        y = (queries / 2 - 0.5) * np.sqrt(12)
        share = softmax(self.network("score", self.network(trunk, y)), 1)
        return self.network("out", share @ z)


@pytest.mark.parametrize("p", [0, 2])
def test_the_forward_pass_in_numpy(p, make_sample):
    model = build(spec(c=2, k=3, p=p))
    samples = [
        make_sample(n, m, c=2, k=3, p=p, seed=n, dtype=torch.float64) for n, m in ((6, 4), (9, 3))
    ]
    batch = collate(samples)
    got, modes, by_hand = model(batch).detach().numpy(), model.encode(batch), Numpy(model)
    for row, s in enumerate(samples):
        given = None if s.parameters is None else s.parameters.numpy()
        points, values = s.points.numpy(), s.values.numpy()
        z = by_hand.modes(points, values, given)
        np.testing.assert_allclose(modes[row].detach(), z, atol=1e-11)
        expected = by_hand(points, values, s.queries.numpy(), given)
        assert np.ptp(expected, axis=0).min() > 1e-4
        np.testing.assert_allclose(got[row, 0, : len(expected)], expected, atol=1e-10)


def test_answers_in_another_space_have_a_trunk_of_their_own(make_sample):
    model = build(spec(d=1, query_domain=((0.0, 2.0),) * 3))
    s = make_sample(5, 4, d=1, e=3, dtype=torch.float64)
    arrays = [t.numpy() for t in (s.points, s.values, s.queries)]
    expected = Numpy(model)(*arrays, None, trunk="query_trunk")
    np.testing.assert_allclose(model(collate([s]))[0, 0].detach(), expected, atol=1e-10)
    assert build(spec()).query_trunk is None


def test_a_point_that_is_listed_twice_counts_as_two(make_sample):
    """A mode is a mean over points: the same points twice over change nothing."""
    model, s = build(spec()), make_sample(6, 4, dtype=torch.float64)
    twice = dataclasses.replace(s, points=s.points.repeat(2, 1), values=s.values.repeat(2, 1))
    torch.testing.assert_close(model(collate([twice])), model(collate([s])))
    some = s.take_points(torch.tensor([0, 0, 1, 2, 3, 4, 5]))
    assert not torch.allclose(model(collate([some])), model(collate([s])))


def test_the_published_size_for_darcy():
    """0.76 million, as the paper's table has it."""
    assert parameter_count(LNO(Config(), spec())) == 762_113


def test_no_table_of_points_by_queries_is_ever_made():
    n, m = 300, 500
    batch = Batch(
        points=torch.rand(1, n, 2).double(),
        values=torch.rand(1, n, 1).double(),
        queries=torch.rand(1, m, 2).double(),
    )
    with torch.no_grad(), Largest() as largest:
        build(spec())(batch)
    assert m <= largest.size < n * m / 5


def test_a_shared_mesh_is_scored_once(make_sample):
    mesh = torch.rand(5, 2).double()
    samples = [
        make_sample(5, 5, points=mesh, queries=mesh, seed=i, dtype=torch.float64) for i in range(3)
    ]
    model, seen = build(spec()), []
    model.score.register_forward_hook(lambda _, __, out: seen.append(out.shape[0]))
    model(collate(samples))
    assert seen == [1, 1]


def test_a_sample_of_padding_alone_is_finite_with_its_gradient():
    scores = torch.randn(1, 5, 3).requires_grad_()
    mask = torch.tensor([[True] * 5, [True, True, False, False, False], [False] * 5])
    share = over_points(scores, mask)
    torch.testing.assert_close(share.sum(1)[:, 0], torch.tensor([1.0, 1.0, 0.0]))
    assert not share[~mask].any()
    share.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modes": 0}, "model.modes must be positive, got 0"),
        ({"width": -8}, "model.width must be positive, got -8"),
        ({"heads": 3}, "model.width must be a multiple of model.heads, got 8 and 3"),
        ({"layers": -1}, "model.layers must not be negative, got -1"),
    ],
)
def test_settings_without_sense_are_refused(change, message):
    with pytest.raises(Unsupported, match=message):
        dataclasses.replace(SMALL, **change)
