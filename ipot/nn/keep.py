"""What is made from weights, made once for as long as none of them changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

T = TypeVar("T")

_made: WeakKeyDictionary[nn.Module, tuple[Any, Any]] = WeakKeyDictionary()


def kept(owner: nn.Module, make: Callable[..., T], *modules: nn.Module, **options: Any) -> T:
    """make(*modules, **options), from its last call for this owner if that was the same, and the
    weights are as they were."""
    own = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    if any(t.is_inference() for t in own):  # these do not tell when they change
        return make(*modules, **options)
    state = (make, options, [(t.data_ptr(), t._version) for t in own])
    found = _made.get(owner)
    if found is None or found[0] != state:
        with torch.no_grad():
            found = _made[owner] = state, make(*modules, **options)
    return found[1]
