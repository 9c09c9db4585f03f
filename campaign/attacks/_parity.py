"""Whether numbers are as near to the exact ones as honest rounding lets them be.

Exact is the plain path in float64. The plain path in the precision of what is tried says how much
of the exact answer rounding leaves, and where it leaves nothing (an overflow) there is no finding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from campaign.attack import Case, Lost

Numbers = dict[str, Tensor]
ANSWER = "answer"


@dataclass(frozen=True)
class Rounding:
    """How near numbers of a precision must come."""

    tolerance: float
    """Of the largest entry of an answer."""
    gradients: float
    """Of the largest entry of a gradient, whose terms cancel more often."""
    unit: float
    """What a weight is changed by, as a part of it, to see how much an answer depends on that."""
    least: float
    """Gradients smaller than this part of the largest of all are measured by that part."""


SINGLE = Rounding(tolerance=1e-4, gradients=1e-3, unit=2.0**-23, least=1e-3)
HALF = Rounding(tolerance=3e-2, gradients=3e-2, unit=2.0**-8, least=3e-2)
HONEST = 4.0
"""How much larger than that of the plain path an error may be: both are chance."""
OVERFLOWN = 0.1
"""An error of the plain path that says that something overflowed inside: a variance, say, whose
inverse is then zero. What is not finite then is no worse."""
TINY = 1e-30
"""Numbers as small as this may be lost to underflow."""


def ask(model: Any, batch: Any, case: Case, answer: Callable[[Any, Any], Tensor]) -> Numbers:
    """What a model answers, and the gradients that a case asks for."""
    if case["check"] == "answers":
        with torch.no_grad():
            return {ANSWER: _real(answer(model, batch), batch).detach()}
    asked = {f"gradient of {n}": p for n, p in model.named_parameters() if p.requires_grad}
    for name in case["inputs"]:
        tensor = getattr(batch, name).detach().requires_grad_()
        batch = replace(batch, **{name: tensor})
        asked[f"gradient of {name}"] = tensor
    out = answer(model, batch)
    random = torch.Generator().manual_seed(case["batch"]["seed"])
    upstream = torch.randn(out.shape, generator=random).to(out)
    if batch.query_mask is not None:
        upstream = upstream * batch.query_mask[:, None, :, None]
    found = torch.autograd.grad(
        out, list(asked.values()), upstream, allow_unused=True, materialize_grads=True
    )
    return {ANSWER: _real(out, batch).detach(), **dict(zip(asked, found, strict=True))}


def _real(out: Tensor, batch: Any) -> Tensor:
    """Zeros at padding, where anything may stand."""
    if batch.query_mask is None:
        return out
    return out.masked_fill(~batch.query_mask[:, None, :, None], 0.0)


def doubled(model: Any) -> Any:
    """A copy in float64."""
    return copy.deepcopy(model).double()


@contextmanager
def rounded_attention(unit: float, seed: int) -> Iterator[None]:
    """The plain path with what any way of computing it may lose: of scores, and of gradients of
    scores, a part as large as the terms that they are sums of. These may cancel by the book and
    not elsewhere: of a single key, say."""
    from ipot.nn import paths

    random = torch.Generator().manual_seed(seed)

    def noise(size: Tensor) -> Tensor:
        drawn = 2 * torch.rand(size.shape, generator=random, dtype=torch.float64) - 1
        return unit * size * drawn.to(size.device)

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        query, turned = query * query.shape[-1] ** -0.5, key.transpose(-1, -2)
        scores = query @ turned
        scores = scores + noise(query.detach().abs() @ turned.detach().abs())
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        # Weights that are made anew from the logarithm of their sum have its rounding in common.
        size = scores.detach().masked_fill(scores == float("-inf"), 0.0).abs()
        weights = scores.softmax(-1)
        weights = weights * (1 + noise(size.amax(-1, keepdim=True)))
        out = weights @ value
        if not out.requires_grad:
            return out
        kept: list[Tensor] = []
        out.register_hook(lambda g: kept.append(g.detach().abs()))
        terms, parts, mean = value.detach().abs().transpose(-1, -2), weights.detach(), out.detach()
        # A mean over keys is a sum of as many terms, each of which is rounded by chance.
        added = key.shape[-2] ** 0.5

        def lost(gradient: Tensor) -> Tensor:
            # What is lost of their mean is the same for all keys, and does not average out.
            for_all = added * noise((kept[-1] * mean.abs()).sum(-1, keepdim=True))
            return gradient + noise(parts * (kept[-1] @ terms)) + parts * for_all

        if scores.requires_grad:
            scores.register_hook(lost)
        return out

    with patch.object(paths, "plain_attention", attend):
        yield


def nudged(model: Any, unit: float, seed: int) -> Any:
    """A copy in float64 whose weights are rounded by chance."""
    changed, random = doubled(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in changed.parameters():
            noise = 2 * torch.rand(p.shape, generator=random, dtype=torch.float64) - 1
            p.mul_(1 + unit * noise.to(p.device))
    return changed


def finite(numbers: Numbers) -> bool:
    """Whether all of them are."""
    return all(bool(t.isfinite().all()) for t in numbers.values())


@dataclass(frozen=True)
class Yardstick:
    """The exact numbers, those of the plain path, and a way to ask how sensitive they are."""

    exact: Numbers
    plain: Numbers
    rounding: Rounding
    sensitive: Callable[[int], Numbers]
    """Exact numbers but for a rounding of weights and scores by chance, drawn by a seed."""

    def compare(self, found: Numbers, kind: str) -> None:
        """Raise `Lost` where numbers are further away than rounding explains."""
        suspects, overflown = {}, self._overflown()
        for name, exact in self.exact.items():
            ok = self._usable(name)
            if not bool(ok.any()):
                continue
            what = ANSWER if name == ANSWER else "gradients"
            given, size, honest = found[name].double(), self._size(name, ok), self._honest(name)
            if not bool(given[ok].isfinite().all()):
                if overflown:
                    continue
                raise Lost(f"{kind}: {name} not finite", f"{kind}, {what} not finite")
            error = float((given - exact)[ok].abs().max()) / size
            allowed = self.rounding.tolerance if name == ANSWER else self.rounding.gradients
            if not error <= max(allowed, HONEST * honest):
                suspects[name] = (error, honest, size, ok, what)
        self._judge(suspects, kind)

    def _judge(self, suspects: dict[str, tuple], kind: str) -> None:
        """What looks wrong may be sensitive to any rounding: asked only where it matters."""
        if not suspects:
            return
        others = [self.sensitive(seed) for seed in range(3)]
        for name, (error, honest, size, ok, what) in suspects.items():
            moved = [(other[name] - self.exact[name])[ok].abs().max() for other in others]
            spread = float(torch.stack(moved).max()) / size
            if not error <= HONEST * spread:
                raise Lost(
                    f"{kind}: {name} differs by {error:.2g} of its largest entry; the plain way by "
                    f"{honest:.2g}, and {spread:.2g} if weights and scores are rounded",
                    f"{kind}, {what} differ",
                )

    def _honest(self, name: str) -> float:
        """The error of the plain path, as a part of the largest entry."""
        ok = self._usable(name)
        if not bool(ok.any()):
            return 0.0
        error = (self.plain[name].double() - self.exact[name])[ok].abs().max()
        return float(error) / self._size(name, ok)

    def _overflown(self) -> bool:
        return any(self._honest(name) > OVERFLOWN for name in self.exact)

    def _usable(self, name: str) -> Tensor:
        """Where the plain path is finite; gradients mix everything, so all of them or none."""
        ok = self.exact[name].isfinite() & self.plain[name].isfinite()
        return ok if name == ANSWER else ok & ok.all()

    def _size(self, name: str, ok: Tensor) -> float:
        own = float(self.exact[name][ok].abs().max())
        if name != ANSWER:
            own = max(own, self.rounding.least * self._largest_gradient())
        return max(own, TINY)

    def _largest_gradient(self) -> float:
        sizes = [t.abs().max() for n, t in self.exact.items() if n != ANSWER and t.numel()]
        usual = [float(s) for s in sizes if bool(s.isfinite())]
        return max(usual, default=0.0)
