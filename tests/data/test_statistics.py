"""Scales against numpy, in float64."""

import numpy as np
import torch

from ipot.data.dataset import Ragged, Stacked
from ipot.data.statistics import Moments, Statistics, mean_field
from ipot.samples import collate


def test_statistics_are_numpys(make_sample):
    samples = [make_sample(c=2, k=3, p=2, times=(1.0, 2.0), seed=i) for i in range(230)]
    found = Statistics.of(Stacked(collate(samples)))  # more than two pieces of a hundred
    for name, rows in (
        ("input", [s.values for s in samples]),
        ("output", [s.targets for s in samples]),
        ("parameter", [s.parameters for s in samples]),
    ):
        table = np.concatenate([r.reshape(-1, r.shape[-1]).double().numpy() for r in rows])
        for kind, expected in (("mean", table.mean(0)), ("scale", table.std(0))):
            got = getattr(found, f"{name}_{kind}")
            assert got.dtype == torch.float64
            np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_ragged_samples_count_by_their_rows(make_sample):
    samples = [make_sample(n, seed=n) for n in (1, 4, 9)]
    found = Statistics.of(Ragged(samples))
    table = np.concatenate([s.values.double().numpy() for s in samples])
    np.testing.assert_allclose(found.input_mean, table.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.input_scale, table.std(0), rtol=1e-12)


def test_a_small_spread_on_a_large_mean_is_not_lost():
    rows = 1e6 + torch.arange(1000, dtype=torch.float64).view(-1, 1) * 1e-3
    moments = Moments()
    for piece in rows.split(77):
        moments.add(piece)
    np.testing.assert_allclose(moments.scale(), rows.numpy().std(), rtol=1e-6)


def test_constant_channels_have_scale_one(make_sample):
    values = torch.rand(5, 3)
    values[:, 1], values[:, 2] = 0.1, 0.0
    samples = [make_sample(values=values * 1.0, seed=i) for i in range(150)]
    found = Statistics.of(Stacked(collate(samples)))
    assert found.input_scale[1:].tolist() == [1.0, 1.0]
    assert 0 < found.input_scale[0] < 1


def test_no_points_and_no_parameters_leave_empty_scales(make_sample):
    found = Statistics.of(Stacked(collate([make_sample(0, c=0, p=2, seed=i) for i in range(3)])))
    assert found.input_mean.shape == found.input_scale.shape == (0,)
    assert found.parameter_mean.shape == (2,)
    assert Statistics.of(Ragged([make_sample()])).parameter_scale.shape == (0,)


def test_channels_without_any_row_still_have_a_scale(make_sample):
    found = Statistics.of(Ragged([make_sample(0, c=3, p=2, seed=i) for i in range(2)]))
    assert found.input_mean.tolist() == [0.0] * 3
    assert found.input_scale.tolist() == [1.0] * 3


def test_identity_changes_nothing():
    for name, tensor in Statistics.identity(2, 1, 3).tensors().items():
        assert tensor.unique().tolist() == [float(name.endswith("scale"))]


def test_mean_field_is_the_mean_of_the_targets_on_common_queries(make_sample):
    queries = torch.rand(4, 2)
    samples = [make_sample(queries=queries, seed=i) for i in range(3)]
    expected = np.mean([s.targets.double().numpy() for s in samples], axis=0)
    np.testing.assert_allclose(mean_field(Ragged(samples)), expected, rtol=1e-6)
    assert mean_field(Ragged([*samples, make_sample(seed=9)])) is None
    assert mean_field(Ragged([*samples, make_sample(5, 6)])) is None
