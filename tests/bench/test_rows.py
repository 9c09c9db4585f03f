"""What a report holds."""

from __future__ import annotations

import json
import subprocess
from dataclasses import fields

import pytest

from ipot.bench import measuring, rows
from ipot.bench.counts import Work
from ipot.bench.measuring import Ceilings, Memory, Timing
from ipot.bench.rows import Report, Row
from ipot.errors import DataError, Unsupported

TOP = Ceilings(flops=1e12, bytes=1e11, dtype="float32")
TIMING = Timing(ms=2.0, low=1.5, high=2.5, best=1.0, calls=9)
MEMORY = Memory(peak=3.0, above=1.0)


def test_rates_and_shares():
    row = Row(problem="p", version="ours").timed(TIMING, MEMORY, Work(flops=4e9, bytes=6e7), TOP)
    assert (row.ms, row.low_ms, row.high_ms, row.calls) == (2.0, 1.5, 2.5, 9)
    assert (row.peak_gib, row.above_gib) == (3.0, 1.0)
    assert row.flops_per_second == pytest.approx(2e12)
    assert row.of_flops == pytest.approx(2.0)
    assert row.bytes_per_second == pytest.approx(3e10)
    assert row.of_bytes == pytest.approx(0.3)
    unknown = row.timed(TIMING, MEMORY, Work(flops=None, bytes=1.0), TOP)
    assert unknown.flops_per_second is unknown.of_flops is None
    assert unknown.of_bytes is not None


def test_ratios_are_times_over_ours():
    made = [Row(problem="p", version=v, ms=ms) for v, ms in (("plain", 6.0), ("ours", 2.0))]
    made.append(Row(problem="p", version="fno", reason="no"))
    assert [row.ratio for row in rows.with_ratios(made)] == [3.0, 1.0, None]
    assert [row.ratio for row in rows.with_ratios(made[:1])] == [None]


def test_geometric_mean():
    assert rows.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert rows.geometric_mean([]) is None


def test_a_report_as_json():
    row = Row(problem="p", version="ours", notes=("a",))
    report = Report(task="train", command="c", device="cpu", ceilings=TOP, rows=[row])
    found = json.loads(json.dumps(report.as_dict()))
    assert set(found) == {
        *("format", "task", "command", "device", "ceilings", "rows", "summary"),
        *("machine", "commit"),
    }
    assert found["format"] == 1
    assert set(found["rows"][0]) == {f.name for f in fields(Row)}
    assert found["ceilings"] == {"flops": 1e12, "bytes": 1e11, "dtype": "float32"}
    assert {"torch", "python", "gpu", "threads", "processor", "cuda"} <= set(found["machine"])


def git(folder, *words):
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_the_code_and_of_nothing_around_it(tmp_path, monkeypatch):
    code = tmp_path / "package" / "rows.py"
    code.parent.mkdir()
    code.write_text("1")
    monkeypatch.setattr(rows, "__file__", str(code))
    assert rows.commit() is None
    git(tmp_path, "init", "-q")
    (tmp_path / "other").write_text("1")
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "-qm", "other")
    assert rows.commit() is None
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-qm", "package")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert rows.commit() == head
    (tmp_path / "other").write_text("2")
    assert rows.commit() == f"{head} with changes"


def test_no_git_no_commit(monkeypatch):
    def fail(*args, **keys):
        raise FileNotFoundError("git")

    monkeypatch.setattr(rows.subprocess, "run", fail)
    assert rows.commit() is None


def test_terms_that_make_no_sense():
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(DataError, match="--seconds must be positive"):
            measuring.Terms.of("cpu", seconds)
    with pytest.raises(Unsupported, match="unknown device"):
        measuring.check_device("gpu0")
    with pytest.raises(DataError, match="only cpu and cuda"):
        measuring.check_device("meta")


def test_terms_measure_ceilings(monkeypatch):
    said = []
    monkeypatch.setattr(measuring, "measure_ceilings", lambda device, seconds: TOP)
    found = measuring.Terms.of("cpu", 3.0, said.append)
    assert (found.device.type, found.seconds, found.top) == ("cpu", 3.0, TOP)
    assert said == ["ceilings: a large copy, a large product"]
