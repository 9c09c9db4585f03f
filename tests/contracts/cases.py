"""Small problems, small models, and batches of every kind, for whatever the registry holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from ipot import registry
from ipot.data.statistics import Statistics
from ipot.errors import Unsupported
from ipot.models._wrappers import wrap
from ipot.models.base import Operator
from ipot.problems.base import Problem
from ipot.samples import Batch, Sample, collate
from ipot.spec import Need, Spec

SMALL_MODEL = {
    "width": 16,
    "latents": 5,
    "blocks": 2,
    "heads": 2,
    "cross_heads": 2,
    "bins": (3,),
    "max_frequency": (6.0,),
    "layers": 2,
    "modes": 3,
    "code": 5,
    "dynamics": 16,
    "fit_steps": 4,
    "rotary": (9.0, 2.0),
    "cross_rotary": 4.0,
    "decoder_width": 12,
    "latent_width": 14,
}
"""Sizes for any model that has fields of these names."""

ON_A_GRID = frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS})

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "fno": {"default": {"modes": (3,), "padding": (0.5,)}},
    "ffno": {
        "default": {"modes": (3,), "padding": (0.5,), "latent": (8,), "map_width": 8},
        "mapped": {"modes": (3,), "latent": (8,), "map_width": 8, "mapped": True, "shared": False},
    },
    "ipot": {
        "default": {},
        "paper": {
            "coordinates": "raw",
            "tied": True,
            "lifted": False,
            "local": False,
            "decoder": "narrow",
            "cross_head_width": 4,
            "encoder_feed_forward": 4,
            "output_scale": 0.1,
        },
    },
    "meshgraphnet": {
        "default": {},
        "nearest": {"edges": "nearest", "neighbours": 4},
        "radius": {"edges": "radius", "radius": 0.6, "positions": False, "recompute": True},
    },
    "transformer": {
        "default": {},
        "paper": {
            "coordinates": "raw",
            "tied": True,
            "lifted": False,
            "local": False,
            "decoder": "narrow",
            "cross_head_width": 4,
        },
    },
    # Without these the coarsest of its lattices, about 200 places, has a million weights.
    "lattice": {"default": {"width": 8, "most_width": 16, "blocks": 1}},
    "relay": {
        "default": {"states": 6},
        "points": {"states": 6, "stepping": "points", "stencil": 3, "neighbours": 3},
        "global": {"states": 6, "decoder": "global", "mixing": False},
    },
    "transolver": {
        "default": {"slices": 4, "reference": 3},
        "points": {"slices": 4, "reference": 0, "projection": "points"},
        "grid": {"slices": 4, "reference": 0, "projection": "grid"},
    },
    "lrsa": {
        "default": {"reference": 3},
        "points": {"reference": 0, "mixing": "points"},
    },
    "perceiver_io": {
        "default": {},
        "repeated": {"repeats": 2, "cross_heads": 1, "feed_forward": 2},
    },
    "deeponet": {"default": {}, "tanh": {"basis": 3, "activation": "tanh"}},
    "oformer": {
        "default": {},
        "fourier": {"attention": "fourier", "heads": 1, "propagators": 2, "latent_width": 12},
    },
}
"""Settings that change what a model is; one that is not listed is tested as it comes."""


def tiny(problem: Problem) -> Problem:
    """The problem at its small sizes, with two steps where it has any."""
    small = problem.small()
    return small.with_steps(2) if small.spec.steps > 1 else small


def small_config(name: str, **changes: Any) -> Any:
    """A model's settings at small sizes."""
    config = registry.module("models", name).Config()
    own = {f.name for f in dataclasses.fields(config)}
    wanted = {k: v for k, v in SMALL_MODEL.items() if k in own}
    return dataclasses.replace(config, **wanted | changes)


def model_variants() -> list[Any]:
    """(model, changes) for every model of the registry."""
    return [
        pytest.param((name, changes), id=f"{name}-{variant}")
        for name in registry.names("models")
        for variant, changes in VARIANTS.get(name, {"default": {}}).items()
    ]


@dataclass(frozen=True)
class Case:
    """A spec and samples that agree with it."""

    spec: Spec
    samples: list[Sample]

    def batch(self) -> Batch:
        """All samples, in float64."""
        return collate(self.samples)

    def build(self, name: str, changes: dict[str, Any]) -> Operator:
        """A model for the spec in float64, inside scales that are not trivial."""
        kind = registry.find("models", name)
        config = small_config(name, **changes)
        torch.manual_seed(0)
        try:
            inner = kind(config, self.spec)
        except Unsupported as refusal:
            missing = [need.value for need in Need if need not in self.spec.provides]
            if self.spec.dimension != self.spec.query_dimension:
                missing.append("in different spaces")
            if not any(words in str(refusal) for words in missing):
                raise
            pytest.skip(str(refusal))
        assert kind.needs <= self.spec.provides
        sizes = (self.spec.channels, len(self.spec.outputs), len(self.spec.parameters))
        scales = Statistics.identity(*sizes).tensors()
        scales = {k: v + 0.25 * (1 + torch.arange(len(v))) for k, v in scales.items()}
        return wrap(inner, Statistics(**scales)).double().eval()


def _draw(seed: int) -> Callable[..., Tensor]:
    random = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.rand(shape, generator=random, dtype=torch.float64)


def _spec(*, d=2, e=0, c=1, k=1, p=0, **facts: Any) -> Spec:
    return Spec(
        name="toy",
        inputs=tuple(f"a{i}" for i in range(c)),
        outputs=tuple(f"u{i}" for i in range(k)),
        parameters=tuple(f"p{i}" for i in range(p)),
        domain=((0.0, 1.0),) * d,
        query_domain=((0.0, 2.0),) * e,
        **facts,
    )


def _samples(spec: Spec, sizes, times=(1.0,), moving=False, **fixed: Any) -> list[Sample]:
    made = []
    for index, (n, m) in enumerate(sizes):
        draw = _draw(index)
        t, e = len(times), spec.query_dimension
        fields = {
            "points": draw(n, spec.dimension),
            "values": draw(n, spec.channels),
            "queries": draw(t, m, e) if moving else draw(m, e),
            "targets": draw(t, m, len(spec.outputs)),
            "parameters": draw(len(spec.parameters)) if spec.parameters else None,
        }
        made.append(Sample(**fields | fixed, times=times, index=index))
    return made


def _grid() -> Case:
    """One regular grid, shared by inputs and queries of all samples."""
    line = torch.arange(8, dtype=torch.float64) / 8
    mesh = torch.cartesian_prod(line, line)
    spec = _spec(periods=(1.0, 1.0), provides=ON_A_GRID, shape=(8, 8))
    fixed = {"points": mesh, "queries": mesh, "grid": (8, 8), "query_grid": (8, 8)}
    return Case(spec, _samples(spec, [(64, 64)] * 3, **fixed))


def _ragged() -> Case:
    spec = _spec(c=2, k=2)
    return Case(spec, _samples(spec, [(5, 7), (9, 3), (2, 6)]))


def _parameters() -> Case:
    spec = _spec(k=2, p=3)
    return Case(spec, _samples(spec, [(5, 7), (9, 3)]))


def _only_parameters() -> Case:
    """No input function at all: numbers in, a field out."""
    spec = _spec(c=0, k=2, p=3)
    return Case(spec, _samples(spec, [(0, 7), (0, 3)]))


def _only_parameters_shared() -> Case:
    """The same where all samples share their empty mesh."""
    spec = _spec(c=0, k=2, p=3)
    return Case(spec, _samples(spec, [(0, 4), (0, 4)], points=torch.zeros(0, 2).double()))


def _some_points() -> Case:
    """Parameters in every sample, and points in only one."""
    spec = _spec(k=2, p=2)
    return Case(spec, _samples(spec, [(0, 4), (6, 5)]))


def _geometry() -> Case:
    """No values: where the points lie is the input."""
    spec = _spec(c=0, k=2)
    return Case(spec, _samples(spec, [(4, 4), (6, 5)]))


def _two_spaces() -> Case:
    """Inputs on a line, answers in space."""
    spec = _spec(d=1, e=3, k=2)
    return Case(spec, _samples(spec, [(5, 7), (8, 4)]))


def _moving() -> Case:
    """A mesh that moves."""
    spec = _spec(k=2, steps=3)
    return Case(spec, _samples(spec, [(5, 7), (8, 4)], times=(1.0, 2.0, 3.0), moving=True))


def _several_times() -> Case:
    """Some steps are skipped, and a step is not one unit of time."""
    spec = _spec(k=2, dt=0.5, steps=5)
    return Case(spec, _samples(spec, [(5, 7), (8, 4)], times=(1.0, 2.5)))


def _line() -> Case:
    """A grid of one axis, with two channels and a parameter."""
    mesh = (torch.arange(12, dtype=torch.float64) / 11).unsqueeze(-1)
    spec = _spec(d=1, c=2, k=2, p=1, provides=ON_A_GRID, shape=(12,))
    fixed = {"points": mesh, "queries": mesh, "grid": (12,), "query_grid": (12,)}
    return Case(spec, _samples(spec, [(12, 12)] * 2, **fixed))


def _block() -> Case:
    """A grid of three axes, none like another."""
    shape = (6, 8, 7)
    lines = [torch.linspace(0, 1, n, dtype=torch.float64) for n in shape]
    mesh = torch.cartesian_prod(*lines)
    spec = _spec(d=3, k=2, provides=ON_A_GRID, shape=shape)
    fixed = {"points": mesh, "queries": mesh, "grid": shape, "query_grid": shape}
    return Case(spec, _samples(spec, [(len(mesh), len(mesh))] * 2, **fixed))


def _globe() -> Case:
    """A grid of latitudes and longitudes, as unit vectors."""
    north = (torch.arange(6, dtype=torch.float64) + 0.5) * torch.pi / 6
    east = torch.arange(8, dtype=torch.float64) * torch.pi / 4
    theta, phi = torch.cartesian_prod(north, east).unbind(-1)
    mesh = torch.stack([phi.cos() * theta.sin(), phi.sin() * theta.sin(), theta.cos()], -1)
    spec = Spec(
        name="toy",
        inputs=("a",),
        outputs=("u",),
        domain=((-1.0, 1.0),) * 3,
        sphere=True,
        provides=ON_A_GRID,
        shape=(6, 8),
    )
    fixed = {"points": mesh, "queries": mesh, "grid": (6, 8), "query_grid": (6, 8)}
    return Case(spec, _samples(spec, [(48, 48)] * 2, **fixed))


def _film() -> Case:
    """Three past frames and a static channel on a grid, three steps to take."""
    line = torch.arange(8, dtype=torch.float64) / 8
    mesh = torch.cartesian_prod(line, line)
    facts = {"periods": (1.0, 1.0), "provides": ON_A_GRID, "shape": (8, 8)}
    spec = _spec(c=4, k=1, history=3, steps=3, dt=0.5, **facts)
    fixed = {"points": mesh, "queries": mesh, "grid": (8, 8), "query_grid": (8, 8)}
    return Case(spec, _samples(spec, [(64, 64)] * 2, times=(0.5, 1.0, 1.5), **fixed))


def _sensors() -> Case:
    """A past frame of two channels at any points, two steps to take, any queries."""
    spec = _spec(c=2, k=2, history=1, steps=2)
    return Case(spec, _samples(spec, [(9, 7), (6, 4)], times=(1.0, 2.0)))


def _stations() -> Case:
    """The same scattered points in every sample, other queries, a parameter."""
    spec = _spec(c=2, k=2, p=1, provides=frozenset({Need.FIXED_POINTS}), shape=(6,))
    return Case(spec, _samples(spec, [(6, 7), (6, 3)], points=_draw(7)(6, 2)))


def _cloud() -> Case:
    """Asked where seen, at points of each sample's own."""
    spec = _spec(c=2, k=2, p=1, provides=frozenset({Need.SAME_POINTS}))
    samples = _samples(spec, [(9, 9), (12, 12), (8, 8)])
    return Case(spec, [dataclasses.replace(s, queries=s.points) for s in samples])


def _mesh() -> Case:
    """The same with edges between the points."""
    spec = _spec(c=1, k=2, provides=frozenset({Need.SAME_POINTS, Need.EDGES}))
    samples = _samples(spec, [(7, 7), (9, 9)])
    rings = [torch.stack([(r := torch.arange(n)), (r + 1) % n]) for n in (7, 9)]
    return Case(
        spec,
        [
            dataclasses.replace(s, queries=s.points, edges=e)
            for s, e in zip(samples, rings, strict=True)
        ],
    )


def all_at_once() -> Case:
    """Some points in one sample alone, parameters, and queries that move."""
    spec = _spec(k=2, p=2, steps=3)
    sizes, times = [(0, 4), (6, 5)], (1.0, 2.0, 3.0)
    return Case(spec, _samples(spec, sizes, times=times, moving=True))


CASES: dict[str, Callable[[], Case]] = {
    "grid": _grid,
    "ragged": _ragged,
    "parameters": _parameters,
    "only-parameters": _only_parameters,
    "only-parameters-shared": _only_parameters_shared,
    "some-points": _some_points,
    "geometry": _geometry,
    "two-spaces": _two_spaces,
    "moving": _moving,
    "several-times": _several_times,
    "line": _line,
    "block": _block,
    "globe": _globe,
    "film": _film,
    "sensors": _sensors,
    "stations": _stations,
    "cloud": _cloud,
    "mesh": _mesh,
}
