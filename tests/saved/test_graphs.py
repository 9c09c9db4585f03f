"""Graphs in files answer as their models do at any sizes, called as is said beside them."""

import json
import os
import zipfile

import numpy as np
import pytest
import torch

from ipot.data.layout import Layout
from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._wrappers import wrap
from ipot.models.base import OneStep
from ipot.samples import Batch
from ipot.saved import export as exporting
from ipot.saved.export import export
from ipot.saved.graph import Plain, Signature, trace
from ipot.saved.graph_files import read_onnx
from ipot.surrogate.surrogate import Surrogate
from saved.small import facts, model

pytestmark = pytest.mark.compile

ROLLING = facts(parameters=("p",), steps=2, dt=0.5, units=("K", "m"))
GLOBE = facts(
    inputs=(), parameters=("p", "q"), geographic=True, domain=((0.0, 360.0), (-90.0, 90.0))
)
ORIGIN = (5e6 + 1 / 3, 4e5)
"""Far away on a map, where float32 tells no points apart that are closer than half a metre."""


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


@pytest.fixture(scope="session")
def rolled(made_once):
    """A folder with a rollout of two steps with a parameter, in both formats from one graph."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    def make(folder):
        traced = {}

        def once_for_both(plain, signature, trace=exporting.trace):
            if "program" not in traced:
                traced["program"] = trace(plain, signature)
            return traced["program"]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exporting, "trace", once_for_both)
            for kind in ("pt2", "onnx"):
                path = folder / f"model.{kind}"
                found = export(model(ROLLING), ROLLING, path, format=kind, origin=ORIGIN)
                (folder / f"{kind}.summary").write_text(json.dumps(found))

    return made_once("graphs of tests.saved", make)


# The last is more than a CPU takes at once by itself.
SIZES = [(1, 1, 1), (3, 1, 40), (1, 700, 1), (5, 33, 800), (1, 70_000, 2)]


def test_torch_answers_as_the_model_at_any_sizes(rolled):
    graph, network = torch.export.load(rolled / "model.pt2").module(), model(ROLLING)
    for sizes in SIZES:
        question, given = batch(ROLLING, *sizes)
        agree(graph(*given.values()), network(question))


def test_onnxruntime_answers_as_the_model_at_any_sizes(rolled):
    import onnxruntime

    session, network = onnxruntime.InferenceSession(rolled / "model.onnx"), model(ROLLING)
    for sizes in SIZES:
        question, given = batch(ROLLING, *sizes)
        found = session.run(["fields"], {name: t.numpy() for name, t in given.items()})[0]
        agree(torch.from_numpy(found), network(question))


def test_a_transformer_of_parameters_alone_on_the_globe():
    network, signature = model(GLOBE, "transformer").requires_grad_(False), Signature(GLOBE)
    graph = trace(Plain(network, GLOBE, signature), signature).module()
    for b, m in ((1, 1), (3, 500)):
        given = batch(GLOBE, b, 0, m)[1]
        given["queries"] = 90 * given["queries"]  # degrees
        agree(graph(given["queries"], given["parameters"]), network(Batch(**given)))


LINE = facts(domain=((0.0, 1.0),), parameters=("p",))
FEW = [(1, 1, 1), (2, 3, 5), (1, 700, 30)]
"""Also fewer inputs than an answer of a relay wants to hear."""


def relay():
    network = model(LINE, "relay").requires_grad_(False)
    network.measure(torch.linspace(0, 1, 12)[:, None])
    return network, Signature(LINE)


def test_a_relay_searches_for_neighbours_at_any_sizes():
    network, signature = relay()
    graph = trace(Plain(network, LINE, signature), signature).module()
    for sizes in FEW:
        question, given = batch(LINE, *sizes)
        agree(graph(*given.values()), network(question))


def test_a_lattice_hears_inputs_at_any_sizes():
    for spec in (LINE, facts(history=1, steps=2, outputs=("u",), inputs=("u(t)", "b"))):
        network, signature = model(spec, "lattice").requires_grad_(False), Signature(spec)
        graph = trace(Plain(network, spec, signature), signature).module()
        for sizes in [*FEW, (2, 3000, 1)]:
            question, given = batch(spec, *sizes)
            agree(graph(*given.values()), network(question))


@pytest.mark.slow
def test_a_lattice_in_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network = model(LINE, "lattice").requires_grad_(False)
    export(network, LINE, tmp_path / "model.onnx", format="onnx")
    graph = read_onnx(tmp_path / "model.onnx")
    for sizes in FEW:
        question, given = batch(LINE, *sizes)
        agree(graph(given), network(question), 3e-5)


@pytest.mark.slow
def test_a_relay_in_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network, _ = relay()
    export(network, LINE, tmp_path / "model.onnx", format="onnx")
    graph = read_onnx(tmp_path / "model.onnx")
    for sizes in FEW:
        question, given = batch(LINE, *sizes)
        agree(graph(given), network(question), 3e-5)


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_the_lines_that_say_how_to_call_it_give_the_answer_of_the_model(rolled, monkeypatch, kind):
    """From coordinates of the user's own, far from zero."""
    layout = Layout(origin=ORIGIN, timed=True, times=(0.5, 1.0))
    fitted = Surrogate(model(ROLLING), model(ROLLING).config, ROLLING, layout)
    random = np.random.default_rng(0)
    given = {
        "points": random.random((2, 30, 2)) + ORIGIN,
        "values": random.random((2, 30, 2)),
        "queries": random.random((2, 20, 2)) + ORIGIN,
        "parameters": random.random((2, 1)),
    }
    truth = fitted.predict(**given)
    facts_ = json.loads((rolled / f"model.{kind}.json").read_text())
    named = dict(given) if kind == "onnx" else {n: torch.tensor(v) for n, v in given.items()}
    monkeypatch.chdir(rolled)
    exec("\n".join(facts_["call"]), named)
    agree(torch.as_tensor(named["fields"]), torch.from_numpy(truth))
    assert facts_["origin"] == list(ORIGIN)
    assert "origin" in facts_["coordinates"]


def test_what_is_said_beside_the_file_is_true(rolled):
    said = json.loads((rolled / "model.onnx.json").read_text())
    assert [i["name"] for i in said["inputs"]] == ["points", "values", "queries", "parameters"]
    assert said["inputs"][1]["shape"] == ["batch", "points", 2]
    assert said["output"]["shape"] == ["batch", 2, "queries", 2]
    assert said["output"]["units"] == {"u": "K", "v": "m"}
    assert said["times"] == [0.5, 1.0]
    for kind in ("onnx", "pt2"):
        summary = json.loads((rolled / f"{kind}.summary").read_text())
        assert summary["bytes"] == (rolled / f"model.{kind}").stat().st_size
        assert summary["combinations"] == 10
        assert 0 <= summary["difference"] <= 1e-5


def test_axes_have_names_and_paths_of_this_machine_stay_here(rolled):
    import onnxruntime

    session = onnxruntime.InferenceSession(rolled / "model.onnx")
    shapes = {i.name: i.shape for i in (*session.get_inputs(), *session.get_outputs())}
    assert shapes == {
        "points": ["batch", "points", 2],
        "values": ["batch", "points", 2],
        "queries": ["batch", "queries", 2],
        "parameters": ["batch", 1],
        "fields": ["batch", 2, "queries", 2],
    }
    here = os.path.dirname(exporting.__file__).encode()
    assert here not in (rolled / "model.onnx").read_bytes()
    with zipfile.ZipFile(rolled / "model.pt2") as archive:
        assert not any(here in archive.read(name) for name in archive.namelist())


class Asks(OneStep):
    """Its answer takes a look at its inputs, so that no graph can be made of it."""

    def __init__(self, spec):
        super().__init__(None, spec)
        self.weight = torch.nn.Parameter(torch.ones(len(spec.outputs)))

    def advance(self, batch):
        factor = 2 if float(batch.values.sum()) > 0 else 3
        return factor * self.weight.expand(batch.size, batch.queries.shape[-2], -1)


def test_a_model_that_cannot_be_traced_is_refused_by_name(tmp_path):
    network = wrap(Asks(facts()), Statistics.identity(2, 2))
    with pytest.raises(Unsupported, match=r"test_graphs\.Asks cannot be exported: torch"):
        export(network, facts(), tmp_path / "model.pt2", format="pt2")
    assert os.listdir(tmp_path) == []
