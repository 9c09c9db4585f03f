"""An export is checked against its model and told how to call, or is not written."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from ipot.commands import export as command
from ipot.data.layout import Layout
from ipot.data.scaling import Scaling
from ipot.errors import DataError, RunError, Unsupported
from ipot.samples import Batch
from ipot.saved import export as exporting
from ipot.saved import graph_files
from ipot.saved.export import difference, export
from ipot.saved.graph import Signature, takes_points
from ipot.spec import Need
from saved.small import BOX, facts, model

ROLLING = facts(parameters=("p",), steps=2, dt=0.5, units=("K", "m"))


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    network = model(ROLLING)

    def written(program, signature, path):
        path.write_text("a graph")

    def off(path):
        times = (0.5, 1.0)
        return lambda given: network(Batch(**given, times=times)).detach() * (1 + 1e-3)

    monkeypatch.setattr(exporting, "trace", lambda *given: None)
    monkeypatch.setattr(exporting, "write_pt2", written)
    monkeypatch.setattr(exporting, "read_pt2", off)
    path = tmp_path / "model.pt2"
    path.write_text("before")
    with pytest.raises(RunError, match=r"differs from the model by 1\.00e-03.*1e-05 is asked for"):
        export(network, ROLLING, path, format="pt2")
    assert os.listdir(tmp_path) == ["model.pt2"]
    assert path.read_text() == "before"
    export(network, ROLLING, path, format="pt2", tolerance=1e-2)
    assert path.read_text() == "a graph"


def test_structure_that_tensors_do_not_carry_is_refused_at_once(tmp_path):
    spec = facts(provides=frozenset({Need.SAME_POINTS}))
    network = model(spec, "transolver")
    with pytest.raises(Unsupported, match="transolver cannot be exported: it needs queries at"):
        export(network, spec, tmp_path / "model.pt2", format="pt2")


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("model.h5", "h5", "unknown format 'h5'; known: onnx, pt2"),
        ("model.onnx", "pt2", r"model\.onnx: a file of the format pt2 ends in \.pt2"),
        ("folder.pt2", "pt2", "is a folder"),
    ],
)
def test_names_that_will_not_do(tmp_path, name, format, message):
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises((Unsupported, RunError), match=message):
        export(model(facts()), facts(), tmp_path / name, format=format)


def test_packages_that_are_missing_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(Unsupported, match=r"onnx is not installed.*'ipot\[export\]'.*pt2"):
        export(model(facts()), facts(), tmp_path / "model.onnx", format="onnx")


def test_weights_that_one_file_cannot_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_files, "ONNX_MOST", 100)
    with pytest.raises(Unsupported, match=r"less than 2 GiB.*Export as pt2"):
        export(model(facts()), facts(), tmp_path / "model.onnx", format="onnx")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["points", "values", "queries"]),
        ({"parameters": ("p",)}, ["points", "values", "queries", "parameters"]),
        ({"inputs": ()}, ["points", "queries"]),
        ({"inputs": (), "parameters": ("p",)}, ["queries", "parameters"]),
        (
            {"inputs": (), "parameters": ("p",), "shape": (5,)},
            ["points", "queries", "parameters"],
        ),
        (
            {"inputs": (), "parameters": ("p",), "provides": frozenset({Need.SAME_POINTS})},
            ["points", "queries", "parameters"],
        ),
    ],
)
def test_what_a_model_takes(changes, names):
    spec = facts(**changes)
    assert list(Signature(spec).columns) == names
    assert takes_points(spec) == ("points" in names)
    assert list(Signature(spec, points=False).columns) == [
        n for n in names if n not in ("points", "values")
    ]


def test_the_difference_is_that_of_the_worst_channel():
    spec = facts(outputs=("small", "large"))
    network = model(spec)
    with torch.no_grad():
        network.output_scale.copy_(torch.tensor([1e-3, 1e3]))
        network.output_mean.zero_()

    def off(channel, factor):
        def answer(given):
            found = network(Batch(**given)).detach()
            found[..., channel] *= factor
            return found

        return answer

    signature = Signature(spec)
    assert difference(off(0, 1.0), network, spec, signature) < 1e-6
    assert difference(off(0, 1.01), network, spec, signature) == pytest.approx(0.01, rel=1e-3)
    assert difference(off(1, 0.98), network, spec, signature) == pytest.approx(0.02, rel=1e-3)
    assert np.isnan(difference(off(0, float("nan")), network, spec, signature))


def test_ten_sizes_are_tried_and_the_first_are_one():
    seen = []
    spec = facts()
    network = model(spec)

    def answer(given):
        seen.append((given["points"].shape[:2], given["queries"].shape[1]))
        assert all(
            low <= float(t.min()) <= float(t.max()) <= high
            for (low, high), t in zip(BOX, given["points"].unbind(-1), strict=True)
        )
        return network(Batch(**given)).detach()

    difference(answer, network, spec, Signature(spec))
    assert len(set(seen)) == len(seen) == 10
    assert seen[0] == ((1, 1), 1)
    assert {b for (b, _), _ in seen} == {1, 2, 3}


@dataclass
class Loaded:
    model: object
    spec: object
    layout: object


def test_the_command(tmp_path, monkeypatch, capsys):
    asked = {}

    def fake(network, spec, path, **named):
        asked.update(named, path=path)
        return {
            "path": str(path),
            "bytes": 2048,
            "difference": 1e-7,
            "combinations": 10,
            "facts": "f",
        }

    loaded = Loaded(model(facts()), facts(), Layout(origin=(1.0, 2.0)))
    monkeypatch.setattr(command, "load", lambda path, **options: loaded)
    monkeypatch.setattr(command, "export", fake)
    out = str(tmp_path / "m.onnx")
    command.main(["run", "--out", out])
    assert asked["format"] == "onnx"
    assert asked["origin"] == (1.0, 2.0)
    assert asked["points"] is True
    assert "2 KiB, within 1.0e-07 of the model" in capsys.readouterr().err
    command.main(["run", "--out", out, "--format", "pt2", "--tolerance", "0.1", "--json"])
    assert (asked["format"], asked["tolerance"]) == ("pt2", 0.1)
    Path(out).write_text("mine")
    with pytest.raises(DataError, match="is there already"):
        command.main(["run", "--out", out])
    command.main(["run", "--out", out, "--overwrite"])
    assert json.loads(capsys.readouterr().out)["bytes"] == 2048


@pytest.mark.parametrize(
    ("origin", "lines"),
    [((), 4), ((1.0, 2.0), 5)],
)
@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_how_to_call_it(kind, origin, lines):
    call = exporting._call(Signature(facts()), 'a "b".x', kind, origin)
    compile("\n".join(call), "call", "exec")
    assert len(call) == lines
    assert ("points - origin" in call[-1]) == bool(origin)
    assert "values - origin" not in call[-1]


def test_an_origin_of_other_coordinates_is_refused(tmp_path):
    with pytest.raises(DataError, match="origin has 3 numbers, and is taken off points of 2"):
        export(model(facts()), facts(), tmp_path / "m.pt2", format="pt2", origin=(1.0, 2.0, 3.0))


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_the_lines_change_units_there_and_back(kind):
    scalings = {"values": Scaling((1e9,), (1.0,)), "targets": Scaling((5.0,), (2.0**-900,))}
    call = exporting._call(Signature(facts()), "m.x", kind, (), scalings)
    compile("\n".join(call), "call", "exec")
    assert any("(values - values_offset) / values_scale" in line for line in call)
    assert call[-1] == "fields = fields * targets_scale + targets_offset"
    assert (
        f"targets_scale = {'numpy.array' if kind == 'onnx' else 'torch.tensor'}([{2.0**-900}"
        in ("\n".join(call))
    )
