"""Attention to a shared mesh in C++ against projected tokens and the formula in float64."""

import pytest
import torch
from torch import nn

from ipot.native import mesh as kernels
from ipot.native.build import why_not
from ipot.native.reach import available
from ipot.nn import mesh
from ipot.nn.attention import MultiHead
from ipot.nn.paths import attention_path, plain_attention
from ipot.nn.split import Split

pytestmark = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")

# samples, queries, keys, heads, width of a head, values, features, bias
SIZES = {
    "encoder": (4, 256, 2500, 1, 64, 1, 130, False),
    "heads and channels": (3, 10, 70, 2, 5, 3, 20, True),
    "several groups of samples": (9, 65, 1100, 3, 8, 2, 33, True),
    "few of all": (1, 3, 5, 1, 4, 1, 6, False),
}


def problem(name, kind=torch.float32):
    samples, queries, keys, heads, width, values, features, bias = SIZES[name]
    torch.manual_seed(0)
    norm = nn.LayerNorm(features + values)
    linear = nn.Linear(features + values, 2 * heads * width, bias=bias)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
        linear.weight.mul_(2)
    query = torch.randn(1, queries, heads * width)
    tokens = Split(
        torch.randn(1, keys, features).to(kind), torch.randn(samples, keys, values).to(kind)
    )
    gradient = torch.randn(samples, queries, heads * width).to(kind)
    return query.to(kind).requires_grad_(), tokens, norm.to(kind), linear.to(kind), heads, gradient


def by_formula(query, tokens, norm, linear, heads):
    pairs = linear(norm(tokens.joined()))
    inner = query.shape[-1]
    key, value = pairs[..., :inner], pairs[..., inner:]

    def split(x):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    asked = split(query).expand(len(key), -1, -1, -1)
    return plain_attention(asked, split(key), split(value), None).transpose(1, 2).flatten(2)


def ours(query, tokens, norm, linear, heads):
    return mesh.attend(query, mesh.lay(tokens, norm, linear), norm, linear, heads)


def results(call, query, tokens, norm, linear, heads, gradient):
    out = call(query, tokens, norm, linear, heads)
    leaves = [query, *norm.parameters(), *linear.parameters()]
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient)]


@pytest.mark.parametrize("name", SIZES)
def test_answers_and_gradients_are_those_of_the_formula(name):
    found = results(ours, *problem(name))
    wanted = results(by_formula, *problem(name, torch.float64))
    for one, exact in zip(found, wanted, strict=True):
        assert one.shape == exact.shape
        assert float((one - exact).norm() / exact.norm()) < 3e-6


def test_without_gradients_it_is_the_same():
    query, tokens, norm, linear, heads, _ = problem("heads and channels")
    wanted = ours(query, tokens, norm, linear, heads)
    with torch.no_grad():
        assert torch.equal(ours(query, tokens, norm, linear, heads), wanted)


def test_results_do_not_depend_on_threads():
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(results(ours, *problem("several groups of samples")))
    finally:
        torch.set_num_threads(before)
    # Products by torch around the kernels may be summed in another order.
    assert all((a - b).norm() < 1e-6 * b.norm() for a, b in zip(*found, strict=True))


def test_the_layer_takes_it_where_it_fits(monkeypatch):
    _, tokens, _, _, heads, _ = problem("heads and channels")
    layer = MultiHead(12, context=23, heads=heads, head_width=6, out=12)
    query = torch.randn(1, 40, 12)
    calls, attend = [], kernels.attend

    def counted(*given):
        calls.append(given)
        return attend(*given)

    monkeypatch.setattr(kernels, "attend", counted)
    found = layer(query, tokens)
    assert len(calls) == 1
    with attention_path("plain"):
        wanted = layer(query, tokens)
    assert len(calls) == 1
    assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize(
    "why", ["mask", "values are differentiated", "float64", "own queries", "hook"]
)
def test_the_layer_does_not_take_it_elsewhere(monkeypatch, why):
    _, tokens, _, _, heads, _ = problem("heads and channels")
    layer = MultiHead(12, context=23, heads=heads, head_width=6, out=12)
    query, mask = torch.randn(1, 40, 12), None
    if why == "mask":
        mask = torch.ones(3, 70, dtype=torch.bool)
    elif why == "values are differentiated":
        tokens = tokens._replace(value=tokens.value.requires_grad_())
    elif why == "float64":
        layer, query = layer.double(), query.double()
        tokens = Split(tokens.position.double(), tokens.value.double())
    elif why == "hook":
        layer.to_key_value.register_forward_hook(lambda *given: None)
    else:
        query = query.expand(3, -1, -1)
    monkeypatch.setattr(kernels, "attend", lambda *given: pytest.fail("it does not fit"))
    assert layer(query, tokens, mask).shape == (3, 40, 12)


@pytest.mark.compile
def test_a_compiler_may_trace_it():
    found = []
    for call in (ours, torch.compile(ours, fullgraph=True)):
        found.append(results(call, *problem("heads and channels")))
    for eager, compiled in zip(*found, strict=True):
        assert (eager - compiled).norm() < 1e-5 * eager.norm()
