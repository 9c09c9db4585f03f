"""`ipot bench` from the outside."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from ipot.bench import infer, measuring
from ipot.bench.rows import Row
from ipot.cli import main
from ipot.commands import bench

QUICK = ["--small", "--seconds", "0.001", "--device", "cpu"]


@pytest.fixture(autouse=True)
def quick_ceilings(monkeypatch):
    monkeypatch.setitem(measuring.SIZES, "cpu", (1000, 10))
    monkeypatch.setattr(
        infer, "SOME", 64
    )  # kernels for a GPU, which are interpreted here, take bf16


def measured(tmp_path, *arguments):
    file = tmp_path / "numbers.json"
    assert main(["bench", *arguments, *QUICK, "--out", str(file), "--overwrite"]) == 0
    return json.loads(file.read_text())


def test_train(tmp_path, capsys):
    flags = ["--batch", "4", "--step", "eager", "--precision", "float64"]
    found = measured(tmp_path, "train", "darcy", "burgers", *flags)
    assert found["task"] == "train"
    assert found["command"].startswith("ipot bench train darcy burgers --batch 4")
    assert found["device"] == "cpu"
    named = [(row["problem"], row["version"]) for row in found["rows"]]
    assert named == [(p, v) for p in ("darcy", "burgers") for v in ("ours", "plain")]
    for row in found["rows"]:
        assert set(row) == {f.name for f in fields(Row)}
        assert row["batch"] == 4
        assert row["precision"] == "float64"
        assert row["ms"] > 0
        assert row["of_flops"] > 0
    ratios = [row["ratio"] for row in found["rows"] if row["version"] == "plain"]
    mean = (ratios[0] * ratios[1]) ** 0.5
    assert found["summary"]["geometric_mean"] == pytest.approx(mean)
    said = capsys.readouterr()
    for part in ("train on cpu", "÷ ours", "ours: eager, float64", "geometric mean"):
        assert part in said.out
    assert "darcy: plain" in said.err
    assert "written:" in said.err


def test_train_alone(tmp_path):
    found = measured(tmp_path, "train", "darcy", "--against", "none", "--preset", "default")
    assert [row["version"] for row in found["rows"]] == ["ours"]
    assert found["rows"][0]["batch"] == 10
    assert found["summary"] == {"geometric_mean": None}


def test_train_with_uneven_sizes(tmp_path, capsys):
    flags = ["--batch", "4", "--step", "eager", "--against", "none", "--ragged", "0.5"]
    found = measured(tmp_path, "train", "burgers", *flags)
    assert [row["version"] for row in found["rows"]] == ["ours", "equal", "ragged"]
    ours, equal, ragged = found["rows"]
    assert ragged["over_equal"] == pytest.approx(ragged["ms"] / equal["ms"])
    assert ours["over_equal"] is equal["over_equal"] is None
    assert found["summary"] == {"geometric_mean": None}
    out = capsys.readouterr().out
    times = f"{ragged['over_equal']:.2f} times as long as equal ones with as many points"
    assert f"burgers: ragged batches take {times}" in out
    assert "of their rows padding" in out


@pytest.mark.parametrize(
    "words", [["burgers"], ["--problem", "burgers"], ["burgers", "--problem", "burgers"]]
)
def test_the_problem_may_be_a_word_or_a_flag(tmp_path, monkeypatch, words):
    def row(question, points):
        return Row(problem=question.problem, version="ours", points=points, ms=1.0)

    monkeypatch.setattr(
        bench.infer, "measure_inference", lambda asked, *_, **__: [row(asked, asked.points)]
    )
    monkeypatch.setattr(
        bench.scale, "measure_scaling", lambda asked, counts, *_, **__: [row(asked, counts[0])]
    )
    for task in ("infer", "scale"):
        found = measured(tmp_path, task, *words, "--preset", "default")
        assert [row["problem"] for row in found["rows"]] == ["burgers"]


def test_infer(tmp_path, capsys):
    found = measured(
        tmp_path, "infer", "--points", "3e2", "--query-points", "1e2", "--against", "plain"
    )
    rows = found["rows"]
    assert [(row["version"], row["points"], row["queries"]) for row in rows] == [
        ("ours", 300, 100),
        ("plain", 300, 100),
    ]
    assert rows[0]["difference"] < 1e-5
    assert "infer darcy on cpu" in capsys.readouterr().out


def test_infer_in_bf16(tmp_path, capsys):
    flags = ["--points", "3e2", "--batch", "2", "--precision", "bf16", "--against", "plain"]
    ours, plain = measured(tmp_path, "infer", *flags)["rows"]
    assert (ours["precision"], plain["precision"]) == ("bf16", "float32")
    assert 1e-5 < ours["difference"] < 0.1
    assert any("torch's own operators in bf16" in note for note in ours["notes"])


def test_scale(tmp_path, capsys):
    picture = tmp_path / "scaling.png"
    flags = ["--per-decade", "2", "--against", "plain", "--out", str(picture)]
    found = measured(tmp_path, "scale", "--from", "30", "--to", "300", *flags)
    assert [row["points"] for row in found["rows"]] == [30, 30, 95, 95, 300, 300]
    assert set(found["summary"]) == {"time_slope", "memory_slope", "drift"}
    assert picture.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "ours grows" in out
    assert "nothing to say of linearity" in out


def test_two_sizes_are_no_law(tmp_path, capsys):
    flags = ["--from", "30", "--to", "300", "--against", "none"]
    found = measured(tmp_path, "scale", *flags)
    assert found["summary"]["time_slope"] == found["summary"]["memory_slope"] == {"ours": None}
    out = capsys.readouterr().out
    assert "grows" not in out
    assert "no version has 3 sizes: nothing to say of how they grow" in out


def test_generate(tmp_path, capsys):
    found = measured(tmp_path, "generate", "burgers", "--count", "2")
    assert [row["kind"] for row in found["rows"]] == ["together", "one by one, cpu"]
    assert found["rows"][0]["samples_per_second"] > 0
    assert "samples/s" in capsys.readouterr().out


def test_serve(tmp_path, capsys):
    found = measured(tmp_path, "serve", "--points", "50", "--clients", "3")
    assert [row["kind"] for row in found["rows"]] == ["one client", "3 clients"]
    for row, clients, told in zip(found["rows"], (1, 3), found["summary"]["clients"], strict=True):
        assert row["ms"] > 0
        assert (row["points"], row["queries"]) == (50, 50)
        assert (told["clients"], told["answers"]) == (clients, clients)
        assert told["refused"] == told["failed"] == 0
        assert min(told["resident_bytes"]) > 1e7
    assert found["rows"][1]["ratio"] == found["rows"][1]["ms"] / found["rows"][0]["ms"]
    out = capsys.readouterr().out
    assert "÷ alone" in out
    assert "3 clients: 0 refused, 0 failed" in out


def test_a_table_of_reasons_is_a_failure(fails, monkeypatch):
    lost = [Row(problem="darcy", version="ours", reason="out of memory")]
    monkeypatch.setattr(bench.infer, "measure_inference", lambda *args, **keys: lost)
    assert "ours: out of memory" in fails("bench", "infer", "--points", "10", *QUICK)


@pytest.mark.parametrize("task", bench.TASKS)
def test_every_task_has_help(task, capsys):
    assert main(["bench", task, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"ipot bench {task}" in out
    assert "--json" in out


@pytest.fixture
def idle(monkeypatch):
    """Fail where anything is measured."""

    def fail(*args, **keys):
        raise AssertionError("work was started")

    monkeypatch.setattr(bench.Terms, "of", fail)


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(
    ("code", "said", "arguments"),
    [
        (2, "usage: ipot bench", []),
        (2, "unknown 'trian'", ["trian"]),
        (2, "unknown problem 'darci'", ["train", "darci"]),
        (2, "unknown problem 'darci'", ["train", "darcy", "darci"]),
        (2, "'default', 'paper'", ["train", "darcy", "--preset", "best"]),
        (2, "does not know the shape of sst", ["train", "sst", "--preset", "default"]),
        (2, "sst", ["train", "sst"]),
        (1, "batch must be positive", ["train", "darcy", "--batch", "0"]),
        (1, "a batch of 1001 is larger", ["train", "darcy", "--batch", "1001"]),
        (1, "--step graph needs a GPU", ["train", "darcy", "--step", "graph", "--device", "cpu"]),
        (1, "--ragged must be at least 0", ["train", "darcy", "--ragged", "1"]),
        (1, "darcy and --problem burgers", ["infer", "darcy", "--problem", "burgers"]),
        (1, "darcy and --problem burgers", ["scale", "darcy", "--problem", "burgers"]),
        (2, "unknown problem 'darci'", ["infer", "darci"]),
        (1, "--seconds must be positive", ["train", "darcy", "--seconds", "0"]),
        (1, "unknown device", ["train", "darcy", "--device", "gpu"]),
        (1, "--points must be a whole number", ["infer", "--points", "0"]),
        (1, "--points must be a whole number", ["infer", "--points", "-5"]),
        (1, "--points must be at most 1e+09", ["infer", "--points", "1e10"]),
        (1, "--batch must be at least 1", ["infer", "--batch", "0"]),
        (1, "--query-points must be a whole number", ["infer", "--query-points", "0.5"]),
        (2, "unknown version 'fnn'", ["infer", "--against", "plain", "fnn"]),
        (2, "unknown problem 'darci'", ["infer", "--problem", "darci"]),
        (1, "--from 10000 is more than", ["scale", "--from", "1e4", "--to", "1e3"]),
        (1, "must end in .png", ["scale", "--out", "a.jpeg"]),
        (1, "there is no folder", ["scale", "--out", "nowhere/a.png"]),
        (1, "there is no folder", ["infer", "--out", "nowhere/a.json"]),
        (1, "is a folder", ["infer", "--out", "."]),
        (1, "era5 is measured", ["generate", "era5"]),
        (1, "--clients must lie in 1 to 500, got 0", ["serve", "--clients", "0"]),
        (1, "--points must be a whole number", ["serve", "--points", "0"]),
        (1, "--count must lie in", ["generate", "darcy", "--count", "0"]),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(fails, code, said, arguments):
    assert said in " ".join(fails("bench", *arguments, code=code).split())


def test_all_are_those_of_the_paper():
    assert bench._problems(("all",), ["a", "b"]) == ["a", "b"]
    assert bench._problems(("b", "a", "b"), ["a", "b"]) == ["b", "a"]
