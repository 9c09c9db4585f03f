"""What every command can be told: one dataclass a command, without torch, so that help is quick.

A flag of the same name means the same in all of them: the same type, and the same words up to the
first colon, semicolon or full stop of its text (`tests/commands/test_flags.py`). `usual` are the
flags that `--help` shows; all of them are in `--help-all`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
Preset = Literal["default", "paper", "authors"]
Fill = Literal["linear", "cubic", "nearest"]
