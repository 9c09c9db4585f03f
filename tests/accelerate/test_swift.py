"""Blocks on a CPU by compiled kernels: the same answers, and only where they may."""

import pytest
import torch
from ipot.nn.paths import attention_path

from ipot.accelerate.cpu import block as rows
from ipot.accelerate.cpu import build
from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.nn import swift
from ipot.nn.attention import AttentionBlock

pytestmark = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")


@pytest.fixture
def calls(monkeypatch):
    """What kernels were called."""
    made = []
    for name in ("norm_project", "finish"):
        known = getattr(rows, name)

        def counted(*given, name=name, known=known):
            made.append(name)
            return known(*given)

        monkeypatch.setattr(rows, name, counted)
    return made


def block(width=32, **settings):
    torch.manual_seed(0)
    return AttentionBlock(width, **{"heads": 2, **settings})


@torch.no_grad()
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_self_attention(calls, masked, bias):
    made, state = block(bias=bias), torch.randn(3, 90, 32)
    mask = torch.rand(3, 90) > 0.4 if masked else None
    found = made(state, None, mask)
    assert calls == ["norm_project", "finish"]
    with attention_path("plain"):
        wanted = made(state, None, mask)
    assert len(calls) == 2
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("samples", [1, 3])
def test_cross_attention(calls, samples):
    made, context = block(context=20), torch.randn(3, 70, 20)
    query = torch.randn(samples, 40, 32)
    found = made(query, context)
    assert calls == ["finish"]
    with attention_path("plain"):
        wanted = made(query, context)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_weights_may_change(calls):
    made, state = block(), torch.randn(1, 90, 32)
    before = made(state)
    for p in made.parameters():
        p.mul_(1.5)
    found = made(state)
    with attention_path("plain"):
        wanted = made(state)
    assert not torch.allclose(before, found, atol=1e-2)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


WHYS = (
    "gradients",
    "float64",
    "autocast",
    "no gate",
    "no residual",
    "another path",
    "width",
    "width of rows",
    "no library",
)


@pytest.mark.parametrize("why", WHYS)
def test_elsewhere_the_layers_do_it(calls, why, monkeypatch):
    settings = {
        "no gate": {"gated": False},
        "width": {"width": 20},
        "width of rows": {"width": 8, "head_width": 16},
    }
    made = block(**settings.get(why, {}))
    if why == "no library":
        monkeypatch.setattr(build, "_tried", lambda: (None, "left out by a test"))
    if why == "no residual":
        made = block(residual=False)
    state = torch.randn(1, 90, made.attend.norm.normalized_shape[0])
    if why == "float64":
        made, state = made.double(), state.double()
    with torch.set_grad_enabled(why == "gradients"):
        if why == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                made(state)
        elif why == "another path":
            with attention_path("fused"):
                made(state)
        else:
            made(state)
    assert not calls


@torch.no_grad()
@pytest.mark.parametrize("name", ["to_out", "norm", "into", "out"])
def test_hooks_behind_the_attention_are_called(calls, name):
    made, seen = block(), []
    owner = made.attend if name == "to_out" else made.feed_forward
    getattr(owner, name).register_forward_hook(lambda *given: seen.append(name))
    made(torch.randn(1, 90, 32))
    assert seen == [name]
    assert "finish" not in calls


@torch.no_grad()
@pytest.mark.parametrize("name", ["norm", "to_query", "to_key_value"])
def test_hooks_before_the_attention_are_called(calls, name):
    made, seen = block(), []
    getattr(made.attend, name).register_forward_hook(lambda *given: seen.append(name))
    made(torch.randn(1, 90, 32))
    assert seen == [name]
    assert calls == ["finish"]


@torch.no_grad()
@pytest.mark.parametrize("name", ["attend", "feed_forward"])
def test_hooks_of_either_part_are_called(calls, name):
    made, seen = block(), []
    getattr(made, name).register_forward_hook(lambda *given: seen.append(name))
    made(torch.randn(1, 90, 32))
    assert seen == [name]
    assert not calls


@torch.no_grad()
@pytest.mark.parametrize("name", ["norm", "to_query", "to_key_value"])
def test_weights_of_another_kind_are_left_to_torch(name):
    made, state = block(), torch.randn(1, 90, 32)
    assert swift.fits_itself(made, state)
    getattr(made.attend, name).double()
    assert not swift.fits_itself(made, state)


@torch.no_grad()
def test_queries_that_do_not_fill_vectors(calls):
    made, state = block(head_width=5), torch.randn(1, 90, 32)
    found = made(state)
    assert calls == ["finish"]
    with attention_path("plain"):
        wanted = made(state)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_each_norm_has_an_epsilon_of_its_own(calls):
    made, state = block(), 0.1 * torch.randn(1, 90, 32)
    made.attend.norm.eps, made.feed_forward.norm.eps = 0.03, 3.0
    found = made(state)
    assert len(calls) == 2
    with attention_path("plain"):
        wanted = made(state)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
