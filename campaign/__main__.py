"""`python -m campaign`: attack the package for a while, and say what came of it.

python -m campaign --minutes 5                 a new seed, which is printed
python -m campaign --minutes 5 --seed 17       goes on where seed 17 stopped
python -m campaign --only kills --hours 1      attacks whose names begin so
python -m campaign --table                     what all runs add up to
python -m campaign --table --seed 17           what the runs with that seed add up to
python -m campaign --replay campaign/found/x.json
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path

from campaign import ledger
from campaign.attack import Attack, all_attacks
from campaign.runner import FOUND, SHRINKING, Tally, replay, run_attack


def main() -> int:
    """The command; fails where something has to be mended."""
    given = _arguments()
    if given.table:
        runs = ledger.read(given.ledger)
        print(ledger.table(ledger.summed(ledger.with_seed(runs, given.seed))))
        return 0
    attacks = all_attacks()
    if given.replay:
        return _replay(attacks, given.replay)
    chosen = _chosen(attacks, given.only)
    # Everything is imported before the first fork, and no thread has been started by then.
    _import_all()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.jobs} processes, {given.seconds / 60:g} minutes")
    runs = ledger.read(given.ledger)
    shares = sum(attack.share for attack in chosen)
    tallies: list[Tally] = []
    try:
        for attack in chosen:
            if reason := attack.possible():
                print(f"{attack.name}: not here: {reason}")
                continue
            seconds = given.seconds * attack.share / shares
            if seconds < attack.least:
                print(f"{attack.name}: not in {seconds:.0f} s: it takes {attack.least:g} at least")
                continue
            tally = run_attack(
                attack,
                seed,
                seconds=seconds,
                first=ledger.next_case(runs, seed, attack.name),
                jobs=given.jobs,
                most=given.cases,
                found=given.found,
                shrinking=given.shrink,
            )
            tallies.append(tally)
            print(f"{attack.name}: {_line(tally)}", flush=True)
    except KeyboardInterrupt:
        print("stopped; what was tried so far counts")
    finally:
        if not given.no_ledger:
            ledger.add(seed, tallies, given.ledger)
    print()
    rows = [(t.attack, t.counted, t.verdicts) for t in tallies]
    print(ledger.table(rows, {t.attack: t.left_out for t in tallies}))
    return _findings(tallies, given.found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m campaign", description="Attack ipot for a while.")
    time = parser.add_mutually_exclusive_group()
    time.add_argument("--minutes", type=float, help="how long (default: 5)")
    time.add_argument("--hours", type=float, help="how long")
    parser.add_argument("--seed", type=int, help="the same seed again goes on where it stopped")
    parser.add_argument("--only", nargs="*", default=[], help="attacks whose names begin so")
    parser.add_argument("--cases", type=int, help="at most so many of each attack")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ledger", type=Path, default=ledger.LEDGER, help="where runs add up")
    parser.add_argument("--no-ledger", action="store_true", help="write nothing down")
    parser.add_argument("--found", type=Path, default=FOUND, help="where findings are kept")
    parser.add_argument(
        "--shrink", type=float, default=SHRINKING, help="seconds for making a finding small"
    )
    parser.add_argument("--table", action="store_true", help="print what all runs add up to")
    parser.add_argument("--replay", type=Path, help="try a finding again")
    given = parser.parse_args()
    given.seconds = (given.hours * 60 if given.hours else given.minutes or 5) * 60
    return given


def _chosen(attacks: dict[str, Attack], only: list[str]) -> list[Attack]:
    chosen = [a for name, a in attacks.items() if not only or name.startswith(tuple(only))]
    if not chosen:
        sys.exit(f"no attack begins with {', '.join(only)}. There are: {', '.join(attacks)}")
    return chosen


def _import_all() -> None:
    import torch

    import ipot  # noqa: F401

    torch.set_num_threads(1)


def _replay(attacks: dict[str, Attack], file: Path) -> int:
    content = json.loads(file.read_text())
    _import_all()
    outcome = replay(attacks[content["attack"]], content["case"])
    print(f"{outcome.verdict.value}: {outcome.said}")
    return 0 if outcome.verdict.good else 1


def _line(tally: Tally) -> str:
    said = ", ".join(f"{count:,} {name}" for name, count in tally.verdicts.most_common())
    late = f"; {tally.again:,} were late and tried again" if tally.again else ""
    return f"{tally.tried:,} {tally.counted} in {tally.seconds:.0f} s: {said or 'none'}{late}"


def _findings(tallies: list[Tally], folder: Path) -> int:
    findings = [(t.attack, *f) for t in tallies for f in t.findings]
    for attack, case, outcome in findings:
        print(f"\n{attack} {outcome.verdict.value}: {outcome.said}\n  {json.dumps(case)[:400]}")
    if findings:
        print(f"\n{len(findings)} findings are kept in {folder}; see --replay")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
