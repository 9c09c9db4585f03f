"""DeepONet: operators of low rank, exactly and learnt; its sensors and its refusals."""

from dataclasses import replace

import pytest
import torch

from ipot.data.dataset import from_samples
from ipot.errors import DataError, Unsupported
from ipot.models.base import parameter_count
from ipot.models.deeponet import Config, DeepONet, evenly
from ipot.problems import airfoil, darcy, elasticity
from ipot.samples import Batch, Sample
from ipot.spec import Need, Spec

SENSORS = 6
SPEC = Spec(
    name="toy",
    inputs=("a", "b"),
    outputs=("u", "v"),
    parameters=("p",),
    domain=((0.0, 1.0),),
    query_domain=((-1.0, 3.0), (0.0, 2.0)),
    provides=frozenset({Need.FIXED_POINTS}),
    shape=(SENSORS,),
)


def batch(size=3, queries=5, shared=True):
    random = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.rand(shape, generator=random, dtype=torch.float64)

    return Batch(
        points=draw(1, SENSORS, 1),
        values=draw(size, SENSORS, 2),
        queries=draw(1 if shared else size, queries, 2),
        parameters=draw(size, 1),
    )


@pytest.mark.parametrize("shared", [True, False])
def test_an_operator_of_low_rank_is_represented_exactly(shared):
    """u_k(y) = Σ_j <a, φ_kj> ψ_kj(y) + c_k, with ψ affine in y: one layer each is enough."""
    model = DeepONet(Config(layers=1, basis=3, activation="identity"), SPEC).double()
    phi = torch.randn(2, 3, SENSORS, 2, dtype=torch.float64)
    by_parameter = torch.randn(2, 3, dtype=torch.float64)
    psi, psi_0 = torch.randn(2, 3, 2, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    constant = torch.tensor([0.5, -2.0], dtype=torch.float64)
    with torch.no_grad():
        weights = torch.cat([phi.flatten(2), by_parameter.unsqueeze(-1)], -1)
        model.branch.layers[0].weight.copy_(weights.flatten(0, 1))
        model.branch.layers[0].bias.zero_()
        # The trunk sees the query's domain as [-1, 1]: here (y - (1, 1)) / (2, 1).
        scaled = psi * torch.tensor([2.0, 1.0])
        shift = psi_0 + psi @ torch.tensor([1.0, 1.0]).double()
        model.trunk.layers[0].weight.copy_(scaled.flatten(0, 1))
        model.trunk.layers[0].bias.copy_(shift.flatten())
        model.bias.copy_(constant)
    here = batch(shared=shared)
    inner = torch.einsum("bnc,kjnc->bkj", here.values, phi)
    inner = inner + here.parameters[:, :1, None] * by_parameter
    functions = torch.einsum("bme,kje->bmkj", here.queries, psi) + psi_0
    expected = (inner.unsqueeze(1) * functions).sum(-1) + constant
    torch.testing.assert_close(model(here)[:, 0], expected, atol=1e-12, rtol=1e-12)


def test_it_learns_an_operator_of_rank_two():
    """a -> <a, 1> sin(y) + <a, x> cos(2 y), from functions to functions never seen."""
    torch.manual_seed(0)
    x, y = torch.linspace(0, 1, 20), torch.linspace(0, 3, 40)
    spec = Spec(
        name="toy",
        inputs=("a",),
        outputs=("u",),
        domain=((0.0, 1.0),),
        query_domain=((0.0, 3.0),),
        provides=frozenset({Need.FIXED_POINTS}),
        shape=(20,),
    )

    def samples(count):
        phase, wave = torch.rand(count, 1) * 6, torch.rand(count, 1) * 4
        a = (wave * x + phase).sin()
        u = a.mean(1, keepdim=True) * y.sin() + (a * x).mean(1, keepdim=True) * (2 * y).cos()
        points, queries = x.view(1, -1, 1), y.view(1, -1, 1)
        return Batch(points=points, values=a.unsqueeze(-1), queries=queries), u.view(count, 1, -1)

    train, test = samples(100), samples(50)
    model = DeepONet(Config(width=24, layers=2, activation="gelu"), spec)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=180, history_size=50, line_search_fn="strong_wolfe"
    )

    def loss():
        optimizer.zero_grad()
        gap = (model(train[0])[..., 0] - train[1]).square().sum()
        gap.backward()
        return gap

    optimizer.step(loss)
    error = (model(test[0])[..., 0] - test[1]).norm() / test[1].norm()
    assert error < 0.01


def test_a_periodic_query_has_no_seam():
    spec = replace(SPEC, query_periods=(4.0, None))
    model, here = DeepONet(Config(width=8, activation="tanh"), spec).double(), batch()
    around = replace(here, queries=here.queries + torch.tensor([4.0, 0.0]))
    torch.testing.assert_close(model(around), model(here), atol=1e-12, rtol=0)
    beside = replace(here, queries=here.queries + torch.tensor([0.0, 4.0]))
    assert (model(beside) - model(here)).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("shape", "most", "count"),
    [
        ((6,), 10, 6),
        ((85, 85), 2209, 47 * 47),
        ((221, 51), 2209, 100 * 22),
        ((1000, 2), 100, 100),
        ((3, 4, 5), 1, 1),
    ],
)
def test_sensors_are_taken_evenly(shape, most, count):
    rows = evenly(shape, most)
    assert len(rows) == len(rows.unique()) == count <= most
    grid = torch.zeros(shape, dtype=torch.bool).flatten()
    grid[rows] = True
    for axis in range(len(shape)):
        others = tuple(a for a in range(len(shape)) if a != axis)
        line = grid.view(shape).any(others) if others else grid
        taken = line.nonzero().flatten()
        gaps = taken.diff()
        assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
        # As much room before the first as behind the last.
        assert abs(int(taken[0]) - (shape[axis] - 1 - int(taken[-1]))) <= 1
    assert int(grid.sum()) == count


def test_only_the_sensors_that_are_taken_matter():
    model, here = DeepONet(Config(sensors=2, width=8), SPEC).double(), batch()
    values = here.values.clone()
    taken = model.rows.tolist()
    assert taken == [1, 4]
    values[:, [i for i in range(SENSORS) if i not in taken]] += 1
    assert torch.equal(model(replace(here, values=values)), model(here))
    values[:, taken[1]] += 1
    assert not torch.equal(model(replace(here, values=values)), model(here))


def test_sizes_are_the_published_ones():
    """0.42 million weights on Darcy and the airfoil, 1.03 on elasticity's numbered mesh."""
    mesh = replace(elasticity.PROBLEM, inputs="mesh").spec
    assert parameter_count(DeepONet(Config(), darcy.PROBLEM.spec)) == 415_361
    assert parameter_count(DeepONet(Config(), airfoil.PROBLEM.spec)) == 414_209
    assert parameter_count(DeepONet(Config(width=256), mesh)) == 1_025_025


def test_other_sensors_are_refused():
    model, here = DeepONet(Config(width=8), SPEC).double(), batch()
    with pytest.raises(DataError, match=r"bound to the 6 input points of toy.*these data have 4"):
        model(here.take_points(torch.arange(4)))
    mask = torch.ones(3, SENSORS, dtype=torch.bool)
    with pytest.raises(DataError, match="a value at every sensor"):
        model(replace(here, point_mask=mask))


def test_data_that_will_not_do_are_refused_before_training():
    model, here = DeepONet(Config(width=8), SPEC), batch().astype(torch.float32)

    def data(points, rows):
        return from_samples(
            [
                Sample(
                    points=points[i],
                    values=here.values[i, :rows],
                    queries=here.queries[0],
                    targets=torch.zeros(1, 5, 2),
                    parameters=here.parameters[i],
                )
                for i in range(2)
            ]
        )

    fixed = here.points[0]
    model.examine(data([fixed, fixed], SENSORS))
    with pytest.raises(DataError, match="bound to the 6 input points"):
        model.examine(data([fixed[:5], fixed[:5]], 5))
    with pytest.raises(Unsupported, match="the same input points in every sample"):
        model.examine(data([fixed, fixed + 1], SENSORS))


def test_a_spec_that_does_not_count_its_points_is_refused():
    with pytest.raises(Unsupported, match=r"number of its sensors.*toy does not say it"):
        DeepONet(Config(), replace(SPEC, shape=()))


@pytest.mark.parametrize(
    ("name", "value"),
    [("width", 0), ("layers", -1), ("sensors", 0), ("basis", 0)],
)
def test_nonsense_is_refused(name, value):
    with pytest.raises(Unsupported, match=f"model.{name} must be.*{value}"):
        Config(**{name: value})
