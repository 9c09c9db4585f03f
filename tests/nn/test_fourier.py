"""Position features against their formula."""

import math

import numpy as np
import pytest
import torch

from ipot.nn.points import FourierFeatures

random = np.random.default_rng(0)


def features(x: np.ndarray, frequencies: list[np.ndarray], raw: list[int]) -> np.ndarray:
    """x itself where asked for, then all sines, then all cosines, dimension by dimension."""
    phase = np.concatenate([np.pi * f * x[:, [d]] for d, f in enumerate(frequencies)], axis=1)
    return np.concatenate([x[:, raw], np.sin(phase), np.cos(phase)], axis=1)


def test_raw_coordinates_follow_the_formula():
    layer = FourierFeatures((4, 3), (10.0, 6.0))
    x = random.random((7, 2))
    expected = features(x, [np.linspace(1, 5, 4), np.linspace(1, 3, 3)], [0, 1])
    got = layer(torch.tensor(x, dtype=torch.float32))
    assert layer.width == got.shape[-1] == 2 + 2 * (4 + 3)
    np.testing.assert_allclose(got, expected, atol=5e-6)


def test_the_domain_is_mapped_to_the_unit_interval_about_zero():
    layer = FourierFeatures((2,), (6.0,), domain=((2.0, 6.0),))
    got = layer(torch.tensor([[2.0], [4.0], [6.0]]))
    assert got[:, 0].tolist() == [-1.0, 0.0, 1.0]
    np.testing.assert_allclose(
        got, features(np.array([[-1.0], [0.0], [1.0]]), [np.array([1.0, 3.0])], [0]), atol=2e-6
    )


def test_a_periodic_axis_takes_whole_frequencies_and_no_raw_coordinate():
    layer = FourierFeatures(
        (3, 2), (99.0, 4.0), domain=((0.0, 1.0), (0.0, 1.0)), periods=(1.0, None)
    )
    x = random.random((5, 2))
    expected = features(2 * x - 1, [np.arange(1.0, 4.0), np.linspace(1, 2, 2)], [1])
    assert layer.width == 2 * 5 + 1
    np.testing.assert_allclose(layer(torch.tensor(x).float()), expected, atol=5e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)], ids=str
)
def test_features_are_periodic_to_the_precision_they_are_asked_in(dtype, tolerance):
    layer = FourierFeatures((16,), (32.0,), domain=((-1.0, 2.0),), periods=(3.0,)).to(dtype)
    x = torch.rand(20, 1, dtype=dtype) * 3 - 1
    torch.testing.assert_close(layer(x), layer(x + 3), atol=tolerance, rtol=0)


def test_a_period_longer_than_what_is_seen_sets_the_scale():
    layer = FourierFeatures((1,), (2.0,), domain=((0.0, 0.5),), periods=(1.0,))
    np.testing.assert_allclose(
        layer(torch.tensor([[0.25]]))[0, 0], math.sin(-math.pi / 2), atol=1e-6
    )


def test_float64_follows_the_formula_in_float64():
    layer = FourierFeatures((5,), (10.0,)).double()
    x = random.random((6, 1))
    expected = features(x, [np.arange(1.0, 6.0)], [0])
    np.testing.assert_allclose(layer(torch.tensor(x)), expected, atol=1e-12)


def test_phases_are_not_rounded_under_autocast():
    layer = FourierFeatures((64,), (128.0,))
    x = torch.rand(50, 1)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x)
    torch.testing.assert_close(got, layer(x))


@pytest.mark.parametrize("axes", [1, 3])
def test_coordinates_of_another_dimension_are_refused(axes):
    layer = FourierFeatures((2, 2), (4.0, 4.0))
    with pytest.raises((ValueError, RuntimeError)):
        layer(torch.zeros(5, axes))


def test_bins_and_frequencies_must_match():
    with pytest.raises(ValueError, match="2 numbers of bins, 1 frequencies"):
        FourierFeatures((2, 2), (4.0,))
