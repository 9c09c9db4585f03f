"""What is made from weights is made again when they change."""

import torch
from torch import nn

from ipot.nn.keep import kept


def counting():
    calls = []

    def make(layer, *, factor=1.0):
        calls.append(factor)
        return factor * layer.weight

    return make, calls


def test_made_once_and_again():
    layer, (make, calls) = nn.Linear(3, 2), counting()
    first = kept(layer, make, layer)
    assert kept(layer, make, layer) is first
    assert len(calls) == 1
    with torch.no_grad():
        layer.weight.mul_(2)
    assert torch.equal(kept(layer, make, layer), layer.weight)
    layer.weight = nn.Parameter(torch.ones(2, 3))
    assert torch.equal(kept(layer, make, layer), layer.weight)
    assert len(calls) == 3
    assert not kept(layer, make, layer).requires_grad


def test_other_options_are_another_question():
    layer, (make, calls) = nn.Linear(3, 2), counting()
    assert torch.equal(kept(layer, make, layer, factor=2.0), 2 * layer.weight)
    assert torch.equal(kept(layer, make, layer, factor=3.0), 3 * layer.weight)
    assert calls == [2.0, 3.0]


def test_weights_that_do_not_tell_are_never_trusted():
    with torch.inference_mode():
        layer = nn.Linear(3, 2)
        make, calls = counting()
        for _ in range(2):
            kept(layer, make, layer)
            layer.weight.mul_(2)
        assert torch.equal(kept(layer, make, layer), layer.weight)
    assert len(calls) == 3
