"""What training minimises is what its best weights are chosen by."""

from dataclasses import replace

import torch

from ipot.data.dataset import Ragged
from ipot.evaluation.metrics import relative_l2
from ipot.samples import Batch, collate
from ipot.training.objective import BalancedL2, RelativeL2, Validation
from training.toys import CPU, fit, model, ragged

SCALE = torch.tensor([0.25])


def weighted(count=6):
    """Samples of several sizes, of which the first queries count for more."""
    data = ragged(count, seed=4)
    return Ragged(
        [replace(s, weights=torch.linspace(2, 0.1, s.queries.shape[-2])) for s in data.samples]
    )


def by_hand(network, data):
    """The weighted error of every sample on its own."""
    found = []
    for sample in data.samples:
        batch = collate([sample])
        with torch.no_grad():
            wrong = (network(batch) - batch.truth)[0, 0, :, 0]
        w, truth = sample.weights, batch.truth[0, 0, :, 0]
        found.append(((w * wrong**2).sum() / (w * truth**2).sum()).sqrt())
    return torch.stack(found)


def test_weights_count_in_the_loss():
    data, network = weighted(), model().eval()
    batch = collate(data.samples)
    objective = BalancedL2(SCALE)
    expected = by_hand(network, data)
    torch.testing.assert_close(objective(network, batch), expected.mean())
    plain = relative_l2(network(batch), batch.truth, mask=batch.query_mask).mean()
    assert abs(plain - expected.mean()) > 1e-3 * plain
    torch.testing.assert_close(RelativeL2()(network, batch), plain)


def test_validation_measures_what_is_minimised():
    data, network = weighted(), model().eval()
    found = Validation(data, CPU, measure=BalancedL2(SCALE).measure)(network)
    torch.testing.assert_close(torch.tensor(found), by_hand(network, data).mean())


def test_every_channel_counts_in_its_own_size():
    prediction, truth = torch.randn(3, 2, 5, 2), torch.randn(3, 2, 5, 2)
    large = torch.tensor([1.0, 1e4])

    class Answer(torch.nn.Module):
        def forward(self, batch):
            return prediction * large

    places = torch.rand(1, 5, 1)
    batch = Batch(
        points=places,
        values=torch.zeros(3, 5, 1),
        queries=places,
        targets=truth * large,
        times=(1.0, 2.0),
    )
    objective = BalancedL2(large)
    expected = relative_l2(prediction, truth)
    torch.testing.assert_close(objective(Answer(), batch), expected.mean())
    torch.testing.assert_close(objective.measure(prediction * large, batch), expected)


def test_the_best_weights_are_chosen_by_the_measure_of_the_objective(tmp_path):
    class Sevens(RelativeL2):
        def measure(self, prediction, batch):
            return torch.full_like(prediction[:, 0, 0, 0], 7)

    assert fit(tmp_path / "own", objective=Sevens()).best_validation == 7
    assert fit(tmp_path / "plain").best_validation != 7
