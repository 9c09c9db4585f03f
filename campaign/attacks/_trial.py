"""A trial server that is forked from the process that attacks, and not started anew.

The package reads suspicious files first in a child of a server (see `ipot.data.guard.trial`), which
takes seconds to import what it reads with. A process that tries a few dozen cases has imported all
of that. Its server runs the package's own code; where it dies, the package starts one in its own
way.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ipot.data.guard import trial, trial_server


class Forked:
    """What `trial` uses of a `subprocess.Popen`."""

    def __init__(self) -> None:
        questions, asking = os.pipe()
        answering, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(questions, answers)
        os.close(questions)
        os.close(answers)
        self.stdin = os.fdopen(asking, "w")
        self.stdout = os.fdopen(answering)
        self._ended = False

    def poll(self) -> int | None:
        """None as long as it lives."""
        if not self._ended:
            self._ended = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return 0 if self._ended else None

    def wait(self, seconds: float | None = None) -> None:
        """It ends when nobody can ask it any more, and is not waited for longer."""
        if self.poll() is None:
            self.kill()
            os.waitpid(self.pid, 0)
            self._ended = True

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)


def fork_server() -> None:
    """Give this process a server; it must have one thread and have read no file."""
    server: Any = Forked()
    trial._server, trial._owner = server, os.getpid()


def _serve(questions: int, answers: int) -> None:
    """In the child: like the package's own start, without what the parent has open."""
    try:
        os.dup2(questions, 0)
        os.dup2(answers, 1)
        os.closerange(3, 1024)
        os.environ["IPOT_TRIAL"] = "1"
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for as long as it lives)
        trial_server.main()
    finally:
        os._exit(0)
