"""Rollouts by kernels: the same as by blocks, and open to whoever looks at them."""

import copy
from dataclasses import replace

import pytest
import torch
from ipot.nn.paths import attention_path
from torch import nn

from ipot.accelerate import cuda as kernels
from ipot.accelerate.cuda import interpreted
from ipot.models.base import Latent
from ipot.models.ipot import IPOT, Config
from ipot.nn.attention import AttentionBlock
from ipot.samples import Batch
from ipot.spec import Spec

pytestmark = [
    pytest.mark.plain,  # shapes of the same models are checked elsewhere, in half the time
    pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed"),
    pytest.mark.skipif(not interpreted(), reason="float32 by kernels is for tests alone"),
]

SPEC = Spec(
    name="toy",
    inputs=("a",),
    outputs=("u",),
    domain=((0.0, 1.0),) * 2,
    steps=3,
    dt=1.0,
)
CONFIG = Config(
    latents=5,
    width=16,
    blocks=2,
    heads=2,
    cross_heads=1,
    bins=(2,),
    max_frequency=(4.0,),
    tied=True,
)
NARROW = Config(
    **{**vars(CONFIG), "lifted": False, "local": False, "decoder": "narrow", "cross_head_width": 16}
)


def build(config=CONFIG):
    torch.manual_seed(0)
    return IPOT(config, SPEC)


def draw(times=(1.0, 2.0, 3.0), dtype=torch.float32):
    random = torch.Generator().manual_seed(1)
    points = torch.rand(1, 9, 2, generator=random).to(dtype)
    values = torch.randn(2, 9, 1, generator=random).to(dtype)
    return Batch(points=points, values=values, queries=points[:, :7], times=times)


def results(model, answer, path="kernel"):
    """What a model answers, and the gradients of all parameters."""
    model.zero_grad(set_to_none=True)
    with attention_path(path):
        out = answer(model)
        out.square().sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters())]


def plain_results(model, answer):
    """The same by the formula in float64."""
    model.double()
    try:
        return results(model, answer, "plain")
    finally:
        model.float()


def assert_same(found, expected, tolerance=1e-4):
    largest = max(theirs.norm() for theirs in expected[1:])
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine - theirs).norm() < tolerance * max(theirs.norm(), 1e-3 * largest)


def whole(model, times=(1.0, 2.0, 3.0)):
    return model(draw(times, next(model.parameters()).dtype))


def late(model):
    """One answer after two steps."""
    return whole(model, (2.0,))


def by_parts(model, times=(1.0, 2.0, 3.0)):
    batch = draw(times, next(model.parameters()).dtype)
    return model.decode_all(model.rollout(batch), batch.queries)


@pytest.fixture
def towers(monkeypatch):
    """How often blocks went as one function."""
    from ipot.accelerate.cuda import tower

    calls, known = [], tower.roll
    monkeypatch.setattr(tower, "roll", lambda *given: calls.append(1) or known(*given))
    return calls


@pytest.mark.parametrize(
    ("config", "times"), [(CONFIG, (1.0, 2.0, 3.0)), (NARROW, (1.0, 3.0)), (NARROW, (2.0,))]
)
def test_a_rollout_is_that_of_the_plain_version(config, times, towers):
    model = build(config)
    expected = plain_results(model, lambda m: whole(m, times))
    assert not towers
    assert_same(results(model, lambda m: whole(m, times)), expected)
    assert_same(results(model, lambda m: by_parts(m, times)), expected)
    assert len(towers) == 2


@pytest.mark.parametrize(("config", "answer"), [(CONFIG, whole), (NARROW, by_parts)])
def test_a_decode_in_pieces_is_the_same(config, answer, monkeypatch):
    model = build(config)
    expected = results(model, answer)
    monkeypatch.setattr(IPOT, "rows_at_once", lambda self, latent: 14)
    assert_same(results(model, answer), expected)


def test_lists_of_states_are_decoded_as_they_are():
    model, batch = build(), draw()
    with attention_path("kernel"):
        answers = model(batch)
        states = model.rollout(batch)
        states.reverse()
        torch.testing.assert_close(model.decode_all(states, batch.queries), answers.flip(1))
        states[0] = states[2]
        found = model.decode_all(states[:2], batch.queries)
        torch.testing.assert_close(found, answers[:, [0, 1]])


def test_states_have_gradients_of_their_own():
    model, batch = build(), draw()
    with attention_path("kernel"):
        states = model.rollout(batch)
        seen = []
        states[1].state.register_hook(seen.append)
        out = model.decode_all(states, batch.queries)
        (slope,) = torch.autograd.grad(out[:, 1].sum(), states[1].state, retain_graph=True)
        out.sum().backward()
    assert slope.abs().sum() > 0
    assert len(seen) >= 1


def _hooked(model):
    model.processor[0].register_forward_hook(lambda module, given, out: out.flip(-1))


def _hooked_processor(model):
    model.processor.register_forward_hook(lambda module, given, out: out.flip(-1))


class Other(AttentionBlock):
    def forward(self, *given):
        return super().forward(*given).flip(-1)


def _another_block(model):
    block = Other(16, heads=2)  # of the same weights
    block.load_state_dict(model.processor[0].state_dict())
    model.processor[0] = block


def _patched(model):
    block, known = model.processor[0], model.processor[0].forward
    block.forward = lambda *given: known(*given).flip(-1)


def _patched_step(model):
    known = model.step
    model.step = lambda latent: Latent(known(latent).state.flip(-1))


class Doubled(nn.Module):
    """A feed-forward of somebody's own in place of ours."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


def _another_feed_forward(model):
    model.processor[0].feed_forward = Doubled(model.processor[0].feed_forward)


@pytest.mark.parametrize(
    "change",
    [_hooked, _hooked_processor, _another_block, _patched, _patched_step, _another_feed_forward],
)
def test_blocks_that_do_something_else_are_called(change, towers):
    model = build(replace(CONFIG, blocks=1))
    before = plain_results(model, late)
    change(model)
    expected = plain_results(model, late)
    assert (before[0] - expected[0]).norm() > 1e-3 * expected[0].norm()
    assert_same(results(model, late), expected)
    assert_same(results(model, lambda m: by_parts(m, (2.0,))), expected)
    assert not towers


@pytest.mark.parametrize("name", ["processor.0.attend", "decoder.block.attend"])
def test_norms_without_all_of_their_parameters(name, towers):
    for missing in ({"bias": False}, {"elementwise_affine": False}):
        model = build(NARROW)
        part = model.get_submodule(name)
        part.norm = nn.LayerNorm(part.norm.normalized_shape, **missing)
        assert_same(results(model, late), plain_results(model, late))
        assert bool(towers) == (name != "processor.0.attend")


def test_a_copy_of_a_model_that_was_trained_goes_on():
    model = build()
    expected = results(model, late)
    assert_same(results(copy.deepcopy(model), late), expected)
