"""What lies in folders, in terms that can be compared: digests of tensors, rows without clocks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from campaign.attack import Lost
from ipot.errors import IpotError
from ipot.recipes.running import ended, restore
from ipot.run_folder import Run
from ipot.training import checkpoint, journal

CLOCKS = {"seconds", "steps_per_second", "setup_seconds", "peak_gib", "epoch_seconds", "date"}
"""What no two runs have in common."""
Content = dict[str, Any]


def digest(tensors: dict[str, Tensor]) -> str:
    """All bits of some tensors, in a word."""
    whole = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name].detach().cpu().contiguous()
        whole.update(repr((name, str(array.dtype), tuple(array.shape))).encode())
        whole.update(array.view(-1).numpy().tobytes())
    return whole.hexdigest()[:20]


def digest_file(path: Path) -> str:
    """The bits of a file; `absent` where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:20] if path.exists() else "absent"


def unclocked(content: Any) -> Any:
    """Contents without what depends on how fast it went, as JSON would give it back."""
    if isinstance(content, dict):
        return {k: unclocked(v) for k, v in content.items() if k not in CLOCKS}
    if isinstance(content, list | tuple):
        return [unclocked(v) for v in content]
    return content


def run_content(path: Path) -> Content:
    """All of a run that must be the same however often it was stopped."""
    run, found = Run(path), {}
    for name, file in (("last", run.last), ("best", run.best)):
        tensors, state = checkpoint.load(file)
        found[name] = [digest(tensors), unclocked(state)]
    found["rows"] = unclocked(journal.read(run.metrics))
    found["result"] = unclocked(json.loads(run.result.read_text()))
    return found


def look_at_run(path: Path, reference: Content | None) -> None:
    """Read what a stopped run has left, as the package does; all of it belongs to the reference."""
    run = Run(path)
    if not run.config_file.exists():
        for file in (run.last, run.best, run.result):
            if file.exists():
                raise Lost(f"{file.name} is there and config.json is not")
        return
    run.config()
    rows = unclocked(journal.read(run.metrics))
    known = None if reference is None else {row["step"]: row for row in reference["rows"]}
    steps = [row["step"] for row in rows]
    if known is not None and [known.get(step) for step in steps] != rows:
        raise Lost(f"metrics.jsonl has rows that no undisturbed run has: {rows}")
    if steps != sorted(set(steps)):
        raise Lost(f"metrics.jsonl tells of some steps twice: {steps}")
    if run.last.exists():
        restore(path, weights="last")
    if run.best.exists():
        restore(path, weights="best")
        _, state = checkpoint.load(run.best)
        if known is not None:
            told = {row["epoch"]: row.get("validation") for row in known.values()}
            if told.get(state["epoch"]) != state["validation"]:
                raise Lost(f"best.safetensors is of no epoch of an undisturbed run: {state}")
    result = ended(run)
    if result is not None and reference is not None:
        if unclocked(json.loads(run.result.read_text())) != reference["result"]:
            raise Lost("result.json is another than that of an undisturbed run")
        found = run_content(path)
        if any(found[name] != reference[name] for name in found):
            raise Lost(
                f"result.json says that all is done, and it is not: {_differing(found, reference)}"
            )


def same(found: Content, reference: Content) -> None:
    """Lost where something came out otherwise."""
    found = json.loads(json.dumps(found))
    if found != reference:
        raise Lost(f"it ended otherwise than undisturbed: {_differing(found, reference)}")


def _differing(found: Any, reference: Any, name: str = "") -> str:
    """Where two contents differ first, in words."""
    if isinstance(found, dict) and isinstance(reference, dict):
        for key in sorted({*found, *reference}):
            if found.get(key) != reference.get(key):
                return _differing(found.get(key), reference.get(key), f"{name}.{key}")
    if isinstance(found, list) and isinstance(reference, list) and len(found) == len(reference):
        for i, (one, other) in enumerate(zip(found, reference, strict=True)):
            if one != other:
                return _differing(one, other, f"{name}[{i}]")
    return f"{name or 'all'}: {str(found)[:200]} and not {str(reference)[:200]}"


def whole_files(folder: Path) -> None:
    """No file that has its final name may be half a file, whether or not somebody reads it."""
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts
        if any(part.startswith((".", "tmp")) for part in inside) or not path.is_file():
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".safetensors":
                with safe_open(path, "pt"):
                    pass
        except (ValueError, SafetensorError, OSError) as error:
            raise Lost(f"{path.relative_to(folder)} is half a file: {error}") from error


def names(folder: Path) -> list[str]:
    """Every file and folder, but for TensorBoard's and the numbers of locks."""
    found = (str(p.relative_to(folder)) for p in folder.rglob("*"))
    return sorted(name for name in found if "tensorboard" not in name)


def left_behind(folder: Path, expected: list[str]) -> None:
    """Nothing may remain that an undisturbed run does not leave."""
    if more := sorted(set(names(folder)) - set(expected)):
        raise Lost(f"left behind: {len(more)} besides what belongs there, {more[0]} among them")


def readable(look: Any, *given: Any) -> None:
    """Call a look at a folder; what the package refuses to read there is lost."""
    try:
        look(*given)
    except IpotError as error:
        raise Lost(f"what is there cannot be read: {type(error).__name__}: {error}") from error
