"""How many threads a task is worth, and tensors as the library reads them."""

import pytest
import torch

from ipot.accelerate.cpu import interface


@pytest.mark.parametrize(
    ("grains", "threads"), [(0, 1), (0.5, 1), (1, 1), (2, 2), (3, 3), (3.9, 3), (4, 3), (1000, 3)]
)
def test_as_many_threads_as_are_worth_it_and_as_torch_has(monkeypatch, grains, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert interface.threads(int(grains * interface.GRAIN)) == threads


def test_channels_side_by_side_are_not_copied():
    x = torch.randn(2, 5, 8)
    for part in (x, x[..., 2:4], x[:, ::2], x[..., :1], x[..., ::8]):
        assert interface.dense(part) is part
    turned = x.transpose(1, 2)
    assert interface.dense(turned).stride(-1) == 1
    assert torch.equal(interface.dense(turned), turned)
