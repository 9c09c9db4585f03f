"""Types of flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
Preset = Literal["default", "paper", "authors"]
Fill = Literal["linear", "cubic", "nearest"]
