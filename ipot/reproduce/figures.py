"""The figures of the paper, from runs and measurements of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ipot.bench.rows import Row
from ipot.data.store import Store
from ipot.device import choose
from ipot.evaluation.predict import predict
from ipot.recipes.running import restore
from ipot.recipes.studies import Question, seen_test_data
from ipot.report import benchmarks, plots
from ipot.report.cases import array, box_size, frame
from ipot.report.style import Figure, Sheet, look, scale_of
from ipot.report.views import view
from ipot.reproduce.items import Cell
from ipot.reproduce.records import Result
from ipot.samples import collate


def path(out: Path, cell: Cell) -> Path:
    """Where the picture of a cell lies."""
    words = f"{cell.item}-{cell.row}-{cell.column}".replace("%", "").replace("=", "")
    return out / "figures" / f"{words}.png"


def draw(
    cell: Cell, run: Path, asked: Question, file: Path, store: Store, device: str = "auto"
) -> None:
    """The first test sample, its prediction and its error, as a cell sees it."""
    place = choose(device)
    model, settings = restore(run, place)
    one = replace(asked, samples=1)
    sample = seen_test_data(settings, one, store=store, device=place)[0]
    prediction = predict(model, collate([sample]).to(place))[0].cpu()
    title = f"{cell.item}, {settings.problem_name}: {asked.describe()}"
    kind = plots.fields if cell.picture == "fields" else plots.rollout
    plots.save(kind(sample, prediction, spec=settings.spec, title=title), file)


def scaling(results: Sequence[Result], file: Path) -> bool:
    """Time and memory of all versions that were measured; False where none was."""
    rows = [
        replace(Row(**row), version=result.cell.row)
        for result in results
        for record in result.records
        for row in record["rows"]
    ]
    if not benchmarks.drawn(rows):
        return False
    plots.save(benchmarks.scaling(rows, title="figure5, inference on the grid of ERA5"), file)
    return True


def interpolated(fields: dict[str, Tensor], hidden: Tensor, file: Path) -> None:
    """Three maps: what is seen, what interpolation makes of the rest, and the truth."""
    plots.save(_three(fields, hidden), file)


def _three(fields: dict[str, Tensor], hidden: Tensor) -> Figure:
    points, truth, filled = (array(fields[k]) for k in ("points", "truth", "filled"))
    seen = ~array(hidden).astype(bool)
    scale, whole = scale_of([truth[0]]), view(points, latlon=True)
    width, height = box_size(whole.extent, 2.6, 2.0)
    panels = [
        ("inputs at sea", view(points[seen], latlon=True), truth[0][seen]),
        ("land interpolated, cubic", whole, filled[0]),
        ("truth", whole, truth[0]),
    ]
    with look():
        sheet = Sheet(0.6 + 3 * (width + 0.15) + 0.7, height + 0.95)
        painted = []
        for number, (title, seen_as, values) in enumerate(panels):
            axes = sheet.axes(0.6 + number * (width + 0.15), 0.35, width, height)
            frame(axes, whole.extent, whole.labels, x=True, y=number == 0)
            axes.set_title(title)
            painted.append(seen_as.paint(axes, values, scale, dots=number == 0))
        sheet.bar(painted[-1], (0.6 + 3 * (width + 0.15), 0.35, 0.1, height), "temperature (K)")
        return sheet.figure
