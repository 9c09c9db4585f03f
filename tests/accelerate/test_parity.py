"""An accelerated model is the model, in what it answers and in all gradients.

The reference is the model itself in float64. Everything that a model, a batch and a way to compute
can differ in is an axis below; cases are drawn so that every two values of two axes meet in one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
import torch
from contracts.cases import CASES, model_variants

from ipot.accelerate import accelerate, chunks, cuda, operators
from ipot.accelerate import attention as ways
from ipot.accelerate.cpu import blockwise
from ipot.accelerate.cpu import build as library
from ipot.accelerate.cpu.build import why_not, why_not_bf16
from ipot.accelerate.fixed_mesh import FixedMesh

from .models import batch_for, build, distance, doubled, exactly, numbers

pytestmark = pytest.mark.plain  # the hook that checks shapes would wrap Triton's kernels themselves
GPU = torch.cuda.is_available()
KERNELS = "bf16" if GPU else "float32"
"""What Triton's kernels are for; its interpreter cannot multiply in bf16."""
ON_GPU = ("auto", "plain", "fused", "kernel")
ROUNDING = {"float64": (1e-10, 1e-3), "float32": (1e-4, 1e-3), "bf16": (0.03, 0.03)}
"""For each precision what a number may be off by at least, and see `distance`."""
AXES: dict[str, tuple[Any, ...]] = {
    "attention": ("auto", "uncompiled", "plain", "fused", "native", "blocks", "halves", "kernel"),
    "how": ("whole", "fixed", "streamed", "pieces", "chunks"),
    "precision": ("float32", "bf16", "float64"),
    "learn": (True, False),
    "queries": ("own", "shared", "points", "moving"),
    "decoder": ("full", "narrow", "unlifted"),
    "outside": ("bare", "normalized", "globe"),
    "kind": ("ipot", "transformer"),
    "times": ((1.0,), (1.0, 3.0)),
    "heads": (1, 2),
    "outputs": (1, 2),
    "masked": (False, True),
    "shared": (False, True),
    "parameters": (False, True),
    "bias": (False, True),
    "tied": (False, True),
    "frozen": (False, True),
    "strided": (False, True),
}


def allowed(case: dict[str, Any]) -> bool:
    """Whether there is such a case; axes that are not drawn yet are no hindrance."""
    path, how, precision, learn = (case.get(k) for k in ("attention", "how", "precision", "learn"))
    refused = (
        path == "native" and precision not in (None, "float32"),
        path == "halves" and (precision not in (None, "bf16") or learn),
        path == "kernel" and precision not in (None, KERNELS),
        how in ("fixed", "pieces") and learn is False,
        how == "chunks" and learn,
        how == "streamed" and case.get("kind") == "transformer",
        learn is False and case.get("frozen"),
    )
    return not any(refused)


def every_pair(axes: dict[str, tuple[Any, ...]], seed: int = 0) -> list[dict[str, Any]]:
    """Cases in which every two values of two axes meet, if they can."""
    random, made = Random(seed), []
    left = {
        ((a, x), (b, y))
        for a, b in combinations(axes, 2)
        for x, y in product(axes[a], axes[b])
        if allowed({a: x, b: y})
    }

    def drawn(pair: Any) -> list[dict[str, Any]]:
        found = (
            {a: random.choice(values) for a, values in axes.items()} | dict(pair) for _ in range(60)
        )
        return [case for case in found if allowed(case)]

    def met(case: dict[str, Any]) -> set[Any]:
        return left & set(combinations(case.items(), 2))

    while left:
        pair = min(left, key=repr)
        left.remove(pair)  # a third axis may forbid it
        if cases := drawn(pair):
            made.append(max(cases, key=lambda case: len(met(case))))
            left -= met(made[-1])
    return made


@pytest.fixture
def everywhere(monkeypatch):
    """Sizes do not decide: what is for many rows is done for few."""
    monkeypatch.setattr(ways, "FEW", 0)
    for name, value in {"FEW": 0, "MANY": 0, "SCORES": 64, "SHORT": 4}.items():
        monkeypatch.setattr(blockwise, name, value)


def _chunked(model, batch):
    """As `predict` asks for what is too large: inputs in chunks, queries in pieces."""
    states = model.roll_on(operators.encode(model, batch, at_once=12), batch.times)
    parts = [slice(i, i + 4) for i in range(0, batch.queries.shape[-2], 4)]
    return torch.cat([model.decode_all(states, batch.queries[..., p, :]) for p in parts], 2)


def on_gpu(batch):
    """The batch there; queries that are the points still are."""
    moved = batch.to("cuda")
    return replace(moved, queries=moved.points) if batch.queries is batch.points else moved


def found_by(case, model, batch, monkeypatch) -> dict[str, torch.Tensor]:
    """The numbers of an accelerated model."""
    how, cast = case["how"], case["precision"] == "bf16"
    if case["attention"] == "uncompiled":
        monkeypatch.setattr(library, "_tried", lambda: (None, "left out by a test"))
    if how == "streamed":
        for name in ("STREAMED", "STREAMED_ON_CPU", "STREAMED_IN_TRAINING"):
            monkeypatch.setattr(chunks, name, 0)
        monkeypatch.setattr(chunks, "ROWS_AT_ONCE", {"cpu": 12, "cuda": 12})
        monkeypatch.setattr(chunks, "ROWS_BY_KERNEL", (12,) * 3)
    if how == "pieces":
        monkeypatch.setattr(operators, "ROWS_AT_ONCE", 1)
        monkeypatch.setattr(operators, "LEAN", 1)
    forced = "auto" if case["attention"] == "uncompiled" else case["attention"]
    quick = accelerate(model, training=case["learn"], attention=forced)
    if how == "fixed":
        still = batch.queries.ndim == 3 and len(batch.queries) == 1
        points = batch.points if len(batch.points) == 1 else None
        FixedMesh(quick, points, batch.queries if still else None, cast=cast)
    answer = _chunked if how == "chunks" else lambda m, b: m(b)
    return numbers(quick, batch, answer=answer, learn=case["learn"], places=how != "fixed")


def lacking(case) -> str | None:
    """What a case needs and is not here."""
    if case["attention"] == "native":
        return why_not()
    if case["attention"] == "halves":
        return why_not_bf16()
    if case["attention"] == "kernel" and not cuda.available(torch.device("cuda" if GPU else "cpu")):
        return "Triton is not installed, or this GPU is not for it"
    return None


def told(case) -> str:
    return (
        "-".join(str(v) for v in case.values() if v not in (True, False))
        + "-"
        + "".join(name[0] for name, value in case.items() if value is True)
    )


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("case", every_pair(AXES), ids=told)
def test_an_accelerated_model_is_the_model(case, monkeypatch):
    if why := lacking(case):
        pytest.skip(why)
    sizes = ("kind", "decoder", "outside", "parameters", "bias", "tied", "heads", "outputs")
    model = build(**{name: case[name] for name in sizes})
    layout = ("masked", "shared", "queries", "times", "strided")
    few = {"size": 2, "n": 5, "m": 7} if case["attention"] == "kernel" and not GPU else {}
    batch = batch_for(model, **{name: case[name] for name in layout}, **few)
    if case["frozen"]:
        for p in list(model.parameters())[::2]:
            p.requires_grad_(False)
    options = {"learn": case["learn"], "places": case["how"] != "fixed"}
    exact = exactly(model, batch, **options)
    if case["precision"] == "float64":
        model, batch = model.double(), doubled(batch)
    if GPU and case["attention"] in ON_GPU:
        model, batch = model.cuda(), on_gpu(batch)
    kind, cast = batch.values.device.type, case["precision"] == "bf16"
    with torch.autocast(kind, torch.bfloat16, enabled=cast, cache_enabled=False):
        usual = numbers(model, batch, answer=lambda m, b: m(b), **options)
        found = found_by(case, model, batch, monkeypatch)
    # As near as the layers one by one, whose rounding is chance as well.
    floor, least = ROUNDING[case["precision"]]
    most = {n: floor + 4 * off for n, off in distance(usual, exact, least).items()}
    off = distance(found, exact, least)
    assert {n: (o, most[n]) for n, o in off.items() if not o <= most[n]} == {}


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("name", ["grid", "sensors", "some-points", "mesh"])
@pytest.mark.parametrize("variant", model_variants())
def test_every_model_there_is(name, variant, learn):
    case = CASES[name]()
    model, batch = case.build(*variant), case.batch()
    if batch.queries.ndim == 3 and not learn and name == "grid":
        model, batch = model.float(), batch.astype(torch.float32)
    options = {"learn": learn, "places": False, "answer": lambda m, b: m(b)}
    exact = numbers(model, batch, **options)
    found = numbers(accelerate(model, training=learn), batch, **options)
    most = 1e-9 if batch.values.dtype == torch.float64 else 1e-4
    assert max(distance(found, exact).values()) < most
