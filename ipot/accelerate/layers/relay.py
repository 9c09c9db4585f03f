"""Quicker relays between points and inducing points, and neighbours of a fixed mesh."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ipot.accelerate.attention import attend
from ipot.accelerate.fixed_mesh import KeepsNeighbours
from ipot.accelerate.twins import Accelerated
from ipot.nn.neighbours import Neighbours, Surroundings
from ipot.nn.relay import LocalMixing, RelayAttention


class QuickRelayAttention(Accelerated, RelayAttention):
    """Both attentions by the quickest implementation: few queries with many keys, and the
    reverse."""

    def forward(
        self, x: Float[Tensor, "B N d"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N d"]:
        """The update that a residual connection adds."""
        pairs = self.pairs_of(x)
        induced = self.latents.unsqueeze(0).to(pairs.dtype)
        return self.give_back(pairs, attend(self.target, induced, pairs, self.heads, mask))

    def pairs_of(self, x: Float[Tensor, "B N d"]) -> Float[Tensor, "B N d2"]:
        """Keys and values, packed."""
        return self.to_key_value(self.norm(x))

    def give_back(
        self, pairs: Float[Tensor, "B N d2"], state: Float[Tensor, "B Z d"]
    ) -> Float[Tensor, "B N d"]:
        """The update of these points, or of all, from the compressed values."""
        state = state.to(pairs.dtype)
        known = torch.cat([self.latents.unsqueeze(0).to(pairs.dtype).expand_as(state), state], -1)
        asked = pairs[..., : pairs.shape[-1] // 2]
        return self.to_out(attend(self.target, asked.contiguous(), known, self.heads))


class QuickLocalMixing(Accelerated, LocalMixing):
    """A convolution if the places of all stencils are points of one grid."""

    def forward(self, h: Float[Tensor, "B N c"], around: Neighbours) -> Float[Tensor, "B N c"]:
        """The weighted sum over the stencil of every point."""
        if around.grid is None:
            return super().forward(h, around)
        shape, strides, wraps = around.grid
        points = torch.Size(shape).numel()
        image = h[:, :points].unflatten(1, shape)
        for axis, (step, wrap) in enumerate(zip(strides, wraps, strict=True), start=1):
            image = _padded(image, axis, step, wrap)
        # Rows of channels as they lie are an image whose channels come last in memory.
        image = image.movedim(-1, 1)
        kernel = self.weight.T.reshape(-1, 1, *(3,) * len(shape)).to(h.dtype)
        convolve = F.conv2d if len(shape) == 2 else F.conv1d
        out = convolve(image, kernel, dilation=strides, groups=len(kernel))
        out = out.movedim(1, -1).flatten(1, -2)
        return F.pad(out, (0, 0, 0, h.shape[1] - points)) if h.shape[1] > points else out


def _padded(image: Tensor, axis: int, step: int, wrap: bool) -> Tensor:
    """An image with `step` rows added at both ends of an axis: those of the other end if it is
    periodic, else the outermost repeated. Not by torch's padding, whose gradients on a GPU have no
    fixed order."""
    size = image.shape[axis]
    if wrap:
        before, behind = image.narrow(axis, size - step, step), image.narrow(axis, 0, step)
    else:
        sizes = [-1] * image.ndim
        sizes[axis] = step
        before = image.narrow(axis, 0, 1).expand(sizes)
        behind = image.narrow(axis, size - 1, 1).expand(sizes)
    return torch.cat([before, image, behind], axis)


class QuickSurroundings(Accelerated, KeepsNeighbours, Surroundings):
    """Neighbours that are searched for once if the mesh stays the same during training."""

    def forward(
        self, points: Tensor, queries: Tensor | None = None, mask: Tensor | None = None
    ) -> Neighbours:
        """The neighbours of all queries, or of the stencils' places."""
        found = None if mask is not None else self.kept_for(points, queries)
        return super().forward(points, queries, mask) if found is None else found

    def search(self, points: Tensor, queries: Tensor | None) -> Neighbours:
        """The neighbours to keep, with the grid that they are on, if it is one."""
        found: Any = super().forward(points, queries)
        if queries is None and found.weight is None:
            found = found._replace(grid=self.grid_of(points[0]))
        return found
