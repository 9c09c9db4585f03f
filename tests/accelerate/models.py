"""Small models with nothing at its start, batches for them, and the numbers to compare."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ipot.accelerate.twins import Target
from ipot.data.statistics import Statistics
from ipot.models._wrappers import seen_spec, wrap, wrap_globe
from ipot.models.ipot import IPOT
from ipot.models.ipot import Config as IPOTConfig
from ipot.models.transformer import Config as TransformerConfig
from ipot.models.transformer import Transformer
from ipot.nn.attention import MultiHead
from ipot.samples import Batch
from ipot.spec import Spec

KINDS: dict[str, tuple[Any, Any, dict[str, int]]] = {
    "ipot": (IPOT, IPOTConfig, {"latents": 5}),
    "transformer": (Transformer, TransformerConfig, {}),
}
DECODERS = {
    "full": {},
    "narrow": {"decoder": "narrow", "local": False},
    "unlifted": {"decoder": "narrow", "lifted": False, "local": False, "cross_head_width": 16},
}


def shuffled(model: nn.Module, *, bias: bool = False) -> nn.Module:
    """Norms and biases that are not at their start, where they do nothing; with `bias` the
    projections of attention have them too."""
    for part in model.modules() if bias else ():
        if isinstance(part, MultiHead):
            for layer in (part.to_query, part.to_key_value):
                layer.bias = nn.Parameter(torch.empty(layer.out_features))
    for name, p in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            nn.init.normal_(p, 1.0, 0.5)
    return model


def make_spec(*, parameters: bool = False, globe: bool = False, steps: int = 3) -> Spec:
    """Two channels in, two out."""
    domain = ((-180.0, 180.0), (-90.0, 90.0)) if globe else ((0.0, 1.0),) * 2
    return Spec(
        name="toy",
        inputs=("a", "b"),
        outputs=("u", "v"),
        domain=domain,
        geographic=globe,
        parameters=("p", "q") if parameters else (),
        steps=steps,
    )


def build(
    kind: str = "ipot",
    decoder: str = "full",
    *,
    outside: str = "bare",
    parameters: bool = False,
    bias: bool = False,
    tied: bool = False,
    heads: int = 2,
    outputs: int = 2,
    width: int = 16,
) -> Any:
    """A model of which nothing is at its start."""
    torch.manual_seed(0)
    spec = make_spec(parameters=parameters, globe=outside == "globe")
    spec = replace(spec, outputs=spec.outputs[:outputs])
    made, config, sizes = KINDS[kind]
    settings = {"width": width, "blocks": 2, "heads": heads, "cross_heads": heads, "tied": tied}
    settings |= {"bins": (2,), "max_frequency": (4.0,), "output_scale": 0.5}
    inner = made(config(**settings | sizes | DECODERS[decoder]), seen_spec(spec))
    model = wrap_globe(shuffled(inner, bias=bias), spec)
    if outside == "normalized":
        tensors = Statistics.identity(2, outputs, len(spec.parameters)).tensors()
        return wrap(model, Statistics(**{k: v + 0.25 for k, v in tensors.items()}))
    return model


def batch_for(
    model: Any,
    *,
    masked: bool = False,
    shared: bool = False,
    queries: str = "own",
    times: tuple[float, ...] = (1.0,),
    strided: bool = False,
    size: int = 3,
    n: int = 11,
    m: int = 9,
) -> Batch:
    """Random samples. Queries are each sample's own, shared, the points themselves, or move."""
    random = torch.Generator().manual_seed(1)
    low, high = torch.tensor(model.spec.domain).unbind(-1)

    def draw(*shape: int) -> Tensor:
        made = torch.rand(*shape, 2, generator=random)
        return made.mT.contiguous().mT if strided else made

    points = low + (high - low) * draw(1 if shared else size, n)
    asked = {"own": (size, m), "shared": (1, m), "moving": (size, len(times), m)}
    mask = torch.rand(size, n, generator=random) < 0.6 if masked else None
    if mask is not None:
        mask[:, 0] = True
    return Batch(
        points=points,
        values=draw(size, n) * 2 - 1,
        queries=points if queries == "points" else low + (high - low) * draw(*asked[queries]),
        times=times,
        parameters=torch.rand(size, 2, generator=random) if model.spec.parameters else None,
        point_mask=mask,
        query_mask=mask if queries == "points" else None,
    )


Answer = Callable[[Any, Batch], Tensor]


def numbers(
    model: nn.Module, batch: Batch, *, learn: bool, answer: Answer, places: bool = True
) -> dict[str, Tensor]:
    """What a model answers; with `learn` the gradients of its weights, values and places too."""
    if not learn:
        with torch.no_grad():
            return {"answer": answer(model, batch)}
    wanted = {n: p for n, p in model.named_parameters() if p.requires_grad}
    given = {"values": batch.values.detach().requires_grad_()}
    if places:
        given["points"] = batch.points.detach().requires_grad_()
        same = batch.queries is batch.points
        given["queries"] = given["points"] if same else batch.queries.detach().requires_grad_()
    batch = replace(batch, **given)
    leaves = list({id(t): t for t in (*wanted.values(), *given.values())}.values())
    names = [*wanted, *(n for n in given if n != "queries" or batch.queries is not batch.points)]
    out = answer(model, batch)
    towards = torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    if batch.query_mask is not None:
        towards = towards * batch.query_mask[:, None, :, None]
        out = out.masked_fill(~batch.query_mask[:, None, :, None], 0.0)
    found = torch.autograd.grad(out, leaves, towards, allow_unused=True, materialize_grads=True)
    return {"answer": out.detach(), **dict(zip(names, found, strict=True))}


def doubled(batch: Batch) -> Batch:
    """The batch in float64; queries that are the points still are."""
    wide = batch.astype(torch.float64)
    return replace(wide, queries=wide.points) if batch.queries is batch.points else wide


def exactly(model: nn.Module, batch: Batch, **options: Any) -> dict[str, Tensor]:
    """The same by the model as it is, in float64."""
    wide = doubled(batch)
    return numbers(copy.deepcopy(model).double(), wide, answer=lambda m, b: m(b), **options)


def distance(
    found: dict[str, Tensor], exact: dict[str, Tensor], least: float = 1e-3
) -> dict[str, float]:
    """How far numbers are from exact ones, as a part of these. Gradients that are small beside the
    largest, whose terms cancel, are measured by a `least` part of that."""
    largest = max((float(t.norm()) for n, t in exact.items() if n != "answer"), default=0.0)

    def size(name: str) -> float:
        own = float(exact[name].norm())
        return max(own if name == "answer" else max(own, least * largest), 1e-12)

    assert found.keys() == exact.keys()
    return {n: float((found[n].cpu().double() - t).norm()) / size(n) for n, t in exact.items()}


def target(
    attention: str = "auto",
    *,
    training: bool = True,
    products: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> Target:
    """What functions are given that an accelerated layer has of its own."""
    return Target(torch.device(device), products, training, attention)
