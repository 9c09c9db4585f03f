"""Blocks on a CPU by compiled kernels: where they are called, and where not."""

import pytest
import torch

from ipot.accelerate import accelerate
from ipot.accelerate.cpu import blocks, build
from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.nn.attention import AttentionBlock

pytestmark = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")


@pytest.fixture
def calls(monkeypatch):
    """What kernels were called."""
    made = []
    for name in ("norm_project", "finish_rows"):
        known = getattr(blocks, name)

        def counted(*given, name=name, known=known):
            made.append(name)
            return known(*given)

        monkeypatch.setattr(blocks, name, counted)
    return made


def block(width=32, **settings):
    torch.manual_seed(0)
    return AttentionBlock(width, **{"heads": 2, **settings})


@torch.no_grad()
def test_blocks_go_by_kernels(calls):
    itself, other = block(bias=True), block(context=20)
    state, context = torch.randn(3, 90, 32), torch.randn(3, 70, 20)
    found = accelerate(itself)(state)
    assert calls == ["norm_project", "finish_rows"]
    torch.testing.assert_close(found, itself(state), rtol=1e-5, atol=1e-5)
    calls.clear()
    found = accelerate(other)(state[:1], context)
    assert calls == ["finish_rows"]
    torch.testing.assert_close(found, other(state[:1], context), rtol=1e-5, atol=1e-5)


SETTINGS = {
    "no gate": {"gated": False},
    "no residual": {"residual": False},
    "width": {"width": 20},
    "width of rows": {"width": 8, "head_width": 16},
}
WHYS = (*SETTINGS, "gradients", "training", "float64", "autocast", "another path", "no library")


@pytest.mark.parametrize("why", WHYS)
def test_elsewhere_the_layers_do_it(calls, why, monkeypatch):
    if why == "no library":
        monkeypatch.setattr(build, "_tried", lambda: (None, "left out by a test"))
    made = block(**SETTINGS.get(why, {}))
    state = torch.randn(1, 90, made.attend.norm.normalized_shape[0])
    if why == "float64":
        made, state = made.double(), state.double()
    path = "fused" if why == "another path" else "auto"
    quick = accelerate(made, training=why == "training", attention=path)
    with (
        torch.set_grad_enabled(why == "gradients"),
        torch.autocast("cpu", torch.bfloat16, enabled=why == "autocast"),
    ):
        quick(state)
    assert not calls


LAYERS = {
    **dict.fromkeys(("attend.norm", "attend.to_query", "attend.to_key_value"), ("finish_rows",)),
    **dict.fromkeys(("attend", "attend.to_out", "feed_forward", "feed_forward.into"), ()),
}


@torch.no_grad()
@pytest.mark.parametrize("name", LAYERS)
def test_kernels_leave_out_layers_with_hooks_and_no_more(calls, name):
    made, seen = block(), []
    made.get_submodule(name).register_forward_hook(lambda *given: seen.append(name))
    accelerate(made)(torch.randn(1, 90, 32))
    assert seen == [name]
    assert tuple(calls) == LAYERS[name]


@torch.no_grad()
def test_queries_that_do_not_fill_vectors(calls):
    made, state = block(head_width=5), torch.randn(1, 90, 32)
    found = accelerate(made)(state)
    assert calls == ["finish_rows"]
    torch.testing.assert_close(found, made(state), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_each_norm_has_an_epsilon_of_its_own(calls):
    made, state = block(), 0.1 * torch.randn(1, 90, 32)
    made.attend.norm.eps, made.feed_forward.norm.eps = 0.03, 3.0
    found = accelerate(made)(state)
    assert len(calls) == 2
    torch.testing.assert_close(found, made(state), rtol=1e-5, atol=1e-5)
