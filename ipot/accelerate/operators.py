"""Whole models: decoding several states together, encoding inputs in chunks, parts to compile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ipot.accelerate.chunks import EncodesInChunks, Prepare, Streamed, rows_by_kernel, streams
from ipot.accelerate.layers import QuickInducingPoints, QuickQueryDecoder
from ipot.accelerate.relay_streaming import StreamedRelay
from ipot.accelerate.twins import hooked, is_closed
from ipot.models._wrappers import Inward, Outward, Wrapper
from ipot.models.base import (
    Latent,
    LatentOperator,
    OneStep,
    Operator,
    SeenPoints,
    without_queries,
)
from ipot.models.dino import FourierNet
from ipot.models.flare import Block as FlareBlock
from ipot.models.lattice import Lattice
from ipot.models.lrsa import Mixing
from ipot.models.relay import Relay
from ipot.models.transolver import Block as SliceBlock
from ipot.nn.latent import PointTokens, Processor, QueryDecoder
from ipot.nn.lattice import ChannelNorm, Coarser, Finer, LatticeBlock
from ipot.nn.linear_attention import LinearAttention
from ipot.nn.places import Fill, Sums, ToPlaces
from ipot.nn.relay import LocalDecoder, RelayBlock
from ipot.samples import Batch
from ipot.stopping import stop_if_asked

ROWS_AT_ONCE = 1 << 20
"""In training, a decode of more rows than this (B times T times M) is cut into pieces that are
recomputed in the backward pass: a rollout then holds one piece's activations, not all of them."""
LEAN = 32
"""How many times as many if only the few outputs of a row are kept for the backward pass."""

DECODED_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 18}
"""Rows of a chunk of queries without kernels of ours: on a CPU what stays in its caches."""
LATTICE_ROWS = {"cpu": 1 << 16, "cuda": 1 << 22}
"""Samples times points of a chunk for a lattice, unless given. Each has a row for every corner of
its cell."""


class DecodesTogether(LatentOperator):
    """Decodes all states of a rollout in one batch, or in a few pieces with recomputation if that
    is too large. It is mixed into the class of a latent operator."""

    def decode_all(self, states: list[Latent], queries: Tensor) -> Float[Tensor, "B T M K"]:
        """The fields at several states; on a moving mesh `queries` has an axis T after B."""
        if queries.ndim == 4:
            return super().decode_all(states, queries)
        size, rows = states[0].state.shape[0], queries.shape[-2]
        most = ROWS_AT_ONCE * (LEAN if self._lean() else 1)
        group = max(1, most // max(1, size * rows))
        recompute = torch.is_grad_enabled() and len(states) > group
        pieces = []
        for start in range(0, len(states), group):
            stop_if_asked()
            piece = states[start : start + group]
            if recompute:
                out = checkpoint(self._decode_group, piece, queries, use_reentrant=False)
            else:
                out = self._decode_group(piece, queries)
            pieces.append(out)
        return torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]

    def _lean(self) -> bool:
        return any(getattr(child, "lean", False) for child in self.children())

    def _decode_group(self, group: list[Latent], queries: Tensor) -> Tensor:
        if len(group) == 1:
            return self.decode(group[0], queries).unsqueeze(1)
        states = torch.stack([s.state for s in group])
        return self._decode_stacked(states, group[0].mask, queries, *_seen_together(group))

    def _decode_stacked(
        self,
        states: Float[Tensor, "T B Z d"],
        mask: Bool[Tensor, "B Z"] | None,
        queries: Float[Tensor, "B1 M E"],
        seen: Any = None,
        age: Float[Tensor, " TB"] | None = None,
    ) -> Float[Tensor, "B T M K"]:
        """Several states in one batch."""
        count, size = states.shape[:2]
        if mask is not None:
            mask = mask.repeat(count, 1)
        if queries.shape[0] != 1:
            queries = queries.repeat(count, 1, 1)
        out = self.decode(Latent(states.flatten(0, 1), mask, seen, age), queries)
        return out.unflatten(0, (count, size)).transpose(0, 1)


def _seen_together(group: list[Latent]) -> tuple[Any, Tensor | None]:
    """The inputs of several states: once if the states share them, else one by one."""
    first = group[0].seen
    if first is None:
        return None, None
    ages = [s.age for s in group if s.age is not None]
    age = torch.cat(ages) if ages else None
    features = [s.seen.features for s in group if s.seen is not None]
    if all(f is features[0] for f in features):
        return first, age
    count = len(group)
    points = first.points if len(first.points) == 1 else first.points.repeat(count, 1, 1)
    mask = None if first.mask is None else first.mask.repeat(count, 1)
    frame = None if first.frame is None else first.frame.repeat(count, 1, 1)
    return SeenPoints(points, torch.cat(features), mask, frame=frame), age


def decoding_together(cls: type[nn.Module]) -> type[nn.Module] | None:
    """The class with `DecodesTogether` mixed in if it is a latent operator, else None."""
    if not issubclass(cls, LatentOperator) or issubclass(cls, Wrapper):
        return None
    if cls.decode_all is not LatentOperator.decode_all:  # it has its own method
        return None
    if cls not in _made:
        facts = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        base = IN_CHUNKS.get(cls, cls)
        _made[cls] = type(cls.__name__, (DecodesTogether, base), facts)
    return _made[cls]


class StreamedLattice(EncodesInChunks, Lattice):
    """A lattice that takes very many inputs in chunks: the sums of its places add up over them.
    This is mixed into the accelerated model."""

    def too_many(self, batch: Batch) -> bool:
        """True if there are too many points to take them all at once."""
        return streams(batch.size * batch.values.shape[1], batch.values.device)

    def takes_chunks(self) -> bool:
        """True if `to_places` is the layer of `ipot.nn`, without hooks on it."""
        part = self.to_places
        own = type(part).sums is ToPlaces.sums and type(part).mean is ToPlaces.mean
        return own and not is_closed(part) and not hooked(part)

    @torch.no_grad()
    def encode_in_chunks(
        self, batch: Batch, prepare: Prepare = lambda batch: batch, at_once: int | None = None
    ) -> Latent:
        """The state of a batch whose chunks `prepare` turns into what the model takes."""
        device = next(self.parameters()).device
        at_once = at_once or LATTICE_ROWS.get(device.type, LATTICE_ROWS["cuda"])
        size, bare = max(1, at_once // batch.size), without_queries(batch)
        sums: Sums | None = None
        parameters: Tensor | None = None
        for start in range(0, batch.values.shape[1], size):
            chunk = prepare(_rows(bare, slice(start, start + size)))
            values, parameters = chunk.values[..., self.dropped :], chunk.parameters
            own = self.to_places.sums(chunk.points, values, chunk.point_mask)
            sums = own if sums is None else sums.plus(own)
        if sums is None:  # parameters alone
            return self.encode(prepare(bare))
        return self.initial(*self.to_places.mean(sums), parameters)


def _rows(batch: Batch, part: slice) -> Batch:
    """Some of the input points."""
    facts: dict[str, Any] = {"points": batch.points[:, part], "values": batch.values[:, part]}
    if batch.point_mask is not None:
        facts["point_mask"] = batch.point_mask[:, part]
    return replace(batch, **facts)


IN_CHUNKS: dict[type[nn.Module], type[nn.Module]] = {Relay: StreamedRelay, Lattice: StreamedLattice}
"""Models with their own method for very many inputs in chunks."""
_made: dict[type[nn.Module], type[nn.Module]] = {}


def encode(
    model: LatentOperator,
    batch: Batch,
    prepare: Prepare = lambda batch: batch,
    at_once: int | None = None,
) -> Latent:
    """The state of a batch that `prepare` turns into what the model takes, by moving it to its
    device for example. An encoder that can take inputs in chunks is given a chunk of about
    `at_once` samples times points at a time; any other encoder is given all of them.
    """
    if isinstance(model, Wrapper):
        latent = encode(model.inner, batch, lambda chunk: model.seen(prepare(chunk)), at_once)
        return model.encoded(latent, lambda: prepare(batch))
    device = next((p.device for p in model.parameters()), batch.values.device)
    count = batch.size * batch.values.shape[1]
    many = streams(count, device) if at_once is None else count > at_once
    if isinstance(model, EncodesInChunks) and model.takes_chunks():
        much = model.is_much(batch) if at_once is None else count > at_once
        if much and not torch.is_grad_enabled():
            return model.encode_in_chunks(batch, prepare, at_once)
    takes_chunks = any(isinstance(child, QuickInducingPoints) for child in model.children())
    if not takes_chunks or (batch.values.device == device and not many):
        return model.encode(prepare(batch))
    try:
        return model.encode(_streamed(batch, prepare, at_once))
    except (TypeError, AttributeError) as error:
        # It does something with its inputs besides encoding them, which chunks do not let it. Any
        # other mistake is not to be hidden by taking all points at once.
        if Streamed.__name__ not in str(error):
            raise
        return model.encode(prepare(batch))


def _streamed(batch: Batch, prepare: Prepare, at_once: int | None) -> Any:
    """A batch whose points, values and mask are prepared when an encoder asks for them. Anything
    else that a model does with these, or with the queries, fails."""
    bare = without_queries(batch)

    def prepared(points: Tensor, values: Tensor, mask: Tensor | None) -> Any:
        chunk = prepare(replace(bare, points=points, values=values, point_mask=mask))
        return chunk.points, chunk.values, chunk.parameters, chunk.point_mask

    rows = (batch.points, batch.values, batch.point_mask)
    inputs = Streamed(rows, batch.parameters, prepared, at_once)
    rest = {n: getattr(bare, n) for n in ("points", "values", "point_mask")}
    first: dict[str, Any] = {n: None if t is None else t[:, :1] for n, t in rest.items()}
    seen = prepare(replace(bare, **first))
    facts: dict[str, Any] = {f.name: getattr(seen, f.name) for f in fields(seen)}
    facts |= dict.fromkeys(("points", "values", "queries"), inputs)
    facts["point_mask"] = None if batch.point_mask is None else inputs
    # Not a checked batch: what stands for its tensors has no sizes to check.
    stand_in: Any = object.__new__(Batch)
    for name, value in facts.items():
        object.__setattr__(stand_in, name, value)
    return stand_in


def decoded_at_once(model: nn.Module, count: int) -> int:
    """Rows of queries (samples times queries) to decode at once, if there are `count` in all."""
    for module in model.modules():
        if isinstance(module, QuickQueryDecoder) and module.target.triton:
            return rows_by_kernel(count)
    device = next((p.device.type for p in model.parameters()), "cpu")
    return DECODED_AT_ONCE.get(device, DECODED_AT_ONCE["cuda"])


WORTH_COMPILING = (
    *(PointTokens, QueryDecoder, RelayBlock, LocalDecoder, SliceBlock, FlareBlock, Mixing),
    *(LatticeBlock, Coarser, Finer, ChannelNorm, Fill),
)
"""Layers that are compiled one by one: they are many small passes over rows."""
LEFT_EAGER = (LinearAttention, FourierNet)
"""Layers whose models are not compiled: it takes a minute for the first, and the second is
differentiated by its own encoder and once more in training."""


def regions(model: Operator) -> Iterator[nn.Module]:
    """The parts worth compiling one by one, by layer: a rollout repeats its processor, which is
    compiled once. A model of unknown layers may name them in a method `regions()` of its own; else
    it is compiled as a whole, unless it answers in one step: for that a CUDA graph is as good."""
    found = list(_worth_compiling(model))
    inner: Any = model
    while isinstance(inner, Wrapper):
        inner = inner.inner
    if found:
        yield from found
    elif hasattr(inner, "regions"):
        yield from inner.regions()
    elif not isinstance(inner, OneStep) and not any(
        isinstance(module, LEFT_EAGER) for module in inner.modules()
    ):
        yield inner


def _worth_compiling(module: nn.Module) -> Iterator[nn.Module]:
    """The layers that are worth it, and not what they consist of."""
    if isinstance(module, WORTH_COMPILING):
        yield module
    elif isinstance(module, Processor):
        # As a whole where it is tied, so that gradients add up within; else its blocks, which
        # share what is compiled for the first of them.
        yield from [module] if module.repeats > 1 else module
    else:
        for child in module.children():
            yield from _worth_compiling(child)


def passes(model: nn.Module) -> Iterator[nn.Module]:
    """The small modules around those parts, which convert to the scales of the data and back. They
    are worth compiling on a GPU, where launches cost as much as the work."""
    return (m for m in model.modules() if isinstance(m, Inward | Outward))
