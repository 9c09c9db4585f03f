"""A network with joined parameters beside one that torch updates, and the steps of both."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from ipot.training.optimizer import make_optimizer, set_rate
from ipot.training.settings import Training
from ipot.training.step import Ledger, Step

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


class Net(nn.Module):
    """Sizes that fill no unit, one that fills many shares, and one that learns only if asked."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.narrow = nn.Linear(33, 301), nn.Linear(301, 3)
        self.sometimes = nn.Parameter(torch.ones(5))
        self.last = nn.Parameter(torch.ones(()))

    def forward(self, x, sometimes=False):
        y = self.narrow(self.wide(x).tanh()) * self.last
        return y + self.sometimes.sum() if sometimes else y


class Pair:
    """A network with joined parameters and its twin, updated by torch and clipped by torch."""

    def __init__(self, *, clip=0.5, device="cpu", **settings):
        self.clip, self.device = clip, torch.device(device)
        settings = Training(**{"learning_rate": 1e-2, "weight_decay": 0.1, **settings})
        self.mine, self.twin = Net().to(self.device), Net().to(self.device)
        self.own, self.own_twin = (
            nn.Parameter(torch.linspace(-1, 1, 70, device=self.device)) for _ in range(2)
        )
        # Torch has one kind of decay in one optimiser.
        group = {"factor": 3.0, "weight_decay": 0.0 if settings.decay == "coupled" else 0.5}
        groups = [{"params": [self.own], **group}]
        self.optimizer = make_optimizer(self.mine, settings, groups, self.device)
        self.ledger = Ledger(clip, self.device)
        self.settings = replace(settings, clip=clip)
        coupled = settings.decay == "coupled"
        self.reference = (torch.optim.Adam if coupled else torch.optim.AdamW)(
            [{"params": list(self.twin.parameters())}, {"params": [self.own_twin], **group}],
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.random = torch.Generator().manual_seed(1)

    def differentiate(self, network, own, x, **options):
        for p in (own, *network.parameters()):
            p.grad = None
        (network(x, **options).square().mean() + (own * own.detach().cos()).sum()).backward()

    def step(self, **options):
        x = torch.randn(16, 33, generator=self.random).to(self.device)
        for optimizer in (self.optimizer, self.reference):
            set_rate(optimizer, 1e-2)
        self.differentiate(self.mine, self.own, x, **options)
        update(self.optimizer, self.ledger, self.settings)
        self.differentiate(self.twin, self.own_twin, x, **options)
        if self.clip is not None:
            twins = [*self.twin.parameters(), self.own_twin]
            nn.utils.clip_grad_norm_(twins, self.clip)
        self.reference.step()

    def pairs(self):
        mine, twins = (
            [p for group in o.param_groups for p in group["params"]]
            for o in (self.optimizer, self.reference)
        )
        return list(zip(mine, twins, strict=True))

    def assert_same(self):
        for p, twin in self.pairs():
            torch.testing.assert_close(p, twin, **CLOSE)
            state, expected = self.optimizer.state.get(p, {}), self.reference.state.get(twin, {})
            assert list(state) == list(expected)
            for name, value in state.items():
                torch.testing.assert_close(value, expected[name], **CLOSE)


def update(optimizer, ledger, settings=None):
    """What a step does behind its backward pass."""
    one = Step.__new__(Step)
    one.optimizer, one.ledger = optimizer, ledger
    one.settings = settings or Training(clip=ledger.clip)
    one.parameters = [p for group in optimizer.param_groups for p in group["params"]]
    one._update(torch.full((), 0.7, device=one.parameters[0].device))


def parted(parameters):
    return all(p.untyped_storage().nbytes() == p.numel() * 4 for p in parameters)
