"""The transformer without inducing points: its state is its input."""

import torch

from ipot.models.transformer import Config, Transformer
from ipot.samples import Batch
from ipot.spec import Spec

SPEC = Spec(
    name="toy",
    inputs=("a",),
    outputs=("u",),
    domain=((0.0, 1.0), (0.0, 1.0)),
    parameters=("p", "q"),
)
SMALL = Config(width=8, blocks=2, heads=2, cross_heads=2, bins=(3,), max_frequency=(6.0,))


def batch() -> Batch:
    torch.manual_seed(1)
    return Batch(
        points=torch.rand(2, 7, 2),
        values=torch.rand(2, 7, 1),
        queries=torch.rand(2, 3, 2),
        parameters=torch.rand(2, 2),
        point_mask=torch.tensor([[True] * 7, [True] * 4 + [False] * 3]),
    )


def test_every_input_is_a_row_of_the_state():
    model = Transformer(SMALL, SPEC)
    assert not any("latents" in name for name, _ in model.named_parameters())
    latent = model.encode(batch())
    assert latent.state.shape == (2, 7 + 2, 8)
    assert latent.mask is not None
    assert latent.mask.sum(1).tolist() == [9, 6]


def test_a_row_of_the_state_follows_its_input():
    """Exchanging two inputs exchanges their rows and nothing else."""
    model, here = Transformer(SMALL, SPEC), batch()
    order = torch.tensor([2, 1, 0, 3, 4, 5, 6])
    there = here.take_points(order)
    before, after = model.encode(here).state, model.encode(there).state
    torch.testing.assert_close(after[:, :7], before[:, :7][:, order])
    torch.testing.assert_close(after[:, 7:], before[:, 7:])
