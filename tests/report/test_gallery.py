"""The gallery: what each kind of sample is shown as."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot.errors import DataError
from ipot.report.gallery import WING, gallery, tiles
from ipot.report.style import save
from ipot.samples import Sample
from ipot.spec import Spec


def grid(*counts: int) -> torch.Tensor:
    lines = [torch.linspace(0, 1, n) for n in counts]
    return torch.cartesian_prod(*lines).reshape(-1, len(counts))


def sample(points, channels=1, outputs=1, times=(1.0,), shape=None, factor=1.0) -> Sample:
    field = factor * (1 + points.sum(1, keepdim=True))
    steps = torch.arange(1, len(times) + 1).reshape(-1, 1, 1)
    return Sample(
        points=points,
        values=field * torch.arange(1, channels + 1),
        queries=points,
        targets=field * steps * torch.arange(1, outputs + 1),
        times=times,
        grid=shape,
        query_grid=shape,
    )


def spec(dimension=2, inputs=("a",), outputs=("u",), **facts) -> Spec:
    return Spec(
        name="toy", inputs=inputs, outputs=outputs, domain=((0.0, 1.0),) * dimension, **facts
    )


def panels(figure):
    """The axes that are no colour bars, and the bars."""
    bars = [a for a in figure.axes if a.get_label() == "<colorbar>"]
    return [a for a in figure.axes if a not in bars], bars


def titles(figure) -> list[str]:
    return [a.get_title(loc="left") for a in panels(figure)[0] if a.get_title(loc="left")]


def test_a_row_for_each_sample_and_one_bar_for_each_quantity():
    rows = [sample(grid(6, 6), shape=(6, 6), factor=f) for f in (1.0, 2.0, 3.0)]
    rows = [replace(row, values=10 * row.values) for row in rows]
    axes, bars = panels(gallery(rows, spec(), "toy"))
    assert len(axes) == 6
    assert len(bars) == 2
    images = [a.images[0] for a in axes]
    assert {image.get_clim() for image in images[::2]} == {(10.0, 90.0)}
    assert {image.get_clim() for image in images[1::2]} == {(1.0, 9.0)}


def test_colours_are_shared_by_all_times_and_by_the_past():
    names = ("w(t-1)", "w(t)")
    facts = spec(inputs=names, outputs=("w",), history=2, steps=5)
    moving = sample(grid(5, 5), 2, times=(1.0, 2.0, 3.0, 4.0, 5.0), shape=(5, 5))
    figure = gallery([moving], facts)
    assert titles(figure) == ["w(t)", "w, t = 1", "w, t = 3", "w, t = 5"]
    axes, bars = panels(figure)
    assert len(bars) == 1
    assert len({a.images[0].get_clim() for a in axes}) == 1


def test_two_outputs_show_first_and_last_times():
    facts = spec(inputs=("h", "w"), outputs=("h", "w"), history=1, steps=4, units=("m", "1/s"))
    moving = sample(grid(5, 5), 2, 2, times=(1.0, 2.0, 3.0, 4.0), shape=(5, 5))
    shown = titles(gallery([moving], facts))
    assert shown[:4] == ["h", "w", "h (m), t = 1", "h (m), t = 4"]
    assert shown[4:] == ["w (1/s), t = 1", "w (1/s), t = 4"]


def test_lines_are_curves_on_one_scale():
    rows = [sample(grid(20), shape=(20,), factor=f) for f in (1.0, 2.0)]
    axes, bars = panels(gallery(rows, spec(1)))
    assert not bars
    assert all(len(a.lines) == 1 for a in axes)
    assert axes[0].get_ylim() == axes[2].get_ylim()
    np.testing.assert_allclose(axes[3].lines[0].get_ydata(), 2 * (1 + np.linspace(0, 1, 20)))


def test_scattered_points_are_dots():
    points = torch.rand(600, 2, generator=torch.Generator().manual_seed(0))
    axes, _ = panels(gallery([sample(points)], spec()))
    assert all(len(a.collections[0].get_offsets()) == 600 for a in axes)


def test_of_many_channels_the_last_is_shown():
    names = tuple(f"a{i}" for i in range(5))
    assert [t.title for t in tiles(sample(grid(4, 4), 5), spec(inputs=names))] == ["a4", "u"]
    assert [t.title for t in tiles(sample(grid(4, 4), 2), spec(inputs=names[:2]))] == [
        "a0",
        "a1",
        "u",
    ]


def test_the_sphere_is_a_map():
    latitude, longitude = torch.meshgrid(
        torch.linspace(1.5, -1.5, 8), torch.arange(16) * torch.pi / 8, indexing="ij"
    )
    flat = latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()
    points = torch.stack(flat, -1).reshape(-1, 3)
    axes, _ = panels(gallery([sample(points, shape=(8, 16))], spec(3)))
    assert axes[0].get_xlabel() == "longitude (°)"
    assert axes[0].get_xlim()[1] > 300
    assert axes[0].images


def test_latitude_and_longitude_are_a_map():
    points = grid(9, 18) * torch.tensor([1.0, 1.9]) - torch.tensor([0.5, 0.0])
    facts = Spec(
        name="toy",
        inputs=("T",),
        outputs=("T",),
        domain=((-0.5, 0.5), (0.0, 2.0)),
        periods=(None, 2.0),
        latlon=True,
    )
    axes, _ = panels(gallery([sample(points, shape=(9, 18))], facts))
    assert axes[0].get_xlabel() == "longitude (°)"
    assert axes[0].get_ylim() == pytest.approx((-90, 90))
    image = axes[0].images[0].get_array()
    # North is up: the value rises with latitude.
    assert image[-1, 0] > image[0, 0]


def test_a_wing_is_shown_where_its_inputs_say_the_nodes_are():
    index = grid(12, 6)
    angle, distance = 2 * torch.pi * index[:, 0], 0.3 + 3 * index[:, 1]
    place = torch.stack([0.5 + distance * angle.cos(), distance * angle.sin()], -1)
    item = replace(sample(index, shape=(12, 6)), values=place)
    facts = replace(spec(inputs=("x", "y"), outputs=("mach",)), name="airfoil")
    axes, bars = panels(gallery([item], facts))
    assert titles(gallery([item], facts)) == ["mesh", "mach"]
    assert len(bars) == 1
    assert axes[1].get_xlim() == WING[:2]
    assert axes[1].get_ylim() == WING[2:]
    assert len(axes[0].collections[0].get_segments()) == 12 + 6
    assert "QuadMesh" in type(axes[1].collections[0]).__name__


def forging(frames=6) -> tuple[Sample, Spec]:
    """A body whose first nodes lie on the right; its left side moves to the left and down."""
    queries = grid(5, 4, frames)
    moved = (1 + queries[:, 2:]) / 2 * queries[:, :1] * torch.tensor([0.3, -0.4])
    state = torch.cat([queries[:, :2] + moved, moved], 1) * torch.tensor([-1.0, 1, -1, 1])
    points = grid(5)
    item = Sample(
        points=points,
        values=points**2,
        queries=queries,
        targets=state[None],
        grid=(5,),
        query_grid=(5, 4, frames),
    )
    names = ("x", "y", "ux", "uy")
    facts = Spec(
        name="plasticity",
        inputs=("die",),
        outputs=names,
        domain=((0.0, 1.0),),
        query_domain=((0.0, 1.0),) * 3,
    )
    return item, facts


def test_a_forging_is_shown_as_it_deforms():
    item, facts = forging()
    figure = gallery([item], facts)
    assert titles(figure) == ["die", "frame 3 of 6", "frame 5 of 6", "frame 6 of 6"]
    axes, bars = panels(figure)
    assert len(bars) == 1
    mesh = axes[-1].collections[0]
    length = 0.5 * np.linspace(0, 1, 5).repeat(4)
    np.testing.assert_allclose(mesh.get_array().ravel(), length, atol=1e-6)
    corners = mesh.get_coordinates().reshape(-1, 2)
    np.testing.assert_allclose(corners.min(0), [-1.3, -0.4], atol=1e-6)
    np.testing.assert_allclose(corners.max(0), [0.0, 1.0], atol=1e-6)
    x, die = axes[0].lines[0].get_data()
    np.testing.assert_allclose(x, np.linspace(-1, 0, 5), atol=1e-6)
    np.testing.assert_allclose(die, x**2, atol=1e-6)
    with pytest.raises(DataError, match="need a grid of"):
        gallery([replace(item, query_grid=None)], facts)


def test_an_empty_gallery_is_refused():
    with pytest.raises(DataError, match="at least one sample"):
        gallery([], spec())


def test_a_picture_can_be_saved(tmp_path):
    item, facts = forging()
    assert save(gallery([item, item], facts, "forging"), tmp_path / "a.png").stat().st_size > 5000
