"""IPOT: its counts, its variants, and its arithmetic by an independent computation."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import erf

from ipot.errors import Unsupported
from ipot.models import ipot
from ipot.models.base import parameter_count
from ipot.models.ipot import IPOT, Config
from ipot.recipes import paper
from ipot.samples import collate
from tests.models.toy import spec

COUNTS = {
    "burgers": 439_444,
    "darcy": 150_232,
    "navier_stokes": 473_258,
    "airfoil": 123_354,
    "elasticity": 167_008,
    "plasticity": 129_174,
    "shallow_water": 510_616,
    "era5": 513_636,
}

SMALL = Config(
    latents=5, width=8, blocks=3, heads=2, cross_heads=2, bins=(3,), max_frequency=(6.0,)
)


def build(config=SMALL, facts=None, seed=0) -> IPOT:
    torch.manual_seed(seed)
    return IPOT(config, facts or spec()).double().eval()


@pytest.mark.parametrize("problem", paper.TABLE)
def test_the_papers_parameter_counts(problem):
    assert parameter_count(IPOT(paper.model(problem), paper.spec(problem))) == COUNTS[problem]


def test_the_table_is_complete():
    assert set(paper.TABLE) == set(COUNTS)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_tied_processor_has_the_weights_of_one_block(blocks):
    def count(tied: bool, number: int) -> int:
        return parameter_count(build(dataclasses.replace(SMALL, tied=tied, blocks=number)))

    one = parameter_count(build().processor[0])
    assert count(True, blocks) == count(True, 1) == count(False, 1)
    assert count(False, blocks) == count(False, 1) + (blocks - 1) * one


def test_a_tied_processor_is_one_block_repeated():
    tied = build(dataclasses.replace(SMALL, tied=True))
    state = torch.randn(2, 5, 8, dtype=torch.float64)
    expected = state
    for _ in range(3):
        expected = tied.processor[0](expected)
    torch.testing.assert_close(tied.step(ipot.Latent(state)).state, expected)


def test_a_shared_mesh_is_embedded_once(monkeypatch, make_sample):
    mesh = torch.rand(5, 2).double()
    samples = [
        make_sample(5, 5, points=mesh, queries=mesh, seed=i, dtype=torch.float64) for i in range(3)
    ]
    model, seen = build(), []
    for part in (model.encoder.position, model.decoder.position):
        part.register_forward_hook(lambda _, __, out: seen.append(out.shape[0]))
    model(collate(samples))
    assert seen == [1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bins": (3, 3, 3)}, r"bins \(3, 3, 3\).*2 numbers, or one for all"),
        ({"max_frequency": (3.0,) * 3}, "2 numbers, or one for all"),
        ({"cross_heads": 3}, "width of 8 does not divide among 3 heads"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        build(dataclasses.replace(SMALL, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lifted": False, "local": False}, "add --model.decoder narrow"),
        ({"lifted": False, "decoder": "narrow"}, "add --model.no-local"),
        ({"heads": 3}, "width must be a multiple of model.heads, got 8 and 3"),
        ({"latents": 0}, "latents must be positive, got 0"),
        ({"encoder_feed_forward": 0}, "or 0 with --model.no-local, got 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_at_once(change, message):
    with pytest.raises(Unsupported, match=message):
        dataclasses.replace(SMALL, **change)


# --- the forward pass once more, in numpy and from the equations -----------------------------


class Numpy:
    """The paper's IPOT from a state dict: inducing points, one tied block, a narrow decoder."""

    def __init__(self, model: IPOT) -> None:
        self.w = {k: v.numpy() for k, v in model.state_dict().items()}
        self.config = model.config

    def __call__(self, points, values, queries, steps: int) -> np.ndarray:
        """One sample: (N, D), (N, C), (M, E) to (M, K)."""
        c = self.config
        inputs = np.concatenate([self.position(points), values], axis=1)
        z = self.w["encoder.latents"]
        z = z + self.attend("encoder.block.attend", z, inputs, c.cross_heads)
        if c.encoder_feed_forward:
            z = z + self.feed_forward("encoder.block.feed_forward", z)
        for _ in range(steps * c.blocks):
            z = z + self.attend("processor.0.attend", z, None, c.heads)
            z = z + self.feed_forward("processor.0.feed_forward", z)
        u = self.attend("decoder.block.attend", self.position(queries), z, c.cross_heads)
        u = u + self.feed_forward("decoder.block.feed_forward", u)
        return c.output_scale * u

    def position(self, x: np.ndarray) -> np.ndarray:
        pairs = zip(self.config.bins, self.config.max_frequency, strict=True)
        phases = [
            np.outer(x[:, d], np.pi * np.linspace(1, highest / 2, bins))
            for d, (bins, highest) in enumerate(pairs)
        ]
        phase = np.concatenate(phases, axis=1)
        return np.concatenate([x, np.sin(phase), np.cos(phase)], axis=1)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def attend(self, name: str, y: np.ndarray, x: np.ndarray | None, heads: int) -> np.ndarray:
        raw, y = y, self.norm(f"{name}.norm", y)
        itself = raw if self.config.raw_keys else y
        x = itself if x is None else self.norm(f"{name}.norm_context", x)
        query = y @ self.w[f"{name}.to_query.weight"].T
        key, value = np.split(x @ self.w[f"{name}.to_key_value.weight"].T, 2, axis=1)
        width = query.shape[1] // heads
        out = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            scores = np.exp(query[:, part] @ key[:, part].T / np.sqrt(width))
            out.append(scores / scores.sum(1, keepdims=True) @ value[:, part])
        out = np.concatenate(out, axis=1)
        return out @ self.w[f"{name}.to_out.weight"].T + self.w[f"{name}.to_out.bias"]

    def feed_forward(self, name: str, x: np.ndarray) -> np.ndarray:
        x = self.norm(f"{name}.norm", x)
        x = x @ self.w[f"{name}.into.weight"].T + self.w[f"{name}.into.bias"]
        x, gate = np.split(x, 2, axis=1)
        x = x * gate * (1 + erf(gate / np.sqrt(2))) / 2
        return x @ self.w[f"{name}.out.weight"].T + self.w[f"{name}.out.bias"]


@pytest.mark.parametrize("sizes", [paper.model, paper.authors], ids=["paper", "authors"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_forward_pass_in_numpy(outputs, sizes, make_sample):
    config = dataclasses.replace(
        sizes("darcy"),
        latents=5,
        width=8,
        blocks=2,
        heads=4,
        cross_heads=2,
        cross_head_width=3,
        bins=(4, 3),
        max_frequency=(8.0, 6.0),
    )
    model = build(config, spec(c=2, k=outputs, steps=3))
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases start as trivial ones
            parameter.add_(0.3 * torch.randn_like(parameter))
    times = (1.0, 3.0)
    samples = [
        make_sample(n, m, c=2, k=outputs, times=times, seed=n, dtype=torch.float64)
        for n, m in ((6, 4), (9, 3))
    ]
    got = model(collate(samples)).detach().numpy()
    by_hand = Numpy(model)
    for row, s in enumerate(samples):
        arrays = [t.numpy() for t in (s.points, s.values, s.queries)]
        for column, steps in enumerate((1, 3)):
            expected = by_hand(*arrays, steps)
            assert np.ptp(expected) > 1e-4
            np.testing.assert_allclose(
                got[row, column, : len(expected)], expected, atol=1e-10, rtol=0
            )
