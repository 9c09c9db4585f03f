"""How the layers of a network start."""

from __future__ import annotations

import torch
from torch import nn

# The deviation of a standard normal cut at twice its deviation.
CUT = 0.87962566103423978


@torch.no_grad()
def truncate(module: nn.Module, deviation: float | None = None) -> None:
    """Draw all linear layers anew, from a normal cut at twice its deviation; biases start at zero.

    Without a deviation it is such that a layer keeps the variance of what comes in.
    """
    for layer in module.modules():
        if not isinstance(layer, nn.Linear):
            continue
        std = deviation or layer.in_features**-0.5 / CUT
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        if layer.bias is not None:
            layer.bias.zero_()
