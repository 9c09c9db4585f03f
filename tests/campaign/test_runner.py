"""The campaign itself: every way in which a case can end is told apart, kept and made small."""

import json
import os
import re
import sys
import time
from collections import Counter

import pytest

from campaign import __main__ as command
from campaign import ledger, runner, worker
from campaign.attack import MIB, Attack, Lost, Verdict, all_attacks, nth_case
from ipot.errors import DataError

pytestmark = pytest.mark.plain  # the shape checker has nothing to check in the campaign


class Fake(Attack):
    """Does what the case says."""

    name = "fake"
    counted = "fakes"
    seconds = 1.0
    memory = 64 * MIB

    def draw(self, random):
        return {"do": random.choice(["nothing", "refuse"]), "changes": [1, 2, 3, 4, 5, 6]}

    def run(self, case, place):
        assert not list(place.scratch.iterdir())
        (place.scratch / "left").mkdir()
        if 4 not in case["changes"]:
            return None
        match case["do"]:
            case "refuse":
                raise DataError("not this")
            case "lose":
                raise Lost("gone")
            case "raise":
                raise ZeroDivisionError
            case "hang":
                time.sleep(60)
            case "die":
                os.abort()
            case "take":
                bytearray(128 * MIB)
            case "need":
                bytearray(128 * MIB)
                return 128 * MIB
        return None


@pytest.mark.parametrize(
    ("do", "verdict"),
    [
        ("nothing", Verdict.SURVIVED),
        ("refuse", Verdict.REFUSED),
        ("lose", Verdict.LOST),
        ("raise", Verdict.FOREIGN),
        ("hang", Verdict.HUNG),
        ("die", Verdict.CRASHED),
        ("take", Verdict.MEMORY),
        ("need", Verdict.SURVIVED),
    ],
)
def test_every_end_is_told_apart(do, verdict, monkeypatch):
    monkeypatch.setattr(worker, "AGAIN", 1.0)
    assert runner.replay(Fake(), {"do": do, "changes": [4]}).verdict is verdict


def test_a_case_that_is_late_once_does_not_count_as_hung(tmp_path):
    """Others may have had the processor."""

    class Late(Fake):
        def run(self, case, place):
            seen = place.shared / str(case["number"])
            if case["do"] == "hang" and not seen.exists():
                seen.touch()
                time.sleep(60)

    cases = [(i, {"do": do, "number": i}) for i, do in enumerate(["nothing", "hang", "nothing"])]
    found = list(runner.outcomes(Late(), cases, tmp_path))
    assert [(o.index, o.verdict.value) for o in found] == [(i, "survived") for i in range(3)]
    assert [o.again for o in found] == [False, True, False]
    tally = runner.Tally("late", "fakes", 0)
    for outcome in found:
        tally.add(outcome)
    ledger.add(3, [tally], tmp_path / "ledger.json")
    assert ledger.read(tmp_path / "ledger.json")[0]["attacks"]["late"]["tried again"] == 1


def test_cases_behind_one_that_dies_are_tried(tmp_path):
    ends = ["nothing", "die", "refuse", "die", "nothing"]
    cases = [(i, {"do": do, "changes": [4]}) for i, do in enumerate(ends)]
    found = list(runner.outcomes(Fake(), cases, tmp_path))
    assert [o.index for o in found] == [0, 1, 2, 3, 4]
    assert [o.verdict.value for o in found] == [
        *("survived", "crashed", "refused", "crashed", "survived"),
    ]


def test_a_finding_is_made_small_and_kept(tmp_path):
    class Losing(Fake):
        def draw(self, random):
            return super().draw(random) | {"do": "lose"}

    tally = runner.run_attack(Losing(), 1, seconds=60, most=5, found=tmp_path)
    assert tally.verdicts == Counter(lost=5)
    (file,) = tmp_path.glob("*.json")  # five of one kind, and all are the same when small
    content = json.loads(file.read_text())
    assert content["attack"] == "fake"
    assert content["case"] == {"do": "lose", "changes": [4]}


def test_the_same_seed_draws_the_same_cases_and_goes_on(tmp_path, monkeypatch):
    words = ["campaign", "--only", "fake", "--ledger", "/home/me/l.json", "--found", "/tmp/f"]
    monkeypatch.setattr(sys, "argv", words)
    assert nth_case(Fake(), 3, 7) == nth_case(Fake(), 3, 7)
    drawn = [nth_case(Fake(), 3, i)["do"] for i in range(20)]
    assert len(set(drawn)) == 2
    file = tmp_path / "ledger.json"
    for count in (5, 7):
        start = ledger.next_case(ledger.read(file), 3, "fake")
        tally = runner.run_attack(Fake(), 3, seconds=60, first=start, most=count, found=tmp_path)
        ledger.add(3, [tally], file)
    one, two = (r["attacks"]["fake"] for r in ledger.read(file))
    assert one["first"] == 0
    assert two["first"] == one["last"] >= 5
    assert ledger.next_case(ledger.read(file), 4, "fake") == 0  # another seed starts anew
    # A command stands in the ledger without the folders of the machine it ran on.
    assert [r["command"] for r in ledger.read(file)] == ["python -m campaign --only fake"] * 2
    *_, (attack, counted, verdicts) = ledger.summed(ledger.read(file))
    assert (attack, counted, sum(verdicts.values())) == ("all", "fakes", 12)
    assert "| fake (fakes) | 12 |" in ledger.table(ledger.summed(ledger.read(file)))


def test_processes_side_by_side_try_every_case_once(tmp_path):
    tally = runner.run_attack(Fake(), 5, seconds=60, most=3 * runner.CHUNK, jobs=2, found=tmp_path)
    assert tally.tried == 3 * runner.CHUNK
    drawn = Counter(nth_case(Fake(), 5, i)["do"] for i in range(3 * runner.CHUNK))
    assert tally.verdicts == Counter(survived=drawn["nothing"], refused=drawn["refuse"])


def test_the_clock_ends_it(tmp_path):
    class Slow(Fake):
        def run(self, case, place):
            time.sleep(0.1)

    tally = runner.run_attack(Slow(), 1, seconds=2, found=tmp_path)
    assert 1 <= tally.tried < runner.CHUNK


def test_an_attack_that_cannot_be_prepared_is_an_error(tmp_path):
    class Unready(Fake):
        def prepare(self, shared):
            raise OSError("no disk")

    with pytest.raises(RuntimeError, match="no disk"):
        runner.run_attack(Unready(), 1, seconds=1, found=tmp_path)


@pytest.mark.parametrize("attack", all_attacks().values(), ids=lambda attack: attack.name)
def test_cases_are_plain(attack):
    for index in range(50):
        case = nth_case(attack, 1, index)
        assert json.loads(json.dumps(case)) == case


def test_what_is_left_out_stands_in_the_table_and_in_the_ledger(tmp_path, monkeypatch, capsys):
    class Partly(Fake):
        def left_out(self):
            return {"grib 1": "cfgrib: not installed", "grib 2": "cfgrib: not installed"}

    class Long(Fake):
        name = "long"
        least = 1e6

    monkeypatch.setattr(command, "all_attacks", lambda: {"fake": Partly(), "long": Long()})
    options = ["--seed", "1", "--cases", "2", "--jobs", "1", "--ledger", str(tmp_path / "runs")]
    monkeypatch.setattr("sys.argv", ["campaign", *options, "--found", str(tmp_path)])
    assert command.main() == 0
    said = capsys.readouterr().out
    assert "\nfake: left out here: grib 1, grib 2 (cfgrib: not installed)\n" in said
    assert "long: not in 150 s: it takes 1e+06 at least" in said
    (run,) = ledger.read(tmp_path / "runs")
    assert list(run["attacks"]) == ["fake"]
    assert set(run["attacks"]["fake"]["left out"]) == {"grib 1", "grib 2"}
    assert ledger.summed([run])[0][2]["survived"] + ledger.summed([run])[0][2]["refused"] == 2


def test_names_of_attacks_are_unique():
    attacks = all_attacks()
    assert all(name == attack.name for name, attack in attacks.items())


def test_the_page_of_results_says_what_the_ledger_says():
    page = (ledger.LEDGER.parents[1] / "docs" / "results.md").read_text()
    found = re.findall(r"<!-- campaign --seed (\d+) -->\n\n(.*?)\n\n<!-- end -->", page, re.DOTALL)
    assert found
    for seed, table in found:
        runs = ledger.with_seed(ledger.read(), int(seed))
        assert table == ledger.table(ledger.summed(runs)), (
            f"write it again: python -m campaign --table --seed {seed}"
        )
