"""The command line: one command, one file in `ipot/commands`, imported when it is asked for."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from ipot import registry
from ipot.errors import IpotError, IpotWarning, Terminated, UnknownName, Untrusted, shown
from ipot.version import __version__

COMMANDS = {
    "demo": "generate, train and evaluate on a small 2-D problem, in about three minutes on a CPU",
    "data": "what is in a file or a folder of your own: names, sizes, ranges, missing values",
    "fit": "train on your own data: files of cases, meshes, tables, series in time",
    "problems": "what can be solved: sizes, symmetries, where the data come from",
    "models": "what can be trained: sizes for a problem and preset, what each needs",
    "generate": "fill the data folder for a problem",
    "era5": "what to download for the problem era5, and whether a file will do",
    "train": "train a model on a problem, or continue a run",
    "compare": "several systems on one problem: the same data, the same minutes, one table",
    "reproduce": "the paper's tables and figures, ours beside the printed numbers",
    "evaluate": "score a run on test data: fewer sensors, other resolutions, longer horizons",
    "predict": "answer at any queries for inputs from a file",
    "export": "a trained model as ONNX or as a torch program, for use without ipot",
    "serve": "trained models as a page in the browser, and an API",
    "plot": "pictures of a run: fields, rollouts, error curves, the loss",
    "bench": "how fast it is on this machine, beside the plain version of the same mathematics",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status: 0 done, 1 a user's error, 2 wrong usage."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"ipot {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        print(f"ipot: unknown command {shown(name)}. Known: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        with _terminated(), _remarks(name), registry.looking_in(_current_folder()):
            return _run(name, rest)
    except UnknownName as error:
        print(f"ipot {name}: {error}", file=sys.stderr)
        return 2
    except Untrusted as error:
        print(f"ipot {name}: {error}\n\n  {_trusting(arguments, error)}", file=sys.stderr)
        return 1
    except IpotError as error:
        print(f"ipot {name}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader went away (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print(f"ipot {name}: interrupted", file=sys.stderr)
        return 128 + getattr(stop, "signal", signal.SIGINT)
    except OSError as error:
        print(f"ipot {name}: {error}", file=sys.stderr)
        return 1


def _run(name: str, arguments: list[str]) -> int:
    """Run a command, or print its help, for which nothing but its flags is imported."""
    from ipot.commands import help, parsing

    arguments = parsing.of_today(name, arguments)
    if {"-h", "--help"} & set(arguments):
        text = help.first_screen(name, arguments)
        if text is not None:
            print(text)
            return 0
    return importlib.import_module(f"ipot.commands.{name}").main(arguments) or 0


def _trusting(arguments: list[str], error: Untrusted) -> str:
    """The command to type to trust the folder because of which it was refused."""
    words = [] if error.home is None else [f"PYTHONPATH={shlex.quote(str(error.home))}"]
    return " ".join([*words, shlex.join(["ipot", *arguments, "--trust"])])


def _current_folder() -> str | None:
    """Where modules of your own are looked for; None where the folder is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _remarks(name: str) -> Iterator[None]:
    """Have a remark on data be one line, and not a place in our code."""
    before = warnings.formatwarning

    def line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
        if category in (UserWarning, IpotWarning):
            return f"ipot {name}: {message}\n"
        return before(message, category, *where, **more)

    warnings.formatwarning = line
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does, so that nothing half done is left behind."""

    def stop(number: int, frame: object) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: the host program handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "usage: ipot COMMAND [...]        (ipot COMMAND --help tells more)",
        "",
        "Learn the solution operators of PDEs on any points, and query them anywhere.",
        "",
        *(f"  {name:<{width}}  {about}" for name, about in COMMANDS.items()),
        "",
        "A first hour:",
        "  ipot demo",
        "  ipot train darcy --epochs 100 --out runs/darcy",
        "  ipot evaluate runs/darcy --keep 0.25 --query-resolution 421",
        "  ipot plot runs/darcy",
        "Your own data:",
        "  ipot data inspect cases/",
        "  ipot fit cases/ --inputs a --targets u --out surrogate",
        "  ipot predict surrogate new.vtu --out answer.vtu",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
