"""Random batches with something extreme about them: their sizes, numbers, masks or memory."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from campaign.attack import Case
from campaign.attacks._random_models import BOUND, GRIDDED, spec_of

SCALES = (1.0, 1.0, 1.0, 1.0, 1e-30, 1e-10, 1e-3, 1e3, 1e10, 1e12)
"""With offsets up to 1e6 above them. The variance of a norm overflows in float32 at 1e19, in the
formula too; numbers like that are scaled before they reach a model."""
OFFSETS = (0.0, 0.0, 0.0, 0.0, 10.0, 1e3, 1e6)
RUBBISH = ("zeros", "other")
"""What stands where there is padding: numbers. NaN is not promised to be harmless, since zero times
NaN is NaN in the formula too, and `collate` pads with zeros."""
WITHOUT_POINTS = ("ipot", "transformer", "perceiver_io")
"""Models that can answer from parameters alone."""
NEIGHBOURHOOD = 5
"""Points without which a graph has no neighbours."""
COUNTS = (1, 2, 7, 16, 33, 64, 130, 200)


def draw_batch(random: Random, name: str, spec: Case) -> Case:
    """Sizes and peculiarities; sizes of ragged samples follow from the seed."""
    points, grid = random.choice(COUNTS), None
    if name in GRIDDED:
        grid = [random.choice((4, 6, 9)) for _ in range(spec["dimension"])]
    elif random.random() < 0.2 and not spec["globe"]:
        grid = [random.choice((1, 3, 5)) for _ in range(spec["dimension"])]
    if grid:
        points = torch.Size(grid).numel()
    layouts = ("shared", "shared", "own", "own", "ragged", "ragged", "ragged")
    layout = random.choice(layouts) if name not in (*GRIDDED, "deeponet") else "shared"
    if name == "deeponet":
        grid = None
    if name == "meshgraphnet":
        points = max(points, NEIGHBOURHOOD)
    if spec["parameters"] and name in WITHOUT_POINTS and not grid and random.random() < 0.3:
        points = 0
    return {
        "size": random.choice((1, 2, 3, 5)),
        "points": points,
        "queries": random.choice(COUNTS),
        "layout": layout,
        "grid": grid if layout == "shared" else None,
        "places": "bound" if name in BOUND else random.choice(("apart", "apart", "bound", "some")),
        "moving": name in ("ipot", "transformer") and random.random() < 0.1,
        "duplicates": random.random() < 0.15,
        "numbers": random.choice(("normal",) * 4 + ("zeros", "constant")),
        "scale": random.choice(SCALES),
        "offset": random.choice(OFFSETS),
        "memory": random.choice(("plain", "plain", "plain", "strided", "shifted")),
        "rubbish": random.choice(RUBBISH),
        "seed": random.randrange(1 << 16),
    }


def samples_of(case: Case) -> list[Any]:
    """The samples of a case, with targets; those of a shared mesh have the very same points."""
    from ipot.samples import Sample

    batch, spec = case["batch"], spec_of(case)
    random = torch.Generator().manual_seed(batch["seed"])
    times = tuple(float(t) for t in range(1, spec.steps + 1))
    mesh: tuple[Tensor, Tensor] | None = None
    samples = []
    for index in range(batch["size"]):
        if mesh is None or batch["layout"] != "shared":
            mesh = _mesh(case, index, random)
        points, queries = mesh
        moving = _moved(queries, len(times)) if batch["moving"] else queries
        targets = torch.randn(len(times), queries.shape[-2], len(spec.outputs), generator=random)
        parameters = None
        if spec.parameters:
            parameters = torch.randn(len(spec.parameters), generator=random)
        samples.append(
            Sample(
                points=points,
                values=_values(batch, len(points), spec.channels, random),
                queries=moving,
                targets=targets,
                times=times,
                parameters=parameters,
                grid=tuple(batch["grid"]) if batch["grid"] else None,
                query_grid=tuple(batch["grid"]) if batch["grid"] and queries is points else None,
                index=index,
            )
        )
    return samples


def _mesh(case: Case, index: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points and queries of a sample."""
    batch, dimension = case["batch"], case["spec"]["dimension"]
    count, asked = batch["points"], batch["queries"]
    if batch["layout"] == "ragged" and index:  # the first is as large as the case says
        least = _least(case)
        count = int(torch.randint(min(least, count), count + 1, (), generator=random))
        asked = int(torch.randint(1, asked + 1, (), generator=random))
    if batch["grid"]:
        axes = [torch.arange(n) / n for n in batch["grid"]]
        points = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    else:
        points = torch.rand(count, dimension, generator=random)
    if case["spec"]["globe"]:
        points = (points - 0.5) * torch.tensor([360.0, 180.0])
    if batch["duplicates"] and case["model"]["name"] != "meshgraphnet":
        points[count // 2 :] = points[: count - count // 2].clone()
    if batch["places"] == "bound" and count and not batch["moving"]:
        return points, points
    queries = torch.rand(asked, dimension, generator=random)
    if case["spec"]["globe"]:
        queries = (queries - 0.5) * torch.tensor([360.0, 180.0])
    if batch["places"] != "apart":
        some = min(count, asked)
        queries[:some] = points[:some]
    return points, queries


def _least(case: Case) -> int:
    """Points that a sample must have."""
    name = case["model"]["name"]
    if name == "meshgraphnet":
        return NEIGHBOURHOOD
    return 0 if case["spec"]["parameters"] and name in WITHOUT_POINTS else 1


def _moved(queries: Tensor, count: int) -> Tensor:
    return torch.stack([queries * (1.0 - 0.1 * t) for t in range(count)])


def _values(batch: Case, count: int, channels: int, random: torch.Generator) -> Tensor:
    normal = torch.randn(count, channels, generator=random)
    if batch["numbers"] == "zeros":
        return torch.zeros_like(normal)
    if batch["numbers"] == "constant":
        normal = torch.ones_like(normal)
    return ((normal.double() + batch["offset"]) * batch["scale"]).float()


def clean(samples: list[Any], device: torch.device | str = "cpu") -> Any:
    """The batch on a device, with zeros where there is padding."""
    from ipot.samples import collate

    batch = collate(samples).to(device)
    same = all(s.queries is s.points for s in samples)
    return replace(batch, queries=batch.points) if same else batch


def spoiled(batch: Any, case: Case) -> Any:
    """The batch with rubbish where there is padding, and its numbers elsewhere in memory."""
    kind, memory = case["batch"]["rubbish"], case["batch"]["memory"]
    same = batch.queries is batch.points
    changes: dict[str, Any] = {}
    if kind != "zeros" and batch.point_mask is not None:
        nothing = ~batch.point_mask.unsqueeze(-1)
        # Of the size of the others: what overflows in the padding is NaN after the first norm.
        value = (case["batch"]["offset"] - 7.0) * case["batch"]["scale"]
        changes["points"] = torch.where(nothing, -7e3, batch.points)
        changes["values"] = torch.where(nothing, value, batch.values)
    if kind != "zeros" and batch.query_mask is not None and not same:
        nothing = ~batch.query_mask.unsqueeze(-1)
        nothing = nothing.unsqueeze(1) if batch.queries.ndim == 4 else nothing
        changes["queries"] = torch.where(nothing, 9e3, batch.queries)
    batch = replace(batch, **changes)
    names = ("points", "values", "queries", "parameters", "point_mask", "query_mask")
    moved = {name: _laid(getattr(batch, name), memory) for name in names}
    batch = replace(batch, **moved)
    return replace(batch, queries=batch.points) if same else batch


def _laid(tensor: Tensor | None, memory: str) -> Tensor | None:
    """A tensor's numbers laid out otherwise: every other one of a larger tensor, or unaligned."""
    if tensor is None or memory == "plain":
        return tensor
    other = True if tensor.dtype == torch.bool else float("nan")
    if memory == "strided":
        room = tensor.new_full((*tensor.shape, 2), other)
        room[..., 0] = tensor
        return room[..., 0]
    room = tensor.new_full((tensor.numel() + 1,), other)
    room[1:] = tensor.flatten()
    return room[1:].view(tensor.shape)
