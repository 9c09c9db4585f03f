"""What a fixed mesh gives is computed once for a whole training.

Where all samples share their points and a step neither draws some of them nor moves them, their
position features are the same at every step. A model that has a method `keep_mesh(points, queries)`
keeps what they give for as long as the steps run.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ipot.nn.fourier import FourierFeatures
from ipot.training.draws import Draws


class FixedMesh:
    """Lets a model keep what the mesh of its steps gives, until it is released.

    `cast` says whether the steps run in bf16 by autocast: what is kept is rounded as it would be
    there.
    """

    def __init__(self, model: nn.Module, draws: Draws, *, cast: bool) -> None:
        self.positions: list[FourierFeatures] = []
        self._kept: list[object] = []
        keep = getattr(model, "keep_mesh", None)
        if keep is None:
            return
        points, queries = map(_constant, draws.mesh())
        device = next(model.parameters()).device
        with torch.autocast(device.type, torch.bfloat16, enabled=cast, cache_enabled=False):
            keep(points, queries)
        features = [m for m in model.modules() if isinstance(m, FourierFeatures)]
        self.positions = [m for m in features if m.keeps is not None]
        # A captured step reads these where they lie, also if the model was cast and forgot them.
        self._kept = [m.keeps for m in self.positions]

    def renew(self) -> None:
        """Follow points that were changed in place since the last step: a captured step, and a
        compiled one, cannot see that. It compares two numbers and waits for nothing."""
        for position in self.positions:
            position.renew()

    def release(self) -> None:
        """Let the model forget what it keeps, and free it: no captured step may run any more."""
        for position in self.positions:
            position.forget()
        self._kept.clear()


def _constant(places: Tensor | None) -> Tensor | None:
    """Places that are no unknowns and that tell when they are changed."""
    if places is None or places.requires_grad or places.is_inference():
        return None
    return places
