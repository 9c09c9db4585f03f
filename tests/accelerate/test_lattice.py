"""A lattice over inputs in chunks answers as one that hears them all at once; on a mesh that is its
own, nothing is summed."""

import pytest
import torch

from ipot.accelerate import accelerate
from ipot.accelerate.fixed_mesh import FixedMesh
from ipot.accelerate.layers.lattice import QuickPlaces, QuickToPlaces, one_input_each, only_one
from ipot.accelerate.operators import StreamedLattice
from ipot.data.statistics import Statistics
from ipot.evaluation.predict import predict
from ipot.models._wrappers import wrap
from ipot.models.lattice import Config, Lattice
from ipot.nn.neighbours import Neighbours
from ipot.nn.places import Corners, ToPlaces
from ipot.samples import Batch
from ipot.spec import Spec

pytestmark = pytest.mark.plain

SIZES = {"width": 4, "most_width": 8, "levels": 1, "blocks": 1, "processor": 1, "heads": 2}
SIZES |= {"bins": (2,), "max_frequency": (4.0,), "places": (5, 6)}
SQUARE = ((0.0, 1.0), (0.0, 1.0))


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(*, history=0, steps=1, parameters=0):
    names = ("a", "b")
    spec = Spec(
        name="toy",
        inputs=names,
        outputs=("u",),
        domain=SQUARE,
        history=history,
        steps=steps,
        parameters=tuple("pq"[:parameters]),
    )
    torch.manual_seed(0)
    return wrap(Lattice(Config(**SIZES), spec), Statistics.identity(2, 1, parameters)).double()


def batch(*, shared=False, masked=False, parameters=0, times=(1.0,)):
    x = draw(1 if shared else 2, 60, 2)
    mask = torch.arange(60) < torch.tensor([[60], [11]]) if masked else None
    return Batch(
        points=x,
        values=draw(2, 60, 2, seed=1),
        queries=draw(1, 20, 2, seed=2),
        times=times,
        parameters=draw(2, parameters, seed=3) if parameters else None,
        point_mask=mask,
    )


@pytest.mark.parametrize("case", ["scattered", "shared", "masked", "parameters", "film"])
def test_in_chunks_as_at_once(case, monkeypatch):
    steps = {"history": 1, "steps": 2} if case == "film" else {}
    count = 2 if case == "parameters" else 0
    model = build(parameters=count, **steps).eval()
    question = batch(
        shared=case == "shared",
        masked=case == "masked",
        parameters=count,
        times=(1.0, 2.0) if steps else (1.0,),
    )
    with torch.no_grad():
        wanted = model(question)
    asked = []
    hear = ToPlaces.sums

    def heard(self, points, *rest):
        asked.append(points.shape[1])
        return hear(self, points, *rest)

    monkeypatch.setattr(ToPlaces, "sums", heard)
    torch.testing.assert_close(predict(model, question, rows=26), wanted)
    assert asked
    assert max(asked) == 13


def test_very_many_are_heard_in_chunks_without_asking(monkeypatch):
    monkeypatch.setattr("ipot.accelerate.chunks.STREAMED_ON_CPU", 100)
    monkeypatch.setattr("ipot.accelerate.operators.LATTICE_ROWS", {"cpu": 40, "cuda": 40})
    model, question = build(), batch()
    quick = accelerate(model).inner
    assert isinstance(quick, StreamedLattice)
    sizes, own = [], quick.to_places.sums
    quick.to_places.sums = lambda x, *rest: sizes.append(x.shape[1]) or own(x, *rest)
    with torch.no_grad():
        found = quick.encode(question).state
    assert sizes == [20, 20, 20]
    torch.testing.assert_close(found, model.inner.encode(question).state)
    sizes.clear()
    quick.encode(question)  # a training differentiates all at once
    assert sizes == [60]


def kept(points, queries):
    """A model that keeps a mesh for a training, and the places it is asked from and at."""
    model = build().inner
    quick = accelerate(model, training=True)
    return model, quick, FixedMesh(quick, points, queries, cast=False)


def test_a_mesh_that_is_the_lattice_is_kept_as_one_input_a_place():
    order = torch.randperm(30)
    x = build().inner.places.coordinates()[:, order]
    queries = x[:, torch.randperm(30)[:12]]
    model, quick, mesh = kept(x, queries)
    for part in (p for p in quick.modules() if isinstance(p, QuickPlaces | QuickToPlaces)):
        around, near = part.keeps
        assert isinstance(around, Neighbours)
        assert around.index.shape[-1] == 1
        assert near is None or near.index.shape[-1] == 1
    a = draw(2, 30, 2)
    torch.testing.assert_close(quick.at(x, a, queries), model.at(x, a, queries))
    # Other points and queries are no business of what is kept.
    torch.testing.assert_close(quick.at(x + 0.01, a, x), model.at(x + 0.01, a, x))
    with torch.no_grad():  # a mesh that moves in place among the same places
        x.copy_(x.flip(1))
    mesh.renew()
    torch.testing.assert_close(quick.at(x, a, queries), model.at(x, a, queries))
    with torch.no_grad():
        x.add_(0.01)
    with pytest.raises(RuntimeError, match="another grid"):
        mesh.renew()
    mesh.release()
    torch.testing.assert_close(quick.at(x, a, queries), model.at(x, a, queries))


def test_any_other_mesh_is_kept_as_who_hears_whom():
    x, a = draw(1, 40, 2), draw(2, 40, 2, seed=1)
    model, quick, mesh = kept(x, x)
    assert isinstance(quick.to_places.keeps[0], Corners)
    assert quick.places.keeps[1].index.shape[-1] == 16
    torch.testing.assert_close(quick.at(x, a, x), model.at(x, a, x))
    with torch.no_grad():
        x.mul_(0.9)
    mesh.renew()
    torch.testing.assert_close(quick.at(x, a, x), model.at(x, a, x))


def test_what_is_nearly_one_is_one_and_what_is_not_stays():
    index = torch.arange(8).view(1, 2, 4)
    one = torch.tensor([[[0.0, 0.999, 0.001, 0.0], [1.0, 0.0, 0.0, 0.0]]])
    assert only_one(Neighbours(index, one)).index.flatten().tolist() == [1, 4]
    some = torch.tensor([[[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]])
    assert only_one(Neighbours(index, some)).weight is some
    part = build().inner.to_places
    places = part.places.coordinates()
    assert one_input_each(part.corners(places), 30) is not None
    assert one_input_each(part.corners(places[:, :29]), 30) is None
    assert one_input_each(part.corners(places + 0.02), 30) is None
    twice = torch.cat([places[:, :29], places[:, :1]], 1)
    assert one_input_each(part.corners(twice), 30) is None
    assert one_input_each(part.corners(places.expand(2, -1, -1)), 30) is None
