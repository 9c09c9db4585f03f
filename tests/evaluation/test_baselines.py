"""Simple predictors: exact where they should be, alike however data are held, safe on nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from ipot.data.dataset import Ragged, Stacked, from_samples
from ipot.errors import DataError
from ipot.evaluation import sample_tables
from ipot.evaluation.baselines import (
    BASELINES,
    LinearComponents,
    MeanField,
    NearestNeighbour,
    score_baselines,
)
from ipot.evaluation.evaluate import score
from ipot.samples import Batch, Sample
from ipot.spec import Spec

SPEC = Spec(name="line", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),))
PLANE = Spec(name="plane", inputs=("a",), outputs=("u",), domain=((0.0, 1.0), (0.0, 1.0)))


@pytest.fixture(autouse=True)
def few_places(monkeypatch):
    monkeypatch.setattr(sample_tables, "INPUT_PLACES", 128)
    monkeypatch.setattr(sample_tables, "QUERY_PLACES", 256)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def linear(samples, *, points=15, queries=25, parameters=0, seed=0, kind=torch.float64, noise=0.0):
    """An operator that is linear but for a constant, on one mesh, with a time and a half."""
    r = random(seed)
    first = torch.randn(points, 2 * queries * 2, generator=random(99), dtype=torch.float64)
    second = torch.randn(parameters, 2 * queries * 2, generator=random(98), dtype=torch.float64)
    a = torch.randn(samples, points, generator=r, dtype=torch.float64) * 1e3
    b = torch.randn(samples, parameters, generator=r, dtype=torch.float64) * 1e-4
    u = 7 + 1e-3 * a @ first + 1e4 * b @ second
    u = u + noise * torch.randn(u.shape, generator=r, dtype=torch.float64)
    batch = Batch(
        points=torch.linspace(0, 1, points, dtype=torch.float64).view(1, -1, 1),
        values=a.unsqueeze(-1),
        queries=torch.linspace(0, 1, queries, dtype=torch.float64).view(1, -1, 1),
        targets=u.view(samples, 2, queries, 2),
        parameters=b if parameters else None,
        times=(1.0, 2.0),
    )
    return Stacked(batch.astype(kind))


def spec_of(parameters=0):
    names = tuple(f"p{i}" for i in range(parameters))
    return replace(SPEC, outputs=("u", "v"), parameters=names, steps=2)


def waves(samples, places, *, seed=0, own=None, moving=False):
    """Smooth periodic fields in, smoother ones out, at places of their own."""
    r = random(seed)
    found = []
    for i in range(samples):
        size = torch.randn(3, 3, 2, generator=r)
        low, high = places
        count = int(torch.randint(low, high + 1, (1,), generator=r))
        points = torch.rand(count, 2, generator=r)
        queries = torch.rand(*((2,) if moving else ()), count + 5, 2, generator=r)
        targets = [_waves(size, q, 2) for q in (queries if moving else [queries])]
        found.append(
            Sample(
                points=points,
                values=_waves(size, points, 1),
                queries=queries,
                targets=torch.stack(targets),
                times=(1.0, 2.0) if moving else (1.0,),
                index=i,
            )
        )
    return found


def _waves(size, places, order):
    out = torch.zeros(len(places))
    for j in range(3):
        for k in range(3):
            angle = 2 * math.pi * (j * places[:, 0] + k * places[:, 1])
            share = size[j, k] / (1 + j * j + k * k) ** order
            out += share[0] * angle.cos() + share[1] * angle.sin()
    return out.unsqueeze(1)


def ragged(data):
    """The same samples, each with a mesh that happens to be the same."""
    samples = [data[i] for i in range(len(data))]
    return Ragged([replace(s, points=s.points.clone(), queries=s.queries.clone()) for s in samples])


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("parameters", [0, 3])
def test_a_linear_operator_is_recovered(parameters, kind):
    data = linear(120, parameters=parameters, kind=kind)
    train, test = data.select(range(90)), data.select(range(90, 120))
    scores = score_baselines(train, test, spec_of(parameters))
    assert list(scores) == ["mean field", "nearest neighbour", "linear (PCA)"]
    assert scores["linear (PCA)"].relative_l2 < 1e-6
    assert scores["nearest neighbour"].relative_l2 > 0.1
    assert len(scores["mean field"].per_sample) == 30
    assert len(scores["mean field"].per_time) == len(scores["mean field"].per_channel) == 2


def test_parameters_alone_are_enough():
    data = linear(60, points=0, parameters=4)
    assert data[0].points.shape == (0, 1)
    scores = score_baselines(data.select(range(40)), data.select(range(40, 60)), spec_of(4))
    assert scores["linear (PCA)"].relative_l2 < 1e-6 < scores["mean field"].relative_l2


def test_the_mean_field_is_the_mean_and_scored_as_models_are():
    data = linear(12, noise=1.0)
    train, test = data.select(range(8)), data.select(range(8, 12))
    mean = train.data.truth.mean(0)
    found = MeanField.fit(train, spec_of()).predict(test[0])
    assert torch.allclose(found, mean)
    expected = score([(mean.expand(4, -1, -1, -1), test.data.truth, None, None)])
    assert score_baselines(train, test, spec_of())["mean field"].relative_l2 == pytest.approx(
        expected.relative_l2
    )


def test_weights_of_queries_count_in_the_weighted_score():
    data = linear(10)
    weights = torch.rand(1, 25, generator=random(), dtype=torch.float64)
    weighted = Stacked(replace(data.data, weights=weights))
    mean = data.data.truth.mean(0).expand(10, -1, -1, -1)
    expected = score([(mean, data.data.truth, None, weights)]).weighted_relative_l2
    found = score_baselines(weighted, weighted, spec_of())["mean field"].weighted_relative_l2
    assert found == pytest.approx(expected)


def spread(samples, sizes, informative, noise, seed=0):
    """Inputs that spread by some sizes along some directions, of which a few are told apart."""
    r = random(seed)
    inner = torch.randn(samples, len(sizes), generator=r, dtype=torch.float64) * torch.tensor(sizes)
    turn = torch.linalg.qr(torch.randn(len(sizes), len(sizes), generator=r).double())[0]
    outputs = inner[:, :informative] @ torch.randn(informative, 30, generator=r).double()
    outputs = outputs + noise * torch.randn(samples, 30, generator=r, dtype=torch.float64)
    return Stacked(
        Batch(
            points=torch.linspace(0, 1, len(sizes)).double().view(1, -1, 1),
            values=(inner @ turn).unsqueeze(-1),
            queries=torch.linspace(0, 1, 30).double().view(1, -1, 1),
            targets=outputs.view(samples, 1, 30, 1),
        )
    )


def least_squares(train, test):
    """The error of regression on all inputs, as they are."""
    x, y = train.data.values[..., 0], train.data.truth.flatten(1)
    plain = torch.linalg.lstsq(x - x.mean(0), y - y.mean(0), driver="gelsd").solution
    made = y.mean(0) + (test.data.values[..., 0] - x.mean(0)) @ plain
    return score([(made.view_as(test.data.truth), test.data.truth, None, None)]).relative_l2


def test_noise_asks_for_a_ridge():
    """All directions tell something, and there are hardly more samples than directions."""
    data = spread(90, [1.0] * 40, 40, noise=4.0)
    train, test = data.select(range(50)), data.select(range(50, 90))
    model = LinearComponents.fit(train, SPEC)
    assert model.ridge.strength > 0
    assert score(model.pairs(test)).relative_l2 < 0.7 * least_squares(train, test)


def test_directions_that_tell_nothing_are_left_out():
    data = spread(90, [3.0] * 3 + [1.0] * 37, 3, noise=1.0)
    train, test = data.select(range(50)), data.select(range(50, 90))
    model = LinearComponents.fit(train, SPEC)
    assert model.ridge.count <= 8
    assert score(model.pairs(test)).relative_l2 < 0.7 * least_squares(train, test)


def test_pure_noise_leaves_the_mean():
    r = random()
    batch = linear(40).data
    noise = replace(batch, targets=5 + torch.randn(batch.truth.shape, generator=r).double())
    data = Stacked(noise)
    scores = score_baselines(data.select(range(30)), data.select(range(30, 40)), spec_of())
    assert scores["linear (PCA)"].relative_l2 < 1.03 * scores["mean field"].relative_l2


def test_many_components_are_found_by_iteration():
    """More samples and columns than components: what spreads most is found, not just anything."""
    data = spread(700, [20.0] * 12 + [1.0] * 388, 12, noise=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ipot.evaluation.regression.FEWEST", 20)
        patch.setattr("ipot.evaluation.regression.WORK", 0)
        patch.setattr("ipot.evaluation.regression.LOOKED_AT", 300)
        patch.setattr("ipot.evaluation.regression.HELD", 0)
        patch.setattr("ipot.evaluation.sample_tables.BLOCK", 10_000)
        model = LinearComponents.fit(data.select(range(600)), SPEC)
    assert model.basis.shape[1] <= 20
    assert score(model.pairs(data.select(range(600, 700)))).relative_l2 < 0.05


def test_the_nearest_neighbour_knows_its_own_samples():
    data = linear(30, parameters=2, noise=1.0)
    model = NearestNeighbour.fit(data, spec_of(2))
    assert model.nearest([data[i] for i in range(30)]) == list(range(30))
    for i in (0, 7, 29):
        assert torch.equal(model.predict(data[i]), data[i].truth)


def test_channels_and_parameters_count_alike_whatever_their_units():
    """A field of large numbers does not drown another one, nor a parameter."""
    r = random(3)
    values = torch.randn(40, 50, 2, generator=r) * torch.tensor([1e-3, 1e6])
    values[:, :, 0] = values[:, :1, 0]  # a field of one number
    values[:, :, 1] *= 1e-3
    values[:, :, 1] += 1e6  # hardly varies, but does
    parameters = torch.randn(40, 1, generator=r) * 1e-5
    data = Stacked(
        Batch(
            points=torch.rand(1, 50, 1, generator=r),
            values=values,
            queries=torch.rand(1, 5, 1, generator=r),
            targets=torch.randn(40, 1, 5, 1, generator=r),
            parameters=parameters,
        )
    )
    spec = replace(SPEC, inputs=("a", "b"), parameters=("p",))
    found = NearestNeighbour.fit(data, spec)
    x = found.table.inputs(slice(None))
    sizes = [x[:, 0:100:2], x[:, 1:100:2], x[:, 100:]]
    for block in sizes:
        assert block.square().sum(1).mean() == pytest.approx(1, rel=1e-3)
    moved = replace(data[3], parameters=data[4].parameters, values=data[4].values.clone())
    assert found.nearest([moved]) == [4]


def test_a_channel_that_varies_by_rounding_counts_nothing():
    data = linear(30, kind=torch.float32).data
    r = random(6)
    still = 1e6 + 0.06 * torch.randint(0, 2, data.values.shape, generator=r)
    both = Stacked(replace(data, values=torch.cat([data.values, still], 2)))
    model = NearestNeighbour.fit(both, replace(spec_of(), inputs=("a", "still")))
    shuffled = torch.cat([data.values, still.flip(0)], 2)
    samples = [replace(both[i], values=shuffled[i]) for i in range(30)]
    assert model.nearest(samples) == list(range(30))


def test_ragged_samples_on_one_mesh_are_the_same_as_stacked_ones():
    data = linear(40, parameters=2, noise=0.5, kind=torch.float32)
    train, test = data.select(range(30)), data.select(range(30, 40))
    one = score_baselines(train, test, spec_of(2))
    other = score_baselines(ragged(train), ragged(test), spec_of(2))
    for name, scores in one.items():
        assert other[name].per_sample == pytest.approx(scores.per_sample, rel=1e-9)


@pytest.mark.parametrize("places", [(80, 140), (110, 110)])
def test_meshes_that_differ(places):
    """A linear operator of smooth fields: what is carried is good to a few percent."""
    spec = replace(PLANE, periods=(1.0, 1.0))
    train, test = (from_samples(waves(n, places, seed=s)) for n, s in ((70, 1), (10, 2)))
    scores = score_baselines(train, test, spec)
    mean, near, line = (scores[simple.name].relative_l2 for simple in BASELINES)
    assert line < 0.08
    assert line < 0.2 * near < 0.2 * mean
    assert torch.isfinite(torch.tensor(scores["mean field"].per_sample)).all()


def test_a_neighbour_on_its_own_mesh_is_exact_too():
    data = Ragged(waves(30, (40, 60)))
    model = NearestNeighbour.fit(data, PLANE)
    for i in (0, 11, 29):
        assert torch.equal(model.predict(data[i]), data[i].truth)


def test_queries_that_move():
    spec = replace(PLANE, periods=(1.0, 1.0), steps=2)
    train, test = (Ragged(waves(n, (90, 120), seed=s, moving=True)) for n, s in ((40, 1), (5, 2)))
    line = LinearComponents.fit(train, spec)
    assert score(line.pairs(test)).relative_l2 < 0.15
    assert line.predict(test[0]).shape == test[0].truth.shape
    near = NearestNeighbour.fit(train, spec)
    assert torch.equal(near.predict(train[5]), train[5].truth)
    assert near.predict(replace(test[0], queries=test[0].queries[0])).shape == test[0].truth.shape


def deformed(samples, nodes=150, *, seed=0):
    """A mesh that is bent: the k-th node is the same piece of the body in all samples."""
    r = random(seed)
    rest = torch.rand(nodes, 2, generator=random(77))
    found = []
    for _ in range(samples):
        bend = 0.2 * torch.randn(3, generator=r)
        moved = rest.clone()
        moved[:, 1] += bend[0] * rest[:, 0] ** 2 + bend[1] * (9 * rest[:, 0]).sin()
        moved[:, 0] += bend[2] * rest[:, 1]
        stress = bend[0] * (20 * rest[:, 0]).sin() + bend[1] * rest[:, 1] + bend[2] + 0.1
        found.append(
            Sample(
                points=moved,
                values=torch.zeros(nodes, 0),
                queries=moved,
                targets=stress.view(1, -1, 1),
            )
        )
    return found


def test_the_shape_of_a_mesh_is_an_input():
    spec = replace(PLANE, inputs=(), domain=((-1.0, 2.0), (-1.0, 2.0)))
    samples = deformed(60)
    train, test = from_samples(samples[:50]), from_samples(samples[50:])
    scores = score_baselines(train, test, spec)
    # Row by row the answer is linear in where the nodes lie.
    assert scores["linear (PCA)"].relative_l2 < 1e-4
    assert scores["nearest neighbour"].relative_l2 < 0.6 * scores["mean field"].relative_l2
    # Without any order of the nodes there is still the shape.
    r = random(5)
    shuffled = []
    for s in samples:
        keep = torch.randperm(150, generator=r)[: int(torch.randint(120, 151, (1,), generator=r))]
        shuffled.append(replace(s.take_points(keep).take_queries(keep), values=s.values[keep]))
    shuffled = [replace(s, points=s.queries) for s in shuffled]
    scores = score_baselines(Ragged(shuffled[:50]), Ragged(shuffled[50:]), spec)
    assert scores["linear (PCA)"].relative_l2 < 0.7 * scores["mean field"].relative_l2


def test_another_mesh_at_test_time():
    """Learned on one mesh and asked on finer ones, of one size and of many."""
    spec = replace(PLANE, periods=(1.0, 1.0))
    axis = torch.arange(16) / 16
    grid = torch.cartesian_prod(axis, axis)
    r = random(8)
    sizes = torch.randn(80, 3, 3, 2, generator=r)
    train = Stacked(
        Batch(
            points=grid.unsqueeze(0),
            values=torch.stack([_waves(s, grid, 1) for s in sizes]),
            queries=grid.unsqueeze(0),
            targets=torch.stack([_waves(s, grid, 2) for s in sizes]).unsqueeze(1),
        )
    )
    scores = score_baselines(train, Ragged(waves(10, (200, 300), seed=4)), spec)
    assert scores["linear (PCA)"].relative_l2 < 0.03
    bent = from_samples(deformed(20))
    spec = replace(PLANE, inputs=())
    other = Ragged([s.take_queries(torch.arange(60)) for s in deformed(3, seed=2)])
    assert all(math.isfinite(s.relative_l2) for s in score_baselines(bent, other, spec).values())
    rows = sample_tables.Rows(bent, sample_tables.Shared.of(bent), spec)
    with pytest.raises(DataError, match="cannot be matched"):
        rows.inputs(other[0])


@pytest.mark.parametrize("globe", ["geographic", "latlon", "sphere"])
def test_longitudes_go_around(globe):
    """Stations to the west of the date line learn from those to the east of it."""
    r = random(4)

    def sample(i):
        longitude = 360 * torch.rand(150, generator=r) - 180
        latitude = torch.rand(150, generator=r).mul(2).sub(1).asin().rad2deg()
        lon, lat = longitude.deg2rad(), latitude.deg2rad()
        vectors = torch.stack([lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()], 1)
        size = torch.randn(3, 1, generator=r)
        field = vectors @ size
        seen = {"geographic": (longitude, latitude), "latlon": (latitude / 180, longitude / 180)}
        places = vectors if globe == "sphere" else torch.stack(seen[globe], 1)
        return Sample(points=places, values=field, queries=places, targets=field[None], index=i)

    bounds = {"geographic": ((-180.0, 180.0), (-90.0, 90.0)), "sphere": ((-1.0, 1.0),) * 3}
    bounds["latlon"] = ((-0.5, 0.5), (-1.0, 1.0))
    spec = replace(PLANE, domain=bounds[globe], periods=(), query_domain=(), query_periods=())
    spec = replace(
        spec,
        query_domain=bounds[globe],
        query_periods=(None,) * len(bounds[globe]),
        **{globe: True},
    )
    data = Ragged([sample(i) for i in range(30)])
    known = data[0]
    model = LinearComponents.fit(data.select(range(25)), spec)
    assert score(model.pairs(data.select(range(25, 30)))).relative_l2 < 0.05
    if globe == "geographic":
        place = torch.tensor([[179.9, 10.0], [-179.9, 10.0]])
        west, east = model.predict(replace(known, queries=place, targets=None))[0]
        assert torch.allclose(west, east, atol=0.02)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_hardly_any_samples(samples):
    data = linear(samples + 2, noise=1.0)
    train, test = data.select(range(samples)), data.select(range(samples, samples + 2))
    scores = score_baselines(train, test, spec_of())
    if samples == 1:
        assert len({s.relative_l2 for s in scores.values()}) == 1
        for simple in BASELINES:
            assert torch.equal(simple.fit(train, spec_of()).predict(test[0]), train[0].truth)
    assert all(math.isfinite(s.relative_l2) for s in scores.values())
    few = Ragged(waves(samples + 1, (20, 30)))
    scores = score_baselines(few.select(range(samples)), few.select([samples]), PLANE)
    assert all(math.isfinite(s.relative_l2) for s in scores.values())


def test_inputs_that_are_all_the_same_leave_the_mean():
    data = linear(20, noise=1.0)
    same = Stacked(replace(data.data, values=data.data.values[:1].expand(20, -1, -1) + 0.1))
    train, test = same.select(range(15)), same.select(range(15, 20))
    mean, near, line = score_baselines(train, test, spec_of()).values()
    assert line.relative_l2 == pytest.approx(mean.relative_l2)
    assert math.isfinite(near.relative_l2)


def test_duplicates_zeros_and_large_numbers():
    data = linear(20).data
    twice = Batch(
        **{
            f: None if getattr(data, f) is None else torch.cat([getattr(data, f)] * 2)
            for f in ("values", "targets")
        }
        | {"points": data.points, "queries": data.queries, "times": data.times}
    )
    assert NearestNeighbour.fit(Stacked(twice), spec_of()).nearest([Stacked(twice)[25]]) == [5]
    for factor in (0.0, 1e30, 1e-30):
        scaled = Stacked(replace(twice, values=twice.values * factor, targets=twice.truth * factor))
        scores = score_baselines(scaled, scaled, spec_of())
        assert all(math.isfinite(s.relative_l2) for s in scores.values())
        if factor:
            assert scores["linear (PCA)"].relative_l2 < 1e-5


def test_points_that_coincide():
    samples = waves(20, (30, 40))
    doubled = [
        replace(s, points=torch.cat([s.points, s.points]), values=torch.cat([s.values, s.values]))
        for s in samples
    ]
    all_in_one = [replace(s, points=s.points[:1].expand_as(s.points)) for s in samples]
    for some in (doubled, all_in_one):
        scores = score_baselines(Ragged(some[:15]), Ragged(some[15:]), PLANE)
        assert all(math.isfinite(s.relative_l2) for s in scores.values())


def test_it_is_the_same_every_time():
    data = Ragged(waves(20, (30, 50)))
    one, other = (
        score_baselines(data.select(range(15)), data.select(range(15, 20)), PLANE) for _ in range(2)
    )
    assert one == other


def test_of_many_samples_on_meshes_of_their_own_some_are_taken(monkeypatch):
    monkeypatch.setattr(sample_tables, "CARRIED_SAMPLES", 12)
    data = Ragged(waves(30, (30, 50)))
    found = sample_tables.tables(data, PLANE)
    assert {len(table) for table in found} == {12}
    assert math.isfinite(score_baselines(data, data, PLANE)["linear (PCA)"].relative_l2)


def test_what_does_not_fit_is_named():
    data = Ragged(waves(6, (30, 50)))
    model = MeanField.fit(data, PLANE)
    line = LinearComponents.fit(data, PLANE)
    longer = replace(data[0], times=(1.0, 2.0), targets=None)
    wide = replace(data[0], values=data[0].values.expand(-1, 2))
    with pytest.raises(DataError, match="2 input channels, expected 1"):
        line.predict(wide)
    with pytest.raises(DataError, match="2 times, expected 1"):
        line.predict(longer)
    with pytest.raises(DataError, match="3 coordinates, expected 2"):
        model.predict(replace(data[0], queries=torch.rand(4, 3), targets=None))
    mixed = Ragged([data[0], *waves(1, (30, 50), moving=True)])
    with pytest.raises(DataError, match="the same number in all"):
        MeanField.fit(mixed, PLANE)


def test_predictions_have_the_precision_of_the_targets():
    for kind in (torch.float32, torch.float64):
        data = linear(10, kind=kind)
        for simple in BASELINES:
            assert simple.fit(data, spec_of()).predict(data[0]).dtype == kind
