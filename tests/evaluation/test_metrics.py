"""The relative L2 error by its definition."""

import numpy as np
import pytest
import torch

from ipot.evaluation.evaluate import score
from ipot.evaluation.metrics import relative_l2


@pytest.fixture
def pair():
    random = torch.Generator().manual_seed(0)
    shape = (3, 2, 5, 2)  # B T M K
    return tuple(torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(2))


MASK = torch.tensor([[True] * 5, [True, True, False, False, False], [False, True] * 2 + [True]])


def test_one_norm_over_times_queries_and_channels(pair):
    p, t = (x.numpy() for x in pair)
    expected = [
        np.linalg.norm((p[b] - t[b]).ravel()) / np.linalg.norm(t[b].ravel()) for b in range(3)
    ]
    np.testing.assert_allclose(relative_l2(*pair), expected, rtol=1e-14)


def test_a_score_is_the_mean_over_samples_not_over_batches(pair):
    p, t = pair
    whole = score([(p, t, None, None)])
    parts = score([(p[:2], t[:2], None, None), (p[2:], t[2:], None, None)])
    errors = relative_l2(p, t)
    assert whole.relative_l2 == pytest.approx(errors.mean().item(), rel=1e-14)
    assert parts.relative_l2 == pytest.approx(whole.relative_l2, rel=1e-14)
    assert parts.per_sample == pytest.approx(errors.tolist())
    assert parts.per_time == pytest.approx(whole.per_time)
    assert parts.per_channel == pytest.approx(whole.per_channel)
    assert whole.weighted_relative_l2 is None


def test_masked_queries_do_not_count(pair):
    p, t = (x.numpy() for x in pair)
    rows = [MASK[b].numpy() for b in range(3)]
    expected = [
        np.linalg.norm((p[b] - t[b])[:, r].ravel()) / np.linalg.norm(t[b][:, r].ravel())
        for b, r in enumerate(rows)
    ]
    np.testing.assert_allclose(relative_l2(*pair, mask=MASK), expected, rtol=1e-14)
    garbage = torch.where(MASK[:, None, :, None], pair[0], 1e9)
    np.testing.assert_allclose(relative_l2(garbage, pair[1], mask=MASK), expected, rtol=1e-14)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_weights_are_quadrature(pair, shared, mask):
    p, t = (x.numpy() for x in pair)
    weights = torch.rand(1 if shared else 3, 5, dtype=torch.float64)
    w = weights.expand(3, 5).numpy() * (1 if mask is None else mask.numpy())
    w = w[:, None, :, None]
    expected = np.sqrt(((p - t) ** 2 * w).sum((1, 2, 3)) / (t**2 * w).sum((1, 2, 3)))
    np.testing.assert_allclose(relative_l2(*pair, mask=mask, weights=weights), expected, rtol=1e-13)
    found = score([(*pair, mask, weights)])
    assert found.weighted_relative_l2 == pytest.approx(expected.mean(), rel=1e-13)


def test_per_time_and_per_channel_have_norms_of_their_own(pair):
    p, t = (x.numpy() for x in pair)
    found = score([(*pair, None, None)])
    for axis, got in ((1, found.per_time), (3, found.per_channel)):
        rest = tuple({1, 2, 3} - {axis})
        norms = np.sqrt(((p - t) ** 2).sum(rest)) / np.sqrt((t**2).sum(rest))
        assert got == pytest.approx(norms.mean(0).tolist(), rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_perfect_sample_has_a_finite_gradient(dtype):
    t = torch.randn(2, 1, 4, 1, dtype=dtype)
    p = t.clone().requires_grad_()
    error = relative_l2(p, t)
    error.sum().backward()
    assert error.max() < 1e-15
    assert p.grad.isfinite().all()
    assert not p.grad.any()


def test_the_gradient_is_that_of_the_definition(pair):
    p = pair[0].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: relative_l2(x, pair[1], mask=MASK), p)


def test_a_target_of_zeros_gives_the_norm_of_the_prediction():
    p = torch.tensor([3.0, 4.0]).view(1, 1, 2, 1)
    assert relative_l2(p, torch.zeros_like(p)).item() == pytest.approx(5.0)


@pytest.mark.parametrize("size", [1e-290, 1e-200, 1e-160, 1e-90, 1.0, 1e155, 1e200, 1e290])
@pytest.mark.parametrize("masked", [False, True])
def test_scores_are_right_at_every_scale(pair, size, masked):
    p, t = pair
    mask, weights = (MASK, torch.rand(3, 5).double() + 0.5) if masked else (None, None)
    wanted, found = (
        score((p[r] * s, t[r] * s, _rows(mask, r), _rows(weights, r)) for r in ([0, 1], [2]))
        for s in (1.0, size)
    )
    assert found.relative_l2 == pytest.approx(wanted.relative_l2, rel=1e-12)
    for name in ("per_sample", "per_time", "per_channel"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-12)
    scaled = [size * e for e in wanted.rmse_per_time]
    assert found.rmse_per_time == pytest.approx(scaled, rel=1e-12, abs=0)
    if masked:
        assert found.weighted_relative_l2 == pytest.approx(wanted.weighted_relative_l2, rel=1e-12)


def _rows(tensor, rows):
    return None if tensor is None else tensor[rows]


def test_scores_beside_tiny_targets_are_relative_and_finite(pair):
    p, t = pair
    found = score([(p, t * 1e-200, None, None)])
    wanted = p.square().sum((1, 2, 3)).sqrt() / t.square().sum((1, 2, 3)).sqrt() * 1e200
    assert found.per_sample == pytest.approx(wanted.tolist(), rel=1e-12)
    endless = score([(p, t * 1e-310, None, None)])
    assert np.isfinite(endless.relative_l2)
    assert endless.relative_l2 >= 1e299
    channels = torch.tensor([1.0, 1e-200], dtype=torch.float64)
    apart = score([(2 * t * channels, t * channels, None, None)])
    assert apart.per_channel == pytest.approx([1.0, 1.0], rel=1e-12)


def test_what_stands_in_padding_does_not_count(pair):
    p, t = pair
    wanted = score([(p, t, MASK, None)])
    spoiled = torch.where(MASK[:, None, :, None], p, 1e300)
    assert score([(spoiled, t, MASK, None)]).as_dict() == wanted.as_dict()


def test_scores_are_plain_values(pair):
    content = score([(*pair, None, None)]).as_dict()
    assert set(content) >= {"relative_l2", "per_time", "per_channel", "per_sample"}
    assert isinstance(content["relative_l2"], float)
    assert all(isinstance(x, float) for x in content["per_sample"])


def test_scores_are_counted_in_float64():
    t = torch.full((1, 1, 1, 1), 1.0)
    found = score([(t + 1e-7, t, None, None)])
    assert found.relative_l2 == pytest.approx(float((t + 1e-7).double() - 1), rel=1e-12)
