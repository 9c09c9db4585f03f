"""What every model must hold to, on every kind of batch."""

import copy
import dataclasses

import pytest
import torch
from torch import Tensor

from ipot.errors import IpotError, Unsupported
from ipot.evaluation.predict import predict
from ipot.models.base import LatentOperator, Operator
from ipot.samples import Batch, collate
from ipot.spec import Need
from ipot.training import checkpoint

from .cases import CASES, Case

TIGHT = {"atol": 1e-10, "rtol": 1e-10}

without_hook = pytest.mark.plain
"""Checking shapes doubles the time of these thousands of tests. Two of them, forward and backward
on every case, are run with the check, and see all the shapes that there are."""

# A LayerNorm over one channel is a constant, so the feed-forward behind it, in the paper's narrow
# decoder, answers the same whatever comes: its first layers have nothing to learn from.
DEAD_IN_A_NARROW_DECODER = {
    "inner.decoder.block.feed_forward.norm.weight",
    "inner.decoder.block.feed_forward.into.weight",
}
# How far inputs lie from the places of a lattice: not at all where the grid is the lattice.
AT_REST_ON_ITS_GRID = {"inner.from_support.weight"}


def _real(batch: Batch, out: Tensor) -> Tensor:
    """The answers at real queries, and zeros at padding."""
    mask = batch.query_mask
    return out if mask is None else out * mask[:, None, :, None]


@torch.no_grad()
def ask(model: Operator, batch: Batch) -> Tensor:
    return _real(batch, model(batch))


def test_the_answer_has_the_shape_of_the_targets(case, model):
    batch = case.batch()
    out = model(batch)
    assert out.shape == batch.targets.shape
    assert out.dtype == torch.float64
    assert out.isfinite().all()
    assert out.detach().std() > 1e-6


@without_hook
def test_a_sample_is_answered_alike_alone_and_in_company(case, model):
    together = ask(model, case.batch())
    for row, sample in enumerate(case.samples):
        m = sample.queries.shape[-2]
        alone = ask(model, collate([sample]))[0]
        torch.testing.assert_close(together[row, :, :m], alone, **TIGHT)


@without_hook
def test_what_lies_in_the_padding_does_not_matter(case, model):
    batch = case.batch()
    changes = {}
    if batch.point_mask is not None:
        empty = ~batch.point_mask.unsqueeze(-1)
        changes["points"] = torch.where(empty, -7e3, batch.points)
        changes["values"] = torch.where(empty, 1e6, batch.values)
    if batch.query_mask is not None:
        empty = ~batch.query_mask.unsqueeze(-1)
        empty = empty.unsqueeze(1) if batch.queries.ndim == 4 else empty
        changes["queries"] = torch.where(empty, 9e3, batch.queries)
    if not changes:
        pytest.skip("nothing is padded in this case")
    poisoned = dataclasses.replace(batch, **changes)
    torch.testing.assert_close(ask(model, poisoned), ask(model, batch), **TIGHT)


@without_hook
def test_the_order_of_the_inputs_does_not_matter(case, model):
    """Where a model answers at its inputs, the answers follow them."""
    batch = case.batch()
    n = batch.points.shape[1]
    if {Need.GRID, Need.FIXED_POINTS} & model.needs or n == 0 or batch.edges is not None:
        pytest.skip("the order has a meaning, or there are no points")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1))
    batch = dataclasses.replace(batch, grid=None)  # a grid is an order
    shuffled, expected = batch.take_points(order), ask(model, batch)
    if Need.SAME_POINTS in model.needs:
        shuffled, expected = shuffled.take_queries(order), expected[:, :, order]
    torch.testing.assert_close(ask(model, shuffled), expected, **TIGHT)


@without_hook
def test_permuting_the_queries_permutes_the_answer(case, model):
    batch = case.batch()
    if Need.SAME_POINTS in model.needs:
        pytest.skip("queries are bound to the input points")
    m = batch.queries.shape[-2]
    order = torch.randperm(m, generator=torch.Generator().manual_seed(1))
    shuffled = ask(model, batch.take_queries(order))
    torch.testing.assert_close(shuffled, ask(model, batch)[:, :, order], **TIGHT)


@without_hook
def test_every_input_and_every_query_matters(case, model):
    """What a model ignores would pass all of the above."""
    batch = case.batch()
    names = ["values", "points", "queries", "parameters"]
    leaves = {n: getattr(batch, n) for n in names if getattr(batch, n) is not None}
    unread = {"values"} if case.spec.channels == 0 else set()
    unread |= {"queries"} if Need.SAME_POINTS in model.needs else set()
    unread |= {"points"} if Need.FIXED_POINTS in model.needs else set()
    leaves = {n: t for n, t in leaves.items() if n not in unread}
    leaves = {n: t.clone().requires_grad_() for n, t in leaves.items() if t.numel()}
    _real(batch, model(dataclasses.replace(batch, **leaves))).square().sum().backward()
    for name, leaf in leaves.items():
        reached = leaf.grad.abs().sum(-1) > 0
        mask = {"points": batch.point_mask, "values": batch.point_mask, "queries": batch.query_mask}
        mask = mask.get(name)
        if mask is None or leaf.shape[0] == 1:
            assert reached.all(), name
        else:
            mask = mask.unsqueeze(1) if reached.ndim == 3 else mask
            assert torch.equal(reached, mask.expand_as(reached)), name


@without_hook
def test_asking_in_chunks_is_asking_at_once(case, model):
    batch = case.batch()
    expected = ask(model, batch)
    # About ten chunks at the most: on large grids more would only take longer.
    least = batch.size * batch.queries.shape[-2] // 9
    for rows in {max(rows, least) for rows in (1, 4, 10)}:
        chunked = _real(batch, predict(model, batch, rows=rows))
        torch.testing.assert_close(chunked, expected, **TIGHT)


@without_hook
def test_a_shared_mesh_is_the_same_as_one_for_each(variant):
    case = CASES["grid"]()
    model, batch = case.build(*variant), case.batch()
    assert batch.points.shape[0] == batch.queries.shape[0] == 1
    for names in (("points",), ("queries",), ("points", "queries")):
        wide = {n: getattr(batch, n).expand(batch.size, -1, -1).contiguous() for n in names}
        expanded = dataclasses.replace(batch, **wide)
        torch.testing.assert_close(ask(model, expanded), ask(model, batch), **TIGHT)


def test_every_parameter_is_reached_by_the_gradient(case, model):
    batch = case.batch()
    if batch.points.shape[1] == 0:
        pytest.skip("without points, what reads them is at rest")
    out = _real(batch, model(batch))
    (out * torch.sin(torch.arange(out.numel())).view_as(out)).sum().backward()
    reach = {n: 0.0 if p.grad is None else p.grad.norm() for n, p in model.named_parameters()}
    asleep = {n for n, norm in reach.items() if norm < 1e-9 * max(reach.values())}
    narrow = getattr(model.config, "decoder", None) == "narrow" and out.shape[-1] == 1
    at_rest = AT_REST_ON_ITS_GRID if batch.grid is not None else set()
    assert asleep - at_rest == (DEAD_IN_A_NARROW_DECODER if narrow else set())


@without_hook
@pytest.mark.parametrize("case", ["line", "stations", "mesh", "film"], indirect=True)
def test_weights_survive_the_disk(case, variant, tmp_path):
    model, batch = case.build(*variant), case.batch()
    checkpoint.save(tmp_path / "w.safetensors", model.state_dict(), {"epoch": 3})
    other = case.build(*variant)
    for tensor in other.state_dict().values():
        tensor.add_(0.5)
    assert not torch.equal(ask(other, batch), ask(model, batch))
    tensors, state = checkpoint.load(tmp_path / "w.safetensors")
    checkpoint.load_weights(other, tensors, tmp_path)
    assert state == {"epoch": 3}
    assert torch.equal(ask(other, batch), ask(model, batch))


@without_hook
def test_the_parts_compose_to_the_whole(case, model):
    batch = case.batch()
    if not isinstance(model, LatentOperator):
        pytest.skip("no latent state")
    with torch.no_grad():
        latent, frames, done = model.encode(batch), [], 0
        for place, time in enumerate(batch.times):
            for _ in range(round(time / case.spec.dt) - done):
                latent, done = model.step(latent), done + 1
            queries = batch.queries[:, place] if batch.queries.ndim == 4 else batch.queries
            frames.append(model.decode(latent, queries))
        torch.testing.assert_close(torch.stack(frames, 1), model(batch), **TIGHT)


@without_hook
def test_float32_is_close_to_float64(case, model):
    batch = case.batch()
    exact = ask(model, batch)
    single = ask(copy.deepcopy(model).float(), batch.astype(torch.float32))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, atol=2e-4, rtol=2e-4)


@without_hook
@pytest.mark.parametrize("name", ["points", "values", "queries", "parameters"])
@pytest.mark.parametrize("size", [1, 5])
def test_a_batch_of_another_size_is_refused_and_not_stretched(variant, name, size):
    """Broadcasting would turn one coordinate into two, or one channel into ten."""
    case = CASES["parameters"]()
    spec = dataclasses.replace(case.spec, inputs=("a", "b"), periods=())
    samples = [dataclasses.replace(s, values=s.values.expand(-1, 2)) for s in case.samples]
    case = Case(spec, samples)
    model, batch = case.build(*variant), case.batch()
    right = getattr(batch, name)
    wrong = dataclasses.replace(batch, **{name: right[..., :1].expand(*right.shape[:-1], size)})
    with pytest.raises((IpotError, ValueError, RuntimeError)):
        model(wrong)


@without_hook
def test_parameters_that_are_missing_are_missed(variant):
    case = CASES["parameters"]()
    model = case.build(*variant)
    with pytest.raises((IpotError, ValueError)):
        model(dataclasses.replace(case.batch(), parameters=None))


@without_hook
@pytest.mark.parametrize("times", [(1.5,), (2.0, 1.0), (0.0,), (1.0, 1.0)])
def test_times_off_the_step_are_refused(variant, times):
    case = CASES["ragged"]()
    model, batch = case.build(*variant), case.batch()
    wrong = dataclasses.replace(batch, times=times, targets=None)
    with pytest.raises((IpotError, ValueError), match="times"):
        model(wrong)


@without_hook
@pytest.mark.parametrize("need", list(Need))
def test_a_model_says_what_it_misses(need):
    class Picky(Operator):
        needs = frozenset({need})

        def forward(self, batch):
            return batch.values

    specs = [make().spec for make in CASES.values()]
    assert any(need in spec.provides for spec in specs)
    for spec in specs:
        if need in spec.provides:
            Picky(None, spec)
            continue
        with pytest.raises(Unsupported, match=f"Picky needs {need.value}; toy has none"):
            Picky(None, spec)
