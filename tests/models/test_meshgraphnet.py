"""MeshGraphNet: its messages by hand, its edges from everywhere, and what it refuses."""

import dataclasses

import numpy as np
import pytest
import torch

from ipot.data.dataset import Ragged, Stacked
from ipot.errors import DataError, Unsupported
from ipot.models.base import parameter_count
from ipot.models.meshgraphnet import Config, MeshGraphNet
from ipot.nn.graph import grid_neighbours
from ipot.samples import Batch, Sample, collate
from ipot.spec import Need, Spec

SMALL = Config(width=6, layers=2)


def a_spec(*, periods=(None, None), parameters=(), provides=(Need.SAME_POINTS,), inputs=("a",)):
    return Spec(
        name="toy",
        inputs=inputs,
        outputs=("u", "v"),
        parameters=parameters,
        domain=((0.0, 2.0), (0.0, 1.0)),
        periods=periods,
        provides=frozenset(provides),
    )


def a_sample(points, edges=None, seed=0, **fields) -> Sample:
    random = torch.Generator().manual_seed(seed)
    n = len(points)
    return Sample(
        points=points,
        values=torch.rand(n, 1, generator=random, dtype=points.dtype),
        queries=points,
        targets=torch.rand(1, n, 2, generator=random, dtype=points.dtype),
        edges=edges,
        **fields,
    )


def build(config=SMALL, spec=None) -> MeshGraphNet:
    torch.manual_seed(0)
    return MeshGraphNet(config, spec or a_spec()).double()


def rows(network, x: np.ndarray) -> np.ndarray:
    """A network of linear layers, ReLU and LayerNorm, by its weights alone."""
    weights = {k: v.detach().numpy() for k, v in network.named_parameters()}
    numbers = sorted({int(k.split(".")[1]) for k in weights})
    for count, i in enumerate(numbers):
        w, b = weights[f"layers.{i}.weight"], weights[f"layers.{i}.bias"]
        if w.ndim == 1:
            x = x - x.mean(-1, keepdims=True)
            return x / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b
        x = (x if count == 0 else np.maximum(x, 0)) @ w.T + b
    return x


def test_messages_on_three_nodes_are_those_of_a_hand_computation():
    """0 - 1 - 2, across the seam of a periodic axis."""
    spec = a_spec(periods=(2.0, None), parameters=("p",))
    model = build(SMALL, spec)
    model.edge_length.fill_(0.25)
    for p in model.parameters():  # a LayerNorm that is not trivial
        p.data += 0.1 * torch.rand_like(p)
    points = torch.tensor([[0.1, 0.2], [1.9, 0.5], [1.2, 0.9]]).double()
    sample = a_sample(points, torch.tensor([[0, 1], [1, 2]]), parameters=torch.rand(1).double())
    got = model(collate([sample]))[0, 0].detach().numpy()

    x, (a,), p = points.numpy(), sample.values.numpy().T, sample.parameters.numpy()
    v = np.array(
        [
            [
                a[i],
                p[0],
                x[i, 1] * 2 - 1,
                np.sin(np.pi * (x[i, 0] - 1)),
                np.cos(np.pi * (x[i, 0] - 1)),
            ]
            for i in range(3)
        ]
    )
    v = rows(model.encode_nodes, v)
    ways = {(1, 0): (-0.1, 0.3), (0, 1): (0.1, -0.3), (2, 1): (-0.35, 0.4), (1, 2): (0.35, -0.4)}
    e = {
        pair: rows(model.encode_edges, np.array([*way, np.hypot(*way)]) / 0.25)
        for pair, way in ways.items()
    }
    for step in model.messages:
        new = {(j, i): rows(step.edge, np.concatenate([e[j, i], v[j], v[i]])) for j, i in e}
        heard = [sum(m for (_, end), m in new.items() if end == i) for i in range(3)]
        v = v + np.stack([rows(step.node, np.concatenate([v[i], heard[i]])) for i in range(3)])
        e = {pair: e[pair] + new[pair] for pair in e}
    np.testing.assert_allclose(got, rows(model.decode, v), atol=1e-12)


def test_the_published_size_has_the_published_parameters():
    w, steps = 128, 15
    plain = [w * w + w] * 2
    encoders = [(1 + 2) * w + w, (2 + 1) * w + w, *plain, *plain, 2 * w, 2 * w]
    step = [3 * w * w + w, *plain, 2 * w, 2 * w * w + w, *plain, 2 * w]
    decoder = [*plain, 2 * w + 2]
    expected = sum(encoders) + steps * sum(step) + sum(decoder)
    assert parameter_count(MeshGraphNet(Config(), a_spec())) == expected
    assert round(expected / 1e6, 1) == 2.3


def test_renumbering_the_nodes_renumbers_the_answer():
    torch.manual_seed(1)
    points, n = torch.rand(8, 2).double(), 8
    edges = torch.stack([torch.arange(n), (torch.arange(n) * 3 + 1) % n])
    sample = a_sample(points, edges)
    order = torch.randperm(n)
    place = order.argsort()
    other = dataclasses.replace(
        sample,
        points=points[order],
        queries=points[order],
        values=sample.values[order],
        edges=place[edges],
    )
    model = build()
    got, expected = model(collate([other])), model(collate([sample]))[:, :, order]
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def on_a_grid(shape, samples=2) -> list[Sample]:
    lines = [torch.arange(n).double() / n for n in shape]
    mesh = torch.cartesian_prod(*lines) * torch.tensor([2.0, 1.0])
    return [a_sample(mesh, seed=i, grid=shape, query_grid=shape) for i in range(samples)]


@pytest.mark.parametrize("periods", [(None, None), (2.0, None), (2.0, 1.0)])
def test_a_grid_is_the_mesh_of_its_edges(periods):
    """Two ways to sum messages, the same answer."""
    spec = a_spec(periods=periods)
    model, samples = build(SMALL, spec), on_a_grid((4, 5))
    index, real = grid_neighbours((4, 5), spec.wraps, torch.device("cpu"))
    nodes = torch.arange(20).view(1, -1, 1).expand_as(index)
    real = torch.ones_like(index, dtype=torch.bool) if real is None else real
    edges = torch.stack([index[real], nodes[real]])
    meshes = [dataclasses.replace(s, grid=None, query_grid=None, edges=edges) for s in samples]
    assert [model.edges_from(s) for s in (samples[0], meshes[0])] == ["grid", "mesh"]
    got, expected = model(collate(meshes)), model(collate(samples))
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def test_without_positions_a_torus_has_no_centre():
    spec = a_spec(periods=(2.0, 1.0))
    samples = on_a_grid((5, 6))
    batch = collate(samples)
    moved = dataclasses.replace(
        batch, values=batch.values.view(2, 5, 6, 1).roll((2, 3), (1, 2)).view(2, 30, 1)
    )
    for positions in (False, True):
        model = build(dataclasses.replace(SMALL, positions=positions), spec)
        expected = model(batch).view(2, 5, 6, 2).roll((2, 3), (1, 2)).reshape(2, 1, 30, 2)
        same = torch.allclose(model(moved), expected, atol=1e-10)
        assert same is not positions


def test_a_step_reaches_one_neighbour_farther():
    line = torch.stack([torch.linspace(0, 2, 9), torch.zeros(9)], -1).double()
    chain = torch.stack([torch.arange(8), torch.arange(1, 9)])
    batch = collate([a_sample(line, chain)])
    values = batch.values.clone().requires_grad_()
    model = build(dataclasses.replace(SMALL, layers=3))
    model(dataclasses.replace(batch, values=values))[0, 0, 4].square().sum().backward()
    assert (values.grad.flatten() != 0).tolist() == [1 <= i <= 7 for i in range(9)]


def test_recomputing_changes_no_gradient():
    batch = collate(on_a_grid((4, 5)))
    grads = []
    for recompute in (False, True):
        model = build(dataclasses.replace(SMALL, recompute=recompute))
        model(batch).square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_a_sample_that_is_all_padding_is_answered_by_numbers():
    torch.manual_seed(0)
    batch = Batch(
        points=torch.rand(2, 4, 2).double(),
        values=torch.rand(2, 4, 1).double(),
        queries=torch.rand(2, 4, 2).double(),
        point_mask=torch.tensor([[True] * 4, [False] * 4]),
    )
    for edges in ("nearest", "radius"):
        model = build(dataclasses.replace(SMALL, edges=edges, radius=0.5))
        points = batch.points.clone().requires_grad_()
        out = model(dataclasses.replace(batch, points=points))
        out.square().sum().backward()
        assert out.isfinite().all()
        assert points.grad.isfinite().all()


def test_edges_are_measured_once_on_the_first_data_and_stored():
    coarse, fine = (Stacked(collate(on_a_grid((n, n)))) for n in (4, 8))
    model = build(SMALL, a_spec(periods=(2.0, 1.0)))
    model.examine(coarse)
    # Four of eight neighbours are 1/4 of the box away, and four as far along both axes.
    expected = torch.tensor([(0.5 * (1 / 16 + 2 / 16)) ** 0.5]).double()
    torch.testing.assert_close(model.edge_length, expected)
    model.examine(fine)
    torch.testing.assert_close(model.edge_length, expected)
    other = build(SMALL, a_spec(periods=(2.0, 1.0)))
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.edge_length, expected)


def test_nodes_without_an_edge_are_named():
    torch.manual_seed(0)
    points = torch.rand(20, 2)
    joined = [i for i in range(20) if i not in (4, 17, 18, 19)]
    bad = torch.tensor([joined[:-1], joined[1:]])
    good = torch.stack([torch.arange(19), torch.arange(1, 20)])
    data = Ragged([a_sample(points, e) for e in (good, good, good, bad)])
    with pytest.raises(DataError, match="sample 3: nodes 4, 17 and 2 more have no edge"):
        build().examine(data)
    build().examine(data.select([0, 1, 2]))
    alone = torch.cat([good[:, :-1], torch.tensor([[3], [3]])], 1)
    with pytest.raises(DataError, match="sample 0: node 19 has no edge"):
        build().examine(Ragged([a_sample(points, alone)]))


def test_samples_of_one_size_are_looked_at_too():
    torch.manual_seed(0)
    clouds = [a_sample(torch.rand(6, 2)) for _ in range(3)]
    clouds[2].points[4] = clouds[2].points[1]
    with pytest.raises(DataError, match="sample 2: nodes 1, 4 have the place of another"):
        build().examine(Stacked(collate(clouds)))


def test_a_mesh_without_edges_is_named():
    torch.manual_seed(0)
    good, none = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.zeros(2, 0).long()
    data = Ragged([a_sample(torch.rand(4, 2), e) for e in (good, none)])
    with pytest.raises(DataError, match="sample 1: its mesh has no edges"):
        build().examine(data)


def test_points_at_one_place_are_named_where_the_nearest_are_joined():
    torch.manual_seed(0)
    points = torch.rand(9, 2)
    points[7] = points[2]
    edges = torch.stack([torch.arange(8), torch.arange(1, 9)])
    for kind in ("nearest", "radius"):
        model = build(dataclasses.replace(SMALL, edges=kind, radius=2.0))
        with pytest.raises(DataError, match="sample 1: nodes 2, 7 have the place of another"):
            model.examine(Ragged([a_sample(torch.rand(5, 2)), a_sample(points)]))
    build().examine(Ragged([a_sample(points, edges)]))


def test_a_radius_that_leaves_nodes_alone_is_named():
    points = torch.tensor([[0.0, 0.0], [0.2, 0.0], [1.6, 0.5], [1.8, 0.5], [1.0, 1.0]])
    model = build(dataclasses.replace(SMALL, edges="radius", radius=0.11))
    with pytest.raises(DataError, match=r"sample 0: node 4 has no edge\. .* model\.radius=0\.11"):
        model.examine(Ragged([a_sample(points)]))
    build(dataclasses.replace(SMALL, edges="radius", radius=0.7)).examine(
        Ragged([a_sample(points)])
    )


def test_a_single_node_is_no_graph():
    with pytest.raises(DataError, match=r"sample 0: node 0 has no edge\. A graph takes two"):
        build().examine(Ragged([a_sample(torch.rand(1, 2))]))


@pytest.mark.parametrize(("edges", "need"), [("mesh", Need.EDGES), ("grid", Need.GRID)])
def test_edges_that_a_problem_does_not_have_are_refused(edges, need):
    config = dataclasses.replace(SMALL, edges=edges)
    with pytest.raises(Unsupported, match=f"MeshGraphNet with model.edges={edges} needs"):
        build(config)
    model = build(config, a_spec(provides=(Need.SAME_POINTS, need)))
    with pytest.raises(DataError, match="this batch has none"):
        model(collate([a_sample(torch.rand(5, 2).double())]))
    with pytest.raises(Unsupported, match=need.value):
        model.examine(Ragged([a_sample(torch.rand(5, 2))]))


@pytest.mark.parametrize("name", ["width", "layers", "hidden", "neighbours", "radius"])
def test_sizes_that_make_no_sense_are_refused(name):
    zero = type(getattr(SMALL, name))(0)
    with pytest.raises(Unsupported, match=f"model.{name} must be positive, got 0"):
        dataclasses.replace(SMALL, **{name: zero})


def test_a_node_must_know_something():
    with pytest.raises(Unsupported, match="nothing to start from"):
        build(dataclasses.replace(SMALL, positions=False), a_spec(inputs=()))
