"""Which device to use, and what was meant by its name."""

from __future__ import annotations

import torch

from ipot.errors import Unsupported


def choose(name: str = "auto") -> torch.device:
    """`auto` is a GPU where there is one; a GPU asked for where there is none is an error."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise Unsupported(f"--device {name}: torch sees no GPU here; use --device cpu or auto")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise Unsupported(f"unknown device {name!r}; use auto, cpu or cuda") from error
