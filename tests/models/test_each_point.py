"""Targets scaled at every point of a grid: statistics, between the points, saved, refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import ipot
from ipot.cli import main
from ipot.data.dataset import Ragged, Stacked
from ipot.data.statistics import Statistics, at_each_point
from ipot.errors import DataError, Unsupported
from ipot.models._wrappers import NormalizedAtPoints, NormalizedAtPointsLatent, wrap
from ipot.models.base import OneStep
from ipot.recipes.experiment import build_model, experiment, small, statistics_of
from ipot.samples import Batch, collate
from ipot.spec import Need, Spec
from ipot.training.settings import Training
from models.toys import Config, Stencil
from tests.contracts.cases import small_config

SIDE = 9
LINES = torch.linspace(0.05, 0.95, SIDE, dtype=torch.float64)
GRID = torch.stack(torch.meshgrid(LINES, LINES, indexing="ij"), -1).flatten(0, 1)
SPEC = Spec(
    name="bumps",
    inputs=("a",),
    outputs=("u",),
    domain=((0.0, 1.0), (0.0, 1.0)),
    provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
    shape=(SIDE, SIDE),
    each_point=True,
)


class Nothing(OneStep):
    """Answers with zero in the scales of the data."""

    needs = frozenset({Need.POINTS})

    def advance(self, batch):
        return batch.values.new_zeros(batch.size, batch.queries.shape[-2], 1)


def mean(x):
    return 3 + x[:, :1] ** 2 * x[:, 1:]


def data(count=6, points=GRID):
    generator = torch.Generator().manual_seed(0)
    samples = []
    for _ in range(count):
        noise = torch.randn(len(points), 1, generator=generator, dtype=torch.float64)
        u = mean(points) + (0.1 + points[:, :1]) * noise
        samples.append(ipot.Sample(points=points, values=noise, queries=points, targets=u[None]))
    return samples


def test_mean_and_deviation_of_every_point():
    found, scale = at_each_point(Ragged(data()))
    truths = np.stack([s.truth[0].numpy() for s in data()])
    np.testing.assert_allclose(found, truths.mean(0), rtol=1e-12)
    np.testing.assert_allclose(scale, truths.std(0), rtol=1e-12)


def test_a_point_that_never_changes_has_scale_one():
    samples = data()
    for sample in samples:
        sample.truth[0, 3] = 2.0
    found, scale = at_each_point(Ragged(samples))
    assert found[3] == 2.0
    assert scale[3] == 1.0


def smooth():
    """A model around `Nothing` whose mean field is smooth."""
    statistics = Statistics.identity(1, 1)
    scales = torch.full((SIDE * SIDE, 1), 0.5, dtype=torch.float64)
    model = wrap(
        Nothing(None, SPEC), replace(statistics, output_mean=mean(GRID), output_scale=scales)
    )
    model.measure(GRID)
    return model.double().eval()


def test_knowing_nothing_is_the_mean_field_on_the_grid_and_between_its_points():
    model = smooth()
    assert type(model) is NormalizedAtPoints
    for queries in (GRID, GRID.flip(0), torch.rand(40, 2).double() * 0.9 + 0.05):
        batch = collate(data(2))
        asked = replace(batch, queries=queries[None], targets=None)
        expected = mean(queries).expand(2, 1, -1, -1)
        torch.testing.assert_close(model(asked), expected, rtol=1e-6, atol=1e-6)


def test_training_takes_the_grid_as_it_is():
    model, batch = smooth(), collate(data(2))
    torch.testing.assert_close(model.train()(batch), model.eval()(batch), rtol=1e-6, atol=1e-6)


def test_a_latent_system_has_it_as_well():
    spec = replace(experiment("darcy").problem.small().spec, each_point=True)
    model = build_model("ipot", small_config("ipot"), spec)
    assert type(model) is NormalizedAtPointsLatent
    side = spec.shape[0]
    lines = (torch.arange(side) + 0.5) / side
    x = torch.stack(torch.meshgrid(lines, lines, indexing="ij"), -1).flatten(0, 1)
    model.measure(x)
    with torch.no_grad():
        model.output_mean.copy_(mean(x))
        model.output_scale.copy_(1 + x[:, :1])
    batch = Batch(points=x[None], values=torch.randn(2, len(x), 1), queries=x[None], times=(1.0,))
    found = model.eval()(batch)
    plain = model.inner(model.seen(batch))
    torch.testing.assert_close(found, plain * (1 + x[:, :1]) + mean(x), rtol=1e-4, atol=1e-4)
    latent = model.roll_on(model.encode(batch), batch.times)[-1]
    torch.testing.assert_close(model.decode(latent, batch.queries), found[:, 0])
    both = torch.cat([mean(x) - 1 - x[:, :1], mean(x) + 1 + x[:, :1]])  # samples of that spread
    expected = both.mean(0), both.std(0, correction=0)
    torch.testing.assert_close(model.of_channels("output"), expected)


def test_fno_and_oformer_are_trained_so_on_darcy():
    having = [
        (name, problem)
        for name in ("fno", "ffno", "oformer", "transolver", "lno", "ipot", "lattice")
        for problem in ("burgers", "darcy", "airfoil", "navier_stokes")
        if experiment(problem, name).training.each_point
    ]
    assert having == [("fno", "darcy"), ("oformer", "darcy")]
    assert experiment("darcy", "fno", "paper").training.each_point


def test_a_run_is_saved_loaded_and_asked_on_another_grid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = "--small --training.epochs 2 --quiet --device cpu --data data"
    assert main(["train", "darcy", "fno", *words.split(), "--out", "run"]) == 0
    model = ipot.load("run")
    scales = model.model
    assert type(scales) is NormalizedAtPoints
    assert scales.output_mean.shape == (scales.places.number, 1)
    assert float(scales.output_mean.std()) > 0  # the mean field, and not a number
    capsys.readouterr()
    model.save("saved")
    again = ipot.load("saved")
    x = model.places()
    values = np.where(x[:, :1] > 0.5, 12.0, 3.0)
    one, other = (m.predict(x, values, queries=x) for m in (model, again))
    np.testing.assert_array_equal(one, other)
    # It knows the mean field on finer grids too: two epochs teach it little else.
    assert main(["evaluate", "run", "--resolution", "33", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["relative_l2"] < 0.4


def test_refusals():
    with pytest.raises(Unsupported, match="has no grid that all of its samples share"):
        replace(SPEC, provides=frozenset({Need.FIXED_POINTS, Need.SAME_POINTS}))
    with pytest.raises(Unsupported, match="is a rollout: leave it out"):
        replace(SPEC, steps=3)
    for other in ({"queries": 0.5}, {"augment": True}):
        with pytest.raises(
            Unsupported, match=r"each_point must be left out with training\.queries"
        ):
            Training(each_point=True, **other)
    moved = data(2)
    moved[1] = replace(moved[1], points=GRID.flip(0), queries=GRID.flip(0))
    with pytest.raises(DataError, match="those of sample 1 are others"):
        at_each_point(Ragged(moved))
    for other in (GRID**3, GRID[:-1], GRID.flip(0)):
        with pytest.raises(DataError, match="regular grid of 9 x 9, and those of bumps are none"):
            smooth().measure(other)
    assert Stencil(Config(), replace(SPEC, each_point=False)) is not None


def test_the_statistics_of_an_experiment():
    settings = small(experiment("darcy", "fno"))
    side = settings.problem.resolution
    lines = ((torch.arange(side) + 0.5) / side).double()
    x = torch.stack(torch.meshgrid(lines, lines, indexing="ij"), -1).flatten(0, 1)
    found = statistics_of(settings, Stacked(collate(data(4, x))))
    assert found is not None
    assert found.output_mean.shape == (side * side, 1)
    assert found.input_mean.shape == (1,)
