"""A relay over any number of inputs: features at the points are computed again in every pass.

X_l at some points depends on their inputs, on Z_1 ... Z_l, and on the points around them, l
stencils deep. So a pass over all points, chunk by chunk, gives Z_{l+1} from Z_1 ... Z_l, and a
last one the latent state; a chunk is what lies close together, and its surroundings are computed
with it. An answer computes X_L once more, at the inputs around its queries. What is kept of a point
is its place and the numbers of its neighbours, however wide and deep the model is; the price is
L (L + 1) / 2 blocks at every point instead of L.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ipot.accelerate.chunks import Chunks, EncodesInChunks, Prepare
from ipot.accelerate.layers.attention import QuickBlock
from ipot.accelerate.layers.relay import QuickRelayAttention
from ipot.accelerate.streaming import attend_chunks
from ipot.accelerate.twins import hooked
from ipot.models.base import Latent, without_queries
from ipot.models.relay import Relay
from ipot.nn.neighbours import Neighbours, Surroundings
from ipot.samples import Batch

NUMBERS_HELD = 1 << 27
"""Features of all points (samples times points times width) beyond which they are made anew rather
than held, with some copies, all at once: half a GiB in float32."""
NUMBERS_AT_ONCE = 1 << 20
"""Features of a chunk (points times width) by default; the more, the smaller a part of the work
are surroundings."""
SURROUNDED, FEW = 2, 1 << 12
"""Times its own size that a chunk may have with its surroundings, or so many points."""


class StreamedRelay(EncodesInChunks, Relay):
    """Encodes very many inputs in chunks. It is mixed into the accelerated class of a relay."""

    encoder: Any

    def too_many(self, batch: Batch) -> bool:
        """True if there are too many points to hold the features of all at once."""
        return batch.values.shape[:2].numel() * self.config.width > NUMBERS_HELD

    def takes_chunks(self) -> bool:
        """True if its blocks are those known here, and features do not go on in time."""
        blocks = list(self.encoder.blocks)
        known = all(isinstance(b.attend, QuickRelayAttention) for b in blocks)
        known = known and isinstance(self.encoder.block, QuickBlock)
        inside = (m for b in (*blocks, self.encoder.block) for m in b.modules())
        return known and self.advance is None and not hooked(*inside)

    @torch.no_grad()
    def encode_in_chunks(
        self, batch: Batch, prepare: Prepare = lambda batch: batch, at_once: int | None = None
    ) -> Latent:
        """Z, and what is needed to compute X_L again at the points, from chunks of about `at_once`
        of them; `prepare` turns each into what the model takes."""
        size = at_once or max(1, NUMBERS_AT_ONCE // self.config.width)
        clouds: list[Cloud] = []
        for i in range(batch.size):
            shared = clouds[0].mesh if clouds and _one_mesh(batch) else None
            clouds.append(Cloud(self, _sample(batch, i), prepare, size, shared))
        state = torch.cat([cloud.encode() for cloud in clouds])
        if not self.local:
            return Latent(state)
        seen: Any = StreamedPoints(clouds)
        return Latent(state, seen=seen, age=state.new_zeros(batch.size))

    def decode(self, latent: Latent, queries: Float[Tensor, "B1 M E"]) -> Float[Tensor, "B M K"]:
        """u_t(y): queries attend to the state, and use the inputs around them."""
        seen: Any = latent.seen
        if not isinstance(seen, StreamedPoints):
            return super().decode(latent, queries)
        asked = queries[: len(seen.clouds)] if len(queries) > len(seen.clouds) else queries
        near, frame = seen.near(asked)
        out = self.decoder(latent.state, queries, near, latent.age)
        if self.kept is None or frame is None:
            return out
        return self.kept(frame).repeat(len(out) // len(frame), 1, 1) + out


class StreamedPoints:
    """Inputs of a batch, in the place of `SeenPoints`: features are made where they are asked."""

    def __init__(self, clouds: list[Cloud]) -> None:
        self.clouds = clouds
        self._last: tuple[Tensor, tuple[Tensor, Tensor | None]] | None = None

    @property
    def at_once(self) -> int:
        """Points of a chunk, and queries that should be asked at once."""
        return self.clouds[0].size

    @property
    def features(self) -> StreamedPoints:
        """All states of a rollout share these."""
        return self

    def order(self, queries: Float[Tensor, "B1 M E"]) -> Int[Tensor, " M"]:
        """Queries in an order in which those that lie close together follow each other."""
        return self.clouds[0].order_of(queries[0])

    def near(
        self, queries: Float[Tensor, "B1 M D"]
    ) -> tuple[Float[Tensor, "B M d"], Float[Tensor, "B M K"] | None]:
        """X_L, and the last past frame if the model adds it, between the inputs around queries."""
        # The steps of a rollout ask at the same queries one after the other.
        if self._last is None or self._last[0] is not queries:
            one = len(queries) == 1
            found = [c.near(queries[0 if one else i]) for i, c in enumerate(self.clouds)]
            frames = [frame for _, frame in found if frame is not None]
            near = torch.cat([x for x, _ in found])
            self._last = queries, (near, torch.cat(frames) if frames else None)
        return self._last[1]


class OrderedPoints:
    """Places of points, which lie near which, and an order in which these follow each other."""

    def __init__(self, around: Surroundings, places: Float[Tensor, "N D"], chunk: int) -> None:
        self.around, self.places = around, places
        self.tree = around.tree(places)
        self.order = torch.from_numpy(self.tree.indices).long()
        self.chunk = chunk
        self.index: Tensor | None = None
        self.weight: Tensor | None = None

    def keep_stencils(self) -> None:
        """Find the neighbours of all points, once for all passes."""
        if self.index is not None:
            return
        stencil = (self.around.delta * self.around.offsets).cpu().to(self.places.dtype)
        count = min(self.around.count, len(self.places))
        shape = (len(self.places), len(stencil), count)
        self.index = torch.empty(shape, dtype=torch.int32)
        self.weight = torch.empty(shape, dtype=self.places.dtype) if count > 1 else None
        for rows in self.order.split(self.chunk):
            places = (self.places[rows].unsqueeze(1) + stencil).flatten(0, 1)
            index, weight = self.near(places, count)
            self.index[rows] = index.view(-1, *shape[1:]).int()
            if self.weight is not None and weight is not None:
                self.weight[rows] = weight.view(-1, *shape[1:])

    def near(
        self, places: Float[Tensor, "P D"], count: int
    ) -> tuple[Int[Tensor, "P k"], Float[Tensor, "P k"] | None]:
        """The inputs to take a field from at some places, and what each counts."""
        found = self.around.near_in(self.tree, self.places, places, min(count, len(self.places)))
        return found.index[0], None if found.weight is None else found.weight[0]


class Cloud:
    """The inputs of one sample, and the states Z_1 ... Z_L as far as they are known."""

    def __init__(
        self, model: Any, sample: Batch, prepare: Prepare, size: int, mesh: OrderedPoints | None
    ) -> None:
        self.model, self.sample, self.prepare, self.size = model, sample, prepare, size
        self.states: list[Tensor] = []
        self.device = model.encoder.latents.device
        if mesh is None and sample.values.shape[1]:
            space = model.surroundings.space
            rows = torch.arange(sample.values.shape[1]).split(size)
            # As exact as the plain way counts places.
            exact = model.surroundings.spacing.dtype
            found = [space(self.rows(part).points[0].to(exact)).cpu() for part in rows]
            mesh = OrderedPoints(model.surroundings, torch.cat(found), size)
            if model.mixes:
                mesh.keep_stencils()
        self.mesh = mesh

    def encode(self) -> Float[Tensor, "1 Z d"]:
        """Z, after a pass for each block."""
        encoder = self.model.encoder
        for block in encoder.blocks:
            part = block.attend
            induced = part.latents.unsqueeze(0)
            self.states.append(
                attend_chunks(part.target, induced, self.chunks(), part.pairs_of, part.heads)
            )
        return encoder.block(encoder.latents.unsqueeze(0), self.chunks())

    def chunks(self) -> Chunks:
        """Features of all points after as many blocks as have a state, and of parameters."""
        order = self.mesh.order if self.mesh is not None else torch.arange(0)
        known = self.sample.parameters is not None
        return Chunks(
            rows=(order.unsqueeze(0),),
            tokens=lambda rows: (self.features(rows[0]), None),
            size=self.size,
            last=self.of_parameters if known else None,
        )

    def features(self, wanted: Int[Tensor, " n"]) -> Float[Tensor, "1 n d"]:
        """X at some points, after as many blocks as have a state. Points that lie far apart, each
        with surroundings of its own, are taken in parts."""
        encoder, mixes = self.model.encoder, self.model.mixes
        # From the last block to the first: the points that it needs, those it is asked for first.
        asked, stencils = wanted, []
        for _ in self.states if mixes else ():
            stencils.append(self._stencil(asked))
            asked = stencils[-1][0]
            if len(asked) > max(SURROUNDED * self.size, FEW) and len(wanted) > 1:
                half = len(wanted) // 2
                return torch.cat([self.features(wanted[:half]), self.features(wanted[half:])], 1)
        rows = self.rows(asked)
        x = encoder.lift(encoder.position(rows.points), rows.values)
        for block, state in zip(encoder.blocks, self.states, strict=False):
            x = x + block.attend.give_back(block.attend.pairs_of(x), state)
            last = block.feed_forward
            hidden = last.into(last.norm(x))
            if mixes:
                _, count, around = stencils.pop()
                heard = last.mix(hidden, around)[:, :count]
                x, hidden = x[:, :count], hidden[:, :count] + heard
            x = x + last.out(F.gelu(hidden))
        return x

    def _stencil(self, asked: Tensor) -> tuple[Tensor, int, Neighbours]:
        """The points that a block needs for those it is asked for, how many these are, which come
        first, and where their stencils are among all of them."""
        mesh = self.mesh
        assert mesh is not None
        assert mesh.index is not None
        index = mesh.index[asked].long().transpose(0, 1)  # offset after offset
        others = index.unique()
        others = others[~torch.isin(others, asked)]
        needed = torch.cat([asked, others])
        local = _numbered(needed, index).flatten(0, 1).unsqueeze(0).to(self.device)
        weight = None
        if mesh.weight is not None:
            weight = mesh.weight[asked].transpose(0, 1).flatten(0, 1).unsqueeze(0).to(self.device)
        return needed, len(asked), Neighbours(local, weight)

    def of_parameters(self) -> Float[Tensor, "1 P d"]:
        """Features of the parameters, which have no neighbours."""
        encoder = self.model.encoder
        parameters = self.rows(torch.arange(min(1, self.sample.values.shape[1]))).parameters
        none = encoder.latents.new_zeros(1, 0, encoder.latents.shape[-1])
        x = encoder.join(none, parameters, None)[0]
        for block, state in zip(encoder.blocks, self.states, strict=False):
            x = x + block.attend.give_back(block.attend.pairs_of(x), state)
            last = block.feed_forward
            x = x + last.out(F.gelu(last.into(last.norm(x))))
        return x

    def near(
        self, queries: Float[Tensor, "M D"]
    ) -> tuple[Float[Tensor, "1 M d"], Float[Tensor, "1 M K"] | None]:
        """X_L and the last past frame between the inputs around queries."""
        model, mesh = self.model, self.mesh
        if mesh is None:
            width = model.encoder.latents.shape[-1]
            return model.encoder.latents.new_zeros(1, len(queries), width), None
        exact = model.surroundings.spacing.dtype
        places = model.surroundings.space(queries.to(exact)).cpu()
        index, weight = mesh.near(places, model.surroundings.query_count)
        wanted = index.unique()
        share = None if weight is None else weight.unsqueeze(0).to(self.device)
        found = Neighbours(_numbered(wanted, index).unsqueeze(0).to(self.device), share)
        # Those close together, as in the passes, and no more of them at a time.
        parts = wanted[self.order_of(mesh.places[wanted], unit=True)].split(self.size)
        features = torch.cat([self.features(part) for part in parts], 1)
        back = _numbered(torch.cat(parts), wanted).to(self.device)
        near = found.look_up(features[:, back])
        if model.kept is None:
            return near, None
        last, outputs = model.spec.history, len(model.spec.outputs)
        values = self.rows(wanted).values[..., (last - 1) * outputs : last * outputs]
        return near, found.look_up(values)

    def order_of(self, places: Tensor, *, unit: bool = False) -> Int[Tensor, " M"]:
        """Some places in an order in which those that are near follow each other."""
        around = self.model.surroundings
        if not unit:
            places = around.space(places.to(around.spacing.device, around.spacing.dtype)).cpu()
        return torch.from_numpy(around.tree(places).indices).long()

    def rows(self, index: Int[Tensor, " n"]) -> Batch:
        """Some points and their values, as the model takes them."""
        sample = self.sample
        index = index.to(sample.values.device)
        points, values = sample.points[:, index], sample.values[:, index]
        return self.prepare(replace(sample, points=points, values=values))


def _numbered(among: Int[Tensor, " n"], numbers: Int[Tensor, "*m"]) -> Int[Tensor, "*m"]:
    """Where numbers stand among others, all different, which hold every one of them."""
    ordered, place = among.sort()
    return place[torch.searchsorted(ordered, numbers.contiguous())]


def _one_mesh(batch: Batch) -> bool:
    """True if one mesh serves all samples."""
    return len(batch.points) == 1 and batch.point_mask is None


def _sample(batch: Batch, i: int) -> Batch:
    """The inputs of one sample, without padding."""
    bare = without_queries(batch)

    def own(t: Tensor | None) -> Any:
        return t if t is None or len(t) == 1 else t[i : i + 1]

    points, values = own(bare.points), own(bare.values)
    if bare.point_mask is not None:
        real = own(bare.point_mask)[0].nonzero().squeeze(-1)
        points, values = points[:, real], values[:, real]
    return replace(
        bare,
        points=points,
        values=values,
        queries=own(bare.queries),
        parameters=own(bare.parameters),
        point_mask=None,
        query_mask=None,
        index=None,
    )
