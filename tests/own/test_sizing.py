"""Sizes follow from the data and the device, and are said."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ipot.data.own import Dataset
from ipot.models.ipot import Config
from ipot.own.sizing import BUDGETS, MINUTES, plan, typical_sizes
from own import tiny

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def large(side=40, count=8, times=1):
    line = np.linspace(0, 1, side)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    values = tiny.random().random((count, side * side))
    targets = np.stack([values] * times, 1)
    return Dataset.from_arrays(
        points=grid, values=values, targets=targets, times=np.arange(1.0, times + 1)
    )


def test_small_data_are_seen_whole_and_large_ones_in_part():
    small, big = (plan(d, device=CPU).training for d in (tiny.data("mesh"), large()))
    assert (small.points, small.queries) == (1, 1)
    assert big.points * 1600 == pytest.approx(BUDGETS["cpu"].points)
    assert big.queries * 1600 == pytest.approx(BUDGETS["cpu"].queries)
    rolled = plan(large(times=5), device=CPU).training
    assert rolled.queries == pytest.approx(big.queries / 5)
    assert plan(large(), device=GPU).training.points == 1


def test_features_are_as_fine_as_the_points_can_tell():
    coarse, fine = (plan(d, device=CPU).model for d in (tiny.data("grid"), large()))
    assert coarse.max_frequency[0] < fine.max_frequency[0] <= 32
    # Of forty points a side, waves of ten are resolved with four points each.
    assert fine.max_frequency[0] / 2 == 10
    deep = plan(tiny.data("space"), device=CPU).model
    assert deep.max_frequency[0] >= 4


def test_a_gpu_affords_more():
    small, big = (plan(large(), device=d).model for d in (CPU, GPU))
    assert big.width > small.width
    assert big.latents > small.latents


def test_no_batch_is_larger_than_a_quarter_of_the_samples():
    for count in (2, 3, 10, 40, 200):
        batch = plan(tiny.data("mesh", count), device=CPU).training.batch
        assert 1 <= batch <= max(1, count // 4)


def test_time_is_the_limit_unless_epochs_are_told():
    data = tiny.data("mesh")
    assert plan(data, device=CPU).training.minutes == MINUTES
    counted = plan(data, device=CPU, epochs=7).training
    assert (counted.epochs, counted.minutes) == (7, None)
    both = plan(data, device=CPU, epochs=7, minutes=2.0).training
    assert (both.epochs, both.minutes) == (7, 2.0)


def test_single_settings_are_changed():
    told = {"width": 96, "heads": 3, "bins": [3]}
    chosen = plan(
        tiny.data("mesh"), device=CPU, seed=4, model=told, training={"clip": None, "batch": 2}
    )
    assert (chosen.model.width, chosen.model.heads, chosen.model.bins) == (96, 3, (3,))
    assert (chosen.training.clip, chosen.training.batch, chosen.training.seed) == (None, 2, 4)


def test_the_preset_of_the_paper_has_its_sizes():
    chosen = plan(tiny.data("space"), device=CPU, preset="paper")
    assert (chosen.model.latents, chosen.model.width, chosen.model.heads) == (256, 64, 8)
    assert chosen.model.tied
    assert not chosen.model.local
    # For data of any extent and units, which those of the paper were not.
    assert chosen.model.coordinates == "unit"
    assert chosen.normalize
    assert replace(chosen.model, latents=8) != Config()


def test_what_was_chosen_is_said():
    lines = plan(large(), device=CPU).lines
    assert "64 inducing points, width 64, 2 blocks, frequencies up to 10 along an axis" in lines[0]
    assert "5 minutes on cpu" in lines[1]
    assert "64 % of the points and 32 % of the queries" in lines[1]
    few = plan(tiny.data("mesh"), device=CPU, epochs=3).lines
    assert few[1] == "training: 3 epochs on cpu, 2 samples a step"


def test_sizes_in_the_middle():
    assert typical_sizes(tiny.data("times")) == (12, 12, 3)
    points, queries, _ = typical_sizes(tiny.data("uneven"))
    assert 5 <= points < 12
    assert 4 <= queries < 9
    assert typical_sizes(tiny.data("parameters"))[0] == 0
