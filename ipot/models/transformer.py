"""IPOT without inducing points: inputs attend to inputs, at quadratic cost.

    Z₀ = Attention(a, a, a),   Z_{t+1} = G_dt(Z_t),   u_t(y) = Attention(y, Z_t, Z_t)

The state is as large as the input. This is what the paper holds its inducing points against, as a
stand-in for the transformer of Vaswani et al., "Attention is all you need", 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ipot.models._attentive import Attentive, Encoder
from ipot.models._local import start_local
from ipot.models._settings import Settings
from ipot.models.base import Latent
from ipot.nn.ready import Ready
from ipot.nn.split import Split
from ipot.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The sizes and choices of a transformer; those of an IPOT without its inducing points."""


class EveryInput(Encoder):
    """Inputs attend to inputs."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.embed = None if config.lifted else nn.Linear(self.width, config.width)
        self.block = self.attention(config)

    def state(
        self, tokens: Float[Tensor, "B N d"] | Split | Ready, mask: Bool[Tensor, "B N"] | None
    ) -> Latent:
        """A row for each input, and their mask."""
        if isinstance(tokens, Split):
            tokens = tokens.joined()
        assert isinstance(tokens, Tensor)
        if self.embed is not None:
            tokens = self.embed(tokens)
        return Latent(self.block(tokens, None, mask), mask)


class Transformer(Attentive):
    """Any points in, any queries out; the state holds every input."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec, EveryInput(config, spec))
        if config.local:
            start_local(self, spec)


MODEL = Transformer
