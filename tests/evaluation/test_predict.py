"""Predictions in chunks are predictions."""

import dataclasses

import pytest
import torch

from ipot import symmetry
from ipot.data.dataset import Ragged, from_samples
from ipot.data.statistics import Statistics
from ipot.evaluation.evaluate import evaluate
from ipot.evaluation.metrics import relative_l2
from ipot.evaluation.predict import averaged, predict, predictions
from ipot.models._wrappers import wrap
from ipot.models.base import Operator
from ipot.models.ipot import IPOT, Config
from ipot.samples import Batch, collate
from ipot.spec import Need, Spec

TIMES = (1.0, 3.0)
SPEC = Spec(
    name="toy",
    inputs=("a",),
    outputs=("u", "v"),
    domain=((0.0, 1.0),) * 2,
    steps=3,
    provides=frozenset({Need.SAME_POINTS}),
)


class Direct(Operator):
    """No latent state: the mean input and the query's place. Remembers what it was asked."""

    def __init__(self, spec=SPEC):
        super().__init__(None, spec)
        self.asked: list[int] = []
        self.train()

    def forward(self, batch):
        self.asked.append(batch.queries.shape[-2])
        queries = batch.queries if batch.queries.ndim == 4 else batch.queries.unsqueeze(1)
        times = torch.tensor(batch.times).view(1, -1, 1, 1)
        return queries * times + batch.values.mean((1, 2)).view(-1, 1, 1, 1)


class AtThePoints(Direct):
    """A model that answers where it is asked about the input points."""

    needs = frozenset({Need.SAME_POINTS})


def latent() -> IPOT:
    torch.manual_seed(0)
    config = Config(latents=3, width=8, blocks=1, heads=2, cross_heads=2, bins=(2,))
    return IPOT(config, SPEC)


def samples(make_sample, kind: str):
    mesh = torch.rand(7, 2)
    for i in range(3):
        m = 7 if kind == "stacked" else 5 + i
        queries = {
            "stacked": mesh,
            "ragged": torch.rand(m, 2),
            "moving": torch.rand(2, m, 2),
        }[kind]
        yield make_sample(6, m, queries=queries, times=TIMES, k=2, seed=i, weights=torch.rand(m))


@pytest.mark.parametrize("kind", ["stacked", "ragged", "moving"])
@pytest.mark.parametrize("make_model", [latent, Direct])
@pytest.mark.parametrize("rows", [1, 6, 7, 20, 1000])
def test_chunked_is_whole(make_sample, kind, make_model, rows):
    model = wrap(make_model(), Statistics.identity(1, 2))
    batch = collate(list(samples(make_sample, kind)))
    torch.testing.assert_close(
        predict(model, batch, rows=rows), model(batch).detach(), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("outer", [lambda m: m, lambda m: wrap(m, Statistics.identity(1, 2))])
def test_only_a_model_with_free_queries_is_asked_in_chunks(make_sample, outer):
    batch = collate(list(samples(make_sample, "stacked")))
    free, bound = Direct(), AtThePoints()
    predict(outer(free), batch, rows=6)
    assert free.asked == [2, 2, 2, 1]
    predict(outer(bound), batch, rows=6)
    assert bound.asked == [7]


def test_predictions_leave_no_graph(make_sample):
    batch = collate(list(samples(make_sample, "stacked")))
    for rows in (4, 1000):
        assert not predict(latent(), batch, rows=rows).requires_grad


@pytest.mark.parametrize("kind", ["stacked", "ragged", "moving"])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_data_set_is_answered_in_order(make_sample, kind, batch):
    model, data = latent(), from_samples(list(samples(make_sample, kind)))
    seen = 0
    for piece, answer in predictions(model, data, batch=batch, device="cpu"):
        for row in range(piece.size):
            alone = data[seen]
            m = alone.queries.shape[-2]
            expected = model(collate([alone])).detach()[0]
            torch.testing.assert_close(answer[row, :, :m], expected, atol=1e-5, rtol=1e-4)
            seen += 1
    assert seen == 3


@pytest.mark.parametrize("kind", ["stacked", "ragged"])
def test_the_score_does_not_depend_on_the_batch(make_sample, kind):
    model, data = latent(), from_samples(list(samples(make_sample, kind)))
    by_hand = [
        relative_l2(model(collate([s])).detach().double(), s.targets[None].double()).item()
        for s in (data[i] for i in range(3))
    ]
    for batch in (1, 2, 3):
        found = evaluate(model, data, batch=batch)
        assert found.per_sample == pytest.approx(by_hand, rel=1e-5)
        assert found.relative_l2 == pytest.approx(sum(by_hand) / 3, rel=1e-5)
        assert found.weighted_relative_l2 is not None
        assert len(found.per_time) == len(found.per_channel) == 2


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_leaves_the_mode_as_it_was(make_sample, training):
    model = latent().train(training)
    evaluate(model, Ragged(list(samples(make_sample, "ragged"))))
    assert model.training == training
    assert all(m.training == training for m in model.modules())


@pytest.mark.parametrize("shared", [True, False])
def test_averaged_answers_have_the_symmetry(shared):
    """A model that has none of its own answers to a turned batch with the turned answer."""
    line = torch.linspace(0, 1, 5)
    mesh = torch.cartesian_prod(line, line)[None]
    places = mesh if shared else mesh.expand(2, -1, -1)
    facts = dataclasses.replace(
        IPOT.for_tensors(((0.0, 1.0),) * 2, shape=(5, 5)).spec, symmetries=("square",)
    )
    torch.manual_seed(0)
    sizes = {"width": 8, "latents": 3, "blocks": 1, "heads": 2, "cross_heads": 2, "bins": (2,)}
    model = IPOT(Config(**sizes), facts)
    grid = (5, 5) if shared else None
    batch = Batch(
        points=places,
        values=torch.randn(2, 25, 1),
        queries=places,
        times=(1.0,),
        grid=grid,
        query_grid=grid,
    )
    draws = torch.tensor([[[0.9, 0.1, 0.9]], [[0.1, 0.9, 0.9]]]).double()
    turned = symmetry.apply(batch, draws, facts)
    plain, plain_turned = predict(model, batch), predict(model, turned)
    assert (plain - symmetry.undo(plain_turned, batch, draws, facts)).abs().max() > 1e-3
    one, other = averaged(model, batch), averaged(model, turned)
    torch.testing.assert_close(one, symmetry.undo(other, batch, draws, facts), atol=1e-5, rtol=1e-5)
