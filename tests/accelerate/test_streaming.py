"""Attention over chunks is attention, with all of its gradients."""

from dataclasses import replace

import pytest
import torch
from ipot.nn.chunks import Chunks, chunk_size, streams
from ipot.nn.paths import attend, attention_path
from ipot.nn.streaming import _Running, attend_chunks, attend_with_lse, gradients

from ipot.models.ipot import IPOT, Config
from ipot.nn import chunks as sizes
from ipot.nn.attention import AttentionBlock
from ipot.spec import Spec

N, HEADS = 23, 2
EXACT = {"atol": 1e-12, "rtol": 1e-10}


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def some_masked(batch=3):
    """Here and there; a whole chunk of seven in the first two samples."""
    mask = torch.rand(batch, N, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[0, 7:14] = mask[1, :7] = False
    return mask


def cut(pairs, mask, size):
    return Chunks(rows=(pairs, mask), tokens=lambda p, m: (p, m), size=size)


def same(pairs):
    return pairs


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("size", [1, 7, N, N + 5])
def test_chunks_of_any_size_are_the_whole(size, narrow, masked):
    query, mask = draw(1, 5, HEADS * 4), some_masked() if masked else None
    pairs = draw(3, N, HEADS * (4 + (1 if narrow else 4)), seed=1)
    results = []
    for streamed in (False, True):
        q, p = query.clone().requires_grad_(), pairs.clone().requires_grad_()
        if streamed:
            out = attend_chunks(q, cut(p, mask, size), same, HEADS)
        else:
            out = attend(q, p, HEADS, mask)
        (out * draw(*out.shape, seed=2)).sum().backward()
        results.append((out.detach(), q.grad, p.grad))
    for whole, streamed in zip(*results, strict=True):
        torch.testing.assert_close(streamed, whole, **EXACT)
    with torch.no_grad():
        silent = attend_chunks(query, cut(pairs, mask, size), same, HEADS)
    torch.testing.assert_close(silent, results[0][0], **EXACT)


def test_gradients_are_those_of_differences():
    query, pairs = draw(2, 3, 4).requires_grad_(), draw(2, 9, 8, seed=1).requires_grad_()
    mask = torch.tensor([[True] * 9, [False] * 4 + [True] * 5])

    def function(q, p):
        return attend_chunks(q, cut(p, mask, 4), same, 2)

    assert torch.autograd.gradcheck(function, (query, pairs))


@pytest.mark.parametrize("masked", [False, True])
def test_a_chunk_knows_the_sum_of_its_weights(masked):
    mask = some_masked() if masked else None
    query, pairs = draw(3, 5, HEADS * 4), draw(3, N, HEADS * 8, seed=1)
    out, lse = attend_with_lse(query, pairs, HEADS, mask)
    torch.testing.assert_close(out, attend(query, pairs, HEADS, mask), **EXACT)
    key = pairs[..., :8].unflatten(-1, (HEADS, 4))
    scores = torch.einsum("bmhe,bnhe->bhmn", query.unflatten(-1, (HEADS, 4)), key) / 2
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    torch.testing.assert_close(lse, scores.logsumexp(-1), **EXACT)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_do_not_overflow(dtype, sign):
    """Scores up to 1e4: their exponentials have no place in any precision."""
    query = torch.full((1, 2, 4), 1e2, dtype=dtype)
    pairs = torch.cat([draw(1, N, 4).clamp(-2, 2) * 25 * sign, draw(1, N, 4, seed=1)], -1)
    pairs = pairs.to(dtype)
    wanted = attend(query.double(), pairs.double(), 1)
    for size in (1, 7):
        q, p = query.clone().requires_grad_(), pairs.clone().requires_grad_()
        out = attend_chunks(q, cut(p, None, size), same, 1)
        out.sum().backward()
        assert out.isfinite().all()
        assert q.grad.isfinite().all()
        assert p.grad.isfinite().all()
        torch.testing.assert_close(out.double(), wanted, atol=1e-3, rtol=1e-3)


def test_a_sample_without_any_key_has_no_answer_and_no_gradient():
    query, pairs = draw(2, 3, 4).requires_grad_(), draw(2, 8, 8, seed=1).requires_grad_()
    mask = torch.tensor([[True] * 8, [False] * 8])
    out = attend_chunks(query, cut(pairs, mask, 3), same, 1)
    out.square().sum().backward()
    assert (out[1] == 0).all()
    assert (pairs.grad[1] == 0).all()
    torch.testing.assert_close(out[:1], attend(query[:1], pairs[:1], 1), **EXACT)
    assert query.grad.isfinite().all()
    _, lse = attend_with_lse(query.detach(), pairs.detach(), 1, mask)
    assert (lse[1] == float("-inf")).all()


def test_many_chunks_in_float32_lose_nothing():
    """Ten thousand chunks of equal weight: a running mean in float32 would drift."""
    running, value = _Running(1), torch.full((1, 1, 1), 1.1)
    for _ in range(10_000):
        running.add(value, torch.zeros(1, 1, 1))
    out, lse = running.joined()
    assert out.item() == pytest.approx(value.item(), rel=1e-12)
    assert lse.item() == pytest.approx(torch.tensor(1e4).double().log().item(), rel=1e-9)


def test_nothing_to_attend_to_is_said():
    empty = cut(draw(1, 0, 8), None, 4)
    with pytest.raises(ValueError, match="nothing to attend to"):
        attend_chunks(draw(1, 2, 4), empty, same, 1)


def test_only_one_chunk_is_held_at_a_time(monkeypatch):
    """Each is made twice, once in each direction, and from no more rows than asked for."""
    made = []

    def tokens(pairs, mask):
        made.append(pairs.shape[1])
        return pairs, mask

    query, pairs = draw(1, 2, 4).requires_grad_(), draw(1, N, 8, seed=1)
    chunks = replace(cut(pairs, None, 10), tokens=tokens)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out = attend_chunks(query, chunks, same, 1)
    assert made == [10, 10, 3]
    assert {tuple(t.shape) for t in kept} == {(1, 2, 4), (1, 1, 2), (1, N, 8)}
    assert any(t is pairs or t.data_ptr() == pairs.data_ptr() for t in kept)
    out.sum().backward()
    assert made == [10, 10, 3] * 2


def test_a_change_before_the_backward_pass_is_noticed():
    query, pairs = draw(1, 2, 4).requires_grad_(), draw(1, N, 8, seed=1)
    out = attend_chunks(query, cut(pairs, None, 10), same, 1)
    pairs.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_second_derivative_is_refused():
    query, pairs = draw(1, 2, 4).requires_grad_(), draw(1, N, 8, seed=1)
    out = attend_chunks(query, cut(pairs, None, 10), same, 1)
    (first,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_weights_that_are_rounded_are_rounded_in_both_directions():
    """The backward pass runs outside of autocast, and makes the same chunks."""
    torch.manual_seed(0)
    block = AttentionBlock(8, heads=2, context=6)
    y, x = torch.randn(1, 4, 8), torch.randn(2, N, 6)
    weights = list(block.parameters())
    chunks = Chunks(rows=(x,), tokens=lambda t: (t, None), size=9)
    seen = []

    def tokens(t):
        seen.append(torch.is_autocast_enabled("cpu"))
        return t, None

    results = []
    for context in (x, replace(chunks, tokens=tokens)):
        block.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = block(y, context).float().square().mean()
        loss.backward()
        results.append([loss.detach(), *(w.grad.clone() for w in weights)])
    assert seen == [True] * 6
    for whole, streamed in zip(*results, strict=True):
        assert (streamed - whole).norm() < 0.02 * whole.norm()


def test_the_gradients_of_one_chunk_are_what_autograd_finds():
    query, pairs = draw(1, 3, 4).requires_grad_(), draw(2, 6, 8, seed=1).requires_grad_()
    out = attend(query, pairs, 2)
    push = draw(*out.shape, seed=2)
    wanted = torch.autograd.grad(out, (query, pairs), push)
    with torch.no_grad():
        _, lse = attend_with_lse(query, pairs, 2)
        found = gradients(push, query, pairs, None, out, lse, 2)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def test_when_to_stream_and_in_which_chunks():
    assert not streams(sizes.STREAMED_IN_TRAINING)
    assert streams(sizes.STREAMED_IN_TRAINING + 1)
    with torch.no_grad():
        assert not streams(sizes.STREAMED)
        assert streams(sizes.STREAMED + 1)
        assert not streams(sizes.STREAMED_ON_CPU, torch.device("cpu"))
        assert streams(sizes.STREAMED_ON_CPU + 1, torch.device("cpu"))
        with attention_path("plain"):
            assert not streams(sizes.STREAMED + 1)
    few = {"batch": 4, "queries": 2, "heads": 1}
    cpu = torch.device("cpu")
    assert chunk_size(cpu, **few) == sizes.ROWS_AT_ONCE["cpu"] // 4
    assert chunk_size(cpu, **few, rows=40) == 10
    assert chunk_size(cpu, **few, rows=3) == 1
    with attention_path("kernel"):  # on a GPU: more at a time where there are more in all
        assert chunk_size(cpu, **few, count=10**6) * 4 == sizes.ROWS_BY_KERNEL[0]
        assert chunk_size(cpu, **few, count=10**7) * 4 == sizes.ROWS_BY_KERNEL[1]
        assert chunk_size(cpu, **few, count=10**8) * 4 == sizes.ROWS_BY_KERNEL[2]
        assert chunk_size(cpu, **few, count=10**8, rows=40) == 10
    large = chunk_size(cpu, batch=64, queries=512, heads=8, rows=10**12)
    assert 0 < large * 64 * 512 * 8 <= sizes.SCORES_AT_ONCE


# The encoder of a model.

SPEC = Spec(name="toy", inputs=("a", "b"), outputs=("u",), domain=((0.0, 1.0),) * 2)


def encoder(*, lifted, parameters):
    torch.manual_seed(0)
    config = Config(
        latents=5,
        width=8,
        blocks=1,
        heads=2,
        cross_heads=2,
        bins=(3,),
        lifted=lifted,
        local=False,
        decoder="full" if lifted else "narrow",
    )
    spec = replace(SPEC, parameters=("p", "q") if parameters else ())
    return IPOT(config, spec).double().encoder


def inputs(*, shared, masked, parameters):
    points = draw(1 if shared else 3, N, 2, seed=3).requires_grad_()
    values = draw(3, N, 2, seed=4).requires_grad_()
    scalars = draw(3, 2, seed=5).requires_grad_() if parameters else None
    return points, values, scalars, some_masked() if masked else None


@pytest.mark.parametrize("size", [1, 7, N, N + 5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("parameters", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("lifted", [False, True])
def test_a_streamed_encoder_is_the_encoder(monkeypatch, size, masked, parameters, shared, lifted):
    net = encoder(lifted=lifted, parameters=parameters)
    given = inputs(shared=shared, masked=masked, parameters=parameters)
    leaves = [*net.named_parameters(), *zip("pvs", given[:3], strict=True)]
    leaves = [(name, t) for name, t in leaves if t is not None]
    results = []
    for limit in (10**9, 0):
        monkeypatch.setattr(sizes, "STREAMED_IN_TRAINING", limit)
        monkeypatch.setitem(sizes.ROWS_AT_ONCE, "cpu", 3 * size)
        for _, leaf in leaves:
            leaf.grad = None
        state = net(*given).state
        (state * draw(*state.shape, seed=6)).sum().backward()
        results.append((state.detach(), {name: t.grad for name, t in leaves}))
    torch.testing.assert_close(results[1][0], results[0][0], **EXACT)
    for name, whole in results[0][1].items():
        torch.testing.assert_close(results[1][1][name], whole, atol=1e-11, rtol=1e-9, msg=name)


def test_frozen_weights_and_inputs_get_no_gradient(monkeypatch):
    net = encoder(lifted=True, parameters=False)
    points, values, _, _ = inputs(shared=True, masked=False, parameters=False)
    points.requires_grad_(False)
    net.lift.requires_grad_(False)
    monkeypatch.setattr(sizes, "STREAMED_IN_TRAINING", 0)
    net(points, values).state.sum().backward()
    assert points.grad is None
    assert all(w.grad is None for w in net.lift.parameters())
    assert values.grad.abs().max() > 0
    assert net.block.attend.to_key_value.weight.grad.abs().max() > 0


def test_parameters_alone_are_enough():
    net = encoder(lifted=True, parameters=True)
    scalars = draw(3, 2, seed=5)
    nothing = (torch.zeros(1, 0, 2).double(), torch.zeros(3, 0, 2).double(), None)
    streamed = net.stream(nothing, scalars, lambda p, v, m: (p, v, scalars, m)).state
    torch.testing.assert_close(streamed, net(*nothing[:2], scalars).state, **EXACT)


@pytest.mark.compile
def test_a_compiled_encoder_streams_too(monkeypatch):
    net = encoder(lifted=True, parameters=False)
    given = inputs(shared=True, masked=False, parameters=False)
    wanted = net(*given).state
    wanted.sum().backward()
    grads = {name: w.grad.clone() for name, w in net.named_parameters() if w.grad is not None}
    net.zero_grad()
    monkeypatch.setattr(sizes, "STREAMED_IN_TRAINING", 0)
    monkeypatch.setitem(sizes.ROWS_AT_ONCE, "cpu", 21)
    net.compile(dynamic=False)
    found = net(*given).state
    found.sum().backward()
    torch.testing.assert_close(found, wanted, **EXACT)
    for name, w in net.named_parameters():
        torch.testing.assert_close(w.grad, grads[name], atol=1e-11, rtol=1e-9)


def test_a_chunk_without_a_real_key_may_have_left_anything():
    running = _Running(1)
    out, nothing = torch.ones(1, 2, 3), torch.full((1, 2, 3), float("nan"))
    running.add(nothing, torch.full((1, 1, 2), float("-inf")))
    running.add(out, torch.zeros(1, 1, 2))
    answer, lse = running.joined()
    torch.testing.assert_close(answer, out.double())
    assert (lse == 0).all()
