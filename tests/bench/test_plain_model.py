"""The plain version is the same mathematics, and plain_model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.cases import CONFIG, SPEC, batch, data, model
from ipot.bench import plain_model
from ipot.errors import Unsupported
from ipot.models import transolver
from ipot.models.ipot import Config
from ipot.nn import attention
from ipot.recipes.experiment import build_model
from ipot.spec import Need
from ipot.training.draws import Draws
from ipot.training.settings import Training

DEFAULT = Config(latents=6, width=8, blocks=2, heads=2, cross_heads=2, bins=(3,))


@pytest.mark.parametrize("config", [CONFIG, DEFAULT], ids=["paper", "default"])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"shared": False},
        {"moving": True},
        {"times": (1.0, 2.0)},
        {"times": (0.5,)},
    ],
    ids=["shared", "own", "moving", "some times", "one time"],
)
def test_it_answers_as_the_model_does(config, sizes):
    network, asked = model(config), batch(**sizes)
    with plain_model.plainly():
        found = plain_model.forward(network, asked)
    assert found.shape == asked.targets.shape
    assert found.std() > 0
    torch.testing.assert_close(found, network(asked), rtol=1e-10, atol=1e-12)


def test_every_step_is_decoded_by_itself_and_for_every_sample(monkeypatch):
    network, seen = model(), []
    decode = type(network).decode

    def remember(self, latent, queries):
        seen.append((tuple(latent.state.shape), tuple(queries.shape)))
        return decode(self, latent, queries)

    monkeypatch.setattr(type(network), "decode", remember)
    plain_model.forward(network, batch(size=3))
    assert seen == [((3, 6, 8), (3, 7, 2))] * 4


def test_meshes_become_each_samples_own():
    asked = batch(size=3)
    found = plain_model.expanded(asked)
    assert found.points.shape == (3, 11, 2)
    assert found.queries.is_contiguous()
    assert torch.equal(found.points[2], asked.points[0])


def test_attention_goes_by_its_formula(monkeypatch):
    network, calls = model(), []
    formula = attention.attention
    monkeypatch.setattr(attention, "attention", lambda *args: calls.append(1) or formula(*args))
    with torch.inference_mode(), plain_model.plainly():
        plain_model.forward(network, batch())
    # One encoder; four steps, each of two blocks and a decoder.
    assert len(calls) == 1 + 4 * (2 + 1)


def test_what_was_set_before_is_set_again():
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(KeyError), plain_model.plainly():
            raise KeyError(torch.get_float32_matmul_precision())
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_only_models_that_step_in_latent_space():
    spec = replace(SPEC, provides=frozenset({Need.GRID, Need.SAME_POINTS}), steps=1)
    network = build_model("transolver", transolver.Config(width=8, blocks=1, heads=2), spec)
    with pytest.raises(Unsupported, match="transolver has no plain version"):
        plain_model.forward(network, batch())


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_a_step_is_adam_on_the_gradient_of_the_loss(clip):
    network, twin = model(), model()
    settings = Training(batch=2, learning_rate=0.1, weight_decay=0.3, clip=clip)
    draws = Draws(data(size=4), SPEC, settings)
    step = plain_model.PlainStep(network, draws, settings)
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1, weight_decay=0.3)
    for number in range(2):
        found = step(draws(number))
        taken = draws.stacked_batch(draws(number))
        off = (twin(taken) - taken.truth).flatten(1).norm(dim=1)
        loss = (off / taken.truth.flatten(1).norm(dim=1)).mean()
        assert found.item() == pytest.approx(loss.item(), rel=1e-10)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(twin.parameters(), clip)
        optimizer.step()
    for mine, other in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_a_loss_and_gradients_in_pieces_are_those_of_the_batch(size):
    network, asked = model(), batch(size=5)
    whole = plain_model.losses(network, asked).mean()
    wanted = torch.autograd.grad(whole, list(network.parameters()))
    loss, gradients = plain_model.first_in_pieces(network, asked, size)
    assert loss == pytest.approx(whole.item(), rel=1e-12)
    for found, exact in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-12)
