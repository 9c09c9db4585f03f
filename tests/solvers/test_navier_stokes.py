import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import torch

from ipot.solvers import navier_stokes, random_fields

TAU = 2 * math.pi


def grid(points):
    x = torch.arange(points, dtype=torch.float64) / points
    return torch.meshgrid(x, x, indexing="ij")


def draws(count, points, cutoff=64):
    shape = random_fields.periodic_square_noise_shape(cutoff)
    noise = random_fields.normal(shape, seed=0, stream="ns", indices=range(count))
    return random_fields.periodic_square(noise, points, alpha=2.5, tau=7.0, sigma=7**1.5)


def relative(got, expected):
    return ((got - expected).norm() / expected.norm()).item()


def euler(w, viscosity, duration, steps):
    """The scheme of the public data: Crank-Nicolson for viscosity, Euler for advection.

    Written for the eye, with full transforms of one field, as an independent reference.
    """
    n, dt = len(w), duration / steps
    k = np.fft.fftfreq(n, 1 / n)
    kx, ky = k[:, None], k[None, :]
    square = 4 * np.pi**2 * (kx**2 + ky**2)
    inverse = np.divide(1, square, out=np.zeros_like(square), where=square > 0)
    mask = (abs(kx) <= n / 3) & (abs(ky) <= n / 3)
    x = np.arange(n) / n
    phase = 2 * np.pi * (x[:, None] + x)
    force = np.fft.fft2(0.1 * (np.sin(phase) + np.cos(phase)))

    def field(spectrum):
        return np.fft.ifft2(spectrum).real

    w = np.fft.fft2(w)
    for _ in range(steps):
        psi = w * inverse
        u, v = field(2j * np.pi * ky * psi), field(-2j * np.pi * kx * psi)
        advection = u * field(2j * np.pi * kx * w) + v * field(2j * np.pi * ky * w)
        explicit = (1 - dt / 2 * viscosity * square) * w
        explicit += dt * (force - mask * np.fft.fft2(advection))
        w = explicit / (1 + dt / 2 * viscosity * square)
    return field(w)


# --- exact solutions ------------------------------------------------------------------------------


def test_taylor_green_vortices_decay():
    x, y = grid(32)
    initial = 2 * torch.cos(TAU * x) * torch.cos(TAU * y)
    times = (0.5, 2.0, 3.7)
    solution = navier_stokes.solve(
        initial[None], viscosity=1e-2, times=times, forcing=torch.zeros(32, 32)
    )
    for frame, time in zip(solution[0], times, strict=True):
        exact = initial * math.exp(-8 * math.pi**2 * 1e-2 * time)
        assert (frame - exact).abs().max() < 1e-12


def test_a_steady_flow_with_advection_stays():
    """w = cos 2πx + cos 4πy, held by the forcing u·grad w - νΔw. Knows every sign and axis."""
    x, y = grid(24)
    steady = torch.cos(TAU * x) + torch.cos(2 * TAU * y)
    advection = -1.5 * torch.sin(TAU * x) * torch.sin(2 * TAU * y)
    viscous = TAU**2 * (torch.cos(TAU * x) + 4 * torch.cos(2 * TAU * y))
    solution = navier_stokes.solve(
        steady[None], viscosity=0.05, times=(1.0,), dt=1e-3, forcing=advection + 0.05 * viscous
    )
    # Good to the order of the method, not exact: an integrating factor moves fixed points.
    assert (solution[0, 0] - steady).abs().max() < 1e-8


# --- balances -------------------------------------------------------------------------------------


def test_mean_vorticity_stays_zero():
    solution = navier_stokes.solve(draws(3, 32), viscosity=1e-4, times=(1.0, 5.0))
    assert solution.mean((-2, -1)).abs().max() < 1e-15


def test_enstrophy_changes_by_forcing_and_viscosity_alone():
    viscosity, times = 1e-3, np.linspace(0, 2, 101).tolist()
    solution = navier_stokes.solve(draws(2, 64), viscosity=viscosity, times=times).numpy()
    k = np.fft.fftfreq(64, 1 / 64)
    power = np.abs(np.fft.fft2(solution) / 64**2) ** 2
    lost = viscosity * (4 * np.pi**2 * (k[:, None] ** 2 + k**2) * power).sum((-2, -1))
    gained = (navier_stokes.default_forcing(64).numpy() * solution).mean((-2, -1))
    change = scipy.integrate.simpson(gained - lost, x=times, axis=-1)
    enstrophy = 0.5 * (solution**2).mean((-2, -1))
    np.testing.assert_allclose(enstrophy[:, -1] - enstrophy[:, 0], change, rtol=1e-5)


def test_unresolved_modes_diffuse_and_do_nothing_else():
    x, y = grid(32)
    initial, tail = 5 * draws(1, 32), torch.cos(TAU * (12 * x + 3 * y))[None]
    initial = initial - torch.fft.ifft2(torch.fft.fft2(initial) * unresolved(32)).real
    run = {"viscosity": 1e-4, "times": (1.0,)}
    without = navier_stokes.solve(initial, **run)
    with_tail = navier_stokes.solve(initial + tail, **run)
    expected = without[:, 0] + tail * math.exp(-1e-4 * TAU**2 * (12**2 + 3**2))
    torch.testing.assert_close(with_tail[:, 0], expected, rtol=0, atol=1e-12)
    assert (torch.fft.fft2(without) * unresolved(32)).abs().max() / 32**2 < 1e-15


def unresolved(points):
    k = torch.fft.fftfreq(points, 1 / points).abs()
    return (3 * k[:, None] >= points) | (3 * k >= points)


# --- accuracy -------------------------------------------------------------------------------------


def test_order_in_time_is_four():
    initial = 5 * draws(1, 32)
    solve = lambda dt: navier_stokes.solve(initial, viscosity=1e-3, times=(1.0,), dt=dt)  # noqa: E731
    reference = solve(1 / 400)
    errors = [relative(solve(dt), reference) for dt in (1 / 25, 1 / 50, 1 / 100)]
    slopes = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert all(3.8 < slope < 4.2 for slope in slopes), (errors, slopes)


def test_64_points_agree_with_128():
    """Drawn with the modes of 128 points: what 64 cannot carry, viscosity removes at once."""
    fine, coarse = (
        navier_stokes.solve(draws(2, points, cutoff=128), viscosity=1e-3, times=(2.0,))
        for points in (128, 64)
    )
    assert relative(coarse, fine[..., ::2, ::2]) < 1e-8


def test_agrees_with_the_scheme_of_the_public_data_to_its_order():
    initial = draws(1, 48)
    solution = navier_stokes.solve(initial, viscosity=1e-3, times=(1.0,))[0, 0]
    errors = [
        relative(torch.from_numpy(euler(initial[0].numpy(), 1e-3, 1.0, steps)), solution)
        for steps in (250, 1000)
    ]
    assert errors[1] < 1e-4
    assert 3.8 < errors[0] / errors[1] < 4.2, errors


@pytest.mark.parametrize("viscosity", [1e-3, 1e-5])
def test_single_precision_is_enough_for_data(viscosity):
    """Rounding must not add up: 400 steps, all with the same viscous factor close to one."""
    initial, run = draws(2, 64), {"viscosity": viscosity, "times": (2.0,), "dt": 5e-3}
    single = navier_stokes.solve(initial.float(), **run)
    assert single.dtype == torch.float32
    assert relative(single.double(), navier_stokes.solve(initial, **run)) < 1e-6


def test_a_fast_flow_shortens_its_steps():
    initial = 40 * draws(1, 32)
    forcing = torch.zeros(32, 32)
    run = {"viscosity": 1e-2, "times": (1.0,), "forcing": forcing}
    fine = navier_stokes.solve(initial, dt=1e-3, **run)
    assert relative(navier_stokes.solve(initial, dt=0.5, **run), fine) < 1e-5


# --- the interface --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_sample_does_not_depend_on_its_company(count):
    initial = draws(3, 32)
    together = navier_stokes.solve(initial, viscosity=1e-3, times=(0.5, 1.0))
    some = navier_stokes.solve(initial[:count], viscosity=1e-3, times=(0.5, 1.0))
    torch.testing.assert_close(some, together[:count], rtol=0, atol=1e-13)


def test_each_sample_may_have_its_forcing():
    initial = draws(3, 32)
    forcing = torch.stack([amplitude * navier_stokes.default_forcing(32) for amplitude in range(3)])
    together = navier_stokes.solve(initial, viscosity=1e-3, times=(1.0,), forcing=forcing)
    for sample in range(3):
        alone = navier_stokes.solve(
            initial[sample : sample + 1], viscosity=1e-3, times=(1.0,), forcing=forcing[sample]
        )
        torch.testing.assert_close(together[sample], alone[0], rtol=0, atol=1e-13)


def test_time_zero_is_the_input():
    initial = draws(2, 32)
    solution = navier_stokes.solve(initial, viscosity=1e-3, times=(0.0, 0.1))
    torch.testing.assert_close(solution[:, 0], initial, rtol=0, atol=1e-14)


def test_times_need_not_be_multiples_of_the_step():
    initial = draws(1, 32)
    through = navier_stokes.solve(initial, viscosity=1e-3, times=(0.123, 1.0))
    straight = navier_stokes.solve(initial, viscosity=1e-3, times=(1.0,))
    torch.testing.assert_close(through[:, 1], straight[:, 0], rtol=0, atol=1e-8)


def test_progress_reports_the_time_reached():
    reached = []
    navier_stokes.solve(draws(1, 16), viscosity=1e-2, times=(0.5, 3.0), progress=reached.append)
    assert reached == sorted(reached)
    assert reached[0] == 0.5
    assert reached[-1] == 3.0
    assert max(np.diff(reached)) <= 1.0


@pytest.mark.parametrize("times", [(), (2.0, 1.0), (-1.0,)])
def test_times_must_increase(times):
    with pytest.raises(ValueError, match="increasing"):
        navier_stokes.solve(draws(1, 16), viscosity=1e-2, times=times)


@pytest.mark.parametrize("factor", [math.nan, 1e30, 1e300])
def test_a_flow_that_blows_up_is_named(factor):
    initial = draws(4, 16)
    initial[2] *= factor
    with pytest.raises(RuntimeError, match=r"not finite .* samples \[2, 3\]"):
        navier_stokes.solve(initial, viscosity=1e-2, times=(0.1,))
