"""How an IPOT starts, or its kin: with attention to what is near.

Drawn at random, inducing points attend to all inputs almost alike, and so do queries to inducing
points: a network that sees only averages sits at the mean field until it has found out where things
are. Here it knows from the first step. Inducing points start as the embeddings of places spread
over the domain; queries and keys are projected alike, so that what lies close together meets;
position features start the weaker the higher their frequency, which makes `close` mean close in
space; and the blocks start by changing the state little, so that a point is still known by its
place when the queries come. It is only a start: all of it is learnt.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ipot.nn.attention import AttentionBlock
from ipot.nn.globe import on_globe
from ipot.nn.points import FourierFeatures, spread
from ipot.spec import Spec

QUIET = 0.3
"""What the updates of the blocks are multiplied by at the start."""


@torch.no_grad()
def start_local(model: Any, spec: Spec) -> None:
    """Change the initial weights of an IPOT with lifted inputs."""
    encoder, decoder = model.encoder, model.decoder
    for part in (encoder, decoder):
        _fade(part.lift.from_position, part.position)
        _alike(part.block)
    if spec.domain == spec.query_domain and spec.periods == spec.query_periods:
        for name in ("from_position", "out"):
            source = getattr(encoder.lift, name).state_dict()
            getattr(decoder.lift, name).load_state_dict(source)
    latents = getattr(encoder, "latents", None)
    if latents is not None:
        if spec.region:
            places = on_globe(spread(len(latents), spec.region))
        else:
            places = spread(len(latents), spec.domain, sphere=spec.sphere)
        nothing = torch.zeros(len(places), spec.channels)
        embedded = encoder.lift(encoder.position(places.float()), nothing)
        latents.copy_(F.layer_norm(embedded, embedded.shape[-1:]))
    for block in (encoder.block, *model.processor):
        for out in (block.attend.to_out, block.feed_forward.out):
            out.weight.mul_(QUIET)
            out.bias.mul_(QUIET)


def _fade(layer: nn.Linear, features: FourierFeatures) -> None:
    """Divide the weights of every feature by its frequency, and keep their size as a whole."""
    frequency = features.matrix.abs().sum(0)
    raw = torch.ones(features.width - 2 * len(frequency))
    share = torch.cat([raw, 1 / frequency, 1 / frequency])
    layer.weight.mul_(share / share.square().mean().sqrt())


def _alike(block: AttentionBlock) -> None:
    """Project keys as queries are projected."""
    query, pair = block.attend.to_query.weight, block.attend.to_key_value.weight
    if query.shape[1] == pair.shape[1]:
        pair[: len(query)] = query
