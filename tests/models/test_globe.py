"""A model on the globe is its inner one on unit vectors, on every way it can be asked."""

from dataclasses import replace

import pytest
import torch
from saved.small import facts, model

from ipot.accelerate import accelerate
from ipot.accelerate.operators import regions
from ipot.errors import DataError
from ipot.evaluation import predict as predicting
from ipot.evaluation.predict import predict
from ipot.models._wrappers import OnGlobe, OnGlobeLatent, seen_spec, wrap_globe
from ipot.models.base import Operator
from ipot.nn.globe import on_globe
from ipot.samples import Batch, collate

WORLD = ((-180.0, 180.0), (-90.0, 90.0))
UK = ((-12.0, 4.0), (49.0, 61.0))
HIGH = (*WORLD, (0.0, 1000.0))


def spec(domain=WORLD, **changes):
    return facts(geographic=True, domain=domain, **changes)


def batch(domain=WORLD, samples=2, n=9, m=7, seed=0, *, shared=False, times=(1.0,)):
    """Places drawn over a region."""
    random = torch.Generator().manual_seed(seed)
    low, high = torch.tensor(domain).unbind(-1)

    def places(count):
        lead = 1 if shared else samples
        return low + (high - low) * torch.rand(lead, count, len(domain), generator=random)

    values = torch.rand(samples, n, 2, generator=random)
    return Batch(points=places(n), values=values, queries=places(m), times=times)


def vectors(asked):
    return replace(asked, points=on_globe(asked.points), queries=on_globe(asked.queries))


@pytest.mark.parametrize("name", ["ipot", "transformer"])
@pytest.mark.parametrize("domain", [WORLD, UK, HIGH])
@pytest.mark.parametrize("shared", [False, True])
def test_it_is_the_inner_model_on_unit_vectors(name, domain, shared):
    outer = model(spec(domain), name)
    assert isinstance(outer, OnGlobeLatent)
    asked = batch(domain, shared=shared)
    assert torch.equal(outer(asked), outer.inner(vectors(asked)))


def test_a_model_of_another_kind_is_wrapped_too():
    outer, asked = wrap_globe(Inner(None, seen_spec(spec())), spec()), batch()
    assert type(outer) is OnGlobe
    assert torch.equal(outer(asked)[:, 0], on_globe(asked.queries)[..., :2])


class Inner(Operator):
    """Answers with the queries that it is given."""

    def forward(self, batch):
        assert batch.points.shape[-1] == batch.queries.shape[-1] == 3
        return batch.queries[:, None, :, :2]


def test_the_facts_inside_and_outside():
    outer = model(spec(UK))
    assert outer.spec == spec(UK)
    inside = outer.inner.spec
    assert (inside.dimension, inside.query_dimension) == (3, 3)
    assert inside.region == UK
    assert not inside.geographic
    assert not inside.sphere
    assert seen_spec(spec()).sphere
    assert seen_spec(facts()) == facts()
    assert wrap_globe(outer.inner, facts()) is outer.inner


@pytest.mark.parametrize(("one", "other"), [(-180.0, 180.0), (0.0, 360.0), (-10.0, 350.0)])
def test_both_names_of_a_longitude_have_one_answer(one, other):
    outer = model(spec())
    here, there = batch(), batch()
    here.points[:, ::2, 0] = here.queries[:, ::2, 0] = one
    there.points[:, ::2, 0] = there.queries[:, ::2, 0] = other
    assert torch.equal(outer(here), outer(there))


def test_no_seam_at_the_date_line_and_none_at_the_pole():
    outer, asked = model(spec()), batch()
    near = torch.tensor([[179.999, 10.0], [-179.999, 10.0], [0.0, 90.0], [123.0, 90.0]])
    found = outer(replace(asked, queries=near.unsqueeze(0)))[:, 0]
    torch.testing.assert_close(found[:, 0], found[:, 1], rtol=0, atol=1e-3)
    torch.testing.assert_close(found[:, 2], found[:, 3], rtol=0, atol=1e-5)


def test_queries_that_are_the_points_stay_the_same_object():
    outer, asked = model(spec()), batch()
    placed = outer.seen(replace(asked, queries=asked.points))
    assert placed.queries is placed.points


@pytest.mark.parametrize("rows", [1, 5, 11])
@pytest.mark.parametrize("steps", [1, 3])
def test_chunked_and_streamed_it_answers_the_same(rows, steps, monkeypatch):
    facts_ = spec(steps=steps)
    times = tuple(float(i + 1) for i in range(steps))
    outer, asked = model(facts_), batch(n=40, m=23, times=times)
    whole = outer(asked)
    torch.testing.assert_close(predict(outer, asked, rows=rows), whole)
    monkeypatch.setattr(predicting, "QUERIES_AT_ONCE", 8)
    torch.testing.assert_close(predict(outer, asked), whole)


def test_what_lies_elsewhere_is_brought_before_it_is_mapped():
    """Here in another precision; on a GPU, in the memory of the host."""
    outer, asked = model(spec()), batch(n=40, m=23)
    found = predict(outer, asked.astype(torch.float64), rows=7)
    torch.testing.assert_close(found.float(), outer(asked))


def test_padding_does_not_count(make_sample):
    outer = model(spec())
    samples = [
        make_sample(n, m, c=2, k=2, seed=n, points=60 * torch.rand(n, 2), targets=None)
        for n, m in ((3, 5), (8, 2))
    ]
    together = predict(outer, collate(samples))
    for row, sample in zip(together, samples, strict=True):
        alone = predict(outer, collate([sample]))[0]
        torch.testing.assert_close(row[:, : len(sample.queries)], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.compile
def test_its_regions_compile_and_answer_the_same():
    outer, asked = model(spec()), batch()
    whole = outer(asked)
    quick = accelerate(outer, training=True)
    parts = list(regions(quick))
    assert parts
    for region in parts:
        region.compile(backend="eager", fullgraph=True)
    torch.testing.assert_close(quick(asked), whole, rtol=1e-4, atol=1e-5)
    placed = torch.compile(on_globe, backend="aot_eager", fullgraph=True, dynamic=True)
    assert torch.equal(placed(asked.points), on_globe(asked.points))


@pytest.mark.plain
def test_other_sizes_are_refused_in_degrees():
    outer = model(spec())
    with pytest.raises(DataError, match="a test has 2 coordinates of an input point, this batch"):
        outer(batch(HIGH))


def test_gradients_flow_and_inducing_points_start_in_the_region():
    """A model of a small region would not see the rest of the globe."""
    outer = model(spec(UK), latents=16).train()
    outer(batch(UK)).sum().backward()
    assert all(p.grad is not None for p in outer.parameters())
    encoder = outer.inner.inner.encoder
    assert encoder.latents.shape == (16, 8)
    low, high = torch.tensor(outer.inner.spec.domain).unbind(-1)
    assert (high - low).max() < 0.3
