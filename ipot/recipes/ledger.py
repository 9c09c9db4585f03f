"""The ledger: one record a run, in a JSON file that tables of results are made from.

A record says how a run was made (command, commit, machine, torch, every setting), what it cost
(seconds, GiB), and its numbers: the validation error that chose its weights, its errors on the test
split by how the test data were seen, and the curve of validation errors over seconds. A run is
known by its settings and its result, so recording it again adds to its record. Every record is
sealed by a hash of its content: one that was edited is refused by name.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ipot import files, lock, safe_read
from ipot.errors import RunError
from ipot.recipes.running import ended
from ipot.run_folder import Run
from ipot.training import journal
from ipot.training.trainer import Result
from ipot.version import __version__

Record = dict[str, Any]
SEAL = "seal"
"""The entry of a record that has the hash of the others."""
AS_TRAINED = "test data as in training"
"""The name of the plain test error; see `studies.Question.describe`."""


def record_of(
    folder: Path | str, *, command: str | None = None, tests: dict[str, float] | None = None
) -> Record:
    """The record of a run that has ended.

    `tests` are errors on the test split by how its data were seen, in words.
    """
    run = Run(Path(folder))
    config, result = run.config(), ended(run)
    if result is None:
        raise RunError(f"{folder} has not ended: a record is of a whole run. Resume it first.")
    where = config.get("environment")
    where = where if isinstance(where, dict) else {}
    curve = [
        [round(row["seconds"], 2), float(f"{row['validation']:.5g}")]
        for row in journal.read(run.metrics)
        if row.get("validation") is not None and row.get("seconds") is not None
    ]
    return {
        "id": _id(run, result),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "commit": commit(),
        "machine": where.get("gpu") or f"{os.cpu_count()} cores, {platform.machine()}",
        "torch": where.get("torch"),
        "problem": config.get("problem"),
        "data": config.get("data"),
        "model": config.get("model"),
        "preset": config.get("preset"),
        "training": config.get("training"),
        "seed": (config.get("training") or {}).get("seed"),
        "validation": result.best_validation,
        "tests": dict(tests or {}),
        "loss": result.loss,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "seconds": round(result.seconds, 2),
        "setup_seconds": round(result.setup_seconds, 2),
        "gib": result.peak_gib,
        "precision": result.precision,
        "curve": curve,
    }


def add(file: Path | str, records: Iterable[Record], *, replacing: bool = False) -> None:
    """Add records. A run that is there already keeps its command and commit and gains tests, or is
    replaced if that is asked for."""
    file = Path(file)
    with lock.locked(file.parent, "writing a ledger", wait=True, patience=60.0):
        kept = {record["id"]: record for record in read(file)}
        for record in records:
            if (before := kept.get(record["id"])) and not replacing:
                first = {k: v for k, v in before.items() if v is not None}
                record = record | first | {"tests": before.get("tests", {}) | record["tests"]}
            kept[record["id"]] = sealed(record)
        # A line for each run: a change of one is a change of one line.
        lines = ",\n".join(json.dumps(record, sort_keys=True) for record in kept.values())
        try:
            files.write_text(file, f"[\n{lines}\n]\n")
        except OSError as error:
            raise RunError(f"cannot write {file}: {error.strerror or error}") from error


def read(file: Path | str) -> list[Record]:
    """All runs so far, in the order in which they were written down; none without a file."""
    advice = "Put a whole ledger back, or name another file."
    try:
        content = safe_read.read_json(Path(file), advice=advice)
    except FileNotFoundError:
        return []
    if not isinstance(content, list) or not all(
        isinstance(r, dict) and isinstance(r.get("id"), str) and isinstance(r.get("tests"), dict)
        for r in content
    ):
        raise RunError(f"{file} is no ledger: a list of records with id and tests. {advice}")
    for record in content:
        if SEAL in record and sealed(record) != record:
            raise RunError(
                f"{file}: the record {record['id']} was edited after it was written. Put back what "
                "was written, or remove the record and run again what it is of."
            )
    return content


def sealed(record: Record) -> Record:
    """The record with a hash of its content."""
    content = {name: value for name, value in record.items() if name != SEAL}
    told = json.dumps(content, sort_keys=True)
    return content | {SEAL: hashlib.sha256(told.encode()).hexdigest()[:16]}


def commit() -> str:
    """The commit of this package's source: $IPOT_COMMIT, or what git says, or the version."""
    if given := os.environ.get("IPOT_COMMIT"):
        return given
    root = Path(__file__).parents[2]
    try:
        said = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return f"version {__version__}"
    return said.stdout.strip()


def _id(run: Run, result: Result) -> str:
    """A name that only this run has: of its settings and of how it ended, to the microsecond."""
    told = json.dumps([run.config(), asdict(result)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]
