"""Arithmetic and bytes, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.cases import BINS, BLOCKS, CROSS, EACH, ENCODER_FEED, FEED, SPEC, WIDTH, Z, batch, model
from ipot.bench import counts
from ipot.bench.samples import random_question, random_samples
from ipot.models.base import Operator, parameter_count
from ipot.recipes.experiment import build, experiment

B, N, M, T, C, K = 3, 11, 7, 4, 3, 2
F = 2 * (2 * BINS) + 2
"""Sines, cosines and the coordinates themselves."""


def by_hand(size=B, n=N, m=M, steps=T):
    """Multiplications of the model of `cases`, as its formulas have them; no other size counts."""
    inner = CROSS * EACH
    # Inducing points are projected once for the batch.
    queries = Z * WIDTH * inner
    encoder = n * (F + C) * 2 * inner + 2 * Z * n * inner + Z * inner * WIDTH
    encoder += Z * WIDTH * 2 * ENCODER_FEED * WIDTH + Z * ENCODER_FEED * WIDTH * WIDTH
    block = 3 * Z * WIDTH * WIDTH + 2 * Z * Z * WIDTH + Z * WIDTH * WIDTH
    block += Z * WIDTH * 2 * FEED * WIDTH + Z * FEED * WIDTH * WIDTH
    decoder = m * F * inner + Z * WIDTH * 2 * inner + 2 * m * Z * inner + m * inner * K
    decoder += m * K * 2 * FEED * K + m * FEED * K * K
    return queries + size * (encoder + steps * (BLOCKS * block + decoder))


def test_an_answer():
    found = counts.inference_flops(model(), batch(), plain=True)
    assert found == 2 * by_hand()


@pytest.mark.parametrize(
    ("size", "times"), [(1, (0.5,)), (2, (0.5, 1.0)), (3, (0.5,)), (50, (0.5, 1.0, 1.5))]
)
def test_a_step_of_training_has_three_products_for_each(size, times):
    asked = batch(size=size, times=times)
    found = counts.training_flops(model(), asked)
    assert found == 3 * 2 * by_hand(size=size, steps=len(times))


def test_every_sample_counts_its_own_positions_whether_or_not_they_are_shared():
    network = model()
    own, shared = (
        counts.training_flops(network, batch(size=2, shared=s, times=(0.5,))) for s in (False, True)
    )
    assert own == shared


def test_nothing_is_computed_and_nothing_is_left_behind():
    network, asked = model(), batch(size=1, times=(0.5,))
    before = {name: p.clone() for name, p in network.named_parameters()}
    counts.training_work(network, asked)
    counts.inference_work(network, asked, plain=True)
    assert all(p.requires_grad and p.grad is None for p in network.parameters())
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters())


def test_frozen_weights_stay_frozen():
    network = model()
    first = next(network.parameters())
    first.requires_grad_(False)
    counts.inference_flops(network, batch(), plain=True)
    assert not first.requires_grad
    assert sum(p.requires_grad for p in network.parameters()) == (
        sum(1 for _ in network.parameters()) - 1
    )


def test_darcy_as_published_takes_about_five_teraflop_an_epoch():
    settings = experiment("darcy", "ipot", "paper")
    asked = random_samples(settings.problem, 10).data
    step = counts.training_flops(build(settings), asked)
    assert 100 * step == pytest.approx(4.5e12, rel=0.02)


def test_bytes_of_a_step():
    network, asked = model(), batch()
    numbers = asked.points.numel() + asked.values.numel() + asked.queries.numel()
    numbers += 2 * asked.targets.numel()  # read, and as many predictions written
    weights = parameter_count(network)
    assert counts.training_bytes(network, asked) == 8 * (numbers + 7 * weights)


def test_bytes_of_an_answer():
    network, asked = model(), batch()
    numbers = asked.points.numel() + asked.values.numel() + asked.queries.numel()
    numbers += asked.targets.numel() + parameter_count(network)
    assert counts.inference_bytes(network, asked) == 8 * numbers
    same = replace(asked, queries=asked.points, targets=None)
    fewer = counts.inference_bytes(network, same)
    numbers += (N - M) * B * T * K - asked.queries.numel()
    assert fewer == 8 * numbers


def test_other_systems_are_counted_as_they_are():
    settings = experiment("darcy", "transolver", "paper")
    settings = replace(settings, problem=settings.problem.small())
    network = build(settings).eval()
    cpu, spec = torch.device("cpu"), settings.problem.spec
    one, four = (
        counts.inference_flops(
            network, random_question(spec, n, None, cpu, needs=network.needs), plain=False
        )
        for n in (256, 1024)
    )
    assert 3.5 < four / one < 4


class Peeking(Operator):
    """A model that looks at numbers."""

    def forward(self, asked):
        return asked.values[:, None] * float(asked.values.sum())


def test_a_model_that_looks_at_numbers_is_not_counted():
    assert counts.inference_flops(Peeking(None, SPEC), batch(), plain=False) is None
