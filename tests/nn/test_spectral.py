"""Spectral layers: multipliers by hand, the same function on any grid, sums at any points."""

import math

import pytest
import torch

from ipot.nn import nonuniform
from ipot.nn.grid import crop, extend, padded, to_grid, to_rows, unit_grid
from ipot.nn.nonuniform import analysis, synthesis
from ipot.nn.spectral import FactorizedConv, SpectralConv, block, from_modes, to_modes

EXACT = {"atol": 1e-12, "rtol": 1e-12}
SHAPES = [(16,), (16, 18), (10, 12, 15)]


def frequencies(size: int, *, real: bool = False) -> torch.Tensor:
    """The frequency of every weight along an axis of a block."""
    k = torch.arange(size)
    return k if real else torch.where(k < (size + 1) // 2, k, k - size)


def mesh(sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    lines = [frequencies(n) for n in sizes[:-1]] + [frequencies(sizes[-1], real=True)]
    return torch.meshgrid(*lines, indexing="ij")


def wave(k: tuple[int, ...], phase: float, shape: tuple[int, ...]) -> torch.Tensor:
    """cos(2π k·x + phase) on the unit torus."""
    x = unit_grid(shape, torch.zeros(1).double()).reshape(*shape, len(shape))
    return torch.cos(2 * math.pi * (x * torch.tensor(k)).sum(-1) + phase)


def symbol(*k: float) -> complex:
    """The multiplier of a real operator of no special kind: m(-k) is the conjugate of m(k)."""
    odd = sum((1.3 + 0.7 * axis) * v for axis, v in enumerate(k))
    return complex(1 / (1 + odd * odd), odd / (2 + odd * odd))


def paired(low: torch.Tensor) -> torch.Tensor:
    """A block of modes without the frequency -m, which has no partner m among them."""
    for axis, size in enumerate(low.shape[2:-1], 2):
        if size % 2 == 0:
            low.index_fill_(axis, torch.tensor([size // 2]), 0)
    return low


def with_symbol(modes: tuple[int, ...]) -> SpectralConv:
    conv = SpectralConv(1, 1, modes).double()
    grids = mesh(tuple(2 * m for m in modes[:-1]) + modes[-1:])
    values = [symbol(*map(float, k)) for k in zip(*(g.flatten() for g in grids), strict=True)]
    weight = torch.view_as_real(torch.tensor(values, dtype=torch.complex128))
    with torch.no_grad():
        conv.weight.copy_(weight.view(conv.weight.shape))
    return conv


def a_wave_for(rank: int) -> list[tuple[tuple[int, ...], float]]:
    ks = {1: [(0,), (1,), (3,)], 2: [(0, 0), (2, -3), (-3, 1), (3, 0), (1, 3)]}
    ks[3] = [(1, -2, 3), (-3, 3, 0), (0, 1, 0), (2, 2, 2)]
    return [(k, 0.3 * number) for number, k in enumerate(ks[rank])]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_multiplier_set_by_hand_acts_as_it_must(shape):
    """cos(k·x + φ) becomes |m(k)| cos(k·x + φ + arg m(k)), wave by wave."""
    conv = with_symbol((4,) * len(shape))
    field, expected = torch.zeros(2, *shape).double()
    for k, phase in a_wave_for(len(shape)):
        m = symbol(*k)
        field += wave(k, phase, shape)
        expected += abs(m) * wave(k, phase + math.atan2(m.imag, m.real), shape)
    torch.testing.assert_close(conv(field[None, None])[0, 0], expected, **EXACT)


@pytest.mark.parametrize("kind", [SpectralConv, FactorizedConv])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_layer_gives_the_same_function_on_every_grid(kind, rank):
    torch.manual_seed(0)
    conv = kind(2, 3, (4,) * rank).double()
    waves = a_wave_for(rank)
    sizes = (16, 32) if rank == 3 else (16, 32, 64)

    def answer(n: int) -> torch.Tensor:
        shape = (n,) * rank
        channels = [sum(wave(k, p + c, shape) for k, p in waves) for c in range(2)]
        return conv(torch.stack(channels)[None])

    for n in sizes[1:]:
        thin = (..., *(slice(None, None, n // 16),) * rank)
        torch.testing.assert_close(answer(n)[thin], answer(16), **EXACT)


def test_frequencies_beyond_the_modes_are_removed():
    conv = with_symbol((4, 4))
    field = wave((5, 0), 0.1, (16, 16)) + wave((0, 4), 0.2, (16, 16))
    assert conv(field[None, None]).abs().max() < 1e-12


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 4), (7, 7)])
def test_a_grid_too_coarse_uses_the_modes_that_it_has(shape):
    """What a coarse grid can carry is treated as a fine grid treats it."""
    conv = with_symbol((4, 4))
    p, q = ((n - 1) // 2 for n in shape)
    k = (-p, q)
    fine = conv(wave(k, 0.4, (16, 16))[None, None])
    x = unit_grid(shape, fine)
    expected = to_grid(synthesis(to_modes(fine, (4, 4)), x), shape)
    torch.testing.assert_close(conv(wave(k, 0.4, shape)[None, None]), expected, **EXACT)


def test_the_nyquist_frequency_is_left_out():
    assert block((8, 8), (9, 9)) == (7, 4)
    assert block((9, 9), (9, 9)) == (9, 5)
    assert block((64, 64), (3, 4)) == (6, 4)
    alternating = wave((4, 0), 0.0, (8, 8))
    assert not with_symbol((9, 9))(alternating[None, None]).abs().max() > 1e-12


@pytest.mark.parametrize("shape", [(9,), (8,), (6, 9), (9, 6), (4, 5, 6)])
def test_low_modes_come_back(shape):
    torch.manual_seed(0)
    sizes = block(shape, (3,) * len(shape))
    field = from_modes(paired(torch.randn(2, 3, *sizes, dtype=torch.complex128)), shape)
    torch.testing.assert_close(
        from_modes(to_modes(field, (3,) * len(shape)), shape), field, **EXACT
    )


@pytest.mark.parametrize("shape", [(12,), (12, 14), (6, 8, 10)])
def test_a_sum_of_multipliers_along_the_axes_is_what_the_factorised_layer_has(shape):
    """The dense layer with m(k) = Σ_axis m_axis(k_axis) equals the factorised one."""
    torch.manual_seed(0)
    m, rank = 3, len(shape)
    thin, dense = (
        FactorizedConv(2, 2, (m,) * rank).double(),
        SpectralConv(2, 2, (m,) * rank).double(),
    )
    weights = [torch.view_as_complex(w.detach()) for w in thin.weights]
    with torch.no_grad():
        for w in thin.weights:
            w[0, ..., 1] = 0  # a real operator: only then do both keep all of it
        total = torch.zeros(dense.weight.shape[:-1], dtype=torch.complex128)
        for w, k in zip(weights, mesh(dense.weight.shape[:rank]), strict=True):
            known = w[k.abs().clamp(max=m - 1)]
            total += torch.where((k < 0)[..., None, None], known.conj(), known)
        dense.weight.copy_(torch.view_as_real(total))
    band = paired(torch.randn(3, 2, *block(shape, (m,) * rank), dtype=torch.complex128))
    field = from_modes(band, shape)
    torch.testing.assert_close(thin(field), dense(field), **EXACT)


def test_half_precision_is_widened_under_autocast():
    conv = SpectralConv(2, 2, (3, 3))
    x = torch.randn(1, 2, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = conv(x.bfloat16())
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, conv(x.bfloat16().float()))


@pytest.mark.parametrize("shape", [(9,), (8, 11), (5, 6, 7)])
def test_the_direct_sum_over_a_grid_is_its_fft(shape):
    torch.manual_seed(0)
    modes = (3,) * len(shape)
    field = torch.randn(2, 4, *shape).double()
    places, sizes = unit_grid(shape, field), block(shape, modes)
    low = to_modes(field, modes)
    torch.testing.assert_close(analysis(to_rows(field), places, sizes), low, **EXACT)
    torch.testing.assert_close(synthesis(low, places), to_rows(from_modes(low, shape)), **EXACT)


def test_the_mean_is_over_real_points():
    torch.manual_seed(0)
    values, places = torch.randn(2, 7, 3).double(), torch.rand(2, 7, 2).double()
    mask = torch.tensor([[True] * 4 + [False] * 3, [False] * 7])
    both = analysis(values, places, (5, 3), mask)
    torch.testing.assert_close(both[:1], analysis(values[:1, :4], places[:1, :4], (5, 3)), **EXACT)
    assert torch.equal(both[1], torch.zeros_like(both[1]))
    k = frequencies(5)[:, None] * places[0, :4, 0] + 2 * places[0, :4, 1]
    direct = (values[0, :4, 0] * torch.exp(-2j * math.pi * k)).mean(-1)
    torch.testing.assert_close(both[0, 0, :, 2], direct, **EXACT)


def test_pieces_make_the_whole(monkeypatch):
    torch.manual_seed(0)
    values, places = torch.randn(2, 7, 3).double(), torch.rand(2, 7, 2).double().requires_grad_()

    def answer() -> tuple[torch.Tensor, torch.Tensor]:
        out = synthesis(analysis(values, places, (5, 3)), places)
        return out, torch.autograd.grad(out.square().sum(), places)[0]

    whole = answer()
    monkeypatch.setattr(nonuniform, "PHASES_AT_ONCE", 2 * 2 * 15 * 2)
    for piece, all_at_once in zip(answer(), whole, strict=True):
        torch.testing.assert_close(piece, all_at_once, **EXACT)


def test_room_is_a_part_of_the_length():
    """9 points on 85 as published, and the same length on every thinned grid."""
    open_ends = (False, False)
    assert padded((85, 85), (0.12, 0.0), open_ends) == (94, 85)
    for n in (43, 85, 211, 421):
        assert (padded((n,), (0.12,), (False,))[0]) / (n - 1) == pytest.approx(94 / 84, rel=1e-3)
    assert padded((64, 64), (0.12, 0.12), (True, False)) == (64, 71)


def test_room_is_behind_the_end():
    x = torch.randn(2, 3, 4, 5)
    wide = extend(x, (6, 5))
    assert wide.shape == (2, 3, 6, 5)
    assert not wide[:, :, 4:].any()
    assert torch.equal(crop(wide, (4, 5)), x)
    assert torch.equal(to_grid(to_rows(x), (4, 5)), x)
