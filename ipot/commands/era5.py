"""`ipot era5`: what to download for the problem `era5`, and whether what came will do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ipot.commands.flags.era5 import Check
from ipot.commands.output import is_emitted, refuse_there, say
from ipot.commands.parsing import parse_with_settings
from ipot.data.landsea import PAPER_COUNTS
from ipot.data.weather import Weather, stamp
from ipot.problems.era5 import REQUEST, Era5
from ipot.recipes.experiment import experiment

PAPER_PERIOD = ("2018-01-01 00:00", "2023-03-31 00:00")


def main(arguments: list[str]) -> None:
    """Run the command."""
    path = None
    if arguments and not arguments[0].startswith("-"):
        path, arguments = Path(arguments[0]), arguments[1:]
    settings, flags = parse_with_settings(
        experiment("era5"), Check, arguments, "era5", parts=("problem",)
    )
    problem: Any = settings.problem
    path = path or (Path(problem.files) if problem.files else None)
    refuse_there(flags.out, overwrite=flags.overwrite)
    if path is None:
        _tell(flags)
        return
    facts = _facts(problem, path)
    if is_emitted(facts, flags):
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:>{width}}  {value if not isinstance(value, dict) else _inline(value)}")


def _tell(flags: Any) -> None:
    """The request on stdout, so that it can be run; what it is about beside it."""
    period = [day[:10] for day in PAPER_PERIOD]
    if is_emitted({"request": REQUEST, "period": period, "days": 1916}, flags):
        return
    say(
        "ERA5, dataset reanalysis-era5-single-levels, variable 2m_temperature (t2m), 00:00 UTC of "
        "every day\nfrom 2018-01-01 to 2023-03-31 (1916 days), 0.25 degrees, the whole globe; "
        "about 4 GB as GRIB.\nRun this program (pip install cdsapi), then `ipot era5 FOLDER`:\n"
    )
    print(REQUEST, end="")


def _facts(problem: Era5, path: Path) -> dict[str, Any]:
    """What the files hold; raises `DataError` where they will not do."""
    weather = Weather.open(path)
    first, grid = weather.parts[0], weather.grid
    times = problem.schedule(weather)
    splits = {name: len(w) for name, w in problem.windows(times).items()}
    where = problem if grid.globe or problem.area else _regional(problem, weather)
    low, high = _extremes(where, weather, times)
    period = (stamp(times[0]), stamp(times[-1]))
    facts = {
        "files": len(weather.parts),
        "variable": f"{first.array.name}, {first.array.attrs.get('long_name', 'without a name')}",
        "units": f"{first.array.attrs['units']}; read as {low:.1f} to {high:.1f} K",
        "grid": str(grid) + (" (the globe)" if grid.globe else " (a region)"),
        "seen as": " x ".join(map(str, where.shape(where.resolution)))
        + f" points every {180 / where.resolution:g} degrees",
        "frames": f"{len(times)}, every {problem.step_hours} h from {period[0]} to {period[1]}",
        "gaps": "none",
        "the paper's period": "yes" if period == PAPER_PERIOD else " to ".join(PAPER_PERIOD),
        "windows": sum(splits.values()),
        "splits": splits,
        "land and sea": _counts(where),
        "train with": _flags(where, path),
    }
    if not all(splits.values()):
        facts["splits need"] = (
            "more windows, there are too few: cut otherwise with --problem.training-windows, "
            "--problem.validation-windows, --problem.every or --problem.step-hours"
        )
    return facts


def _regional(problem: Era5, weather: Weather) -> Era5:
    """The problem on the box of the files, at their own resolution."""
    grid = weather.grid
    return replace(problem, area=grid.area, size=grid.rows, resolution=grid.rows)


def _extremes(problem: Era5, weather: Weather, times: Any) -> tuple[float, float]:
    """The coldest and the warmest value; all that the problem would use is read and checked."""
    latitudes, longitudes = (line.numpy() for line in problem.lines(problem.resolution))
    frames = weather.frames(times, latitudes, longitudes)
    return float(frames.min()), float(frames.max())


def _counts(problem: Era5) -> str:
    """Points on land and at sea, with what the paper counts on its own grid."""
    low, high = zip(*problem.domain, strict=True)
    points = problem.coordinates(problem.resolution)
    unit = (points - points.new_tensor(low)) / (points.new_tensor(high) - points.new_tensor(low))
    land = int(problem.masks["land"](unit).sum())
    text = f"{land} points of land, {len(points) - land} of sea"
    if problem.resolution == 90 and not problem.area:
        text += f" (the paper counts {PAPER_COUNTS[1]} and {PAPER_COUNTS[0]})"
    return text


def _flags(problem: Era5, path: Path) -> str:
    """The command that trains on these files."""
    text = f"ipot train era5 --problem.files {path}"
    if problem.area:
        box = " ".join(f"{x:g}" for x in problem.area)
        text += f" --problem.area {box} --problem.resolution {problem.resolution}"
        text += f" --problem.size {problem.size}" if problem.size != 720 else ""
    for name in ("hour", "step_hours", "training_windows", "validation_windows"):
        value = getattr(problem, name)
        if value != getattr(Era5, name):
            text += f" --problem.{name.replace('_', '-')} {value}"
    return text


def _inline(splits: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in splits.items())
