"""Parts as a folder: the lines in model.json call them in a loop, and answer as the model does."""

import json
import os

import numpy as np
import pytest
import torch
from serve.small import untrained

from ipot.data.scaling import Scaling
from ipot.errors import RunError, Unsupported
from ipot.saved import export as exporting
from ipot.saved.export import export
from ipot.saved.graph import Plain, Signature
from ipot.saved.parts_folder import FACTS, export_parts
from saved.small import facts, model
from saved.test_graphs import batch

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("traced_once")]


def called(folder, lines, given, steps):
    """What the lines answer, as they stand but for the number of steps."""
    names = {name: tensor.numpy().astype(float) for name, tensor in given.items()}
    text = "\n".join(lines)
    assert f"steps = {steps[0]}" in text
    here = os.getcwd()
    os.chdir(folder.parent)
    try:
        exec(text.replace(f"steps = {steps[0]}", f"steps = {steps[1]}"), names)
    finally:
        os.chdir(here)
    return names["fields"]


@pytest.mark.parametrize("steps", [1, 3])
def test_the_lines_answer_as_the_model(tmp_path, steps):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    spec = facts(parameters=("p",), steps=steps, dt=0.5)
    network = model(spec, "ipot")
    found = export_parts(network, spec, tmp_path / "parts")
    assert found["difference"] < 1e-5
    content = json.loads((tmp_path / "parts" / FACTS).read_text())
    question, given = batch(spec, 1, 30, 12)
    answer = called(tmp_path / "parts", content["call"], given, (steps, steps))
    wanted = network(question).detach().numpy()
    np.testing.assert_allclose(answer, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())
    if steps > 1:  # and on, which one graph cannot
        answer = called(tmp_path / "parts", content["call"], given, (steps, 5))
        assert answer.shape[1] == 5
    export_parts(network, spec, tmp_path / "parts")  # takes the place of what was there
    (tmp_path / "parts" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="something else"):
        export_parts(network, spec, tmp_path / "parts")


def test_units_are_changed_there_and_back(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    spec = facts(parameters=("p",), dt=0.5)
    network = model(spec, "ipot")
    scalings = {"values": Scaling((1e9,), (4.0,)), "targets": Scaling((5.0,), (2.0,))}
    export_parts(network, spec, tmp_path / "parts", scalings=scalings)
    content = json.loads((tmp_path / "parts" / FACTS).read_text())
    question, given = batch(spec, 1, 30, 12)
    there = given | {"values": given["values"].double() * 4 + 1e9}
    answer = called(tmp_path / "parts", content["call"], there, (1, 1))
    wanted = 2 * network(question).detach().double().numpy() + 5
    np.testing.assert_allclose(answer, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_a_model_that_does_not_come_apart_is_refused(tmp_path):
    pytest.importorskip("onnxscript")
    spec = facts(parameters=("p",))
    with pytest.raises(Unsupported, match="does not come apart"):
        export_parts(model(spec, "transformer"), spec, tmp_path / "parts")
    assert not list(tmp_path.iterdir())


def test_a_long_rollout_in_one_graph_is_refused_before_it_begins(tmp_path, monkeypatch):
    """Nineteen steps of the shallow water in the package were traced for many minutes."""
    pytest.importorskip("onnxscript")
    rolling = untrained("navier_stokes", "lattice", steps=40)

    def begun(*_):
        raise AssertionError("it was begun")

    monkeypatch.setattr(exporting, "trace", begun)
    out, told = tmp_path / "m.onnx", []
    with pytest.raises(Unsupported, match=r"40 steps in one graph.*--parts.*--steps N"):
        export(rolling.model, rolling.spec, out, format="onnx", say=told.append)
    assert not told
    # What was asked for is begun, and said before.
    for format, steps in (("onnx", 40), ("pt2", None)):
        with pytest.raises(AssertionError, match="it was begun"):
            export(
                *(rolling.model, rolling.spec, out.with_suffix(f".{format}")),
                format=format,
                steps=steps,
                say=told.append,
            )
    assert len(told) == 2
    assert all("minutes" in line and "40 steps" in line for line in told)
    # Few steps are neither refused nor spoken of.
    with pytest.raises(AssertionError, match="it was begun"):
        export(rolling.model, rolling.spec, out, format="onnx", steps=1, say=told.append)
    assert len(told) == 2


@pytest.mark.parametrize("steps", [0, 4, -1])
def test_steps_that_there_are_not(tmp_path, steps):
    spec = facts(steps=3)
    with pytest.raises(Unsupported, match="a number from 1 to 3"):
        export(model(spec), spec, tmp_path / "m.pt2", format="pt2", steps=steps)


def test_the_first_steps_alone(tmp_path):
    spec = facts(parameters=("p",), steps=3, dt=0.5)
    network = model(spec, "ipot")
    export(network, spec, tmp_path / "m.pt2", format="pt2", steps=2)
    content = json.loads((tmp_path / "m.pt2.json").read_text())
    assert content["times"] == [0.5, 1.0]
    question, given = batch(spec, 1, 30, 12)
    found = torch.export.load(tmp_path / "m.pt2").module()(*given.values())
    wanted = network(question)[:, :2]
    torch.testing.assert_close(found, wanted, rtol=0, atol=float(2e-5 * wanted.abs().max()))


def test_operations_grow_with_the_steps():
    counts = []
    for steps in (1, 2, 4):
        spec = facts(steps=steps)
        counts.append(
            exporting.operations(Plain(model(spec), spec, Signature(spec)), Signature(spec))
        )
    assert counts[2] - counts[1] > counts[1] - counts[0] > 0
