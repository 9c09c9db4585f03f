"""Which way a step runs, and that all ways are the same mathematics."""

import pytest
import torch

from ipot.errors import Unsupported
from ipot.training import step
from ipot.training.distributed import World
from ipot.training.settings import Training
from training.toys import CPU, contents, fit, ragged, stacked

GPU = torch.device("cuda")
FOUR = World(rank=0, size=4)
LONG, SHORT = 100_000_000, 10


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(step.shutil, "which", lambda name: f"/usr/bin/{name}")


def chosen(device=CPU, data=None, world=None, **settings):
    return step.choose(Training(**settings), data or stacked(), device, world or World())


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("expected", "situation"),
    [
        ("graph", {"device": GPU}),
        ("graph", {"device": GPU, "minutes": 1.0}),
        ("eager", {"device": GPU, "data": ragged()}),
        ("eager", {"device": GPU, "world": FOUR}),
        ("eager", {"epochs": SHORT}),
        ("compiled", {"epochs": LONG}),
        ("eager", {"epochs": LONG, "data": ragged()}),
        ("eager", {"epochs": LONG, "minutes": 9.0}),
        ("compiled", {"epochs": SHORT, "minutes": 10.0}),
        ("eager", {"epochs": SHORT, "step": "eager"}),
        ("compiled", {"epochs": SHORT, "step": "compiled"}),
        ("graph", {"device": GPU, "step": "graph"}),
        ("eager", {"device": GPU, "step": "eager"}),
    ],
)
def test_the_rules(expected, situation):
    assert chosen(**situation) == expected


@pytest.mark.usefixtures("compiler")
def test_compiling_pays_by_the_rows_that_are_used(monkeypatch):
    rows = 12 * (12 + 12) * SHORT
    monkeypatch.setattr(step, "COMPILE_ROWS", rows - 1)
    assert chosen(epochs=SHORT) == "compiled"
    assert chosen(epochs=SHORT, queries=0.5) == "eager"
    assert chosen(epochs=SHORT, points=0.5) == "eager"
    monkeypatch.setattr(step, "COMPILE_ROWS", rows)
    assert chosen(epochs=SHORT) == "eager"


def test_nothing_is_compiled_without_a_compiler(monkeypatch):
    monkeypatch.setattr(step.shutil, "which", lambda name: None)
    assert chosen(epochs=LONG) == "eager"


@pytest.mark.parametrize(
    "where", [{}, {"device": GPU, "data": ragged()}, {"device": GPU, "world": FOUR}]
)
def test_a_graph_where_there_can_be_none(where):
    with pytest.raises(Unsupported, match="CUDA graph needs a GPU, samples of one size"):
        chosen(step="graph", **where)


def test_a_graph_on_a_cpu_is_refused_before_training(tmp_path):
    with pytest.raises(Unsupported):
        fit(tmp_path, step="graph")
    assert list(tmp_path.iterdir()) == []


def test_clipping_bounds_the_gradient(tmp_path, monkeypatch):
    norms = []
    update = torch.optim.AdamW.step

    def remember(self, *args, **kwargs):
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(torch.cat([g.flatten() for g in grads]).norm().item())
        return update(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", remember)
    fit(tmp_path / "free", clip=None)
    free = norms.copy()
    norms.clear()
    fit(tmp_path / "clipped", clip=1e-3)
    assert min(free) > 1e-2
    assert norms == pytest.approx([1e-3] * 6, rel=1e-2)


@pytest.mark.compile
def test_compiled_agrees_with_eager(tmp_path):
    for kind in ("eager", "compiled"):
        result = fit(tmp_path / kind, step=kind, epochs=10, batch=12, validate_every=5)
        assert (result.step_kind, result.steps) == (kind, 10)
    (eager, _, said), (compiled, _, also) = (contents(tmp_path / k) for k in ("eager", "compiled"))
    for name in eager:
        torch.testing.assert_close(compiled[name], eager[name], atol=1e-4, rtol=1e-3)
    for mine, theirs in zip(said["rows"], also["rows"], strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], abs=1e-4)
