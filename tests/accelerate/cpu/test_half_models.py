"""Whole models in bf16 by compiled kernels, however few their scores, against float32."""

import pytest
import torch
from ipot.nn.paths import attention_path

from ipot.accelerate.cpu import attention
from ipot.accelerate.cpu.build import why_not_bf16
from ipot.bench.infer import Question, _asked, _settings
from ipot.evaluation.predict import predict
from ipot.nn import paths
from ipot.recipes.experiment import build

pytestmark = [
    pytest.mark.skipif(why_not_bf16() is not None, reason=f"no kernels in bf16: {why_not_bf16()}"),
    pytest.mark.plain,
]
CASES = [
    (model, problem, preset)
    for model in ("ipot", "transformer")
    for problem in ("darcy", "elasticity", "navier_stokes")
    for preset in ("paper", "default")
] + [(model, "darcy", "paper") for model in ("perceiver_io", "lno", "oformer", "transolver")]


@pytest.mark.parametrize("rows", [None, 100], ids=["whole", "chunks"])
@pytest.mark.parametrize(("model", "problem", "preset"), CASES)
def test_a_model_answers_as_well_as_by_torch_in_bf16(monkeypatch, model, problem, preset, rows):
    monkeypatch.setattr(paths, "FEW", 0)
    question = Question(problem=problem, preset=preset, points=150, batch=3, small=True)
    torch.manual_seed(0)
    network = build(_settings(question, model)).eval()
    batch = _asked(network, question, torch.device("cpu"))
    exact = predict(network, batch, rows=rows).double()
    with torch.autocast("cpu", torch.bfloat16):
        ours = predict(network, batch, rows=rows).double()
        with attention_path("fused"):
            usual = predict(network, batch, rows=rows).double()
    off, as_usual = ((t - exact).norm() / exact.norm() for t in (ours, usual))
    assert off < max(2.5 * as_usual, 1e-3)  # of the same size: both are chance


def test_a_model_goes_by_these_kernels(monkeypatch):
    question = Question(problem="darcy", preset="paper", points=300, batch=2)
    network = build(_settings(question, "ipot")).eval()
    batch = _asked(network, question, torch.device("cpu"))
    called = []
    rounded = attention.attend_rounded
    monkeypatch.setitem(
        paths.OURS, "halves", lambda *given: called.append(given) or rounded(*given)
    )
    predict(network, batch)
    assert not called
    with torch.autocast("cpu", torch.bfloat16):
        predict(network, batch)
    assert len(called) == 5  # four blocks and the decoder; the encoder attends over a mesh
