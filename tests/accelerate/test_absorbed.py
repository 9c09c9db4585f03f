"""Keys that absorb the projection of constant queries: where they do, and in which precision.

That answers and gradients are those of the layers is in `test_parity.py` as well.
"""

import pytest
import torch
from torch import nn

from ipot.accelerate import accelerate, cuda, fixed_mesh
from ipot.nn.attention import MultiHead
from ipot.nn.latent import QueryDecoder
from ipot.nn.points import FourierFeatures

from .models import shuffled

pytestmark = [
    pytest.mark.plain,  # the hook that checks shapes would wrap the kernels themselves
    pytest.mark.skipif(not cuda.installed(), reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="float32 by kernels is for tests alone"),
]


def decoder(*, width=32, outputs=1, bins=3, heads=1, head_width=24, bias=True):
    torch.manual_seed(0)
    sizes = {"heads": heads, "head_width": head_width, "lifted": False, "full": False}
    made = QueryDecoder(width, outputs, FourierFeatures((bins,) * 2, (4.0,) * 2), **sizes)
    return shuffled(made, bias=bias)


def given(*, width=32, shared=True, b=2, z=5, m=9):
    torch.manual_seed(1)
    mask = torch.rand(b, z) < 0.7
    mask[:, 0] = True
    state = torch.randn(b, z, width, requires_grad=True)
    return state, torch.rand(1 if shared else b, m, 2), mask


def answers(made, state, queries, mask, *more):
    """The answer and its gradients, those of the weights first."""
    out = made(state, queries, mask)
    towards = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [*made.parameters(), state, *more]
    found = torch.autograd.grad((out * towards).sum(), leaves, materialize_grads=True)
    return [out, *found]


def assert_close(found, exact, tolerance=1e-4):
    for ours, theirs in zip(found, exact, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm() + 2e-4


@pytest.fixture
def asked(monkeypatch):
    """For every attention whether it computes gradients of its queries: absorbed it does not."""
    from ipot.accelerate.cuda import attention

    seen, launch = [], attention.backward

    def watched(plan, *rest):
        seen.append(plan.wanted)
        return launch(plan, *rest)

    monkeypatch.setattr(attention, "backward", watched)
    return seen


@pytest.mark.parametrize("width", [32, 20], ids=["few rows, by a kernel", "of no width for one"])
@pytest.mark.parametrize(("kept", "outputs"), [(False, 3), (True, 1)])
def test_the_answer_and_its_gradients_are_those_of_the_layers(asked, width, kept, outputs):
    made = decoder(width=width, outputs=outputs)
    state, queries, mask = given(width=width, shared=kept)
    exact = answers(made, state, queries, mask)
    quick = accelerate(made, training=True, attention="kernel")
    if kept:
        quick.keep(queries)
    assert_close(answers(quick, state, queries, mask), exact)
    assert asked == [False]
    queries.mul_(0.7)
    quick.renew()
    exact = answers(made, state, queries, mask)
    assert_close(answers(quick, state, queries, mask), exact)
    assert asked == [False, False]


@pytest.mark.parametrize("name", ["norm", "to_query", "norm_context", "to_key_value"])
def test_layers_with_hooks_are_called(asked, name):
    made, arguments, seen = decoder(), given(), []
    getattr(made.block.attend, name).register_forward_hook(lambda m, *rest: seen.append(m))
    quick = accelerate(made, training=True, attention="kernel")
    quick.keep(arguments[1])
    assert_close(answers(quick, *arguments), answers(made, *arguments))
    assert len(seen) == 2
    assert asked == [True]


SIZES = {
    "several heads": {"heads": 2, "head_width": 12},
    "more features than a head has channels": {"bins": 8},
    "as many outputs as channels": {"head_width": 1, "bins": 1},
}


@pytest.mark.parametrize("sizes", [*SIZES.values(), None], ids=[*SIZES, "queries that learn"])
def test_elsewhere_the_queries_are_projected(monkeypatch, sizes):
    monkeypatch.setattr(fixed_mesh, "absorbing_weights", None)
    made, (state, queries, mask) = decoder(**sizes or {}), given()
    more = [queries.requires_grad_()] if sizes is None else []
    quick = accelerate(made, training=True, attention="kernel")
    assert_close(
        answers(quick, state, queries, mask, *more), answers(made, state, queries, mask, *more)
    )


def test_more_keys_than_queries_and_other_ways_project_them_too(monkeypatch):
    monkeypatch.setattr(fixed_mesh, "absorbing_weights", None)
    made = decoder()
    for path, arguments in (("kernel", given(z=9, m=6)), ("auto", given()), ("blocks", given())):
        quick = accelerate(made, training=True, attention=path)
        assert_close(answers(quick, *arguments), answers(made, *arguments))


@pytest.mark.parametrize(("there", "columns"), [(True, 32), (False, 24)])
def test_what_is_kept_may_have_any_columns(asked, monkeypatch, there, columns):
    """18 features and the ones; where there are no kernels for it, as few as products like."""
    made, (state, queries, mask) = decoder(bins=4), given()
    quick = accelerate(made, training=True, attention="kernel")
    with monkeypatch.context() as before:
        before.setattr(cuda, "available", lambda device: there)
        quick.keep(queries)
    assert quick.keeps.operand.shape[-1] == columns
    assert_close(answers(quick, state, queries, mask), answers(made, state, queries, mask))
    assert asked == [False]


def test_the_combined_weight_is_rounded_once():
    """Under autocast the keys are as near to exact ones as those of rounded layers."""
    torch.manual_seed(0)
    part = shuffled(MultiHead(50, context=64, heads=1, head_width=64, out=1))
    context, norm = torch.randn(2, 40, 64), nn.Sequential(part.norm_context)
    with torch.no_grad():
        weights, bias = fixed_mesh.absorbing_weights(part, fixed_mesh.columns(50))
        exact = nn.functional.linear(norm(context), torch.cat(weights), bias)[..., :64]
        with torch.autocast("cpu", torch.bfloat16):
            again, bias = fixed_mesh.absorbing_weights(part, fixed_mesh.columns(50))
            rounded = nn.functional.linear(norm(context), torch.cat(again), bias)[..., :64]
            layers = part.to_key_value(norm(context))
        usual = (layers - part.to_key_value(norm(context))).norm() / layers.norm()
    assert all(torch.equal(one, other) for one, other in zip(weights, again, strict=True))
    assert rounded.dtype == torch.bfloat16
    assert (rounded - exact).norm() / exact.norm() < 1.2 * usual < 0.01


@pytest.mark.compile
@pytest.mark.parametrize("kept", [False, True], ids=["own", "kept"])
def test_compiled_it_is_the_same(asked, kept):
    torch._dynamo.reset()
    made, (state, queries, mask) = decoder(), given(shared=kept)
    quick = accelerate(made, training=True, attention="kernel")
    if kept:
        quick.keep(queries)
    quick.compile(dynamic=False, backend="aot_eager", fullgraph=True)
    assert_close(answers(quick, state, queries, mask), answers(made, state, queries, mask))
    assert asked == [False]
    wanting = queries.clone().requires_grad_()
    found = answers(quick, state, wanting, mask, wanting)
    assert asked == [False, True]
    assert_close(found, answers(made, state, wanting, mask, wanting))
