"""The Fourier neural operator: by hand, by another library, and what it refuses."""

import dataclasses

import pytest
import torch
from torch import nn

from ipot.errors import DataError, Unsupported
from ipot.models.base import parameter_count
from ipot.models.fno import FNO, Config
from ipot.nn.grid import to_grid
from ipot.nn.spectral import SpectralConv
from ipot.samples import Batch
from ipot.spec import Need, Spec

GRID = frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS})
SPEC = Spec(
    name="toy",
    inputs=("a",),
    outputs=("u",),
    domain=((0.0, 1.0), (0.0, 1.0)),
    periods=(1.0, 1.0),
    provides=GRID,
)
DARCY = dataclasses.replace(SPEC, periods=(None, None), query_periods=(None, None))


def on_a_grid(values: torch.Tensor) -> Batch:
    """Fields (B, *shape) on the periodic unit grid."""
    shape = tuple(values.shape[1:])
    lines = [torch.arange(n, dtype=values.dtype) / n for n in shape]
    mesh = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).flatten(0, -2)[None]
    rows = values.flatten(1).unsqueeze(-1)
    return Batch(points=mesh, values=rows, queries=mesh, grid=shape, query_grid=shape)


@pytest.mark.parametrize("shape", [(16,), (16, 12), (8, 10, 12)])
def test_a_linear_fno_is_its_multiplier(shape):
    """One layer, no projection: the inverse of 1 - Δ at band-limited functions, set by hand."""
    rank, m = len(shape), 4
    spec = dataclasses.replace(
        SPEC,
        domain=((0.0, 1.0),) * rank,
        periods=(1.0,) * rank,
        query_domain=(),
        query_periods=(),
    )
    model = FNO(Config(modes=(m,), width=1, layers=1), spec).double()
    model.project = nn.Identity()
    lines = [torch.fft.fftfreq(2 * m, 1 / (2 * m)) for _ in shape[:-1]] + [torch.arange(m).float()]
    k2 = sum(k**2 for k in torch.meshgrid(*lines, indexing="ij"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.lift.weight[0, 0] = 1
        layer = model.layers[0]
        layer.convolve.weight[..., 0, 0, 0] = 1 / (1 + k2.double())

    torch.manual_seed(0)
    full = torch.fft.fftn(torch.randn(2, *shape).double(), dim=tuple(range(1, rank + 1)))
    lines = [torch.fft.fftfreq(n, 1 / n) for n in shape]
    k = torch.meshgrid(*lines, indexing="ij")
    full = full * (torch.stack(k).abs() < m - 1).all(0)
    factor = 1 / (1 + sum(v**2 for v in k).double())
    field, expected = (
        torch.fft.ifftn(f, dim=tuple(range(1, rank + 1))).real for f in (full, full * factor)
    )
    out = model(on_a_grid(field))
    torch.testing.assert_close(out.flatten(), expected.flatten(), atol=1e-12, rtol=1e-12)


def test_a_layer_adds_a_convolution_and_a_linear_map():
    model = FNO(Config(modes=(3,), width=4, layers=2), SPEC)
    x = torch.randn(2, 4, 8, 8)
    first, second = model.layers
    linear = torch.einsum("oc,bcxy->boxy", first.linear.weight, x)
    linear = linear + first.linear.bias[:, None, None]
    torch.testing.assert_close(first(x), first.convolve(x) + linear)
    # A nonlinearity between the layers, and none behind the last.
    torch.testing.assert_close(model._convolve(x), second(nn.functional.gelu(first(x))))


def test_periodic_axes_are_not_padded():
    """A periodic model commutes with translations once it does not see the coordinates."""
    torch.manual_seed(0)
    for spec, exact in ((SPEC, True), (DARCY, False)):
        config = Config(modes=(3,), width=8, layers=2, padding=(0.5,))
        model = FNO(config, spec).double()
        with torch.no_grad():
            model.lift.weight[:, 1:] = 0
        field = torch.randn(1, 8, 10).double()
        out = to_grid(model(on_a_grid(field))[:, 0], (8, 10))
        moved = to_grid(model(on_a_grid(field.roll((3, 4), (1, 2))))[:, 0], (8, 10))
        assert torch.allclose(moved, out.roll((3, 4), (2, 3)), atol=1e-12) is exact


def test_the_published_sizes():
    """Darcy: 1.19 million weights where a complex one counts once, as printed, and 2.37 here."""
    model = FNO(Config(), DARCY)
    spectral = sum(layer.convolve.weight.numel() for layer in model.layers)
    assert spectral == 2 * 4 * 2 * 32 * 32 * 12 * 12
    assert parameter_count(model) == 2_368_001
    assert parameter_count(model) - spectral // 2 == pytest.approx(1.19e6, rel=5e-3)
    film = dataclasses.replace(SPEC, inputs=tuple("abcdefghij"), history=10, steps=40)
    flow = FNO(Config(modes=(12,), width=20), film)
    assert parameter_count(flow) == pytest.approx(0.93e6, rel=5e-3)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(Unsupported, match="regular grid"):
        FNO(Config(), dataclasses.replace(SPEC, provides=frozenset()))
    with pytest.raises(Unsupported, match=r"model.modes .* 2 axes: \(3, 3, 3\)"):
        FNO(Config(modes=(3, 3, 3)), SPEC)
    with pytest.raises(Unsupported, match=r"model\.padding"):
        FNO(Config(padding=(0.1, 0.1, 0.1)), SPEC)
    model = FNO(Config(modes=(3,), width=4), SPEC)
    batch = dataclasses.replace(on_a_grid(torch.randn(1, 8, 8)), grid=(64,), query_grid=(64,))
    with pytest.raises(DataError, match=r"a grid of 2 axes, got \(64,\)"):
        model(batch)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modes", (0,)),
        ("modes", ()),
        ("width", 0),
        ("layers", 0),
        ("projection", -1),
        ("padding", (-0.1,)),
        ("padding", (float("nan"),)),
    ],
)
def test_nonsense_is_refused(name, value):
    with pytest.raises(Unsupported, match=f"model.{name} must"):
        Config(**{name: value})


@pytest.mark.parametrize("shape", [(16,), (16, 18), (8, 10, 12)])
def test_the_library_of_the_authors_agrees(shape):
    """The same weights in neuraloperator's layer, in single precision as it computes."""
    spectral = pytest.importorskip(
        "neuralop.layers.spectral_convolution",
        reason="neuraloperator is not installed: pip install 'ipot[peers]'",
    )
    torch.manual_seed(0)
    rank, m = len(shape), 3
    ours = SpectralConv(4, 5, (m,) * rank)
    asked = (2 * m,) * (rank - 1) + (2 * (m - 1),)  # their last number counts both signs
    theirs = spectral.SpectralConv(4, 5, asked, bias=False, factorization=None)
    weight = torch.view_as_complex(ours.weight.detach())
    if rank > 1:  # their frequencies run from -m to m - 1
        weight = torch.fft.fftshift(weight, dim=tuple(range(rank - 1)))
    weight = weight.movedim((-2, -1), (0, 1))
    state = theirs.state_dict()
    (key,) = state
    theirs.load_state_dict({key: weight.reshape(state[key].shape)})
    x = torch.randn(2, 4, *shape)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-6, rtol=1e-5)
