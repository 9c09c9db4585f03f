"""A loss on gradients: right derivatives on grids and on scattered points, and an exact resume."""

import math
import signal

import pytest
import torch

from ipot.data.dataset import Ragged, Stacked
from ipot.errors import Unsupported
from ipot.samples import Batch, Sample, collate
from ipot.spec import Spec
from ipot.training.gradients import gradient_error, plane_slopes
from ipot.training.objective import BalancedL2, RelativeL2, WithGradients, with_gradients
from ipot.training.settings import Training
from ipot.training.trainer import Stopped
from training import toys
from training.toys import CPU, EVERYTHING, Kill, assert_same_run, fit


def spec(dimension=2, periods=(), **facts):
    domain = ((0.0, 1.0),) * dimension
    return Spec(name="toy", inputs=("a",), outputs=("u",), domain=domain, periods=periods, **facts)


def on_mesh(places, fields, grid=None):
    """Samples on one mesh (M, E) with fields (B, M, K)."""
    return Stacked(
        Batch(
            points=places.unsqueeze(0),
            values=torch.zeros(len(fields), len(places), 1),
            queries=places.unsqueeze(0),
            targets=fields.unsqueeze(1),
            grid=grid,
            query_grid=grid,
        )
    )


def lattice(*sizes, ends=True):
    lines = [torch.linspace(0, 1, n) if ends else torch.arange(n) / n for n in sizes]
    return torch.cartesian_prod(*lines).view(-1, len(sizes))


def error_of(data, facts, prediction, scale=None):
    found = gradient_error(data, facts, CPU, scale)
    batch = data.batch(torch.arange(len(data)))
    return found(prediction, batch.truth, batch.index, batch.query_mask)


def test_on_a_grid_the_error_is_that_of_central_differences():
    sizes, places = (5, 7), lattice(5, 7)
    truth, wrong = torch.randn(2, 3, 35, 2).unbind(0)
    found = error_of(on_mesh(places, truth, sizes), spec(), (truth + wrong).unsqueeze(1))

    def energy(field):
        f = field.view(3, *sizes, 2)
        dx, dy = (f[:, 2:] - f[:, :-2]) * 4 / 2, (f[:, :, 2:] - f[:, :, :-2]) * 6 / 2
        return dx.square().sum((1, 2, 3)) + dy.square().sum((1, 2, 3))

    torch.testing.assert_close(found, (energy(wrong) / energy(truth)).sqrt().mean())


def test_a_periodic_axis_has_differences_all_around():
    n, places = 16, lattice(16, ends=False)
    waves = torch.stack([(2 * math.pi * k * places).sin() for k in (1, 3)])
    data = on_mesh(places, waves, (n,))
    found = gradient_error(data, spec(1, (1.0,)), CPU).energy(waves.unsqueeze(1), None, None)
    expected = torch.tensor([math.sin(2 * math.pi * k / n) * n for k in (1, 3)]).square() * n / 2
    torch.testing.assert_close(found, expected)
    open_ends = gradient_error(data, spec(1), CPU).energy(waves.unsqueeze(1), None, None)
    assert (open_ends < 0.99 * expected).all()


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_on_scattered_points_planes_are_exact(dimension):
    torch.manual_seed(0)
    places = torch.rand(60, dimension, dtype=torch.float64)
    slope = torch.randn(dimension, dtype=torch.float64)
    near, coefficients = plane_slopes(places, (None,) * dimension, 2 * dimension + 3)
    field = places @ slope + 5
    found = (field[near].unsqueeze(-1) * coefficients).sum(1)
    torch.testing.assert_close(found, slope.expand(60, -1), atol=1e-6, rtol=0)


def test_neighbours_are_found_across_a_period():
    places = torch.tensor([[0.02], [0.5], [0.97], [0.48]], dtype=torch.float64)
    near, coefficients = plane_slopes(places, (1.0,), 2)
    assert near[:, 1].tolist() == [2, 3, 0, 1]
    assert coefficients[0, 1, 0] == pytest.approx(-20)


def test_duplicates_and_lines_have_the_slopes_that_they_tell():
    line = torch.tensor([[0.0, 0], [0, 0], [1, 0], [2, 0], [3, 0]], dtype=torch.float64)
    near, coefficients = plane_slopes(line, (None, None), 4)
    field = 3 * line[:, 0] + 7
    found = (field[near].unsqueeze(-1) * coefficients).sum(1)
    torch.testing.assert_close(found[:, 0], torch.full((5,), 3.0, dtype=torch.float64))
    assert found[:, 1].abs().max() < 1e-9
    one = torch.zeros(4, 2)
    assert plane_slopes(one, (None, None), 4)[1].abs().max() == 0


def test_padding_does_not_count():
    torch.manual_seed(1)
    samples = [
        Sample(
            points=torch.rand(3, 2),
            values=torch.zeros(3, 1),
            queries=torch.rand(m, 2),
            targets=torch.randn(1, m, 1),
            index=i,
        )
        for i, m in enumerate((12, 30, 17))
    ]
    data, scale = Ragged(samples), torch.tensor([2.0])
    error = gradient_error(data, spec(), CPU, scale)
    batch = collate(samples)
    wrong = torch.randn_like(batch.truth)
    together = error(batch.truth + wrong, batch.truth, batch.index, batch.query_mask)
    alone = []
    for i, sample in enumerate(samples):
        one = collate([sample])
        made = one.truth + wrong[i : i + 1, :, : sample.queries.shape[0]]
        alone.append(error(made, one.truth, one.index))
    torch.testing.assert_close(together, torch.stack(alone).mean())


def test_channels_count_in_the_sizes_of_the_loss():
    truth, wrong = torch.randn(2, 3, 25, 2).unbind(0)
    large = torch.tensor([1.0, 1e4])
    plain = error_of(on_mesh(lattice(5, 5), truth, (5, 5)), spec(), (truth + wrong).unsqueeze(1))
    data = on_mesh(lattice(5, 5), truth * large, (5, 5))
    made = ((truth + wrong) * large).unsqueeze(1)
    torch.testing.assert_close(error_of(data, spec(), made, large), plain)
    assert abs(error_of(data, spec(), made) - plain) > 1e-3


def test_the_loss_is_the_sum_of_both():
    network, data = toys.model(), toys.stacked()
    objective = WithGradients(RelativeL2(), 0.25, toys.SPEC)
    objective.prepare(network, data)
    batch = data.batch(torch.arange(4))
    slopes = error_of(data.select(range(4)), toys.SPEC, network(batch))
    expected = RelativeL2()(network, batch) + 0.25 * slopes
    torch.testing.assert_close(objective(network, batch), expected)
    assert slopes > 0.01


def test_a_sample_that_is_right_has_finite_gradients():
    truth = torch.randn(2, 1, 25, 1)
    data = on_mesh(lattice(5, 5), truth[:, 0], (5, 5))
    prediction = truth.clone().requires_grad_()
    error_of(data, spec(), prediction).backward()
    assert prediction.grad.isfinite().all()


@pytest.mark.parametrize("data", ["stacked", "ragged", "packed"])
def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path, data):
    settings = EVERYTHING | {"queries": 1.0, "gradient_loss": 0.3, "data": data}
    fit(tmp_path / "whole", **settings)
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", objective=Kill(7, signal.SIGTERM), **settings)
    fit(tmp_path / "stopped", **settings)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    fit(tmp_path / "without", **settings | {"gradient_loss": 0.0})
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "without", tmp_path / "whole")


def test_training_lowers_the_error_of_gradients(tmp_path):
    data = toys.stacked(count=4, seed=1)

    def trained(weight):
        network = toys.model()
        fit(tmp_path / str(weight), network=network, epochs=60, gradient_loss=weight)
        return error_of(data, toys.SPEC, network(data.batch(torch.arange(4)))).item()

    assert trained(3.0) < trained(0.0)


class Other:
    """An objective of another kind."""

    def prepare(self, model, data):
        return ()

    def __call__(self, model, batch):
        return model(batch).square().mean()


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(Unsupported, match=r"--training\.queries 1"):
        fit(tmp_path, gradient_loss=0.1, queries=0.5)
    with pytest.raises(Unsupported, match="gradient_loss"):
        Training(gradient_loss=-1.0)
    with pytest.raises(Unsupported, match="relative L2"):
        with_gradients(Other(), 0.1, toys.SPEC)
    places = torch.rand(1, 2)
    with pytest.raises(Unsupported, match="two queries"):
        gradient_error(on_mesh(places, torch.zeros(2, 1, 1)), spec(), CPU)
    assert isinstance(with_gradients(BalancedL2(torch.ones(1)), 0.0, toys.SPEC), BalancedL2)


def test_a_grid_of_one_row_is_differentiated_along_it():
    truth = torch.randn(2, 6, 1)
    data = on_mesh(lattice(1, 6), truth, (1, 6))
    wrong = torch.randn(2, 6, 1)
    found = error_of(data, spec(), (truth + wrong).unsqueeze(1))
    ratio = [(f[:, 2:] - f[:, :-2]).square().sum((1, 2)) for f in (wrong, truth)]
    torch.testing.assert_close(found, (ratio[0] / ratio[1]).sqrt().mean())
