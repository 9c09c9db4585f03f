"""Whole models in float32 by compiled kernels, however few their scores, against the plain way."""

import pytest
import torch
from ipot.nn.paths import attention_path

from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.bench.infer import Question, _asked, _settings
from ipot.nn import paths
from ipot.recipes.experiment import build

pytestmark = [
    pytest.mark.skipif(not available(), reason=f"no library: {why_not()}"),
    pytest.mark.plain,
]
CASES = [
    (model, problem, preset)
    for model in ("ipot", "transformer")
    for problem in ("darcy", "elasticity", "navier_stokes")
    for preset in ("paper", "default")
] + [(model, "darcy", "paper") for model in ("perceiver_io", "lno", "oformer", "transolver")]


@pytest.mark.parametrize("trained", [True, False], ids=["gradients", "answers"])
@pytest.mark.parametrize(("model", "problem", "preset"), CASES)
def test_a_model_answers_and_learns_as_by_the_book(monkeypatch, model, problem, preset, trained):
    monkeypatch.setattr(paths, "FEW", 0)
    question = Question(problem=problem, preset=preset, points=150, batch=3, small=True)
    torch.manual_seed(0)
    network = build(_settings(question, model))
    batch = _asked(network, question, torch.device("cpu"))
    found = []
    for path in ("auto", "plain"):
        with attention_path(path), torch.set_grad_enabled(trained):
            out = network(batch)
            numbers = [out.detach()]
            if trained:
                weight = torch.linspace(-1, 1, out.numel()).view_as(out)
                own = [p for p in network.parameters() if p.requires_grad]
                numbers += torch.autograd.grad(
                    (out * weight).sum(), own, allow_unused=True, materialize_grads=True
                )
        found.append(numbers)
    size = sum(t.square().sum() for t in found[1][1:]).sqrt() if trained else 1.0
    assert (found[0][0] - found[1][0]).norm() < 1e-4 * found[1][0].norm()
    for ours, plain in zip(found[0][1:], found[1][1:], strict=True):
        assert (ours - plain).norm() < 1e-4 * size
