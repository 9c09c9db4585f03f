"""Graphs of a model's parts answer as the model, for any sizes and steps, or are refused."""

from dataclasses import replace

import pytest

from ipot.errors import RunError, Unsupported
from ipot.saved import parts
from ipot.saved.parts import read_parts, write_parts
from ipot.spec import Need
from saved.small import facts, model
from saved.test_graphs import agree, batch

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("traced_once")]

ROLLING = facts(parameters=("p",), steps=3, dt=0.5)
PAST = facts(inputs=("u0", "v0", "u1", "v1"), history=2, steps=3)
LARGE = {"width": 32, "blocks": 2}
KINDS = {
    "steady": (facts(), "ipot", LARGE, ["decode", "encode"]),
    "steps": (ROLLING, "ipot", {}, ["decode", "encode", "step"]),
    "places": (PAST, "lattice", {}, ["decode", "encode", "step"]),
    "no parts": (facts(parameters=("p",)), "transformer", {}, ["whole"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_answer_as_the_model(tmp_path, kind):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    spec, name, changes, wanted = KINDS[kind]
    network = model(spec, name, **changes)
    found = write_parts(network, spec, tmp_path)
    assert sorted(found.files) == wanted
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{part}.onnx" for part in wanted]
    assert 0 < found.difference < 1e-5
    graphs = read_parts(found.files, spec, found.states)
    for sizes in ((1, 1, 1), (2, 40, 3), (1, 5, 700)):
        question, given = batch(spec, *sizes)
        assert list(given) == list(found.inputs)
        agree(graphs(given), network(question))


def test_graphs_that_differ_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    right = parts.read_parts

    def wrong(*given):
        answer = right(*given)
        return lambda question: answer(question) * (1 + 1e-3)

    monkeypatch.setattr(parts, "read_parts", wrong)
    with pytest.raises(RunError, match=r"ipot cannot be exported: .* by 1\.00e-03.* 1e-05 is all"):
        write_parts(model(facts(), **LARGE), facts(), tmp_path)


def test_weights_are_rounded_where_that_is_near_enough(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network, sizes, gaps = model(facts(), **LARGE), {}, {}
    for name, most in (("as it is", None), ("rounded", 1e-3), ("too far", 1e-7)):
        folder = tmp_path / name
        folder.mkdir()
        found = write_parts(network, facts(), folder, rounded=most)
        assert {p.name for p in folder.iterdir()} == {"encode.onnx", "decode.onnx"}
        sizes[name] = sum(p.stat().st_size for p in found.files.values())
        gaps[name] = found.difference
        question, given = batch(facts(), 2, 40, 3)
        agree(read_parts(found.files, facts(), found.states)(given), network(question), 1e-4)
    assert sizes["rounded"] < 0.75 * sizes["as it is"]
    assert sizes["too far"] == sizes["as it is"]
    assert gaps["too far"] == gaps["as it is"] < 2e-6 < gaps["rounded"] < 1e-4


def test_weights_of_half_precision_lose_nothing(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network = model(facts(), **LARGE)
    (tmp_path / "before").mkdir()
    before = write_parts(network, facts(), tmp_path / "before")
    network = network.half().float()
    (tmp_path / "after").mkdir()
    after = write_parts(network, facts(), tmp_path / "after")
    sizes = [sum(p.stat().st_size for p in one.files.values()) for one in (before, after)]
    assert sizes[1] < 0.75 * sizes[0]
    assert after.difference < 2e-6


def test_structure_that_tensors_do_not_carry_is_refused(tmp_path):
    spec = facts(provides=frozenset({Need.SAME_POINTS}))
    with pytest.raises(Unsupported, match="transolver cannot be exported: it needs queries at"):
        write_parts(model(spec, "transolver"), spec, tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_step_is_one_graph_however_many_there_are(tmp_path):
    """What takes a graph for each step would grow with them."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    sizes = []
    for steps in (ROLLING.steps, 40):
        spec, folder = replace(ROLLING, steps=steps), tmp_path / str(steps)
        folder.mkdir()
        found = write_parts(model(spec), spec, folder)
        sizes.append(sum(p.stat().st_size for p in found.files.values()))
    assert sizes[1] < 1.01 * sizes[0]
