"""Quicker versions of the layers in `ipot.nn`, of the same parameters.

Each is a subclass that overrides `forward` and is made from a layer by `ipot.accelerate.twins`.
`start` looks at target, sizes and hooks once; a call looks only at the sizes of its tensors.
Encoders and decoders may pass other things than tokens to their attention: keys and values computed
straight from the points (`Ready`), tokens of a shared mesh in two parts (`Split`, `Laid`), queries
that are folded or projected already, inputs in chunks. No other layer sees these.
"""

from __future__ import annotations

from torch import nn

from ipot.accelerate.layers.attention import (
    QuickBlock,
    QuickGatedFeedForward,
    QuickMultiHead,
    QuickPhysicsAttention,
)
from ipot.accelerate.layers.latent import (
    QuickFourierFeatures,
    QuickInducingPoints,
    QuickProcessor,
    QuickQueryDecoder,
)
from ipot.accelerate.layers.lattice import QuickChannelNorm, QuickPlaces, QuickToPlaces
from ipot.accelerate.layers.relay import QuickLocalMixing, QuickRelayAttention, QuickSurroundings
from ipot.nn.attention import AttentionBlock, GatedFeedForward, MultiHead
from ipot.nn.latent import InducingPoints, Processor, QueryDecoder
from ipot.nn.lattice import ChannelNorm
from ipot.nn.neighbours import Surroundings
from ipot.nn.places import Places, ToPlaces
from ipot.nn.points import FourierFeatures, Lift
from ipot.nn.relay import LocalMixing, RelayAttention
from ipot.nn.slices import PhysicsAttention

QUICKER: dict[type[nn.Module], type[nn.Module]] = {
    FourierFeatures: QuickFourierFeatures,
    MultiHead: QuickMultiHead,
    GatedFeedForward: QuickGatedFeedForward,
    AttentionBlock: QuickBlock,
    Processor: QuickProcessor,
    InducingPoints: QuickInducingPoints,
    QueryDecoder: QuickQueryDecoder,
    PhysicsAttention: QuickPhysicsAttention,
    RelayAttention: QuickRelayAttention,
    LocalMixing: QuickLocalMixing,
    Surroundings: QuickSurroundings,
    Places: QuickPlaces,
    ToPlaces: QuickToPlaces,
    ChannelNorm: QuickChannelNorm,
}
"""The quicker version of a layer. A new one is a class here and a line in this table."""

PARTS = (nn.Linear, nn.LayerNorm, nn.Sequential, Lift)
"""What those are made of, and compute by themselves."""
