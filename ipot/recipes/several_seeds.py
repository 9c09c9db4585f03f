"""One experiment with several training seeds: mean and spread of its errors."""

from __future__ import annotations

import math
import statistics
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipot import files
from ipot.errors import RunError, Unsupported
from ipot.lock import locked
from ipot.recipes.experiment import Experiment
from ipot.recipes.running import run
from ipot.training.distributed import first_process


def run_seeds(
    settings: Experiment, out: Path | str, seeds: list[int], **options: Any
) -> dict[str, Any]:
    """Train an experiment once for each seed; the mean and spread of its validation errors.

    A seed whose run has ended is not trained again; one that was stopped goes on.
    """
    if len(set(seeds)) != len(seeds):
        raise Unsupported(f"the same seed twice tells nothing of the spread: {seeds}")
    rows = []
    with locked(Path(out), "training several seeds") if first_process() else nullcontext():
        for seed in seeds:
            folder = Path(out) / f"seed-{seed}"
            changed = replace(settings, training=replace(settings.training, seed=seed))
            result = run(changed, folder, or_resume=True, **options)
            rows.append({"seed": seed, "best_validation": result.best_validation})
        errors = [row["best_validation"] for row in rows]
        if not all(math.isfinite(error) for error in errors):
            raise RunError(
                f"{out}: validation errors of its runs are {errors}: not all are finite. Remove "
                "the result.json of that seed, and it goes on."
            )
        summary = {
            "runs": rows,
            "mean": statistics.fmean(errors),
            "spread": statistics.stdev(errors) if len(errors) > 1 else 0.0,
        }
        if first_process():
            files.write_json(Path(out) / "seeds.json", summary)
    return summary
