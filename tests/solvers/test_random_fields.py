"""The fields are linear in their noise, so their covariance is tested exactly: with unit noise."""

import numpy as np
import pytest
import scipy.fft
import torch

from ipot.solvers import random_fields

SQUARE = {"alpha": 2.5, "tau": 7.0, "sigma": 7**1.5}
LINE = {"sigma": 625.0, "tau": 5.0, "gamma": 4.0}


def covariance(field, shape):
    """E[w wᵀ] of a linear map of standard normal noise of this shape."""
    size = int(np.prod(shape))
    units = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    columns = field(units).flatten(1)
    return columns.mT @ columns


# --- draws ----------------------------------------------------------------------------------------


def test_a_draw_does_not_depend_on_its_batch():
    together = random_fields.normal((3, 5), seed=1, stream="train", indices=[4, 17, 2])
    alone = random_fields.normal((3, 5), seed=1, stream="train", indices=[17])
    assert together.dtype == torch.float64
    assert torch.equal(together[1], alone[0])


def test_a_draw_is_the_same_everywhere_and_for_ever():
    # A change of this number makes every stored data set a different one.
    draw = random_fields.normal((16,), seed=0, stream="darcy/train", indices=[17])
    assert draw[0, 0].item() == pytest.approx(0.746168651824836, abs=1e-12)


@pytest.mark.parametrize(
    "other", [(1, "train", 3), (0, "test", 3), (0, "train", 4), (0, "train", "3")]
)
def test_seed_stream_and_index_all_matter(other):
    first = random_fields.generator(0, "train", 3).initial_seed()
    assert random_fields.generator(*other).initial_seed() != first


def test_no_two_samples_of_a_stream_share_a_seed():
    seeds = {random_fields.generator(0, "train", i).initial_seed() for i in range(20_000)}
    assert len({seed % 2**32 for seed in seeds}) == 20_000


def test_draws_of_neighbouring_samples_are_standard_normal_and_independent():
    noise = random_fields.normal((500,), seed=0, stream="s", indices=range(400))
    correlation = noise @ noise.mT / 500
    assert abs(noise.mean()) < 5 / np.sqrt(noise.numel())
    assert abs(noise.var() - 1) < 5 * np.sqrt(2 / noise.numel())
    assert abs(noise.pow(4).mean() - 3) < 5 * np.sqrt(96 / noise.numel())
    # The largest of 80 000 correlations of deviation 1/√500.
    assert (correlation - torch.diag(correlation.diag())).abs().max() < 6 / np.sqrt(500)


# --- the periodic line ----------------------------------------------------------------------------


def test_line_has_the_spectrum_of_the_public_generator():
    points, modes = 32, 10
    exact = torch.zeros(points, points, dtype=torch.float64)
    lag = torch.arange(points)[:, None] - torch.arange(points)
    for k in range(1, modes + 1):
        variance = 2 * 625**2 * ((2 * np.pi * k) ** 2 + 25) ** -4
        exact += variance * torch.cos(2 * np.pi * k * lag / points)
    got = covariance(lambda noise: random_fields.periodic_line(noise, points, **LINE), (2, modes))
    torch.testing.assert_close(got, exact)


def test_line_is_the_series_it_says():
    noise = random_fields.normal((2, 3), seed=0, stream="line", indices=[0])
    x = torch.arange(16, dtype=torch.float64) / 16
    exact = torch.zeros(16, dtype=torch.float64)
    for k in (1, 2, 3):
        scale = np.sqrt(2) * 625 * ((2 * np.pi * k) ** 2 + 25) ** -2
        phase = 2 * np.pi * k * x
        exact += scale * (noise[0, 0, k - 1] * phase.cos() + noise[0, 1, k - 1] * phase.sin())
    torch.testing.assert_close(random_fields.periodic_line(noise, 16, **LINE)[0], exact)


def test_line_draws_have_the_published_variance_per_mode():
    noise = random_fields.normal((2, 64), seed=0, stream="line", indices=range(4000))
    spectrum = torch.fft.rfft(random_fields.periodic_line(noise, 256, **LINE)) / 128
    variance = (spectrum.abs() ** 2).mean(0)[1:5] / 2
    # Of the public generator; the deviation of an estimate from 4000 draws is 1.6 %.
    expected = torch.tensor([4.52e-2, 6.98e-4, 3.73e-5, 4.2e-6], dtype=torch.float64)
    torch.testing.assert_close(variance, expected, rtol=0.06, atol=0)


def test_line_is_one_function_on_all_grids():
    noise = random_fields.normal((2, 100), seed=0, stream="line", indices=range(3))
    fine = random_fields.periodic_line(noise, 1024, **LINE)
    torch.testing.assert_close(
        random_fields.periodic_line(noise, 256, **LINE), fine[:, ::4], rtol=0, atol=1e-12
    )
    # 15 of 100 modes fit on 31 points, and on 32: the same as noise that has no more.
    for points in (31, 32):
        torch.testing.assert_close(
            random_fields.periodic_line(noise, points, **LINE),
            random_fields.periodic_line(noise[..., :15], points, **LINE),
        )


# --- the square with walls ------------------------------------------------------------------------


def test_neumann_square_is_the_inverse_cosine_transform_of_the_public_generator():
    size, alpha, tau = 21, 2.0, 3.0
    noise = random_fields.normal((size, size), seed=0, stream="d", indices=[0])
    k = np.arange(size)
    decay = tau ** (alpha - 1) * (np.pi**2 * (k[:, None] ** 2 + k**2) + tau**2) ** (-alpha / 2)
    coefficients = size * noise[0].numpy() * decay
    coefficients[0, 0] = 0
    exact = scipy.fft.idctn(coefficients, type=2, norm="ortho")
    got = random_fields.neumann_square(noise, alpha=alpha, tau=tau)
    np.testing.assert_allclose(got[0].numpy(), exact, atol=1e-13)


def test_neumann_square_is_one_function_on_all_grids():
    noise = random_fields.normal((16, 16), seed=0, stream="d", indices=[0, 1])
    coarse = random_fields.neumann_square(noise, alpha=2.0, tau=3.0)
    # Every third fine centre is a coarse one.
    fine = random_fields.neumann_square(noise, 48, alpha=2.0, tau=3.0)
    torch.testing.assert_close(fine[:, 1::3, 1::3], coarse)
    truncated = random_fields.neumann_square(noise, 8, alpha=2.0, tau=3.0)
    torch.testing.assert_close(
        truncated, random_fields.neumann_square(noise[:, :8, :8], alpha=2.0, tau=3.0)
    )


# --- the torus ------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [8, 9])
def test_torus_has_the_covariance_of_the_public_generator(points):
    def public(noise):
        z = torch.complex(noise[:, 0], noise[:, 1]) / np.sqrt(2)
        k = torch.fft.fftfreq(points, 1 / points, dtype=torch.float64)
        square = 4 * np.pi**2 * (k[:, None] ** 2 + k**2)
        scale = points**2 * np.sqrt(2) * SQUARE["sigma"] * (square + 49) ** -1.25
        scale[0, 0] = 0
        scale[2 * k.abs() == points] = 0  # the Nyquist lines, which ours leaves out
        scale[:, 2 * k.abs() == points] = 0
        return torch.fft.ifft2(scale * z).real

    def ours(noise):
        return random_fields.periodic_square(noise, points, **SQUARE)

    shape = random_fields.periodic_square_noise_shape(points)
    got, exact = covariance(ours, shape), covariance(public, (2, points, points))
    torch.testing.assert_close(got, exact, rtol=0, atol=1e-12 * exact.max().item())


def test_torus_is_the_series_it_says():
    noise = torch.zeros(1, *random_fields.periodic_square_noise_shape(16), dtype=torch.float64)
    noise[0, :, 7 - 2, 3] = torch.tensor([0.3, 0.5])  # k = (-2, 3)
    x = torch.arange(16, dtype=torch.float64) / 16
    phase = 2 * np.pi * (-2 * x[:, None] + 3 * x)
    scale = np.sqrt(2) * SQUARE["sigma"] * (4 * np.pi**2 * 13 + 49) ** -1.25
    exact = scale * (0.3 * phase.cos() + 0.5 * phase.sin())
    torch.testing.assert_close(random_fields.periodic_square(noise, 16, **SQUARE)[0], exact)


def test_torus_is_one_function_on_all_grids():
    shape = random_fields.periodic_square_noise_shape(32)
    noise = random_fields.normal(shape, seed=0, stream="n", indices=[0, 1])
    coarse = random_fields.periodic_square(noise, 32, **SQUARE)
    fine = random_fields.periodic_square(noise, 128, **SQUARE)
    torch.testing.assert_close(fine[:, ::4, ::4], coarse)
    # On fewer points: the low modes of the fine field.
    low = torch.fft.fft2(random_fields.periodic_square(noise, 16, **SQUARE)) / 16**2
    high = torch.fft.fft2(fine) / 128**2
    torch.testing.assert_close(low[:, :8, :8], high[:, :8, :8])
    torch.testing.assert_close(low[:, -7:, :8], high[:, -7:, :8])
    assert low[:, 8].abs().max() < 1e-15


def test_torus_draws_have_the_variance_of_the_series():
    points = 32
    shape = random_fields.periodic_square_noise_shape(points)
    noise = random_fields.normal(shape, seed=0, stream="n", indices=range(400))
    field = random_fields.periodic_square(noise, points, **SQUARE)
    k = np.arange(-15, 16)
    series = 4 * np.pi**2 * (k[:, None] ** 2 + k**2) + 49
    variance = SQUARE["sigma"] ** 2 * (np.sum(series**-2.5) - 49**-2.5)
    # A field has some eight strong modes of each kind: 400 fields know their variance to 3 %.
    assert field.var().item() == pytest.approx(variance, rel=0.1)


@pytest.mark.parametrize("points", [8, 13])
def test_cosine_matrix_is_orthonormal(points):
    basis = random_fields.cosine_matrix(points, points)
    torch.testing.assert_close(basis.mT @ basis, points * torch.eye(points).double())
