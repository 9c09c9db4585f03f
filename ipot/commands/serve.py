"""`ipot serve`: a page and an API for trained models. Nothing here imports torch: the page is there
before the models are."""

from __future__ import annotations

import re
import sys
from inspect import cleandoc
from pathlib import Path

import tyro

from ipot.commands.flags.serve import Serve
from ipot.errors import DataError, RunError, shown


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = _parse(arguments)
    if flags.export is not None:
        _export(flags, flags.export)
        return
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RunError(
            f"ipot serve needs {error.name}: pip install 'ipot[serve]' brings it"
        ) from error
    from ipot.serve import listening
    from ipot.serve.application import application
    from ipot.serve.models import Models, served

    limits = _limits(flags)
    models = served(flags.models, device=flags.device, trusted=flags.trust, edited=flags.edited)
    listener = listening.bound(flags.host, flags.port)
    address = listening.address_of(listener)
    _say(f"ipot serve: {address} ({', '.join(model.name for model in models)})", flags)
    if listening.is_local(flags.host):
        _say("only this machine reaches it; Ctrl-C ends it", flags)
    else:
        _tell(
            f"listening on {flags.host}: whoever reaches this machine may ask, without a password "
            "and without encryption. Use a reverse proxy, or leave out --host."
        )
    app = application(Models(models), limits, names=flags.host_name, tell=_tell)
    listening.listen(app, listener, limits)
    _say("ended", flags)


def _export(flags: Serve, folder: Path) -> None:
    """Write the page into a folder; nothing is served."""
    from ipot.report.tables import bytes_
    from ipot.serve.models import served
    from ipot.serve.static import export_page

    models = served(flags.models, device="cpu", trusted=flags.trust, edited=flags.edited)
    found = export_page(
        models, folder, overwrite=flags.overwrite, say=lambda text: _say(text, flags)
    )
    _say(f"{found['path']}: {bytes_(found['bytes'])}; open index.html in a browser", flags)


def _parse(arguments: list[str]) -> Serve:
    """The flags; wrong usage exits with status 2."""
    if "--help-all" in arguments:
        print(cleandoc(Serve.__doc__ or "") + "\n")
        arguments = ["--help"]
    return tyro.cli(Serve, args=arguments, prog="ipot serve", description="")


def _limits(flags: Serve):
    from ipot.serve.limits import MIB, Limits

    for name in ("most_queries", "most_megabytes", "waiting", "answer_seconds", "solve_seconds"):
        value = getattr(flags, name)
        if not 0 < value < 1e12:
            raise DataError(f"--{name.replace('_', '-')} must be positive, got {value:g}")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", flags.device):
        raise DataError(f"unknown device {shown(flags.device)}; use auto, cpu or cuda")
    if not 0 <= flags.port < 65536:
        raise DataError(f"--port must lie between 0 and 65535, got {flags.port}")
    rows = int(flags.most_queries)
    usual = Limits()
    body = flags.most_megabytes * MIB
    return Limits(
        body=body,
        rows=rows,
        waiting=flags.waiting,
        seconds=flags.answer_seconds,
        solve_seconds=flags.solve_seconds,
        held=max(usual.held, 4 * body),
    )


def _tell(text: str) -> None:
    print(f"ipot serve: {text}", file=sys.stderr, flush=True)


def _say(text: str, flags: Serve) -> None:
    if not flags.quiet:
        print(text, file=sys.stderr, flush=True)
