"""Attention in C++ with products in bf16 against the formula in float64."""

import ctypes
import math

import pytest
import torch

from ipot.accelerate import attention as ways
from ipot.accelerate.chunks import Chunks
from ipot.accelerate.cpu import attention as native
from ipot.accelerate.cpu.build import call, why_not_bf16
from ipot.accelerate.cpu.interface import Problem, rows
from ipot.accelerate.streaming import attend_chunks
from ipot.nn.attention import attention as plain_attention
from tests.accelerate.cpu import test_attention as exact
from tests.accelerate.cpu.threads import with_one_and_with_three
from tests.accelerate.models import target

pytestmark = pytest.mark.skipif(
    why_not_bf16() is not None, reason=f"no kernels in bf16: {why_not_bf16()}"
)

NOISE = 8e-3
"""Of an answer: numbers that are rounded to eight bits are off by 2e-3 at most, each by itself."""

# samples, samples of queries, queries, keys, heads, width, width of values, masked
SIZES = {
    "encoder": (2, 1, 256, 2100, 1, 64, 64, False),
    "narrow decoder": (3, 1, 2100, 256, 1, 64, 1, False),
    "narrow and masked": (2, 2, 500, 163, 2, 33, 3, True),
    "five channels": (2, 1, 150, 63, 2, 33, 5, True),
    "eight channels": (2, 2, 256, 256, 8, 8, 8, False),
    "nine channels": (2, 2, 49, 65, 2, 9, 9, True),
    "three vectors of channels": (1, 1, 100, 70, 2, 48, 48, True),
    "many channels": (1, 1, 60, 130, 1, 100, 100, False),
    "masked, shared queries": (2, 1, 65, 1500, 2, 24, 24, True),
    "one of each": (3, 1, 1, 1, 1, 1, 1, False),
    "one wide key": (3, 1, 2, 1, 1, 7, 7, False),
    "more keys than a share": (2, 2, 70, 3000, 1, 8, 8, True),
    "more queries than most groups": (1, 1, 5000, 33, 1, 4, 16, False),
}


def problem(name, scale=1.0):
    return exact.drawn(SIZES[name], scale)[:3]


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def by_formula(tensors, mask, heads):
    query, key, value = (split(t.double(), heads) for t in tensors)
    asked = query.expand(len(key), -1, -1, -1)
    return plain_attention(asked, key, value, mask).transpose(1, 2).flatten(2)


def of_rounded(tensors, mask, heads):
    """The same of numbers that are rounded as the kernels round them, however large scores are."""
    query, key, value = tensors
    factor = (query.shape[-1] // heads) ** -0.5
    steps = (query * (factor * 128 / math.log(2))).bfloat16().double()
    query = steps * (math.log(2) / 128 / factor)
    return by_formula((query, key.bfloat16(), value), mask, heads)


def ours(tensors, mask, heads):
    return native.attend_rounded(*tensors, heads, mask)[0]


def gap(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm().clamp_min(1e-30))


@pytest.mark.parametrize("name", SIZES)
def test_answers_are_those_of_the_formula(name):
    given = problem(name)
    found, wanted = ours(*given), by_formula(*given)
    assert found.shape == wanted.shape
    assert found.dtype == torch.float32
    assert gap(found, wanted) < NOISE


@pytest.mark.parametrize("name", ["encoder", "narrow and masked", "eight channels"])
def test_products_are_rounded(name):
    assert gap(ours(*problem(name)), by_formula(*problem(name))) > 1e-4


def test_keys_and_values_may_lie_side_by_side():
    (query, key, value), mask, heads = problem("masked, shared queries")
    wanted = ours((query, key, value), mask, heads)
    found, _ = native.attend_rounded(query, torch.cat([key, value], -1), None, heads, mask)
    assert torch.equal(found, wanted)


def test_numbers_may_be_rounded_already():
    tensors, mask, heads = problem("eight channels")
    rounded = [t.bfloat16() for t in tensors]
    assert torch.equal(ours(rounded, mask, heads), ours([t.float() for t in rounded], mask, heads))


@pytest.mark.parametrize("name", ["encoder", "narrow decoder", "masked, shared queries"])
def test_scores_may_be_large(name):
    # Up to about a thousand: the exponential of any of them is no float32.
    given = problem(name, scale=30.0)
    assert gap(ours(*given), of_rounded(*given)) < NOISE


@pytest.mark.parametrize("far", [-3.0, 3.0])
@pytest.mark.parametrize("name", ["masked, shared queries", "nine channels", "narrow and masked"])
def test_scores_may_all_be_far_from_zero(name, far):
    """What all scores have in common changes no weight: 300 powers of two, either way."""
    (query, key, value), mask, heads = problem(name)
    width = query.shape[-1] // heads
    channel = query[..., ::width]
    channel.fill_(64.0)
    key[..., ::width] = far * width**0.5
    given = (query, key, value), mask, heads
    assert gap(ours(*given), of_rounded(*given)) < NOISE


def test_measures_are_those_of_real_keys():
    """The first block is hidden, but for its scores of zero; all others are far below."""
    (query, key, value), mask, heads = problem("more keys than a share")
    width = query.shape[-1] // heads
    query[..., 0] = 64.0
    key[..., 0] = -3.0 * width**0.5
    key[:, :64] = 0.0
    mask[:, :64] = False
    assert mask.any(1).all()
    given = (query, key, value), mask, heads
    assert gap(ours(*given), of_rounded(*given)) < NOISE


@pytest.mark.parametrize("name", ["more keys than a share", "narrow decoder"])
def test_later_keys_may_weigh_more(name):
    """Far more, so that what came before must shrink: to nothing, or to as much as the rest."""
    (query, key, value), mask, heads = problem(name)
    width = query.shape[-1] // heads
    query[..., 0] = 16.0
    key[..., 0] = torch.linspace(-8, 8, key.shape[1]).mul(2).floor().div(2) * width**0.5 / 4
    given = (query, key, value), mask, heads
    assert gap(ours(*given), of_rounded(*given)) < NOISE


def test_narrow_values_are_not_rounded():
    """Where all weigh the same, their mean is as exact as their sum."""
    torch.manual_seed(0)
    value = 1000 + torch.randn(1, 128, 2)
    found, _ = native.attend_rounded(torch.zeros(1, 5, 8), torch.randn(1, 128, 8), value, 1)
    assert (found - value.double().mean(1)).abs().max() < 0.02


def test_the_logarithm_is_that_of_the_sum_of_weights():
    for name in ("masked, shared queries", "more queries than most groups"):
        (query, key, value), mask, heads = problem(name)
        _, lse = native.attend_rounded(query, key, value, heads, mask, logs=True)
        asked, keys = split(query.double(), heads), split(key.double(), heads)
        scores = asked @ keys.transpose(-1, -2) / math.sqrt(asked.shape[-1])
        if mask is not None:
            scores.masked_fill_(~mask[:, None, None], -torch.inf)
        off = (lse - scores.logsumexp(-1)).abs()
        assert off.max() < 4 * NOISE
        assert off.mean() < NOISE


@pytest.mark.parametrize("name", ["masked, shared queries", "narrow and masked"])
def test_a_sample_without_a_real_key_answers_nothing(name):
    tensors, mask, heads = problem(name)
    mask[1] = False
    out, lse = native.attend_rounded(*tensors, heads, mask, logs=True)
    assert out[1].abs().max() == 0
    assert lse[1].max() == -torch.inf
    assert lse[0].isfinite().all()


@pytest.mark.parametrize(("queries", "keys"), [(3, 0), (0, 3), (70, 0), (5000, 0)])
@pytest.mark.parametrize("width", [2, 8])
def test_nothing_to_ask_or_to_attend_to(queries, keys, width):
    query, key = torch.randn(1, queries, 2 * width), torch.randn(2, keys, 2 * width)
    out, lse = native.attend_rounded(query, key, key, 2, logs=True)
    assert out.shape == (2, queries, 2 * width)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()


@pytest.mark.parametrize("name", ["encoder", "narrow decoder"])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_a_number_is_not_lost(name, which, number):
    tensors, mask, heads = problem(name)
    tensors[which][0, 5, 3 % tensors[which].shape[-1]] = number
    wanted, _ = native.attend(*tensors, heads, mask)
    assert torch.equal(ours(tensors, mask, heads), wanted) or torch.equal(
        ours(tensors, mask, heads).isnan(), wanted.isnan()
    )
    assert not wanted.isfinite().all() or which == 1


@pytest.mark.parametrize("which", [0, 1, 2])
def test_numbers_beyond_measure_are_left_to_others(which):
    tensors, mask, heads = problem("nine channels")
    tensors[which][0, 0, 3] = 1e16
    wanted, _ = native.attend(*tensors, heads, mask)
    assert torch.equal(ours(tensors, mask, heads), wanted)


@pytest.mark.parametrize("name", ["masked, shared queries", "narrow and masked"])
@pytest.mark.parametrize("number", [1e30, torch.nan])
def test_hidden_keys_may_hold_anything(name, number):
    tensors, mask, heads = problem(name)
    before = ours(tensors, mask, heads)
    for t in tensors[1:]:
        t[~mask] = number
    assert torch.equal(ours(tensors, mask, heads), before)


@pytest.mark.parametrize("name", ["encoder", "narrow decoder", "eight channels"])
def test_results_do_not_depend_on_threads(name):
    given = problem(name)
    assert torch.equal(*with_one_and_with_three(lambda: ours(*given)))


def test_tensors_may_lie_anyhow():
    (query, key, value), mask, heads = problem("nine channels")
    wanted = ours((query, key, value), mask, heads)
    scattered = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (query, key, value)]
    assert scattered[0].stride(-1) != 1
    assert torch.equal(ours(scattered, mask.T.contiguous().T, heads), wanted)


def test_it_is_the_way_under_autocast_where_nothing_is_differentiated():
    (query, key, value), _, heads = problem("encoder")
    assert ways.path_of(target(), query, key, heads) == "native"
    with torch.autocast("cpu", torch.bfloat16):
        assert ways.path_of(target(), query, key, heads) == "halves"
        assert ways.path_of(target(), query.bfloat16(), key, heads) == "halves"
        assert ways.path_of(target(), query.double(), key, heads) != "halves"
        assert ways.path_of(target(), query[:, :2], key[:, :2], heads) != "halves"
        leaf = query.clone().requires_grad_()
        assert ways.path_of(target(), leaf, key, heads) != "halves"
        with torch.no_grad():
            assert ways.path_of(target(), leaf, key, heads) == "halves"
        assert ways.path_of(target("fused"), query, key, heads) == "fused"
        found = ways.attend_narrow(target(), query, key, value, heads)
    assert torch.equal(found, ours((query, key, value), None, heads))
    with torch.autocast("cpu", torch.float16):
        assert ways.path_of(target(), query, key, heads) != "halves"


def test_a_narrow_value_is_not_rounded_on_its_way():
    query, key = torch.zeros(1, 100, 8), torch.randn(1, 128, 8)
    value = 1000 + torch.randn(1, 128, 1)
    with torch.autocast("cpu", torch.bfloat16):
        found = ways.attend_narrow(target(), query, key.bfloat16(), value, 1)
    assert (found - value.double().mean(1)).abs().max() < 0.02


def test_memory_that_there_is_not():
    parts = [rows(torch.zeros(1, 1, 1))] * 3
    huge = Problem(*parts, None, 1, 1, 1, 1 << 40, 1, 1 << 10, 1, 1.0, 1)
    with pytest.raises(MemoryError, match="not enough memory for half attend"):
        call("ipot_half_attend", ctypes.byref(huge), None, None, None)


@torch.no_grad()
def test_keys_that_come_in_chunks(monkeypatch):
    (query, key, value), _, heads = problem("masked, shared queries")
    pairs = torch.cat([key, value], -1)
    chunks = Chunks(
        rows=(pairs, pairs, None), tokens=lambda x, y, mask: (x, None), size=700, weights=()
    )
    calls = []
    rounded = native.attend_rounded
    monkeypatch.setattr(
        native, "attend_rounded", lambda *a, **k: calls.append(a) or rounded(*a, **k)
    )
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_chunks(target(), query, chunks, lambda x: x, heads)
    assert len(calls) == 3
    assert gap(found, by_formula((query, key, value), None, heads)) < NOISE
