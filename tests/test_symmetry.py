"""Symmetries as permutations and as moves. That they solve the equations is in contracts/."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ipot import symmetry
from ipot.errors import Unsupported
from ipot.samples import Batch
from ipot.spec import Spec

SIDE = 8


def spec(name: str, rank: int = 2, periods=None) -> Spec:
    return Spec(
        name="toy",
        inputs=("a", "b"),
        outputs=("u",),
        domain=((0.0, 1.0),) * rank,
        periods=periods if periods is not None else (1.0,) * rank,
        symmetries=(name,),
    )


def grid_batch(samples: int, rank: int, *, closed: bool, sides=None) -> Batch:
    """Random fields on one shared grid: cell centres where it is closed, nodes i / n elsewhere."""
    sides = sides or (SIDE,) * rank
    lines = [(torch.arange(n).double() + 0.5 * closed) / n for n in sides]
    mesh = torch.cartesian_prod(*lines).reshape(1, -1, rank)
    random = torch.Generator().manual_seed(0)
    count = mesh.shape[1]
    return Batch(
        points=mesh,
        queries=mesh,
        values=torch.randn(samples, count, 2, generator=random).double(),
        targets=torch.randn(samples, 3, count, 1, generator=random).double(),
        times=(1.0, 2.0, 3.0),
        grid=tuple(sides),
        query_grid=tuple(sides),
    )


def scattered(batch: Batch) -> Batch:
    """The same batch without the knowledge that it is a grid."""
    return Batch(
        points=batch.points.expand(batch.size, -1, -1),
        values=batch.values,
        queries=batch.queries.expand(batch.size, -1, -1),
        targets=batch.targets,
        times=batch.times,
    )


def by_place(points: Tensor, columns: Tensor, spec: Spec) -> Tensor:
    """Rows ordered by where they lie, so that two batches can be compared as functions."""
    whole = torch.tensor([p or 2.0 for p in spec.periods], dtype=torch.float64)
    cell = torch.round(torch.remainder(points + 1e-9, whole) * 2 * SIDE * 3).long()
    key = torch.zeros_like(cell[..., 0])
    for axis in range(cell.shape[-1]):
        key = key * 1000 + cell[..., axis]
    order = key.argsort(-1)
    return columns.gather(1, order.unsqueeze(-1).expand(-1, -1, columns.shape[-1]))


def elements() -> Tensor:
    """Every combination of draws that moves a grid of SIDE nodes by whole cells."""
    line = torch.tensor([0.0, 0.125, 0.625, 0.875], dtype=torch.float64)
    return torch.cartesian_prod(*[line] * symmetry.DRAWS).unsqueeze(1)


CASES = [
    pytest.param("square", 2, True, None, None, id="square"),
    pytest.param("translation", 1, False, None, None, id="circle"),
    pytest.param("translation", 2, False, None, None, id="torus"),
    pytest.param("translation", 2, False, (1.0, None), None, id="channel"),
    pytest.param("translation", 2, False, None, (8, 4), id="oblong"),
    pytest.param("diagonal", 2, False, None, None, id="diagonal"),
    pytest.param("cell", 2, True, None, (8, 4), id="mirror"),
]


@pytest.mark.parametrize(("name", "rank", "closed", "periods", "sides"), CASES)
def test_permuting_the_rows_is_moving_the_points(name, rank, closed, periods, sides):
    facts = spec(name, rank, () if closed else periods)
    draws = elements()
    if sides and name == "translation":  # a shift by whole cells of the coarser axis
        draws = torch.tensor([0.25, 0.75, 0.5], dtype=torch.float64).view(1, 1, 3)
    batch = grid_batch(len(draws), rank, closed=closed, sides=sides)
    permuted = symmetry.apply(batch, draws, facts)
    moved = symmetry.apply(scattered(batch), draws, facts)
    assert permuted.points is batch.points
    assert permuted.grid == batch.grid
    assert moved.grid is None
    mesh = batch.points.expand(batch.size, -1, -1)
    torch.testing.assert_close(
        by_place(mesh, permuted.values, facts), by_place(moved.points, moved.values, facts)
    )
    for time in range(3):
        torch.testing.assert_close(
            by_place(mesh, permuted.targets[:, time], facts),
            by_place(moved.queries, moved.targets[:, time], facts),
        )


@pytest.mark.parametrize(("name", "count"), [("square", 8), ("diagonal", 4 * SIDE)])
def test_the_group_has_all_its_elements(name, count):
    line = (torch.arange(2 * SIDE, dtype=torch.float64) + 0.5) / (2 * SIDE)
    draws = torch.cartesian_prod(line, line[::4], line[::4]).unsqueeze(1)
    batch = grid_batch(len(draws), 2, closed=name == "square")
    numbers = torch.arange(1.0, SIDE**2 + 1, dtype=torch.float64).view(1, -1, 1)
    batch = replace(batch, values=numbers.expand(batch.size, -1, -1), targets=None)
    turned = symmetry.apply(batch, draws, spec(name)).values.squeeze(-1)
    assert (turned.abs().sort(1).values == numbers.squeeze(-1)).all()
    assert len(turned.unique(dim=0)) == count


def test_only_the_exchange_of_the_axes_changes_the_sign():
    draws = torch.tensor([[[0.0, 0.9, 0.1]], [[0.0, 0.1, 0.9]]], dtype=torch.float64)
    batch = grid_batch(2, 2, closed=False)
    same = replace(batch, values=torch.ones_like(batch.values), targets=None)
    turned = symmetry.apply(same, draws, spec("diagonal"))
    assert turned.values[0].unique().tolist() == [1.0]
    assert turned.values[1].unique().tolist() == [-1.0]
    assert turned.targets is None


def test_moved_points_stay_in_the_domain():
    draws = torch.rand(16, 1, symmetry.DRAWS, dtype=torch.float64)
    for name in set(symmetry.SYMMETRIES) - {"sphere"}:
        moved = symmetry.apply(scattered(grid_batch(16, 2, closed=False)), draws, spec(name))
        assert moved.points.min() >= 0
        assert moved.points.max() <= 1


def test_inputs_and_queries_of_different_grids_move_together():
    batch = grid_batch(1, 2, closed=False)
    coarse = batch.take_points(torch.arange(0, SIDE**2, 3))
    draws = torch.tensor([[[0.3, 0.7, 0.9]]], dtype=torch.float64)
    moved = symmetry.apply(coarse, draws, spec("diagonal"))
    torch.testing.assert_close(moved.queries[:, ::3], moved.points)


def test_moving_queries_move_too():
    batch = scattered(grid_batch(2, 2, closed=True))
    followed = replace(batch, queries=batch.queries.unsqueeze(1).expand(-1, 3, -1, -1))
    draws = torch.tensor([[[0.9, 0.1, 0.9]], [[0.1, 0.9, 0.1]]], dtype=torch.float64)
    moved = symmetry.apply(followed, draws, spec("square"))
    assert moved.queries.shape == (2, 3, SIDE**2, 2)
    for time in range(3):
        torch.testing.assert_close(moved.queries[:, time], moved.points)


@pytest.mark.parametrize(
    ("name", "sides", "message"),
    [
        ("square", (8, 4), r"square grid, got \(8, 4\)"),
        ("diagonal", (6, 6), "divisible by 4, got 6"),
    ],
)
def test_grids_that_a_symmetry_does_not_fit_are_refused(name, sides, message):
    draws = torch.zeros(1, 1, symmetry.DRAWS, dtype=torch.float64)
    with pytest.raises(Unsupported, match=message):
        symmetry.apply(grid_batch(1, 2, closed=False, sides=sides), draws, spec(name))


def named(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], rank: int = 2) -> Spec:
    return Spec(
        name="toy",
        inputs=inputs,
        outputs=outputs,
        domain=((0.0, 1.0),) * rank,
        symmetries=(name,),
    )


def test_a_mirror_turns_the_channels_that_point_along_its_axis():
    facts = named("block", ("die", "u_x"), ("x",))
    batch = grid_batch(2, 2, closed=True, sides=(3, 2))
    draws = torch.tensor([[[0.1, 0.9, 0.9]], [[0.9, 0.1, 0.1]]], dtype=torch.float64)
    turned = symmetry.apply(batch, draws, facts)
    assert torch.equal(turned.values[0], batch.values[0])
    assert torch.equal(turned.targets[0], batch.targets[0])
    rows = [4, 5, 2, 3, 0, 1]
    assert torch.equal(turned.values[1, :, 0], batch.values[1, rows, 0])
    assert torch.equal(turned.values[1, :, 1], -batch.values[1, rows, 1])
    torch.testing.assert_close(turned.targets[1], -49.3 - batch.targets[1][:, rows])


def test_a_mirror_permutes_inputs_and_queries_of_different_grids():
    facts = named("cell", ("a", "b"), ("u",))
    batch = grid_batch(1, 2, closed=True, sides=(4, 2))
    fine = grid_batch(1, 2, closed=True, sides=(8, 2))
    mixed = replace(batch, queries=fine.queries, targets=fine.targets, query_grid=(8, 2))
    draws = torch.full((1, 1, symmetry.DRAWS), 0.9, dtype=torch.float64)
    turned = symmetry.apply(mixed, draws, facts)
    assert turned.grid == (4, 2)
    assert turned.query_grid == (8, 2)
    flipped = mixed.targets.unflatten(2, (8, 2)).flip(2).flatten(2, 3)
    assert torch.equal(turned.targets, flipped)
    assert torch.equal(turned.values, mixed.values.unflatten(1, (4, 2)).flip(1).flatten(1, 2))


def sphere_batch(samples: int) -> Batch:
    """Random fields on a grid of four latitudes and eight longitudes, as unit vectors."""
    latitude = torch.tensor([1.1, 0.4, -0.4, -1.1], dtype=torch.float64)
    longitude = 2 * torch.pi * torch.arange(8, dtype=torch.float64) / 8
    lat, lon = torch.meshgrid(latitude, longitude, indexing="ij")
    mesh = torch.stack([lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()], -1)
    batch = grid_batch(samples, 2, closed=False, sides=(4, 8))
    mesh = mesh.reshape(1, -1, 3)
    return replace(batch, points=mesh, queries=mesh)


def test_turning_the_sphere_is_rolling_its_longitudes():
    facts = named("sphere", ("height(t-0)", "vorticity(t-0)"), ("vorticity",), rank=3)
    draws = elements()
    batch = sphere_batch(len(draws))
    permuted = symmetry.apply(batch, draws, facts)
    moved = symmetry.apply(scattered(batch), draws, facts)
    distance = torch.cdist(batch.points.expand(batch.size, -1, -1), moved.points)
    assert distance.amin(-1).max() < 1e-6
    nearest = distance.argmin(-1, keepdim=True)
    found = moved.values.gather(1, nearest.expand(-1, -1, 2))
    torch.testing.assert_close(permuted.values, found)
    found = moved.targets[:, 1].gather(1, nearest)
    torch.testing.assert_close(permuted.targets[:, 1], found)


def test_only_the_reflection_of_the_sphere_turns_rotation_around():
    facts = named("sphere", ("height", "vorticity"), ("vorticity",), rank=3)
    draws = torch.tensor([[[0.3, 0.1, 0.9]], [[0.0, 0.9, 0.1]]], dtype=torch.float64)
    batch = sphere_batch(2)
    same = replace(batch, values=torch.ones_like(batch.values), targets=None)
    turned = symmetry.apply(same, draws, facts)
    assert turned.values[0].unique().tolist() == [1.0]
    assert turned.values[1, :, 0].unique().tolist() == [1.0]
    assert turned.values[1, :, 1].unique().tolist() == [-1.0]


def test_draws_belong_to_the_generator_and_need_a_symmetry():
    facts = spec("square")
    first, again = (symmetry.draw(facts, 5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.shape == (5, 1, symmetry.DRAWS)
    assert torch.equal(first, again)
    none = Spec(name="toy", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),))
    with pytest.raises(Unsupported, match="toy lists no symmetry"):
        symmetry.draw(none, 5, torch.Generator())


@pytest.mark.parametrize("name", ["square", "translation", "diagonal", "wing"])
@pytest.mark.parametrize("known", [True, False])
def test_what_is_undone_is_as_it_was(name, known):
    facts, batch = spec(name), grid_batch(3, 2, closed=name == "square")
    batch = batch if known else scattered(batch)
    found = symmetry.elements(facts)
    assert len(found) == (2 if name == "wing" else 8)
    for element in found:
        draws = element.expand(3, -1, -1)
        turned = symmetry.apply(batch, draws, facts)
        assert turned.targets is not None
        back = symmetry.undo(turned.targets, batch, draws, facts)
        torch.testing.assert_close(back, batch.targets)
    assert torch.equal(
        symmetry.apply(batch, found[:1].expand(3, -1, -1), facts).values, batch.values
    )


def test_elements_of_no_symmetry_are_refused():
    with pytest.raises(Unsupported, match="toy lists no symmetry to average over"):
        symmetry.elements(replace(spec("square"), symmetries=()))
