"""What all runs of the campaign add up to, in `results/campaign.json`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaign.runner import Tally, verdict_names

LEDGER = Path(__file__).parents[1] / "results" / "campaign.json"


def read(file: Path = LEDGER) -> list[dict[str, Any]]:
    """All runs so far."""
    return json.loads(file.read_text()) if file.exists() else []


def next_case(runs: list[dict[str, Any]], seed: int, attack: str) -> int:
    """Where a seed goes on with an attack."""
    done = [
        r["attacks"][attack]["last"] for r in runs if r["seed"] == seed if attack in r["attacks"]
    ]
    return max(done, default=0)


def add(seed: int, tallies: list[Tally], file: Path = LEDGER) -> None:
    """Write one more run down."""
    if not any(t.tried for t in tallies):
        return
    import torch

    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m campaign", *_without_folders(sys.argv[1:])]),
        "seed": seed,
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {_processor()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "attacks": {
            t.attack: {
                "counted": t.counted,
                "first": t.first,
                "last": t.last,
                "seconds": round(t.seconds, 1),
                "slowest": round(t.slowest, 2),
                **{name: t.verdicts[name] for name in verdict_names() if t.verdicts[name]},
                **({"tried again": t.again} if t.again else {}),
                **({"left out": t.left_out} if t.left_out else {}),
            }
            for t in tallies
            if t.tried
        },
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps([*read(file), record], indent=1) + "\n")
    os.replace(temporary, file)


def table(
    rows: list[tuple[str, str, Counter[str]]], left_out: Mapping[str, dict[str, str]] | None = None
) -> str:
    """A table in Markdown: attack, what was counted, and how the cases ended.

    Under it stands what was `left_out`, by the names of the attacks.
    """
    names = verdict_names()
    lines = [
        f"| attack | tried | {' | '.join(names)} |",
        "|---|" + "--:|" * (len(names) + 1),
    ]
    for attack, counted, verdicts in rows:
        cells = " | ".join(f"{verdicts[name]:,}" for name in names)
        lines.append(f"| {attack} ({counted}) | {sum(verdicts.values()):,} | {cells} |")
    for attack, names_and_reasons in (left_out or {}).items():
        for reason in dict.fromkeys(names_and_reasons.values()):
            without = ", ".join(n for n, why in names_and_reasons.items() if why == reason)
            lines += ["", f"{attack}: left out here: {without} ({reason})"]
    return "\n".join(lines)


def with_seed(runs: list[dict[str, Any]], seed: int | None) -> list[dict[str, Any]]:
    """The runs with a seed; all of them where none is named."""
    return [run for run in runs if seed is None or run["seed"] == seed]


def summed(runs: list[dict[str, Any]]) -> list[tuple[str, str, Counter[str]]]:
    """The rows of all runs together, and behind them the sum of each thing that is counted."""
    rows: dict[str, Counter[str]] = {}
    counted: dict[str, str] = {}
    for run in runs:
        for attack, result in run["attacks"].items():
            counted[attack] = result["counted"]
            verdicts = rows.setdefault(attack, Counter())
            verdicts.update({name: result.get(name, 0) for name in verdict_names()})
    totals: dict[str, Counter[str]] = {}
    for attack, verdicts in rows.items():
        totals.setdefault(counted[attack], Counter()).update(verdicts)
    return [
        *((attack, counted[attack], rows[attack]) for attack in sorted(rows)),
        *(("all", what, verdicts) for what, verdicts in sorted(totals.items())),
    ]


def _without_folders(words: Sequence[str]) -> list[str]:
    """The arguments of a run but for where it wrote, which is of one machine alone."""
    places = {"--ledger", "--found"}
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if not {before, word} & places]


def _commit() -> str:
    """The commit, with a plus where files were changed since; a copy without git is told it."""
    if told := os.environ.get("CAMPAIGN_COMMIT"):
        return told
    root = Path(__file__).parents[1]
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=7"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.rpartition("-g")[2] or said


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
