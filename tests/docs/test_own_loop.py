"""The page on one's own training loop runs as it stands, for every system that it names."""

import re
from pathlib import Path

import pytest
import torch

from ipot import models
from ipot.errors import DataError, Unsupported
from ipot.models import IPOT

PAGE = (Path(__file__).parents[2] / "docs" / "own-loop.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
SQUARE = [(0, 1), (0, 1)]
SMALL = {
    "IPOT": {"width": 16, "latents": 6, "blocks": 1, "heads": 2, "cross_heads": 2},
    "Lattice": {"width": 16, "places": (8,), "blocks": 1, "processor": 1, "heads": 2},
    "Relay": {"width": 16, "latents": 6, "states": 6, "blocks": 1, "heads": 2, "cross_heads": 2},
    "Transformer": {"width": 16, "blocks": 1, "heads": 2, "cross_heads": 2},
    "PerceiverIO": {"width": 16, "latents": 6, "blocks": 1, "heads": 2},
    "LNO": {"width": 16, "modes": 6, "blocks": 1, "heads": 2},
    "OFormer": {},
    "Transolver": {"width": 16, "blocks": 1, "heads": 2},
    "FLARE": {"width": 16, "blocks": 1, "heads": 2, "latents": 6},
    "LRSA": {"width": 16, "blocks": 1, "heads": 2, "latents": 6},
    "FNO": {},
    "FFNO": {},
    "DeepONet": {},
    "MeshGraphNet": {},
}


def test_the_page_runs_and_the_loss_falls():
    torch.manual_seed(0)
    names: dict = {}
    exec(BLOCKS[0], names)
    last = float(names["loss"].detach())
    assert last < 0.2 * float(names["u"].square().mean())
    names["optimizer"].zero_grad()
    exec(BLOCKS[1], names)
    torch.testing.assert_close(float(names["loss"].detach()), last, rtol=0.5, atol=0.05)
    assert all(p.grad is not None for p in names["model"].parameters())


def test_the_table_has_every_system():
    assert set(SMALL) | {"DINo"} == set(models.__all__)
    for name in models.__all__:
        assert f"`{name}`" in PAGE
        assert getattr(models, name).__name__ == name


@pytest.mark.parametrize("name", SMALL)
def test_every_system_is_trained_on_plain_tensors(name):
    torch.manual_seed(0)
    kind, grid, steps = getattr(models, name), (8, 8), {}
    if name in ("FNO", "DeepONet"):
        steps = {"shape": grid}
    elif name in ("Transolver", "FLARE", "LRSA", "MeshGraphNet"):
        steps = {"same_points": True}
    model = kind.for_tensors(SQUARE, inputs=2, outputs=3, **steps, **SMALL[name])
    axes = torch.linspace(0, 1, 8)
    points = torch.stack(torch.meshgrid(axes, axes, indexing="ij"), -1).reshape(1, 64, 2)
    ends = torch.stack([torch.arange(63), torch.arange(1, 64)])
    given = {"edges": torch.cat([ends, ends.flip(0)], 1)} if name == "MeshGraphNet" else {}
    out = model.at(points, torch.randn(2, 64, 2), **given)
    assert out.shape == (2, 64, 3)
    out.square().sum().backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize(
    "name", ["FNO", "DeepONet", "Transolver", "FLARE", "LRSA", "MeshGraphNet", "DINo"]
)
def test_a_system_that_lacks_something_says_so(name):
    kind = getattr(models, name)
    with pytest.raises(Unsupported, match=f"{name} needs .*"):
        kind.for_tensors(SQUARE)


def test_parameters_masks_and_steps():
    model = IPOT.for_tensors(SQUARE, parameters=2, steps=3, **SMALL["IPOT"])
    x, a, p = torch.rand(2, 9, 2), torch.randn(2, 9, 1), torch.randn(2, 2)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    y = torch.rand(1, 4, 2)
    out = model.at(x, a, y, parameters=p, mask=mask)
    assert out.shape == (2, 3, 4, 1)
    short = model.at(x[1:, :5], a[1:, :5], y, parameters=p[1:])
    torch.testing.assert_close(out[1:], short, atol=1e-5, rtol=1e-4)


def test_mistakes_are_named():
    with pytest.raises(Unsupported, match=r"no setting 'widht'\. Did you mean 'width'"):
        IPOT.for_tensors(SQUARE, widht=16)
    with pytest.raises(DataError, match="outputs must be a whole number of at least 1, got 0"):
        IPOT.for_tensors(SQUARE, outputs=0)
    model = IPOT.for_tensors(SQUARE, **SMALL["IPOT"])
    with pytest.raises(DataError, match="1 input channels, this batch has 2"):
        model.at(torch.rand(2, 9, 2), torch.randn(2, 9, 2))
