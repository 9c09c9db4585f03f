"""Diffusion on a circle with a source, in steps: a rollout that one stencil answers exactly."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from models.toys import Config, Stencil

from ipot.data.dataset import Stacked
from ipot.problems.base import Problem
from ipot.samples import Batch
from ipot.seeds import generator
from ipot.spec import Need, Spec

HISTORY, DT = 2, 0.5


def step(field, source):
    """The field one step later."""
    around = (field.roll(1, -1) + field.roll(-1, -1)) / 2
    return 0.5 * field + 0.5 * around + 0.3 * source


def movie(start, source, frames):
    """So many frames (S, frames, N) from the first one on."""
    made = [start]
    for _ in range(frames - 1):
        made.append(step(made[-1], source))
    return torch.stack(made, 1)


@dataclass(frozen=True, kw_only=True)
class Films(Problem):
    """Two past frames and a source in, the next frames out."""

    name: ClassVar[str] = "films"
    about: ClassVar[str] = "diffusion on a circle"
    source: ClassVar[str] = "a stencil"
    sizes: ClassVar[Mapping[str, int]] = {"train": 12, "validation": 4, "test": 4}

    size: int = 10
    """Points."""
    steps: int = 5
    """Steps of a rollout."""

    @property
    def spec(self):
        return Spec(
            name=self.name,
            inputs=("u(-1)", "u(0)", "f"),
            outputs=("u",),
            domain=((0.0, 1.0),),
            periods=(1.0,),
            dt=DT,
            steps=self.steps,
            history=HISTORY,
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
        )

    def generate(self, split, indices, *, seed, device, resolution):
        fields = [
            torch.randn(2, self.size, generator=generator(seed, f"films/{split}", i))
            for i in indices
        ]
        start, source = torch.stack(fields, 1)
        return {"film": movie(start, source, HISTORY + self.steps), "source": source}

    def dataset(self, fields, resolution, query_resolution):
        film, source = fields["film"], fields["source"]
        x = (torch.arange(self.size) / self.size).view(1, -1, 1)
        values = torch.cat([film[:, :HISTORY], source.unsqueeze(1)], 1).transpose(1, 2)
        return Stacked(
            Batch(
                points=x,
                values=values.contiguous(),
                queries=x,
                targets=film[:, HISTORY:].unsqueeze(-1),
                times=tuple(DT * (i + 1) for i in range(self.steps)),
                grid=(self.size,),
                query_grid=(self.size,),
            )
        )

    def bytes_each(self, resolution):
        return 4 * self.size * (HISTORY + self.steps + 1)

    def with_steps(self, steps):
        return replace(self, steps=steps)


PROBLEM = Films()


def films(count=12, split="train", **settings):
    """Samples without a store."""
    problem = replace(PROBLEM, **settings)
    fields = problem.generate(split, range(count), seed=0, device="cpu", resolution=None)
    return problem.dataset(fields, None, None)


def truth(spec):
    """The stencil that is the step itself."""
    model = Stencil(Config(bias=False), spec)
    with torch.no_grad():
        model.map.weight.copy_(torch.tensor([[0.0, 0.5, 0.3, 0.0, 0.5, 0.0]]))
    return model
