"""The code blocks of README.md and docs: found, taken apart into commands, and run by a reader."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tyro

from ipot import cli

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
TO_READ = ("text", "toctree")
"""Blocks that nobody runs; those of Sphinx have their language in braces."""

COUNTS = {"--small": "", "--count.train": "4", "--count.validation": "2", "--count.test": "2"}
STEPS = {
    **dict.fromkeys(("--minutes", "--training.minutes", "--training.epochs")),
    "--epochs": "1",
    "--training.batch": "4",
}
SMALL: dict[str, Mapping[str, str | None]] = {
    "fit": {"--minutes": None, "--epochs": "1"},
    "train": {**COUNTS, **STEPS, "--device": "cpu"},
    "generate": COUNTS,
    "compare": {**COUNTS, "--minutes": "0.001", "--device": "cpu"},
}
"""What a command gets in the place of the sizes that it has; None leaves a flag out."""


@dataclass(frozen=True)
class Block:
    """A code block, and where it begins."""

    page: str
    line: int
    language: str
    text: str


def pages() -> list[str]:
    """README.md and all pages, with their paths from the root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [p.relative_to(ROOT).as_posix() for p in found if "_build" not in p.parts]


def blocks(page: str, text: str | None = None) -> list[Block]:
    """The blocks of a page that are to be run; a block whose language is not said is an error."""
    text = (ROOT / page).read_text() if text is None else text
    found = []
    for match in FENCE.finditer(text):
        language = match[2].strip()
        if language in TO_READ or language.startswith("{"):
            continue
        place = text[: match.start()].count("\n") + 2
        assert language in ("python", "bash"), f"{page}:{place - 1}: ```{language} is not run"
        found.append(Block(page, place, language, match[3]))
    return found


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a block of bash as words, without comments; `\\` goes on in the next line."""
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def smaller(words: list[str]) -> list[str]:
    """A command of ours in the sizes of a test: other values of its flags, and some flags more."""
    if "--resume" in words:
        return words
    sizes = SMALL.get(words[0], {})
    if words[0] == "compare" and Path(words[1]).exists():  # data have the size that they have
        sizes = {flag: value for flag, value in sizes.items() if flag not in COUNTS}
    for flag, value in sizes.items():
        if flag in words:
            start = end = words.index(flag)
            while end + 1 < len(words) and not words[end + 1].startswith("--"):
                end += 1
            words = words[:start] + words[end + 1 :]
        if value is not None:
            words = [*words, flag, *value.split()]
    return words


def run_command(words: list[str]) -> None:
    """A command line of ours in this process; `> file` at its end is understood."""
    if ">" in words:
        place = words.index(">")
        with open(words[place + 1], "w") as file, redirect_stdout(file):
            run_command(words[:place])
        return
    assert cli.main(words) == 0, f"`ipot {shlex.join(words)}` failed"


def parse_command(words: list[str]) -> None:
    """The flags of a command alone: what they are called, and whether their values make sense."""

    class Parsed(BaseException):
        """The flags are right, and the command begins."""

    def stop(*given: Any, **options: Any) -> None:
        understood(*given, **options)
        raise Parsed

    understood = tyro.cli
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tyro.cli", stop)
        try:
            cli.main(words)
        except Parsed:
            return
        except SystemExit as error:
            raise AssertionError(f"`ipot {shlex.join(words)}`: exit {error.code}") from None
    raise AssertionError(f"`ipot {shlex.join(words)}` has no flags that are right")


@dataclass
class Walk:
    """A reader who does what a page says, from top to bottom, in the current folder.

    `parsed` are commands whose flags alone are checked, and `left` those that are not run at all,
    each with the reason.
    """

    page: str
    parsed: dict[str, str]
    left: dict[str, str]

    def __post_init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.met: set[str] = set()

    def __call__(self, text: str | None = None) -> dict[str, Any]:
        """Run the page and give back the names that its Python leaves."""
        for block in blocks(self.page, text):
            if block.language == "python":
                code = "\n" * (block.line - 1) + block.text
                exec(compile(code, str(ROOT / self.page), "exec"), self.names)
                continue
            for words in commands(block.text):
                self.command(words)
        stale = {*self.parsed, *self.left} - self.met
        assert not stale, f"{self.page} has no command {stale} any more"
        return self.names

    def command(self, words: list[str]) -> None:
        """Run a command, or do what is said of it."""
        line = shlex.join(words)
        for reasons in (self.left, self.parsed):
            for known in reasons:
                if line == known or line.startswith(known + " "):
                    self.met.add(known)
                    if reasons is self.parsed:
                        start = [Path(word).name for word in words].index("ipot")
                        parse_command(words[start + 1 :])
                    return
        assert words[0] == "ipot", f"{self.page}: say in PLANS what becomes of `{line}`"
        run_command(smaller(words[1:]))
