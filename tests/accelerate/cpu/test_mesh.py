"""Attention to a shared mesh in C++ against projected tokens and the formula in float64."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from ipot.accelerate import accelerate
from ipot.accelerate.cpu import mesh as kernels
from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.accelerate.fixed_mesh import Known
from ipot.accelerate.shared_mesh import Split, attend_laid, lay, sums_of
from ipot.nn.attention import MultiHead
from ipot.nn.attention import attention as plain_attention
from tests.accelerate.cpu.threads import with_one_and_with_three

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
    return attend_laid(query, lay(tokens, norm, linear), norm, linear, heads)


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


def test_what_is_kept_of_the_positions_is_taken_as_it_is():
    query, tokens, norm, linear, heads, _ = problem("heads and channels")
    position = tokens.position
    known = Known(position, position.clone(), position, sums_of(position))
    expected = ours(query, tokens, norm, linear, heads)
    assert torch.equal(ours(query, tokens._replace(known=known), norm, linear, heads), expected)
    for name in ("operand", "sums"):
        other = known._replace(**{name: 2 * getattr(known, name)})
        found = ours(query, tokens._replace(known=other), norm, linear, heads)
        assert not torch.allclose(found, expected)


def test_epsilon_counts_where_tokens_hardly_differ():
    query, tokens, norm, linear, heads, _ = problem("heads and channels", torch.float64)
    tokens = Split(1e-3 * tokens.position, 1e-3 * tokens.value)
    wanted = by_formula(query, tokens, norm, linear, heads)
    norm, linear, tokens = norm.float(), linear.float(), Split(*(t.float() for t in tokens[:2]))
    found = ours(query.float(), tokens, norm, linear, heads)
    assert (found - wanted).norm() < 3e-6 * wanted.norm()


def doubled(query, tokens, norm, linear, heads, gradient):
    """The same numbers in float64."""
    query, position, value, gradient = (t.detach().double() for t in (query, *tokens[:2], gradient))
    layers = (deepcopy(layer).double() for layer in (norm, linear))
    return query.requires_grad_(), Split(position, value), *layers, heads, gradient


def test_scores_may_be_large():
    query, *rest = problem("several groups of samples")
    given = ((200 * query).detach().requires_grad_(), *rest)
    found, wanted = results(ours, *given), results(by_formula, *doubled(*given))
    for one, exact in zip(found, wanted, strict=True):
        assert (one - exact).norm() < 1e-3 * exact.norm()  # of scores rounded at 1000


def scattered(x):
    """The same numbers with other distances between them."""
    found = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    assert not found.is_contiguous()
    return found


def asked():
    """What the kernels themselves take, with values of another width than keys: queries, pairs,
    slopes; factors, extra numbers; gradients of both answers."""
    torch.manual_seed(0)
    given = torch.randn(1, 40, 2 * 6), torch.randn(1, 90, 2 * (6 + 3)), torch.randn(2, 4, 40)
    own = 0.5 + torch.rand(5, 90), torch.randn(5, 90, 4)
    return given, own, (torch.randn(5, 40, 2 * 3), torch.randn(5, 2, 4, 40))


def by_definition(query, pairs, slope, factor, extra):
    """The same as the kernels' two answers."""
    query, key, value = (
        t[0].unflatten(-1, (2, -1)) for t in (query, pairs[..., :12], pairs[..., 12:])
    )
    scores = torch.einsum("mhe,nhe->hmn", query, key)
    scores = scores + torch.einsum("bnt,htm->bhmn", extra, slope)
    weights = (scores * factor[:, None, None] / 6**0.5).softmax(-1) * factor[:, None, None]
    out = torch.einsum("bhmn,nhf->bmhf", weights, value).flatten(2)
    return out, torch.einsum("bhmn,bnt->bhtm", weights, extra)


@pytest.mark.parametrize("which", [0, 1, 2, None], ids=["query", "pairs", "slope", "all"])
@pytest.mark.parametrize("turn", [torch.clone, scattered], ids=["dense", "scattered"])
def test_the_kernels_by_themselves(which, turn):
    given, own, gradients = asked()
    chosen = [which is None or i == which for i in range(3)]
    leaves = [turn(t).requires_grad_(c) for t, c in zip(given, chosen, strict=True)]
    found = kernels.attend(*leaves, *map(turn, own), 2)
    exact = [t.double().requires_grad_(c) for t, c in zip(given, chosen, strict=True)]
    wanted = by_definition(*exact, *(t.double() for t in own))
    back = torch.autograd.grad(
        found, [t for t in leaves if t.requires_grad], [turn(g) for g in gradients]
    )
    right = torch.autograd.grad(
        wanted, [t for t in exact if t.requires_grad], [g.double() for g in gradients]
    )
    for one, other in zip((*found, *back), (*wanted, *right), strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() < 3e-6 * other.norm()


@pytest.mark.parametrize("sign", [-1, 1])
def test_scores_may_all_be_far_from_zero(sign):
    query, tokens, norm, linear, heads, gradient = problem("several groups of samples")
    # Positions have much in common, so that keys point the same way: queries do so too, or away.
    common = 2 * torch.randn(1, 1, tokens.position.shape[-1])
    tokens = tokens._replace(position=0.3 * tokens.position + common)
    with torch.no_grad():
        norm.bias.zero_()
        linear.bias.zero_()
        key = linear(norm(tokens.joined()))[..., : query.shape[-1]].mean((0, 1))
        query += sign * 150 * key / key.square().mean()
        split = [t.unflatten(-1, (heads, -1)) for t in (query[0, 0], key)]
        scores = sign * (split[0] * split[1]).sum(-1) / split[0].shape[-1] ** 0.5
        assert scores.min() > 100  # their exponentials are no float32
    given = query, tokens, norm, linear, heads, gradient
    found, wanted = results(ours, *given), results(by_formula, *doubled(*given))
    for one, exact in zip(found, wanted, strict=True):
        assert (one - exact).norm() < 1e-3 * exact.norm()  # of scores rounded at 600


def test_gradients_may_lie_anyhow():
    *given, gradient = problem("heads and channels")
    wanted = results(ours, *given, gradient)
    scattered = gradient.transpose(1, 2).contiguous().transpose(1, 2)
    assert not scattered.is_contiguous()
    for one, same in zip(results(ours, *given, scattered), wanted, strict=True):
        torch.testing.assert_close(one, same, rtol=1e-5, atol=1e-5)


def test_without_gradients_it_is_the_same():
    query, tokens, norm, linear, heads, _ = problem("heads and channels")
    wanted = ours(query, tokens, norm, linear, heads)
    with torch.no_grad():
        assert torch.equal(ours(query, tokens, norm, linear, heads), wanted)


def test_results_do_not_depend_on_threads():
    found = with_one_and_with_three(lambda: results(ours, *problem("several groups of samples")))
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
    found = accelerate(layer)(query, tokens)
    assert len(calls) == 1
    wanted = layer(query, tokens.joined())
    assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize(
    "why",
    [
        *("mask", "values are differentiated", "positions are differentiated", "wide values"),
        *("float64", "own queries", "hook", "hook of the norm"),
    ],
)
def test_the_layer_does_not_take_it_elsewhere(monkeypatch, why):
    _, tokens, _, _, heads, _ = problem("heads and channels")
    layer = MultiHead(12, context=23, heads=heads, head_width=6, out=12)
    query, mask = torch.randn(1, 40, 12), None
    if why == "mask":
        mask = torch.ones(3, 70, dtype=torch.bool)
    elif why == "values are differentiated":
        tokens = tokens._replace(value=tokens.value.requires_grad_())
    elif why == "positions are differentiated":
        tokens = tokens._replace(position=tokens.position.requires_grad_())
    elif why == "wide values":  # of which a mean of squares would cancel too much
        tokens = Split(tokens.position[..., :3], torch.randn(3, 70, 20))
    elif why == "float64":
        layer, query = layer.double(), query.double()
        tokens = Split(tokens.position.double(), tokens.value.double())
    elif why == "hook":
        layer.to_key_value.register_forward_hook(lambda *given: None)
    elif why == "hook of the norm":
        layer.norm_context.register_forward_hook(lambda *given: None)
    else:
        query = query.expand(3, -1, -1)
    monkeypatch.setattr(kernels, "attend", lambda *given: pytest.fail("it does not fit"))
    assert accelerate(layer)(query, tokens, mask).shape == (3, 40, 12)


@pytest.mark.compile
def test_a_compiler_may_trace_it(backend):
    found = []
    for call in (ours, torch.compile(ours, fullgraph=True, backend=backend)):
        found.append(results(call, *problem("heads and channels")))
    for eager, compiled in zip(*found, strict=True):
        assert (eager - compiled).norm() < 1e-5 * eager.norm()
