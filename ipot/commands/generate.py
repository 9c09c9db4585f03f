"""`ipot generate`: fill the data folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipot.commands.common import Folder, Generation, emit
from ipot.commands.settings import parse_with_settings, split_names
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import UnknownName
from ipot.problems.base import SPLITS
from ipot.recipes.experiment import Experiment, experiment, load_data


@dataclass(kw_only=True)
class Generate:
    """Generate the data of a problem into the data folder, where they are not there yet.

    usage: ipot generate PROBLEM [flags], for instance

        ipot generate darcy --count.train 100 --resolution 141

    Data are kept under a hash of their recipe; asking for more samples, or running again after a
    crash, continues where it left off. Sample 17 is the same sample on any device.
    """

    splits: tuple[str, ...] = SPLITS
    """Which splits to generate."""
    resolution: int | None = None
    """Points a side to store; the problem's own resolution unless said."""
    data: Folder = None
    """Data folder; $IPOT_DATA or the user's cache unless said."""
    device: str = "auto"
    """auto, cpu or cuda."""
    json: bool = False
    """Print JSON: where each split lies and how large it is."""


def main(arguments: list[str]) -> None:
    """Run the command."""
    names, rest = split_names(arguments, ["problem"], "generate", Generate.__doc__)
    base = experiment(names["problem"])
    command = f"generate {names['problem']}"
    settings, flags = parse_with_settings(base, Generate, rest, command, parts=("problem", "data"))
    unknown = set(flags.splits) - set(SPLITS)
    if unknown or not flags.splits:
        raise UnknownName(f"unknown splits {sorted(unknown)}. Known: {', '.join(SPLITS)}")
    rows = [_fill(settings, split, flags) for split in flags.splits]
    if flags.json:
        emit(rows)
        return
    for row in rows:
        size = f"{row['samples']:6d} samples  {row['megabytes']:9.1f} MB"
        print(f"{row['split']:>10}  {size}  {row['folder']}")


def _fill(settings: Experiment, split: str, flags: Any) -> dict[str, Any]:
    """One split, and where it lies."""
    problem, count, store = settings.problem, getattr(settings.data, split), Store(flags.data)
    stored = problem.storage(flags.resolution, None)
    recipe = problem.recipe(split, settings.data.seed, stored)
    load_data(
        settings,
        split,
        store=store,
        device=choose(flags.device),
        report=Generation(store),
        resolution=flags.resolution,
    )
    folder = store.folder(recipe)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return {"split": split, "samples": count, "folder": str(folder), "megabytes": size / 1e6}
