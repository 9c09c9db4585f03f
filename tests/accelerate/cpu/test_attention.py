"""Attention in C++ against the formula in float64, forward and backward."""

import math

import pytest
import torch

from ipot.accelerate import attention as ways
from ipot.accelerate.attention import path_of
from ipot.accelerate.cpu import attention as native
from ipot.accelerate.cpu import blockwise
from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.nn.attention import attention as plain_attention
from tests.accelerate.cpu.threads import with_one_and_with_three
from tests.accelerate.models import target

pytestmark = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")

NOISE = 3e-6

# samples, samples of queries, queries, keys, heads, width, width of values, masked
SIZES = {
    "encoder": (2, 1, 256, 2100, 1, 64, 64, False),
    "narrow decoder": (3, 1, 2100, 256, 1, 64, 1, False),
    "two channels": (2, 2, 1500, 63, 2, 33, 2, True),
    "five channels": (2, 1, 1500, 63, 2, 33, 5, True),
    "heads": (2, 2, 100, 70, 3, 5, 5, True),
    "masked, shared queries": (2, 1, 65, 1500, 2, 24, 24, True),
    "one of each": (3, 1, 1, 1, 1, 1, 1, False),
    "more queries than a share": (2, 2, 2500, 129, 1, 8, 8, False),
    "more keys than a share": (2, 2, 70, 3000, 1, 8, 8, True),
    "both": (1, 1, 4200, 1100, 1, 4, 4, False),
    "as many queries as keys": (2, 2, 130, 130, 2, 8, 8, False),
    "shared queries, few keys": (3, 1, 40, 300, 2, 8, 8, True),
    # Beyond 64 shares of 1024 these are larger.
    "more queries than most shares": (1, 1, 66_100, 3, 1, 2, 1, False),
    "more keys than most shares": (1, 1, 3, 66_100, 1, 2, 2, False),
}


def problem(name, scale=1.0):
    return drawn(SIZES[name], scale)


def drawn(sizes, scale=1.0):
    """Queries, keys and values; a mask; heads; the gradient of the answer."""
    samples, asking, queries, keys, heads, width, value_width, masked = sizes
    torch.manual_seed(0)
    query = scale * torch.randn(asking, queries, heads * width)
    key = torch.randn(samples, keys, heads * width)
    value = torch.randn(samples, keys, heads * value_width)
    mask = None
    if masked:
        mask = torch.rand(samples, keys) > 0.3
        mask[:, 0] = True
    gradient = torch.randn(samples, queries, heads * value_width)
    return (query, key, value), mask, heads, gradient


def by_formula(tensors, mask, heads, gradient):
    query, key, value = leaves = [t.double().requires_grad_() for t in tensors]

    def split(x):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    asked = split(query).expand(len(key), -1, -1, -1)
    out = plain_attention(asked, split(key), split(value), mask).transpose(1, 2).flatten(2)
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient.double())]


def ours(tensors, mask, heads, gradient, *, joined=False):
    query, key, value = leaves = [t.clone().requires_grad_() for t in tensors]
    if joined:
        out, _ = native.attend(query, torch.cat([key, value], -1), None, heads, mask)
    else:
        out, _ = native.attend(query, key, value, heads, mask)
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient)]


def gap(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm().clamp_min(1e-30))


@pytest.mark.parametrize("joined", [False, True], ids=["apart", "pairs"])
@pytest.mark.parametrize("name", SIZES)
def test_answers_and_gradients_are_those_of_the_formula(name, joined):
    given = problem(name)
    for found, wanted in zip(ours(*given, joined=joined), by_formula(*given), strict=True):
        assert found.shape == wanted.shape
        assert gap(found, wanted) < NOISE


def test_a_single_key_leaves_scores_without_a_gradient():
    _, d_query, d_key, _ = ours(*problem("one of each"))
    assert d_query.abs().max() == d_key.abs().max() == 0


@pytest.mark.parametrize("name", ["encoder", "narrow decoder"])
def test_scores_may_be_large(name):
    # Up to about a thousand: the exponential of any of them is no float32.
    given = problem(name, scale=30.0)
    limit = 1e-4  # of scores that are rounded at 1000
    for found, wanted in zip(ours(*given), by_formula(*given), strict=True):
        assert gap(found, wanted) < limit


def test_weights_are_right_to_the_last_bits():
    # Of two keys: one with a score of 0, and one with the query's own.
    score = torch.linspace(-2, 0, 5001).view(1, -1, 1)
    key = torch.tensor([0.0, 1.0]).view(1, 2, 1)
    found, _ = native.attend(score, key, key.clone(), 1)
    wanted = score.double().sigmoid()
    assert ((found - wanted) / wanted).abs().max() < 5e-7


@pytest.mark.parametrize("name", ["masked, shared queries", "as many queries as keys"])
def test_scores_may_all_be_far_from_zero(name):
    # One head has none above -200, the other none below 200: neither may set the other's measure.
    (query, key, value), mask, heads, gradient = problem(name)
    width = query.shape[-1] // heads
    query[..., 0::width] = 40.0
    key[..., 0] -= 40.0
    key[..., width] += 40.0
    given = (query, key, value), mask, heads, gradient
    for found, wanted in zip(ours(*given), by_formula(*given), strict=True):
        assert gap(found, wanted) < 2e-4  # of scores that are rounded at 500


def test_the_logarithm_is_that_of_the_sum_of_weights():
    (query, key, value), mask, heads, _ = problem("masked, shared queries")
    _, lse = native.attend(query, key, value, heads, mask)
    split = [t.double().unflatten(-1, (heads, -1)).transpose(1, 2) for t in (query, key)]
    scores = split[0] @ split[1].transpose(-1, -2) / math.sqrt(split[0].shape[-1])
    scores.masked_fill_(~mask[:, None, None], -torch.inf)
    assert (lse - scores.logsumexp(-1)).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["masked, shared queries", "two channels"])
def test_a_sample_without_a_real_key_answers_nothing(name):
    tensors, mask, heads, gradient = problem(name)
    mask[1] = False
    out, lse = native.attend(*tensors, heads, mask)
    assert out[1].abs().max() == 0
    assert lse[1].max() == -torch.inf
    assert lse[0].isfinite().all()
    _, *gradients = ours(tensors, mask, heads, gradient)
    assert all(g.isfinite().all() for g in gradients)
    assert gradients[1][1].abs().max() == gradients[2][1].abs().max() == 0


@pytest.mark.parametrize(("queries", "keys"), [(3, 0), (0, 3), (70, 0), (5000, 0)])
def test_nothing_to_ask_or_to_attend_to(queries, keys):
    query, key = torch.randn(1, queries, 8), torch.randn(2, keys, 8)
    out, lse = native.attend(query, key, key, 2)
    assert out.shape == (2, queries, 8)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()


@pytest.mark.parametrize("name", ["encoder", "narrow decoder"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_a_number_is_not_lost(name, which):
    tensors, mask, heads, _ = problem(name)
    tensors[which][0, 5, 3 % tensors[which].shape[-1]] = torch.nan
    out, _ = native.attend(*tensors, heads, mask)
    expected = by_formula(tensors, mask, heads, torch.zeros_like(out))[0].isnan()
    assert torch.equal(out.isnan(), expected)


def test_hidden_keys_may_hold_anything():
    tensors, mask, heads, gradient = problem("masked, shared queries")
    before = ours(tensors, mask, heads, gradient)
    for t in tensors[1:]:
        t[~mask] = 1e30
    after = ours(tensors, mask, heads, gradient)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


@pytest.mark.parametrize("name", ["encoder", "narrow decoder", "heads"])
def test_results_do_not_depend_on_threads(name):
    given = problem(name)
    found = with_one_and_with_three(lambda: ours(*given))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_tensors_may_lie_anyhow():
    (query, key, value), mask, heads, _ = problem("heads")
    wanted, _ = native.attend(query, key, value, heads, mask)
    scattered = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (query, key, value)]
    assert scattered[0].stride(-1) != 1
    found, _ = native.attend(*scattered, heads, mask)
    assert torch.equal(found, wanted)
    wide = torch.cat([key, value, key], -1)[..., : key.shape[-1] + value.shape[-1]]
    assert torch.equal(native.attend(query, wide, None, heads, mask)[0], wanted)
    scattered_mask = mask.T.contiguous().T
    assert scattered_mask.stride(-1) != 1
    assert torch.equal(native.attend(query, key, value, heads, scattered_mask)[0], wanted)


def test_gradients_may_lie_anyhow():
    tensors, mask, heads, gradient = problem("heads")
    wanted = ours(tensors, mask, heads, gradient)
    scattered = gradient.transpose(1, 2).contiguous().transpose(1, 2)
    assert not scattered.is_contiguous()
    found = ours(tensors, mask, heads, scattered)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("which", [0, 1, 2], ids=["query", "key", "value"])
def test_one_of_them_may_be_differentiated_alone(which):
    tensors, mask, heads, gradient = problem("heads")
    wanted = ours(tensors, mask, heads, gradient)[1 + which]
    leaves = [t.clone().requires_grad_(i == which) for i, t in enumerate(tensors)]
    out, lse = native.attend(*leaves, heads, mask)
    assert not lse.requires_grad  # it has no gradient, and must not seem to have one
    (found,) = torch.autograd.grad(out, leaves[which], gradient)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", ["encoder", "more keys than a share"])
def test_the_gradients_of_chunks_add_up(name):
    (query, key, value), mask, heads, gradient = problem(name)
    pairs = torch.cat([key, value], -1)
    out, lse = native.attend(query, pairs, None, heads, mask)
    whole = ours((query, key, value), mask, heads, gradient)
    whole = whole[1], torch.cat(whole[2:], -1)
    chunks = pairs.split(700, 1)
    masks = [None] * len(chunks) if mask is None else mask.split(700, 1)
    parts = [
        native.gradients(gradient, query, *part, out, lse, heads)
        for part in zip(chunks, masks, strict=True)
    ]
    assert gap(sum(d for d, _ in parts), whole[0].double()) < NOISE
    assert gap(torch.cat([d for _, d in parts], 1), whole[1].double()) < NOISE


@pytest.mark.compile
def test_a_compiler_may_trace_it():
    tensors, mask, heads, gradient = problem("heads")

    def loss(*tensors):
        return (native.attend(*tensors, heads, mask)[0] * gradient).sum()

    found = []
    for call in (loss, torch.compile(loss, fullgraph=True)):
        leaves = [t.clone().requires_grad_() for t in tensors]
        found.append(torch.autograd.grad(call(*leaves), leaves))
    for eager, compiled in zip(*found, strict=True):
        assert torch.equal(eager, compiled)


def test_it_is_the_way_in_float32_on_a_cpu_and_not_elsewhere():
    (query, key, _), _, heads, _ = problem("encoder")
    assert path_of(target(), query, key, heads) == "native"
    assert path_of(target(), query[:, :2, :], key[:, :2], heads) != "native"
    assert path_of(target(), query.double(), key.double(), heads) != "native"
    with torch.autocast("cpu", torch.bfloat16):
        assert path_of(target(), query, key, heads) != "native"
    assert path_of(target("blocks"), query, key, heads) == "blocks"


def test_it_is_called_by_that_name(monkeypatch):
    (query, key, value), mask, heads, _ = problem("heads")
    pairs = torch.cat([key, value], -1)
    wanted = blockwise.attend(query, pairs, None, heads, mask)[0]
    calls = []

    def counted(*given):
        calls.append(given)
        return native.attend(*given)

    monkeypatch.setitem(ways.OURS, "native", counted)
    for path in ("native", "auto"):
        found = ways.attend(target(path), query, pairs, heads, mask)
        assert gap(found, wanted.double()) < NOISE
        found = ways.attend_narrow(target(path), query, key, value, heads, mask)
        assert gap(found, wanted.double()) < NOISE
    assert len(calls) == 4
