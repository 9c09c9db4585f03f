"""The flags of `ipot serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro


@dataclass(kw_only=True)
class Serve:
    """Serve trained models on this machine: a page in the browser, and an API.

    usage: ipot serve [MODEL or FOLDER ...] [flags], for instance

        ipot serve
        ipot serve darcy airfoil
        ipot serve surrogate/ --port 8080
        ipot serve darcy surrogate/ --export page/

    A model is the name of one in the package, the folder of a saved model or of a run; without any,
    all in the package are served. The page is at http://127.0.0.1:8000/, the API below /v1, and
    what it takes is at /openapi.json. Ctrl-C ends it.

    It answers to this machine alone, unless --host says otherwise: whoever reaches it may ask, and
    there are no passwords. Behind a reverse proxy, --host-name is the name that people ask by.

    --export writes a page that needs no server: for any web space, or to be opened as a file.
    """

    usual: ClassVar = (
        *("models", "port", "host", "host_name", "device", "answer_seconds"),
        *("export", "overwrite"),
    )

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of models in the package, or folders; all in the package by default."""
    host: str = "127.0.0.1"
    """Address to listen on: 127.0.0.1 is this machine alone, 0.0.0.0 whoever reaches it."""
    port: int = 8000
    """Port to listen on; 0 takes one that is free."""
    host_name: tuple[str, ...] = ()
    """Names that requests may ask by, besides addresses and localhost: those of a reverse proxy."""
    most_queries: float = 1 << 20
    """Most queries of a request, times steps and samples; and most points."""
    most_megabytes: int = 64
    """Largest body of a request, in MiB."""
    waiting: int = 32
    """Questions that wait while another is answered; the next one is refused."""
    answer_seconds: float = 30.0
    """Longest time for an answer; a question waits for its turn as long at the most."""
    solve_seconds: float = 120.0
    """Longest time for a solution of a solver."""
    export: Path | None = None
    """Folder for a page that answers in the browser, without a server; nothing is served then."""
    overwrite: bool = False
    """Write over what is there already."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Import code outside ipot that a folder names: only where you know where it comes from."""
    edited: bool = False
    """Take a saved model whose settings or files were changed after it was saved."""
    quiet: bool = False
    """No progress."""


FLAGS = Serve
