"""Simple forecasts beside a model: scored alike, and left out where they have no answer."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot import registry
from ipot.cli import main
from ipot.commands.evaluate import forecasts
from ipot.data import views
from ipot.data.dataset import Ragged, Stacked, from_samples
from ipot.data.store import Store
from ipot.errors import DataError
from ipot.evaluation.evaluate import evaluate, leads, score, score_references
from ipot.models.base import Operator
from ipot.problems.base import same_points
from ipot.problems.burgers import PROBLEM as BURGERS
from ipot.problems.navier_stokes import PROBLEM as FLOW
from ipot.recipes.studies import Question, ask
from ipot.samples import Batch

SMALL_FLOW = FLOW.small().with_steps(3)
TINY = [
    *("--model.latents", "4", "--model.width", "8", "--model.blocks", "1", "--model.heads", "2"),
    *("--model.cross-heads", "2", "--model.bins", "2", "--training.epochs", "1", "--quiet"),
    *("--training.step", "eager", "--training.queries", "0.05", "--training.points", "0.1"),
    *("--count.train", "4", "--count.validation", "2", "--count.test", "3", "--problem.steps", "3"),
]


def rmse(prediction, target, factor):
    """The definition, time by time, with factor (B, M)."""
    factor = np.broadcast_to(factor[:, None, :, None], target.shape)
    squares = (prediction - target) ** 2 * factor
    return np.sqrt(squares.sum((0, 2, 3)) / factor.sum((0, 2, 3)))


@pytest.fixture
def pair():
    random = torch.Generator().manual_seed(0)
    shape = (5, 3, 7, 2)  # B T M K
    return tuple(torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(2))


@pytest.fixture(scope="module")
def flow(tmp_path_factory):
    return SMALL_FLOW.load("test", 3, store=Store(tmp_path_factory.mktemp("flow")))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", ["no", "shared", "each"])
def test_rmse_is_one_mean_over_all_samples_and_queries(pair, masked, weighted):
    p, t = pair
    mask = torch.rand(5, 7) > 0.4 if masked else None
    rows = {"no": 0, "shared": 1, "each": 5}[weighted]
    weights = 0.1 + torch.rand(rows, 7, dtype=torch.float64) if rows else None
    factor = torch.ones(5, 7, dtype=torch.float64) if weights is None else weights.expand(5, 7)
    factor = factor * mask if masked else factor
    expected = rmse(p.numpy(), t.numpy(), factor.numpy())

    def piece(rows):
        own = weights if weights is None or len(weights) == 1 else weights[rows]
        return p[rows], t[rows], None if mask is None else mask[rows], own

    for cuts in ([slice(None)], [slice(0, 1), slice(1, 5)]):
        found = score(piece(rows) for rows in cuts)
        np.testing.assert_allclose(found.rmse_per_time, expected, rtol=1e-12)
    assert found.as_dict()["rmse_per_time"] == found.rmse_per_time


@pytest.mark.parametrize("batch", [1, 2, 16])
@pytest.mark.parametrize("kind", ["stacked", "ragged"])
def test_a_reference_is_scored_as_a_model_is(make_sample, batch, kind):
    class Known(Operator):
        def __init__(self, answer, spec):
            super().__init__(None, spec)
            self.answer, self.start = answer, 0

        def forward(self, batch):
            self.start += batch.size
            return self.answer[self.start - batch.size : self.start]

    samples = [make_sample(6, 4, times=(1.0, 2.0), seed=i, weights=torch.rand(4)) for i in range(5)]
    data = from_samples(samples) if kind == "stacked" else Ragged(samples)
    forecast = torch.rand(5, 2, 4, 1)
    expected = evaluate(Known(forecast, SMALL_FLOW.spec), data, batch=batch)
    assert score_references({"a": forecast}, data, batch=batch) == {"a": expected}


def test_a_reference_must_answer_every_sample(flow):
    with pytest.raises(DataError, match="late forecasts 2 samples, the data have 3"):
        score_references({"late": flow.data.truth[:2]}, flow)


@pytest.mark.parametrize(
    ("steps", "columns"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 10])],
)
def test_columns_are_powers_of_two_and_the_last(steps, columns):
    assert leads(steps) == columns


def test_persistence_repeats_the_last_frame(flow):
    found = SMALL_FLOW.references(flow, "test")
    assert set(found) == {"persistence"}
    for step in range(3):
        assert torch.equal(found["persistence"][:, step, :, 0], flow.data.values[..., 9])
    scores = score_references(found, flow)["persistence"]
    assert scores.rmse_per_time == sorted(scores.rmse_per_time)


def test_persistence_takes_all_outputs_of_the_last_frame():
    class Two(type(SMALL_FLOW)):
        @property
        def spec(self):
            return replace(super().spec, outputs=("u", "v"), history=2)

    # Channels u0 v0 u1 v1, then one that is static.
    points = torch.rand(1, 6, 2)
    values = torch.arange(5.0).expand(3, 6, 5).contiguous()
    data = Stacked(
        Batch(
            points=points,
            values=values,
            queries=points,
            targets=torch.rand(3, 2, 6, 2),
            times=(1.0, 2.0),
        )
    )
    found = Two(size=32, resolution=16).references(data, "test")["persistence"]
    assert found.shape == (3, 2, 6, 2)
    assert (found == torch.tensor([2.0, 3.0])).all()


def test_there_is_no_persistence_without_the_past(tmp_path):
    problem = BURGERS.small()
    assert problem.references(problem.load("test", 2, store=Store(tmp_path)), "test") == {}


def test_there_is_no_persistence_where_inputs_are_not_the_queries(flow, tmp_path):
    hidden = views.mask(flow, "left", SMALL_FLOW.spec)
    finer = SMALL_FLOW.load("test", 3, store=Store(tmp_path), resolution=16, query_resolution=32)
    ragged = Ragged([flow[i] for i in range(3)])
    for data in (views.keep(flow, 0.5), hidden, finer, ragged):
        assert not same_points(data)
        assert SMALL_FLOW.references(data, "test") == {}
    assert same_points(views.keep(flow, 1.0))
    turned = replace(flow.data, queries=flow.data.queries.flip(1))
    assert not same_points(Stacked(turned))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("runs") / "sst")
    assert main(["train", "sst", "--out", out, *TINY]) == 0
    return out


def test_an_answer_holds_the_references(run):
    answer = ask(run, Question(), device="cpu")
    problem = registry.find("problems", "sst").with_steps(3)
    data = problem.load("test", 3, store=Store("never used"))
    assert answer.references == score_references(problem.references(data, "test"), data)
    columns, rows = forecasts(answer)
    assert columns == ["", "relative L2", "RMSE, step 1", "RMSE, step 2", "RMSE, step 3"]
    assert {row[0] for row in rows[1:]} == {"persistence", "climatology", "damped persistence"}
    assert rows[0][0] == "this model"
    assert float(rows[0][2]) == pytest.approx(answer.scores.rmse_per_time[0], rel=1e-3)
    longer = ask(run, Question(steps=5, samples=2), device="cpu")
    assert len(longer.references["persistence"].rmse_per_time) == 5
    assert len(longer.references["persistence"].per_sample) == 2
    assert set(ask(run, Question(keep=0.5), device="cpu").references) == {"climatology"}


def test_evaluate_prints_them_beside_the_model(run, capsys):
    flags = ["evaluate", run, "--device", "cpu"]
    capsys.readouterr()
    assert main(flags) == 0
    said = capsys.readouterr().out
    for word in ("this model", "persistence", "climatology", "damped persistence", "RMSE, step 3"):
        assert word in said
    assert main([*flags, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["rmse_per_time"]) == 3
    assert content["references"]["damped persistence"]["relative_l2"] == pytest.approx(1)
