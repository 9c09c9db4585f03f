"""One file for each system, and their classes by name: `from ipot.models import IPOT`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipot.models.deeponet import DeepONet
    from ipot.models.dino import DINo
    from ipot.models.ffno import FFNO
    from ipot.models.flare import FLARE
    from ipot.models.fno import FNO
    from ipot.models.ipot import IPOT
    from ipot.models.lattice import Lattice
    from ipot.models.lno import LNO
    from ipot.models.lrsa import LRSA
    from ipot.models.meshgraphnet import MeshGraphNet
    from ipot.models.oformer import OFormer
    from ipot.models.perceiver_io import PerceiverIO
    from ipot.models.relay import Relay
    from ipot.models.transformer import Transformer
    from ipot.models.transolver import Transolver

__all__ = [
    "FFNO",
    "FLARE",
    "FNO",
    "IPOT",
    "LNO",
    "LRSA",
    "DINo",
    "DeepONet",
    "Lattice",
    "MeshGraphNet",
    "OFormer",
    "PerceiverIO",
    "Relay",
    "Transformer",
    "Transolver",
]
_FILES = {name: name.lower() for name in __all__} | {"PerceiverIO": "perceiver_io"}


def __getattr__(name: str) -> Any:
    """Import a system only when it is asked for."""
    if name in _FILES:
        return getattr(importlib.import_module(f"ipot.models.{_FILES[name]}"), name)
    raise AttributeError(f"module 'ipot.models' has no attribute {name!r}")
