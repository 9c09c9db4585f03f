"""Attention over chunks is attention, with all of its gradients."""

from dataclasses import replace

import pytest
import torch

from ipot.accelerate import accelerate
from ipot.accelerate import chunks as sizes
from ipot.accelerate.attention import attend as attend_by
from ipot.accelerate.chunks import Chunks, Streamed, chunk_size, streams
from ipot.accelerate.streaming import _Running, attend_chunks, attend_with_lse, gradients
from ipot.nn.attention import AttentionBlock

from .models import batch_for, build, target

FREE = target()
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
            out = attend_chunks(FREE, q, cut(p, mask, size), same, HEADS)
        else:
            out = attend_by(FREE, q, p, HEADS, mask)
        (out * draw(*out.shape, seed=2)).sum().backward()
        results.append((out.detach(), q.grad, p.grad))
    for whole, streamed in zip(*results, strict=True):
        torch.testing.assert_close(streamed, whole, **EXACT)
    with torch.no_grad():
        silent = attend_chunks(FREE, query, cut(pairs, mask, size), same, HEADS)
    torch.testing.assert_close(silent, results[0][0], **EXACT)


def test_gradients_are_those_of_differences():
    query, pairs = draw(2, 3, 4).requires_grad_(), draw(2, 9, 8, seed=1).requires_grad_()
    mask = torch.tensor([[True] * 9, [False] * 4 + [True] * 5])

    def function(q, p):
        return attend_chunks(FREE, q, cut(p, mask, 4), same, 2)

    assert torch.autograd.gradcheck(function, (query, pairs))


@pytest.mark.parametrize("masked", [False, True])
def test_a_chunk_knows_the_sum_of_its_weights(masked):
    mask = some_masked() if masked else None
    query, pairs = draw(3, 5, HEADS * 4), draw(3, N, HEADS * 8, seed=1)
    out, lse = attend_with_lse(FREE, query, pairs, HEADS, mask)
    torch.testing.assert_close(out, attend_by(FREE, query, pairs, HEADS, mask), **EXACT)
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
    wanted = attend_by(FREE, query.double(), pairs.double(), 1)
    for size in (1, 7):
        q, p = query.clone().requires_grad_(), pairs.clone().requires_grad_()
        out = attend_chunks(FREE, q, cut(p, None, size), same, 1)
        out.sum().backward()
        assert out.isfinite().all()
        assert q.grad.isfinite().all()
        assert p.grad.isfinite().all()
        torch.testing.assert_close(out.double(), wanted, atol=1e-3, rtol=1e-3)


def test_a_sample_without_any_key_has_no_answer_and_no_gradient():
    query, pairs = draw(2, 3, 4).requires_grad_(), draw(2, 8, 8, seed=1).requires_grad_()
    mask = torch.tensor([[True] * 8, [False] * 8])
    out = attend_chunks(FREE, query, cut(pairs, mask, 3), same, 1)
    out.square().sum().backward()
    assert (out[1] == 0).all()
    assert (pairs.grad[1] == 0).all()
    torch.testing.assert_close(out[:1], attend_by(FREE, query[:1], pairs[:1], 1), **EXACT)
    assert query.grad.isfinite().all()
    _, lse = attend_with_lse(FREE, query.detach(), pairs.detach(), 1, mask)
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
        attend_chunks(FREE, draw(1, 2, 4), empty, same, 1)


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
        out = attend_chunks(FREE, query, chunks, same, 1)
    assert made == [10, 10, 3]
    assert {tuple(t.shape) for t in kept} == {(1, 2, 4), (1, 1, 2), (1, N, 8)}
    assert any(t is pairs or t.data_ptr() == pairs.data_ptr() for t in kept)
    out.sum().backward()
    assert made == [10, 10, 3] * 2


def test_a_change_before_the_backward_pass_is_noticed():
    query, pairs = draw(1, 2, 4).requires_grad_(), draw(1, N, 8, seed=1)
    out = attend_chunks(FREE, query, cut(pairs, None, 10), same, 1)
    pairs.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_second_derivative_is_refused():
    query, pairs = draw(1, 2, 4).requires_grad_(), draw(1, N, 8, seed=1)
    out = attend_chunks(FREE, query, cut(pairs, None, 10), same, 1)
    (first,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_weights_that_are_rounded_are_rounded_in_both_directions():
    """The backward pass runs outside of autocast, and makes the same chunks."""
    torch.manual_seed(0)
    block = accelerate(AttentionBlock(8, heads=2, context=6), training=True)
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
    out = attend_by(FREE, query, pairs, 2)
    push = draw(*out.shape, seed=2)
    wanted = torch.autograd.grad(out, (query, pairs), push)
    with torch.no_grad():
        _, lse = attend_with_lse(FREE, query, pairs, 2)
        found = gradients(FREE, push, query, pairs, None, out, lse, 2)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def test_when_to_stream_and_in_which_chunks():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert not streams(sizes.STREAMED_IN_TRAINING, cpu)
    assert streams(sizes.STREAMED_IN_TRAINING + 1, cpu)
    with torch.no_grad():
        assert not streams(sizes.STREAMED, gpu)
        assert streams(sizes.STREAMED + 1, gpu)
        assert not streams(sizes.STREAMED_ON_CPU, cpu)
        assert streams(sizes.STREAMED_ON_CPU + 1, cpu)
    few = {"batch": 4, "queries": 2, "heads": 1}
    assert chunk_size(FREE, **few) == sizes.ROWS_AT_ONCE["cpu"] // 4
    assert chunk_size(FREE, **few, rows=40) == 10
    assert chunk_size(FREE, **few, rows=3) == 1
    kernel = target("kernel")  # on a GPU: more at a time where there are more in all
    assert chunk_size(kernel, **few, count=10**6) * 4 == sizes.ROWS_BY_KERNEL[0]
    assert chunk_size(kernel, **few, count=10**7) * 4 == sizes.ROWS_BY_KERNEL[1]
    assert chunk_size(kernel, **few, count=10**8) * 4 == sizes.ROWS_BY_KERNEL[2]
    assert chunk_size(kernel, **few, count=10**8, rows=40) == 10
    large = chunk_size(FREE, batch=64, queries=512, heads=8, rows=10**12)
    assert 0 < large * 64 * 512 * 8 <= sizes.SCORES_AT_ONCE


# The encoder of a model.


@pytest.mark.parametrize("rows", [1, 21, 33, 50])
def test_an_encoder_in_chunks_of_any_size(monkeypatch, rows):
    """The last one whole, in part, or larger than all points."""
    model = build(decoder="unlifted", parameters=True).double()
    batch = batch_for(model, shared=True, masked=True).astype(torch.float64)
    given = batch.points, batch.values, batch.parameters, batch.point_mask
    wanted = model.encoder(*given)
    monkeypatch.setattr(sizes, "STREAMED_IN_TRAINING", 0)
    monkeypatch.setitem(sizes.ROWS_AT_ONCE, "cpu", rows)
    found = accelerate(model.encoder, training=True)(*given)
    torch.testing.assert_close(found, wanted, **EXACT)


def test_frozen_weights_and_inputs_get_no_gradient(monkeypatch):
    model = build()
    net, batch = model.encoder, batch_for(model, shared=True)
    net.lift.requires_grad_(False)
    values = batch.values.requires_grad_()
    monkeypatch.setattr(sizes, "STREAMED_IN_TRAINING", 0)
    accelerate(net, training=True)(batch.points, values).square().sum().backward()
    assert batch.points.grad is None
    assert all(w.grad is None for w in net.lift.parameters())
    assert values.grad.abs().max() > 0
    assert net.block.attend.to_key_value.weight.grad.abs().max() > 0


def test_parameters_alone_are_enough():
    net = build(parameters=True).double().encoder
    scalars = draw(3, 2, seed=5)
    nothing = (torch.zeros(1, 0, 2).double(), torch.zeros(3, 0, 2).double(), None)
    inputs = Streamed(nothing, scalars, lambda p, v, m: (p, v, scalars, m))
    found = accelerate(net, training=True).stream(inputs)
    torch.testing.assert_close(found, net(*nothing[:2], scalars), **EXACT)


@pytest.mark.compile
def test_a_compiled_encoder_streams_too(monkeypatch):
    model = build().double()
    net, batch = model.encoder, batch_for(model, shared=True).astype(torch.float64)
    wanted = net(batch.points, batch.values)
    exact = torch.autograd.grad(wanted.square().sum(), list(net.parameters()))
    monkeypatch.setattr(sizes, "STREAMED_IN_TRAINING", 0)
    monkeypatch.setitem(sizes.ROWS_AT_ONCE, "cpu", 12)
    quick = accelerate(net, training=True)
    quick.compile(dynamic=False, backend="eager")
    found = quick(batch.points, batch.values)
    torch.testing.assert_close(found, wanted, **EXACT)
    grads = torch.autograd.grad(found.square().sum(), list(net.parameters()))
    for ours, theirs in zip(grads, exact, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-9)


def test_a_chunk_without_a_real_key_may_have_left_anything():
    running = _Running(1)
    out, nothing = torch.ones(1, 2, 3), torch.full((1, 2, 3), float("nan"))
    running.add(nothing, torch.full((1, 1, 2), float("-inf")))
    running.add(out, torch.zeros(1, 1, 2))
    answer, lse = running.joined()
    torch.testing.assert_close(answer, out.double())
    assert (lse == 0).all()


def test_a_mistake_inside_chunks_is_not_hidden_by_taking_all_points(monkeypatch):
    from ipot.accelerate import accelerate
    from ipot.accelerate.layers.latent import QuickInducingPoints
    from ipot.accelerate.operators import encode
    from ipot.models import IPOT
    from ipot.samples import Batch

    sizes = {"width": 16, "latents": 4, "blocks": 1, "heads": 2, "cross_heads": 2}
    model = accelerate(IPOT.for_tensors([(0.0, 1.0)] * 2, **sizes))
    points = torch.rand(1, 9, 2)
    batch = Batch(points=points, values=torch.randn(2, 9, 1), queries=points)
    with torch.no_grad():
        whole = encode(model, batch).state
        torch.testing.assert_close(encode(model, batch, at_once=6).state, whole)

        def broken(self, inputs):
            raise TypeError("a mistake")

        monkeypatch.setattr(QuickInducingPoints, "stream", broken)
        with pytest.raises(TypeError, match="a mistake"):
            encode(model, batch, at_once=6)
