"""An exported graph answers as its model does, at any sizes, or is not written."""

import json
import os
import sys
import zipfile
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ipot.commands import export as command
from ipot.data.statistics import Statistics
from ipot.errors import RunError, Unsupported
from ipot.models._wrappers import wrap
from ipot.models.base import OneStep
from ipot.samples import Batch
from ipot.saved import export as exporting
from ipot.saved import graph_files
from ipot.saved.export import difference, export
from ipot.saved.graph import Signature, takes_points
from ipot.spec import Need
from saved.small import BOX, facts, model

ROLLING = facts(parameters=("p",), steps=2, dt=0.5, units=("K", "m"))
GLOBE = facts(outputs=("u",), geographic=True, domain=((0.0, 360.0), (-90.0, 90.0)))
ALONE = facts(inputs=(), parameters=("p", "q"))


def batch(spec, b, n, m, seed=0):
    """A question of some sizes, as a batch and as what a graph takes."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(shape, generator=random)

    given = {"points": draw(b, n, spec.dimension), "values": draw(b, n, spec.channels)}
    given["queries"] = draw(b, m, spec.query_dimension)
    if spec.parameters:
        given["parameters"] = draw(b, len(spec.parameters))
    times = tuple(spec.dt * (i + 1) for i in range(spec.steps))
    return Batch(**given, times=times), given


def agree(answer, truth, within=1e-5):
    answer, truth = answer.detach(), truth.detach()
    assert answer.shape == truth.shape
    assert float((answer - truth).abs().max()) <= within * float(truth.abs().max())


@pytest.fixture(scope="module")
def rolled(tmp_path_factory):
    """A rollout of two steps with a parameter, in torch's format."""
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    return path, export(model(ROLLING), ROLLING, path, format="pt2")


@pytest.fixture(scope="module")
def globe(tmp_path_factory):
    """A model that is asked in degrees, in ONNX."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    return path, export(model(GLOBE), GLOBE, path, format="onnx")


# The last is more than a CPU takes at once by itself.
SIZES = [(1, 1, 1), (3, 1, 40), (1, 700, 1), (5, 33, 800), (1, 70_000, 2)]


@pytest.mark.compile
def test_torch_answers_as_the_model_at_any_sizes(rolled):
    graph, network = torch.export.load(rolled[0]).module(), model(ROLLING)
    for sizes in SIZES:
        question, given = batch(ROLLING, *sizes)
        agree(graph(*given.values()), network(question))


@pytest.mark.compile
def test_onnxruntime_answers_as_the_model_at_any_sizes(globe):
    import onnxruntime

    session, network = onnxruntime.InferenceSession(globe[0]), model(GLOBE)
    for sizes in SIZES:
        given = batch(GLOBE, *sizes)[1]
        given = {name: t if name == "values" else 90 * t for name, t in given.items()}
        found = session.run(["fields"], {name: t.numpy() for name, t in given.items()})[0]
        agree(torch.from_numpy(found), network(Batch(**given)))


@pytest.mark.compile
def test_a_transformer_of_parameters_alone(tmp_path):
    network, path = model(ALONE, "transformer"), tmp_path / "model.pt2"
    assert export(network, ALONE, path, format="pt2")["inputs"] == ["queries", "parameters"]
    graph = torch.export.load(path).module()
    for b, m in ((1, 1), (3, 500)):
        question, given = batch(ALONE, b, 0, m)
        agree(graph(given["queries"], given["parameters"]), network(question))


@pytest.mark.compile
def test_what_is_said_beside_the_file_is_true(globe, rolled):
    facts_ = json.loads((globe[0].parent / "model.onnx.json").read_text())
    assert [i["name"] for i in facts_["inputs"]] == ["points", "values", "queries"]
    assert facts_["inputs"][1]["shape"] == ["batch", "points", 2]
    assert facts_["output"]["shape"] == ["batch", 1, "queries", 1]
    given = {n: t.numpy() for n, t in batch(GLOBE, 2, 3, 4)[1].items()}
    here = os.getcwd()
    os.chdir(globe[0].parent)
    try:
        exec("\n".join(facts_["call"]), given)
    finally:
        os.chdir(here)
    assert given["fields"].shape == (2, 1, 4, 1)
    facts_ = json.loads((rolled[0].parent / "model.pt2.json").read_text())
    assert facts_["output"]["units"] == {"u": "K", "v": "m"}
    assert facts_["times"] == [0.5, 1.0]
    assert len(facts_["call"]) <= 5
    assert rolled[1]["bytes"] == rolled[0].stat().st_size
    assert 0 <= rolled[1]["difference"] <= 1e-5


@pytest.mark.compile
def test_axes_have_names_and_paths_of_this_machine_stay_here(globe, rolled):
    import onnxruntime

    session = onnxruntime.InferenceSession(globe[0])
    shapes = {i.name: i.shape for i in (*session.get_inputs(), *session.get_outputs())}
    assert shapes == {
        "points": ["batch", "points", 2],
        "values": ["batch", "points", 2],
        "queries": ["batch", "queries", 2],
        "fields": ["batch", 1, "queries", 1],
    }
    here = os.path.dirname(exporting.__file__).encode()
    assert here not in globe[0].read_bytes()
    with zipfile.ZipFile(rolled[0]) as archive:
        assert not any(here in archive.read(name) for name in archive.namelist())


class Asks(OneStep):
    """Its answer takes a look at its inputs, so that no graph can be made of it."""

    def __init__(self, spec):
        super().__init__(None, spec)
        self.weight = torch.nn.Parameter(torch.ones(len(spec.outputs)))

    def advance(self, batch):
        factor = 2 if float(batch.values.sum()) > 0 else 3
        return factor * self.weight.expand(batch.size, batch.queries.shape[-2], -1)


@pytest.mark.compile
def test_a_model_that_cannot_be_traced_is_refused_by_name(tmp_path):
    network = wrap(Asks(facts()), Statistics.identity(2, 2))
    with pytest.raises(Unsupported, match=r"test_export cannot be exported: torch cannot trace"):
        export(network, facts(), tmp_path / "model.pt2", format="pt2")
    assert os.listdir(tmp_path) == []


# ---- without a graph


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

    loaded = Loaded(model(facts()), facts(), SimpleNamespace(origin=(1.0, 2.0)))
    monkeypatch.setattr(command, "load", lambda path, device: loaded)
    monkeypatch.setattr(command, "export", fake)
    out = str(tmp_path / "m.onnx")
    command.main(["run", "--output", out])
    assert asked["format"] == "onnx"
    assert asked["origin"] == (1.0, 2.0)
    assert "2 KiB, within 1.0e-07 of the model" in capsys.readouterr().err
    command.main(["run", "--output", out, "--format", "pt2", "--tolerance", "0.1", "--json"])
    assert (asked["format"], asked["tolerance"]) == ("pt2", 0.1)
    assert json.loads(capsys.readouterr().out)["bytes"] == 2048
