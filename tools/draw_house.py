"""Draw the house from its imports, and list the files that two walks pass through.

    python tools/draw_house.py docs/house        # writes house.svg and walks.md there

The picture has a row for each layer of `.importlinter`; the files directly in `ipot/` that the
packages stand on are one room, the core. A line joins two rooms of which one imports the other,
unless it does so through a third one as well. The walks are recorded: the commands are run on tiny
data, and every file of the package in which a function was called is listed in the order of its
first call.
"""

from __future__ import annotations

import ast
import configparser
import os
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ipot"
ABOUT = {
    "cli": "the command line",
    "commands": "one file for each command",
    "api": "import ipot",
    "bench": "speed, measured",
    "recipes": "experiments, tables",
    "training": "the loop",
    "evaluation": "predict, score",
    "accelerate": "the same model, quicker",
    "models": "one file, one paper",
    "problems": "one file each",
    "nn": "layers as formulas",
    "solvers": "arrays in, arrays out",
    "data": "store, data sets",
    "report": "plots, tables",
    "own": "fit, compare",
    "surrogate": "trained models",
    "saved": "a model as a folder",
    "serve": "trained models over HTTP",
    "trained": "models of the package",
    "formats": "files in and out",
    "run_folder": "the folder of a run",
    "reproduce": "the paper, item by item",
}
WALKS = {
    "ipot train darcy": """
        from ipot.cli import main
        main(["train", "darcy", "--out", "run", "--quiet",
              "--problem.resolution", "29", "--count.train", "8", "--count.validation", "4",
              "--training.epochs", "1"])
    """,
    "ipot.fit(data), then predict": """
        import numpy as np
        import ipot
        x, a = np.random.rand(12, 40, 2), np.random.rand(12, 40)
        data = ipot.Dataset.from_arrays(points=x, values=a, targets=a)
        model = ipot.fit(data, epochs=1, quiet=True, device="cpu")
        model.predict(points=x[0], values=a[0], queries=np.random.rand(7, 2))
    """,
}
ROW, BOX, GAP, LEFT, WIDTH = 58, 34, 12, 20, 1000


@dataclass(frozen=True)
class Room:
    """A package or a file directly in ipot/."""

    name: str
    files: int
    lines: int


def rooms() -> dict[str, Room]:
    """What is directly in the package."""
    found = {}
    for path in sorted(PACKAGE.iterdir()):
        inside = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if inside and path.suffix in ("", ".py") and not path.name.startswith("__"):
            lines = sum(len(file.read_text().splitlines()) for file in inside)
            found[path.stem] = Room(path.stem, len(inside), lines)
    return found


def layers() -> list[list[str]]:
    """The layers of the import linter, the highest first."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    lines = parser["importlinter:contract:layers"]["layers"].split("\n")
    return [[name.strip() for name in line.split("|")] for line in lines if line.strip()]


def imports(known: dict[str, Room]) -> Counter[tuple[str, str]]:
    """How many files of one room import another."""
    found: Counter[tuple[str, str]] = Counter()
    for name in known:
        folder = PACKAGE / name
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{name}.py"]
        for file in files:
            found.update((name, other) for other in _named(file) & known.keys() - {name})
    return found


def _named(file: Path) -> set[str]:
    """The rooms that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = inside if node.module == "ipot" else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("ipot.")}
    return found


def levels(known: dict[str, Room]) -> list[list[str]]:
    """The rooms by layer; the files below the lowest package are the last, one room."""
    rows = [[name for name in row if name in known] for row in layers()]
    rows = [row for row in rows if row]
    lowest = max(i for i, row in enumerate(rows) if any((PACKAGE / n).is_dir() for n in row))
    core = [known.pop(name) for row in rows[lowest + 1 :] for name in row]
    known["core"] = Room("core", len(core), sum(room.lines for room in core))
    ABOUT["core"] = ", ".join(sorted(room.name for room in core))
    return [*rows[: lowest + 1], ["core"]]


def direct(edges: Counter[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Without the imports that also go through a third room."""
    after: dict[str, set[str]] = {}
    for one, other in edges:
        after.setdefault(one, set()).add(other)

    def reach(room: str, seen: set[str]) -> set[str]:
        for other in after.get(room, set()) - seen:
            seen |= {other} | reach(other, seen | {other})
        return seen

    below = {room: reach(room, set()) for room in after}
    return {
        (one, other): count
        for (one, other), count in edges.items()
        if not any(other in below.get(third, set()) for third in after[one] - {other})
    }


def draw() -> str:
    """The picture as SVG."""
    known = rooms()
    edges = imports(known)
    rows = levels(known)
    edges = direct(
        Counter({pair: n for pair, n in _with_core(edges, known).items() if pair[0] != pair[1]})
    )
    places: dict[str, tuple[float, float, float]] = {}
    for i, row in enumerate(rows):
        each = (WIDTH - 2 * LEFT - GAP * (len(row) - 1)) / len(row)
        each = each if row == ["core"] else min(each, 300)
        start = (WIDTH - len(row) * each - GAP * (len(row) - 1)) / 2
        for j, name in enumerate(row):
            places[name] = start + j * (each + GAP), 20 + i * ROW, each
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {40 + ROW * len(rows)}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{40 + ROW * len(rows)}" fill="white"/>',
    ]
    for (one, other), count in sorted(edges.items()):
        if one not in places or other not in places:
            continue
        x0, y0, w0 = places[one]
        x1, y1, w1 = places[other]
        start, end = (x0 + w0 / 2, y0 + BOX), (x1 + w1 / 2, y1)
        bend = (start[1] + end[1]) / 2
        thick = 0.6 + 0.35 * count**0.5
        out.append(
            f'<path d="M{start[0]:.0f} {start[1]:.0f} C{start[0]:.0f} {bend:.0f} '
            f'{end[0]:.0f} {bend:.0f} {end[0]:.0f} {end[1]:.0f}" fill="none" '
            f'stroke="#6d8ab5" stroke-width="{thick:.1f}" opacity="0.8"/>'
        )
    for name, (x, y, width) in places.items():
        room = known[name]
        files = f"{room.files} files, " if room.files > 1 else ""
        size = f"{files}{room.lines:,} lines"
        label = f"{name}.py" if (PACKAGE / f"{name}.py").is_file() else f"{name}/"
        label = "the core" if name == "core" else label
        about = ABOUT.get(name, "")
        title = escape(f"{label}: {about} ({size})" if about else f"{label} ({size})")
        fill = "#fff3d6" if name in ("models", "nn") else "#e8f0fb"
        out.append(
            f'<g><title>{title}</title><rect x="{x:.0f}" y="{y}" width="{width:.0f}" '
            f'height="{BOX}" rx="5" fill="{fill}" stroke="#48648c"/>'
            f'<text x="{x + width / 2:.0f}" y="{y + (15 if width > 120 else 21)}" '
            f'text-anchor="middle">{escape(label)}</text>'
        )
        if width > 120:
            small = escape(f"{about}; {size}" if about and width > 250 else f"{size}")
            out.append(
                f'<text x="{x + width / 2:.0f}" y="{y + 28}" text-anchor="middle" '
                f'font-size="10" fill="#445">{small}</text>'
            )
        out.append("</g>")
    return "\n".join([*out, "</svg>"]) + "\n"


def _with_core(edges: Counter[tuple[str, str]], known: dict[str, Room]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for pair, count in edges.items():
        one, other = (name if name in known else "core" for name in pair)
        found[one, other] += count
    return found


RECORDER = """
import builtins, sys, threading
from pathlib import Path

depth, seen, package = [0], {{}}, {package!r} + "/"
real = builtins.__import__

def importing(*given, **named):
    depth[0] += 1
    try:
        return real(*given, **named)
    finally:
        depth[0] -= 1

def called(frame, event, argument):
    code = frame.f_code
    called_now = event == "call" and not depth[0] and code.co_name != "<module>"
    if called_now and code.co_filename.startswith(package):
        seen.setdefault(code.co_filename.removeprefix(package), code.co_name)

import torch, numpy
builtins.__import__ = importing
threading.setprofile(called)
sys.setprofile(called)
try:
    exec({code!r})
finally:
    sys.setprofile(None)
Path("seen").write_text("\\n".join(f"{{file}} {{name}}" for file, name in seen.items()))
"""


def walk(code: str) -> list[tuple[str, str]]:
    """The files that some code passes through, each with the first function called in it."""
    recorder = RECORDER.format(package=str(PACKAGE), code=textwrap.dedent(code))
    with tempfile.TemporaryDirectory() as folder:
        own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "IPOT_DATA": folder}
        environment = os.environ | own
        command = [sys.executable, "-c", recorder]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"a walk failed:\n{done.stdout}{done.stderr}")
        lines = (Path(folder) / "seen").read_text().splitlines()
    return [(file, name) for file, name in (line.split(" ", 1) for line in lines)]


def main() -> None:
    """Write both into a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "house.svg").write_text(draw())
    text = []
    for title, code in WALKS.items():
        passed = walk(code)
        lines = sum(len((PACKAGE / file).read_text().splitlines()) for file, _ in passed)
        text += [f"### `{title}`: {len(passed)} files of {lines:,} lines", ""]
        text += [f"{i}. `{file}`, from `{name}`" for i, (file, name) in enumerate(passed, 1)]
        text.append("")
    (folder / "walks.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
