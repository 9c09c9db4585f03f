from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ipot.errors import DataError, RunError
from ipot.report import plots
from ipot.report.cases import case
from ipot.report.style import Sheet, error_scale, scale_of
from ipot.report.views import view
from ipot.samples import Sample
from ipot.spec import Spec

PLANE = Spec(
    name="darcy",
    inputs=("permeability",),
    outputs=("pressure",),
    domain=((0.0, 1.0), (0.0, 1.0)),
    units=("Pa",),
)
LINE = Spec(name="burgers", inputs=("u(0)",), outputs=("u(1)",), domain=((0.0, 1.0),))


def lattice(n: int, m: int) -> Tensor:
    axes = torch.linspace(0, 1, n), torch.linspace(0, 1, m)
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, 2)


def grid_sample(n: int = 12, times: int = 1) -> tuple[Sample, Tensor]:
    points = lattice(n, n)
    field = 2.0 + torch.sin(3 * points[:, :1]) * points[:, 1:]
    targets = torch.stack([field * (1 + t) for t in range(times)])
    sample = Sample(
        points=points,
        values=field + 1,
        queries=points,
        targets=targets,
        times=tuple(float(t + 1) for t in range(times)),
        grid=(n, n),
        query_grid=(n, n),
    )
    return sample, 1.1 * targets


def cloud_sample(n: int = 700) -> tuple[Sample, Tensor]:
    points = torch.rand(n, 2, generator=torch.Generator().manual_seed(0))
    field = 1 + points[:, :1]
    sample = Sample(points=points[:60], values=field[:60], queries=points, targets=field[None])
    return sample, 1.1 * field[None]


def line_sample(n: int = 50, times: int = 1) -> tuple[Sample, Tensor]:
    x = torch.rand(n, 1, generator=torch.Generator().manual_seed(0))
    targets = torch.stack([torch.sin(6 * x + t) for t in range(times)])
    moments = tuple(float(t + 1) for t in range(times))
    sample = Sample(points=x, values=torch.cos(x), queries=x, targets=targets, times=moments)
    return sample, 1.1 * targets


def panels(figure) -> list:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def bars(figure) -> list:
    return [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]


def titles(figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in panels(figure)]


def limits(axes) -> tuple[float, float]:
    artist = (axes.images or axes.collections)[0]
    return artist.get_clim()


def image(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())


def overlaps(figure) -> Iterator[tuple[str, str]]:
    """Texts of a drawn figure that lie over each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    # Ticks outside the limits keep labels that are never drawn.
    undrawn = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    shown = [
        (text.get_text(), text.get_window_extent(renderer))
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in undrawn
    ]
    for i, (one, a) in enumerate(shown):
        for other, b in shown[:i]:
            wide = min(a.x1, b.x1) - max(a.x0, b.x0)
            tall = min(a.y1, b.y1) - max(a.y0, b.y0)
            if wide > 2 and tall > 2 and (one, round(a.x0)) != (other, round(b.x0)):
                yield one, other


def test_matplotlib_loads_late_and_pyplot_never(tmp_path: Path) -> None:
    code = """
import sys
import ipot.report.plots as plots
assert "matplotlib" not in sys.modules, "imported too early"
figure = plots.curve({"a": ([1, 2], [1, 2])}, xlabel="", ylabel="")
plots.save(figure, sys.argv[1])
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules, "pyplot was touched"
"""
    command = [sys.executable, "-c", code, str(tmp_path / "picture.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "picture.png").exists()


@pytest.mark.parametrize("make", [grid_sample, cloud_sample])
def test_fields_in_the_plane(make) -> None:
    sample, prediction = make()
    figure = plots.fields(sample, prediction, spec=PLANE, title="Case 1")
    assert len(panels(figure)) == 4
    assert len(bars(figure)) == 3
    names = titles(figure)
    assert names[0].startswith("input")
    assert names[1:3] == ["truth", "prediction"]
    assert "10.0 %" in names[3]
    _, truth, answer, error = panels(figure)
    assert limits(truth) == limits(answer)
    assert limits(truth) == pytest.approx(
        (sample.targets.min().item(), sample.targets.max().item())
    )
    assert limits(error)[0] == 0
    assert any("Pa" in bar.get_ylabel() for bar in bars(figure))
    for bar, panel in zip(bars(figure)[1:], (answer, error), strict=True):
        assert bar.get_position().height == pytest.approx(panel.get_position().height)
    assert not list(overlaps(figure))


def test_a_grid_is_shown_at_its_coordinates() -> None:
    sample, prediction = grid_sample(9)
    _, truth, _, _ = panels(plots.fields(sample, prediction, spec=PLANE))
    # An image has rows of y; the first axis of the grid runs along x.
    assert np.allclose(image(truth), sample.targets[0, :, 0].reshape(9, 9).T.numpy())
    assert truth.images[0].get_extent() == pytest.approx((-1 / 16, 17 / 16, -1 / 16, 17 / 16))
    turned = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    index = torch.arange(81).reshape(9, 9)[turned].reshape(-1)
    shuffled = replace(sample.take_queries(index), query_grid=(9, 9))
    _, again, _, _ = panels(plots.fields(shuffled, prediction[:, index], spec=PLANE))
    assert np.allclose(image(again), image(truth))


def test_scattered_points_keep_the_holes_of_the_domain() -> None:
    points = lattice(40, 40)
    points = points[(points - 0.5).norm(dim=1) > 0.25]
    field = points[:, :1]
    sample = Sample(points=points, values=field, queries=points, targets=field[None])
    _, truth, _, _ = panels(plots.fields(sample, field[None], spec=PLANE))
    shown = image(truth)
    height, width = shown.shape
    masked = np.ma.getmaskarray(np.ma.masked_invalid(truth.images[0].get_array()))
    assert masked[height // 2, width // 2]
    assert not masked[5, 5]
    assert masked.mean() == pytest.approx(np.pi * 0.25**2, rel=0.2)


def test_fields_on_a_line() -> None:
    sample, prediction = line_sample()
    figure = plots.fields(sample, prediction, spec=LINE)
    assert len(figure.axes) == 3
    _, both, error = figure.axes
    truth, answer = both.lines
    assert np.all(np.diff(truth.get_xdata()) >= 0)
    assert np.allclose(answer.get_ydata(), 1.1 * truth.get_ydata())
    expected = np.abs(answer.get_ydata() - truth.get_ydata())
    assert np.allclose(error.lines[0].get_ydata(), expected)
    assert "10.0 %" in error.get_title(loc="left")
    assert not list(overlaps(figure))


@pytest.mark.parametrize(
    ("make", "spec"), [(grid_sample, PLANE), (cloud_sample, PLANE), (line_sample, LINE)]
)
def test_fields_without_targets(make, spec: Spec) -> None:
    sample, prediction = make()
    figure = plots.fields(replace(sample, targets=None), prediction, spec=spec)
    names = titles(figure)
    assert len(names) == 2
    assert names[0].startswith("input")
    assert names[1] == "prediction"


def test_wide_domains_go_two_by_two() -> None:
    sample, prediction = grid_sample()
    stretch = torch.tensor([4.0, 1.0])
    wide = replace(sample, points=sample.points * stretch, queries=sample.queries * stretch)
    figure = plots.fields(wide, prediction, spec=PLANE)
    assert len({round(axes.get_position().y0, 3) for axes in panels(figure)}) == 2
    box = panels(figure)[1].get_window_extent()
    assert box.width / box.height == pytest.approx(1 / 0.28, rel=0.01)


def test_channel_and_time_choose_what_is_shown() -> None:
    sample, _ = grid_sample(times=3)
    values = torch.stack([sample.values[:, 0] * k for k in range(4)], dim=1)
    targets = torch.cat([sample.targets, -sample.targets], dim=-1)
    spec = replace(
        PLANE, inputs=("a(-1)", "b(-1)", "a(0)", "b(0)"), outputs=("a", "b"), history=2, units=()
    )
    item = case(
        replace(sample, values=values, targets=targets), targets, spec=spec, channel=1, time=1
    )
    assert item.label == "b"
    assert item.value_label == "b(0)"
    assert item.when == "t = 2"
    assert np.allclose(item.truth, targets[1, :, 1].numpy())
    assert np.allclose(item.values, values[:, 3].numpy())


def test_parameters_alone_are_listed() -> None:
    sample, prediction = grid_sample()
    spec = replace(PLANE, inputs=(), parameters=("Reynolds",))
    bare = replace(
        sample,
        points=torch.zeros(0, 2),
        values=torch.zeros(0, 0),
        grid=None,
        parameters=torch.tensor([10000.0]),
    )
    figure = plots.fields(bare, prediction, spec=spec)
    assert [text.get_text() for text in figure.axes[0].texts] == ["Reynolds = 10000"]


def test_points_without_values_are_still_shown() -> None:
    sample, prediction = grid_sample()
    bare = replace(sample, values=torch.zeros(144, 0))
    figure = plots.fields(bare, prediction, spec=replace(PLANE, inputs=()))
    assert len(panels(figure)[0].collections[0].get_offsets()) == 144
    assert len(bars(figure)) == 2


def test_unit_vectors_become_a_map() -> None:
    latitude = torch.linspace(90, -90, 7).deg2rad()
    longitude = torch.arange(12) * (2 * torch.pi / 12)
    lat, lon = torch.meshgrid(latitude, longitude, indexing="ij")
    vectors = torch.stack([lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()], dim=-1)
    seen = view(vectors.reshape(-1, 3).double().numpy(), (7, 12))
    assert seen.kind == "grid"
    assert seen.labels == ("longitude (°)", "latitude (°)")
    assert np.allclose(seen.x, np.arange(12) * 30, atol=1e-3)
    assert np.allclose(seen.y, np.linspace(-90, 90, 7), atol=0.05)
    rows = seen.pick(lat.reshape(-1).numpy()).reshape(7, 12)
    assert np.all(np.diff(rows[:, 0]) > 0)


def test_three_coordinates_are_projected_and_said_so() -> None:
    points = torch.rand(600, 3, generator=torch.Generator().manual_seed(0))
    assert "first 2 of 3" in view(points.numpy()).note
    block = torch.cartesian_prod(*(torch.linspace(0, 1, n) for n in (4, 3, 2)))
    seen = view(block.numpy(), (4, 3, 2))
    assert seen.note == "slice z = 1"
    assert np.all(seen.pick(block[:, 2].numpy()) == 1)


def test_rollout_of_a_plane() -> None:
    sample, prediction = grid_sample(times=9)
    figure = plots.rollout(sample, prediction, spec=PLANE, frames=4)
    assert len(panels(figure)) == 12
    assert len(bars(figure)) == 2
    assert titles(figure)[:4] == ["t = 1", "t = 4", "t = 6", "t = 9"]
    assert len({limits(axes) for axes in panels(figure)[:8]}) == 1
    assert len({limits(axes) for axes in panels(figure)[8:]}) == 1
    assert not list(overlaps(figure))
    free = plots.rollout(replace(sample, targets=None), prediction, spec=PLANE, frames=4)
    assert len(panels(free)) == 4
    last = plots.rollout(sample, prediction, spec=PLANE, frames=1)
    assert titles(last)[0] == "t = 9"


def test_rollout_of_a_line_is_space_and_time() -> None:
    sample, prediction = line_sample(times=6)
    figure = plots.rollout(sample, prediction, spec=LINE)
    truth, answer, _ = panels(figure)
    assert (truth.get_xlabel(), truth.get_ylabel()) == ("x", "t")
    assert limits(truth) == limits(answer)
    order = torch.argsort(sample.queries[:, 0])
    shown = np.asarray(truth.collections[0].get_array()).reshape(6, -1)
    assert np.allclose(shown, sample.targets[:, order, 0].numpy())


def test_bars_stand_at_their_points_and_markers_at_the_edge_are_whole() -> None:
    bars = {"ipot": [(0.005, 0.02), (0.04, 0.9)]}
    figure = plots.curve({"ipot": ([1, 0.1], [0.01, 0.05])}, xlabel="", ylabel="", bars=bars)
    (axes,) = figure.axes
    (lines,) = axes.collections
    drawn = [segment.tolist() for segment in lines.get_segments()]
    assert drawn == [[[0.1, 0.04], [0.1, 0.9]], [[1.0, 0.005], [1.0, 0.02]]]
    low, high = axes.get_ylim()
    assert low < 0.005
    assert high > 0.9
    assert not axes.lines[0].get_clip_on()


def test_an_error_of_zero_leaves_the_sheet_on_no_side() -> None:
    """A log axis has no place for it; unclipped, the line would run out of the picture."""
    figure = plots.curve({"a": ([1, 2, 3], [0.1, 0.0, 0.2])}, xlabel="", ylabel="")
    assert np.isnan(figure.axes[0].lines[0].get_ydata()).tolist() == [False, True, False]


@pytest.mark.parametrize(("right", "clipped"), [(1.0, False), (0.5, True)])
def test_dots_at_the_frame_are_whole_unless_a_panel_shows_a_part(right, clipped) -> None:
    places = np.array([[0.0, 0.0], [1.0, 1.0], [0.2, 0.7]])
    axes = Sheet(3.0, 3.0).axes(0.5, 0.5, 2.0, 2.0)
    axes.set(xlim=(0, right), ylim=(0, 1))
    seen = view(places)
    seen.paint(axes, np.arange(3.0), scale_of([np.arange(3.0)]))
    seen.paint_places(axes)
    assert [dots.get_clip_on() for dots in axes.collections] == [clipped, clipped]


def test_curve_has_series_and_references() -> None:
    series = {"ipot": ([1, 0.1, 0.5], [0.01, 0.05, 0.02]), "fno": ([1], [0.03])}
    figure = plots.curve(
        series, xlabel="fraction", ylabel="error", logx=True, reference={"mean field": 0.4}
    )
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.lines[0].get_xdata().tolist() == [0.1, 0.5, 1]
    assert axes.lines[0].get_ydata().tolist() == [0.05, 0.02, 0.01]
    assert [text.get_text() for text in axes.texts] == ["mean field"]
    assert axes.get_ylim()[1] > 0.4
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["ipot", "fno"]
    with pytest.raises(DataError, match="2 positions and 1 values"):
        plots.curve({"a": ([1, 2], [1])}, xlabel="", ylabel="")
    with pytest.raises(DataError, match="at least one series"):
        plots.curve({}, xlabel="", ylabel="")


def test_training_marks_the_best_validation() -> None:
    rows = [{"epoch": e, "step": 9 * e, "loss": 1 / e, "learning_rate": 1e-3} for e in range(1, 6)]
    rows[1]["validation"], rows[3]["validation"], rows[4]["validation"] = 0.5, 0.25, 0.3
    figure = plots.training(rows)
    losses, rate = figure.axes
    assert losses.get_yscale() == "log"
    assert rate.get_ylabel() == "learning rate"
    assert losses.lines[1].get_xdata().tolist() == [2, 4, 5]
    legend = [text.get_text() for text in losses.get_legend().get_texts()]
    assert "best validation 0.25, epoch 4" in legend
    assert not list(overlaps(figure))


def test_training_counts_steps_within_an_epoch() -> None:
    rows = [{"epoch": 1, "step": s, "loss": 1.0 / s} for s in (10, 20, 30)]
    figure = plots.training(rows)
    assert len(figure.axes) == 1
    assert figure.axes[0].get_xlabel() == "step"
    with pytest.raises(DataError, match="no metrics"):
        plots.training([])


def test_a_row_that_only_adds_a_validation_is_part_of_the_one_before():
    """A run that its clock ends just behind an epoch's row writes that epoch twice."""
    row = {"epoch": 1, "step": 10, "loss": 1.0, "learning_rate": 1e-3}
    rows = [row | {"validation": 0.9}, row | {"epoch": 2, "step": 20, "loss": 0.5}]
    figure = plots.training([*rows, rows[1] | {"validation": 0.4}])
    loss, validation = figure.axes[0].get_lines()[:2]
    assert loss.get_ydata().tolist() == [1.0, 0.5]
    assert validation.get_ydata().tolist() == [0.9, 0.4]
    with pytest.raises(DataError, match="its own `epoch` or `step`"):
        plots.training([{"epoch": 1, "loss": 1.0}, {"epoch": 1, "loss": 2.0}])


def test_overview_of_a_plane() -> None:
    sample, prediction = grid_sample()
    some = sample.take_points(torch.arange(0, 144, 5))
    rows = [("all sensors", sample, prediction), ("some sensors", some, 0.7 * sample.targets)]
    panel = {"series": {"ipot": ([1, 0.2], [0.1, 0.3])}, "reference": {"mean field": 0.9}}
    figure = plots.overview(rows, spec=PLANE, curve_panel=panel, title="Darcy")
    cells = panels(figure)[:8]
    assert len(panels(figure)) == 9
    assert len(bars(figure)) == 3
    assert titles(figure)[:4] == ["input", "truth", "prediction", "absolute error"]
    assert len({limits(cells[i]) for i in (1, 2, 5, 6)}) == 1
    assert limits(cells[3]) == limits(cells[7])
    notes = [text.get_text() for axes in cells for text in axes.texts]
    assert {"144 points", "29 points", "144 queries"} <= set(notes)
    assert [n.split("$")[-1].strip() for n in notes if "L^2" in n] == ["10.0 %", "30.0 %"]
    assert not list(overlaps(figure))
    assert len(panels(plots.overview(rows, spec=PLANE))) == 8


def test_overview_of_lines_and_without_targets() -> None:
    sample, prediction = line_sample()
    figure = plots.overview([("one", sample, prediction), ("two", sample, prediction)], spec=LINE)
    assert len(figure.axes) == 6
    assert figure.axes[1].get_ylim() == figure.axes[4].get_ylim()
    assert not list(overlaps(figure))
    plane, answer = grid_sample()
    free = plots.overview([("one", replace(plane, targets=None), answer)], spec=PLANE)
    assert titles(free) == ["input", "prediction"]
    with pytest.raises(DataError, match="at least one row"):
        plots.overview([], spec=PLANE)
    with pytest.raises(DataError, match="all in a plane"):
        plots.overview(
            [("one", plane, answer), ("two", *line_sample())],
            spec=PLANE,
        )


def test_what_does_not_belong_is_refused() -> None:
    sample, prediction = grid_sample()
    with pytest.raises(DataError, match=r"must be \(T, M, K\) = \(1, 144, 1\)"):
        plots.fields(sample, prediction[:, :-1], spec=PLANE)
    with pytest.raises(DataError, match="no output channel 1"):
        plots.fields(sample, prediction, spec=PLANE, channel=1)
    with pytest.raises(DataError, match="no time 3"):
        plots.fields(sample, prediction, spec=PLANE, time=3)
    with pytest.raises(DataError, match="at least one frame"):
        plots.rollout(sample, prediction, spec=PLANE, frames=0)


def test_colours_follow_the_sign_of_a_field() -> None:
    signed = scale_of([np.array([-1.0, 3.0])])
    assert (signed.cmap, signed.low, signed.high) == ("RdBu_r", -3.0, 3.0)
    positive = scale_of([np.array([-0.01, 3.0, np.nan])])
    assert (positive.cmap, positive.low, positive.high) == ("viridis", -0.01, 3.0)
    flat = scale_of([np.full(3, 5.0)])
    assert flat.low < 5.0 < flat.high
    assert positive.extend(np.array([0.0, 4.0])) == "max"
    assert error_scale([np.zeros(4)]).high == 1.0


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<")]
)
def test_save_by_suffix_makes_folders(tmp_path: Path, suffix: str, magic: bytes) -> None:
    figure = plots.curve({"a": ([1, 2], [1, 2])}, xlabel="x", ylabel="y")
    path = tmp_path / "new" / f"picture.{suffix}"
    assert plots.save(figure, path) == path
    assert path.read_bytes().startswith(magic)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    first = path.read_bytes()
    plots.save(figure, str(path))
    assert path.read_bytes() == first


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    figure = plots.curve({"a": ([1, 2], [1, 2])}, xlabel="x", ylabel="y")

    def half(target: Path, **options: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", half)
    with pytest.raises(RunError, match="No space left"):
        plots.save(figure, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["picture.png"]


def test_save_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    figure = plots.curve({"a": ([1, 2], [1, 2])}, xlabel="x", ylabel="y")
    with pytest.raises(RunError, match=r"\.png, \.pdf, \.svg"):
        plots.save(figure, tmp_path / "picture.bmp")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the picture"):
        plots.save(figure, tmp_path / "file" / "picture.png")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
