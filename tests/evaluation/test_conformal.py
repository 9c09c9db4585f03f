"""Bounds: they hold as often as they say, know what they cannot promise, and survive saving."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load, save

from ipot.errors import DataError, Unsupported
from ipot.evaluation.conformal import Conformal, calibrate, read_off
from ipot.spec import Spec

SPEC = Spec(name="line", inputs=("a",), outputs=("u", "v"), domain=((0.0, 1.0),))
PLACES = torch.linspace(0, 1, 40).unsqueeze(1)


def fields(samples, *, seed=0, rough=0.0, places=PLACES):
    """Truths, and predictions off by smooth or rough fields that grow to the right, in samples
    that are off by more or less; two times and two channels of other sizes."""
    random = torch.Generator().manual_seed(seed)
    x, size = places[:, 0], 0.1 + 2 * places[:, 0] ** 2
    waves = torch.stack([torch.cos(math.pi * k * x) / (1 + k) for k in range(6)])
    smooth = torch.randn(samples, 2, 2, 6, generator=random) @ waves
    white = torch.randn(samples, 2, 2, len(x), generator=random)
    sample = torch.exp(0.3 * torch.randn(samples, 1, 1, 1, generator=random))
    off = (((1 - rough) * smooth + rough * white) * size * sample).transpose(2, 3)
    off = off * torch.tensor([1.0, 50.0]) * torch.tensor([1.0, 3.0])[:, None, None]
    truth = torch.randn(off.shape, generator=random)
    return truth + off, truth


def one(*both):
    """The first time and channel alone, where more of them would only take longer."""
    return tuple(field[:, :1, :, :1] for field in both)


def covered(bounds, predictions, truths, level=0.9, **given):
    low, high = zip(*(bounds.interval(p, level, **given) for p in predictions), strict=True)
    return (torch.stack(low) <= truths) & (truths <= torch.stack(high))


def measured_coverage(predictions, truths, level=0.9, *, queries=None, splits, whole=False):
    """How often bounds hold: the mean over random splits into halves, of which one calibrates. A
    field counts by the share of its points between the bounds, or `whole` if all of them are."""
    off, random = [p - t for p, t in zip(predictions, truths, strict=True)], torch.Generator()
    held = []
    for split in range(splits):
        known, new = torch.randperm(len(off), generator=random.manual_seed(split)).chunk(2)
        bounds = calibrate(
            [predictions[i] for i in known], [truths[i] for i in known], queries=queries
        )
        # Without queries to tell them apart, one place stands for all.
        zeros = torch.zeros_like(off[0] if queries is not None else off[0][:, :1])
        half = bounds.interval(zeros, level, queries=queries, simultaneous=whole)[1]
        inside = [off[i].abs() <= half for i in new]
        held += [float(i.all() if whole else i.double().mean()) for i in inside]
    return sum(held) / len(held)


@pytest.mark.plain
@pytest.mark.parametrize("rough", [0.0, 1.0])
@pytest.mark.parametrize("local", [False, True])
def test_ninety_percent_is_ninety_percent_over_random_splits(rough, local):
    predictions, truths = one(*fields(100, rough=rough))
    queries = PLACES if local else None
    coverage = measured_coverage(predictions, truths, 0.9, queries=queries, splits=100)
    assert 0.89 <= coverage <= 0.91


@pytest.mark.plain
@pytest.mark.parametrize("samples", [12, 25, 48])
def test_few_samples_are_corrected_for(samples):
    """In new data each time: reading the level off the residuals alone would cover too little."""
    found, repeats = torch.zeros(2), 50
    for seed in range(repeats):
        predictions, truths = one(*fields(samples + 20, seed=seed))
        kept, fresh = slice(samples), slice(samples, None)
        bounds = calibrate(predictions[kept], truths[kept], queries=PLACES)
        for i, queries in enumerate((None, PLACES)):
            inside = covered(bounds, predictions[fresh], truths[fresh], queries=queries)
            found[i] += inside.float().mean() / repeats
    assert ((found > 0.89) & (found < 0.9 + 1 / (samples + 1))).all(), found


def test_each_time_and_channel_is_covered_alike():
    predictions, truths = fields(400)
    bounds = calibrate(predictions[:200], truths[:200])
    share = covered(bounds, predictions[200:], truths[200:]).float().mean((0, 2))
    assert (share - 0.9).abs().max() < 0.06


def test_a_scale_for_every_query_covers_each_of_them():
    predictions, truths = fields(600)
    bounds = calibrate(predictions[:300], truths[:300], queries=PLACES)
    new = predictions[300:], truths[300:]
    local = covered(bounds, *new, queries=PLACES).float().mean((0, 1, 3))
    pooled = covered(bounds, *new).float().mean((0, 1, 3))
    assert (local - 0.9).abs().max() < 0.04
    assert pooled[0] > 0.99  # too wide on the left
    assert pooled[-1] < 0.8  # and too narrow on the right


def test_with_one_query_it_is_the_rank_of_conformal_prediction():
    residuals = torch.tensor([3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.0, 3.5, 8.0, 7.0, 6.0])
    predictions = residuals.view(-1, 1, 1, 1)
    ordered = residuals.sort().values
    total = residuals.square()
    for level in (0.3, 0.5, 0.75, 0.9):
        rank = math.ceil(12 * level)
        bounds = calibrate(predictions, torch.zeros_like(predictions))
        low, high = bounds.interval(torch.zeros(1, 1, 1), level)
        # Each residual is measured against the scale of the others.
        score = residuals / ((total.sum() - total) / 10).sqrt()
        assert torch.allclose(high, score.sort().values[rank - 1] * total.mean().sqrt())
        assert torch.equal(low, -high)
        assert torch.equal(high, bounds.interval(torch.zeros(1, 1, 1), level, simultaneous=True)[1])
        assert ordered[rank - 2] < high < 1.4 * ordered[rank - 1]


def test_samples_of_a_piece_count_once_however_many_queries_they_have():
    """Four hundred equal residuals of a sample tell no more than one."""
    random = torch.Generator().manual_seed(1)
    residuals = torch.randn(30, 1, 1, 1, generator=random)
    one = calibrate(residuals, torch.zeros_like(residuals))
    many = residuals.expand(30, 1, 400, 1)
    many = calibrate(many, torch.zeros_like(many))
    for level in (0.2, 0.5, 0.83, 0.9, 0.95):
        asked = torch.zeros(1, 1, 1)
        assert torch.allclose(one.interval(asked, level)[1], many.interval(asked, level)[1])


@pytest.mark.parametrize("local", [False, True])
def test_simultaneous_bounds_hold_whole_fields(local):
    predictions, truths = fields(200)
    queries = PLACES if local else None
    given = {"queries": queries, "splits": 20, "whole": True}
    assert 0.885 <= measured_coverage(predictions, truths, 0.9, **given) <= 0.925
    assert measured_coverage(*one(predictions, truths), 0.6, **given) < 0.65


def test_samples_with_queries_of_their_own():
    random = torch.Generator().manual_seed(0)
    predictions, truths = [], []
    for seed in range(120):
        count = int(torch.randint(5, 60, (1,), generator=random))
        places = torch.rand(count, 1, generator=random)
        prediction, truth = fields(1, seed=seed, places=places)
        predictions.append(prediction[0])
        truths.append(truth[0])
    assert 0.885 <= measured_coverage(predictions, truths, splits=30) <= 0.915
    with pytest.raises(DataError, match="leave them out"):
        calibrate(predictions, truths, queries=PLACES)


def test_a_scale_is_carried_to_other_queries():
    finer = torch.linspace(0, 1, 157).unsqueeze(1)
    predictions, truths = fields(300)
    bounds = calibrate(predictions, truths, queries=PLACES)
    new = fields(300, seed=1, places=finer)
    inside = covered(bounds, *new, queries=finer, spec=SPEC).float().mean((0, 1, 3))
    assert (inside - 0.9).abs().max() < 0.05
    width = bounds.interval(new[0][0], queries=finer, spec=SPEC)[1] - new[0][0]
    assert width[0, 150, 0] > 5 * width[0, 5, 0]
    # Without a word on what is near, bounds are the same everywhere.
    low, high = bounds.interval(torch.zeros(2, 157, 2), queries=finer)
    assert (high - low).std(1).max() < 1e-4


def test_bounds_in_proportion_to_an_ensemble_s_spread():
    random = torch.Generator().manual_seed(0)
    spread = torch.rand(300, 1, 20, 1, generator=random) ** 2
    spread[:, :, 0] = 0  # an ensemble that agrees to the last digit
    off = torch.randn(300, 1, 20, 1, generator=random) * spread
    bounds = calibrate(off[:100], torch.zeros_like(off[:100]), spread[:100])
    inside = [
        (bounds.interval(o, scale=s)[0] <= 0) & (bounds.interval(o, scale=s)[1] >= 0)
        for o, s in zip(off[100:], spread[100:], strict=True)
    ]
    assert abs(torch.stack(inside).float().mean() - 0.9) < 0.015
    low, high = bounds.interval(off[0], scale=torch.zeros(1, 20, 1))
    assert (low < high).all()
    low, high = bounds.interval(off[0], scale=torch.full((1, 20, 1), 2.0))
    assert torch.allclose(high - low, (high - low)[:, :1].expand_as(low))
    with pytest.raises(DataError, match="calibrated with scales"):
        bounds.interval(off[0])
    with pytest.raises(DataError, match="scale must be"):
        bounds.interval(off[0], scale=spread[0, :, :3])
    with pytest.raises(DataError, match="without scales"):
        calibrate(off, 0 * off).interval(off[0], scale=spread[0])
    for wrong, message in ((-spread, "negative"), (0 * spread, "zero"), (spread[:5], "one tensor")):
        with pytest.raises(DataError, match=message):
            calibrate(off, 0 * off, wrong)


def test_too_few_samples_are_named():
    predictions, truths = fields(8)
    bounds = calibrate(predictions, truths)
    with pytest.raises(Unsupported, match=r"at least 9 calibration samples, and there are 8"):
        bounds.interval(predictions[0], 0.9)
    with pytest.raises(Unsupported, match="at least 99"):
        bounds.interval(predictions[0], 0.99)
    bounds.interval(predictions[0], bounds.highest_level)
    nine = calibrate(*fields(9))
    low, high = nine.interval(predictions[0], 0.9)
    assert (low < high).all()


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 90.0, float("nan")])
def test_a_level_is_a_probability(level):
    with pytest.raises(DataError, match="between 0 and 1"):
        calibrate(*fields(20)).interval(torch.zeros(2, 40, 2), level)


def test_higher_levels_are_wider_and_hold_the_lower_ones():
    bounds = calibrate(*fields(60), queries=PLACES)
    for simultaneous in (False, True):
        highs = [
            bounds.interval(
                torch.zeros(2, 40, 2), level, queries=PLACES, simultaneous=simultaneous
            )[1]
            for level in (0.05, 0.3, 0.8, 0.9, 0.9005, 0.95, 60 / 61)
        ]
        assert all((a <= b).all() for a, b in pairwise(highs))
        assert (highs[0] < highs[-1]).all()


def test_a_perfect_model_has_bounds_of_no_width():
    _, truths = fields(20)
    bounds = calibrate(truths, truths, queries=PLACES)
    low, high = bounds.interval(truths[0], queries=PLACES)
    assert torch.equal(low, truths[0])
    assert torch.equal(high, truths[0])


def test_points_without_any_error_do_not_spoil_the_others():
    predictions, truths = fields(100)
    predictions[:, :, :20] = truths[:, :, :20]
    bounds = calibrate(predictions, truths, queries=PLACES)
    low, high = bounds.interval(predictions[0], queries=PLACES)
    width = high - low
    assert torch.isfinite(width).all()
    assert (width[:, :20] < 0.05 * width[:, 20:].mean(1, keepdim=True)).all()
    # Nor does a point where only one sample has any: beside the others it is off without end.
    predictions[3, 0, 5, 0] += 1
    bounds = calibrate(predictions, truths, queries=PLACES)
    low, high = bounds.interval(predictions[0], 0.99, queries=PLACES, simultaneous=True)
    assert torch.isfinite(high - low).all()


def test_fewer_times_are_the_first_ones():
    predictions, truths = fields(40)
    bounds = calibrate(predictions, truths, queries=PLACES)
    for given in ({}, {"queries": PLACES}):
        whole = bounds.interval(predictions[0], **given)
        first = bounds.interval(predictions[0][:1], **given)
        assert torch.equal(first[0], whole[0][:1])
        assert torch.equal(first[1], whole[1][:1])
    for shape in ((3, 40, 2), (2, 40, 3)):
        with pytest.raises(Unsupported, match="calibrated for 2 times and 2 channels"):
            bounds.interval(torch.zeros(shape))
    with pytest.raises(DataError, match="do not fit"):
        bounds.interval(predictions[0], queries=PLACES[:7])


@pytest.mark.parametrize("local", [False, True])
def test_a_state_survives_a_file(local):
    predictions, truths = fields(40)
    bounds = calibrate(predictions, truths, queries=PLACES if local else None)
    state = load(save(bounds.state()))
    again = Conformal.from_state(state)
    assert again.samples == 40
    for simultaneous in (False, True):
        given = {"queries": PLACES, "simultaneous": simultaneous}
        before = bounds.interval(predictions[0], 0.8, **given)
        after = again.interval(predictions[0], 0.8, **given)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    with pytest.raises(DataError, match=r"have no 'everywhere\.maxima'"):
        Conformal.from_state({k: v for k, v in state.items() if k != "everywhere.maxima"})
    with pytest.raises(DataError, match="not finite"):
        Conformal.from_state(state | {"everywhere.scale": 0 * state["everywhere.scale"] / 0})


@pytest.mark.plain
def test_a_state_of_other_sizes_is_refused():
    state = calibrate(*fields(20)).state()
    for name in ("everywhere.levels", "everywhere.quantiles", "everywhere.scale"):
        with pytest.raises(DataError, match="disagree"):
            Conformal.from_state(state | {name: state[name][1:]})


def test_a_state_remembers_that_scales_were_given():
    predictions, truths = fields(20)
    bounds = calibrate(predictions, truths, torch.ones_like(truths))
    again = Conformal.from_state(load(save(bounds.state())))
    with pytest.raises(DataError, match="calibrated with scales"):
        again.interval(predictions[0])


def test_what_cannot_be_calibrated_with():
    predictions, truths = fields(10)
    spoiled = predictions.clone()
    spoiled[3, 0, 1, 0] = float("nan")
    with pytest.raises(DataError, match="prediction 3 holds 1 values that are not finite"):
        calibrate(spoiled, truths)
    with pytest.raises(DataError, match="truth 3"):
        calibrate(truths, spoiled)
    with pytest.raises(DataError, match="10 predictions and 9 truths"):
        calibrate(predictions, truths[:9])
    with pytest.raises(DataError, match="at least one"):
        calibrate([], [])
    with pytest.raises(DataError, match="sample 1 has"):
        calibrate([truths[0], truths[1]], [truths[0], truths[1][:1]])


def test_precision_and_shape_are_those_of_the_prediction():
    predictions, truths = fields(20)
    bounds = calibrate(predictions.double(), truths.double())
    for kind in (torch.float32, torch.float64):
        low, high = bounds.interval(predictions[0].to(kind))
        assert low.dtype == high.dtype == kind
        assert low.shape == high.shape == predictions[0].shape


def test_bounds_are_finite_however_large_a_residual_is_beside_none():
    scores = [torch.zeros(1, 4, 1, dtype=torch.float64) for _ in range(12)]
    scores[0] += 1e300
    found = read_off(scores, torch.full((1, 1, 1), 1e-36, dtype=torch.float64))
    assert found.quantiles.isfinite().all()
    assert found.maxima.isfinite().all()
