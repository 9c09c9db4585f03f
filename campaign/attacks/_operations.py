"""What is interrupted: everything in the package that writes, each in some tenths of a second.

An operation can be begun and gone on with by the same call, as a user would repeat a command. What
it leaves is compared with what an undisturbed one leaves, bit by bit.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from campaign.attack import Lost
from campaign.attacks._contents import (
    Content,
    digest,
    digest_file,
    look_at_run,
    run_content,
)
from ipot import cli
from ipot.data.store import Store
from ipot.recipes import ledger
from ipot.recipes.compare import compare, shared
from ipot.recipes.experiment import Experiment, experiment, load_data
from ipot.recipes.running import resume, run
from ipot.recipes.several_seeds import run_seeds

TINY = {"width": 8, "latents": 4, "heads": 2, "cross_heads": 2, "blocks": 1}
HERE: dict[str, Any] = {"device": "cpu", "quiet": True}


class Operation(ABC):
    """Something that writes."""

    name: ClassVar[str] = ""
    exact: ClassVar[bool] = True
    """Whether it ends in the same bits each time: what a clock limits does not."""
    needs: tuple[str, ...] = ()
    """Libraries without which it is left out."""

    def prepare(self, shared: Path) -> None:  # noqa: B027 (most need nothing)
        """Make what it reads, once."""

    def start(self, folder: Path, shared: Path) -> None:  # noqa: B027 (most start from nothing)
        """What lies in its folder before it begins."""

    @abstractmethod
    def act(self, folder: Path, shared: Path) -> int | None:
        """Begin, or go on; a command returns its exit status."""

    @abstractmethod
    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        """Read what is there after an interruption: old or new, and whole, or it is lost."""

    @abstractmethod
    def content(self, folder: Path) -> Content:
        """What it leaves in the end, in terms that can be compared."""


def tiny(problem: str, **training: Any) -> Experiment:
    """An experiment of a tenth of a second that writes a checkpoint at every step."""
    base = experiment(problem, "ipot")
    settings = {"epochs": 3, "batch": 4, "step": "eager", "validate_every": 1, "save_seconds": 0.0}
    return replace(
        base,
        problem=base.problem.small(),
        model=replace(base.model, **TINY),
        training=replace(base.training, **settings | training),
        data=replace(base.data, train=8, validation=4, test=4),
    )


class Train(Operation):
    """`ipot train`, then `ipot train --resume`."""

    name = "train"
    settings = tiny("darcy", average=0.9, points=0.5)

    def prepare(self, shared: Path) -> None:
        """The data."""
        for split in ("train", "validation", "test"):
            load_data(
                self.settings, split, store=Store(shared / "store"), device=torch.device("cpu")
            )

    def act(self, folder: Path, shared: Path) -> None:
        out, store = folder / "run", Store(shared / "store")
        if (out / "config.json").exists():
            resume(out, store=store, **HERE)
        else:
            run(self.settings, out, store=store, **HERE)

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        look_at_run(folder / "run", reference)

    def content(self, folder: Path) -> Content:
        return run_content(folder / "run")


class Command(Train):
    """Training from the command line, with its picture at the end."""

    name = "train command"
    needs = ("tyro",)

    def act(self, folder: Path, shared: Path) -> int:
        out, store = folder / "run", ["--data", str(shared / "store"), "--device", "cpu", "--quiet"]
        if (out / "config.json").exists():
            return cli.main(["train", "--resume", str(out), *store])
        flags = ["--small", "--training.epochs", "2", "--training.save-seconds", "0"]
        flags += ["--training.step", "eager", "--training.batch", "4", "--count.train", "8"]
        flags += ["--count.validation", "4"]
        for name, value in TINY.items():
            flags += [f"--model.{name.replace('_', '-')}", str(value)]
        return cli.main(["train", "darcy", "--out", str(out), *flags, *store])

    def content(self, folder: Path) -> Content:
        picture = folder / "run" / "loss.png"
        return super().content(folder) | {"picture": picture.exists()}


class Seeds(Operation):
    """`ipot train --seeds 0 1`."""

    name = "seeds"
    settings = tiny("burgers", epochs=2)

    def prepare(self, shared: Path) -> None:
        for split in ("train", "validation"):
            load_data(
                self.settings, split, store=Store(shared / "store"), device=torch.device("cpu")
            )

    def act(self, folder: Path, shared: Path) -> None:
        run_seeds(self.settings, folder / "seeds", [0, 1], store=Store(shared / "store"), **HERE)

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        for seed in ("seed-0", "seed-1"):
            look_at_run(folder / "seeds" / seed, None if reference is None else reference[seed])

    def content(self, folder: Path) -> Content:
        seeds = folder / "seeds"
        found = {seed: run_content(seeds / seed) for seed in ("seed-0", "seed-1")}
        return found | {"summary": json.loads((seeds / "seeds.json").read_text())}


class Compare(Operation):
    """`ipot compare`, which a clock limits: it must end well, and not in the same bits.

    The minutes are over at the first step, on every machine: so the same events come everywhere.
    """

    name = "compare"
    exact = False
    minutes = 1e-9
    models = ("deeponet", "fno")

    def _base(self) -> Experiment:
        base = shared("burgers")
        return replace(
            base,
            problem=base.problem.small(),
            data=replace(base.data, train=8, validation=4, test=4),
        )

    def prepare(self, shared: Path) -> None:
        for split in ("train", "validation", "test"):
            load_data(
                self._base(), split, store=Store(shared / "store"), device=torch.device("cpu")
            )

    def act(self, folder: Path, shared: Path) -> None:
        store = Store(shared / "store")
        base, out = self._base(), folder / "compared"
        compare(base, self.models, out, minutes=self.minutes, small=True, store=store, **HERE)

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        for model in self.models:
            look_at_run(folder / "compared" / model, None)

    def content(self, folder: Path) -> Content:
        found = json.loads((folder / "compared" / "compare.json").read_text())
        return {row["model"]: row["reason"] for row in found["rows"]}


class Generate(Operation):
    """`ipot generate`: pieces of a recipe, one after another."""

    name = "generate"
    recipe: ClassVar[dict[str, Any]] = {"problem": "drawn", "seed": 1}
    count = 12

    @staticmethod
    def make(wanted: range) -> dict[str, torch.Tensor]:
        """Samples that depend on their numbers alone, as all generated data do."""
        numbers = torch.tensor(list(wanted), dtype=torch.float32)[:, None]
        return {"a": torch.sin(numbers * torch.arange(300)), "u": numbers * torch.ones(300)}

    def act(self, folder: Path, shared: Path) -> None:
        Store(folder / "store").fetch(self.recipe, self.count, self.make, piece=3)

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        store = Store(folder / "store")
        if have := store.count(self.recipe):
            found, wanted = store.fetch(self.recipe, have, _never), self.make(range(have))
            if digest(found) != digest(wanted):
                raise Lost(f"the {have} samples that are kept are not those that were made")

    def content(self, folder: Path) -> Content:
        store = Store(folder / "store")
        return {"samples": digest(store.fetch(self.recipe, self.count, _never))}


def _never(wanted: range) -> dict[str, torch.Tensor]:
    raise Lost(f"samples {wanted} are gone")


class Records(Operation):
    """`ipot train --record`: runs that are written into a ledger beside others."""

    name = "record"
    runs: ClassVar[list[dict[str, Any]]] = [
        {"id": f"run {i}", "tests": {"filled": 0.5 + i}, "curve": [[1.0, 0.5]] * 9}
        for i in range(40)
    ]

    def start(self, folder: Path, shared: Path) -> None:
        ledger.add(folder / "runs.json", self.runs[:20])

    def act(self, folder: Path, shared: Path) -> None:
        ledger.add(folder / "runs.json", self.runs[20:])

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        found = ledger.read(folder / "runs.json")
        if found not in [[ledger.sealed(run) for run in self.runs[:n]] for n in (20, 40)]:
            raise Lost(f"the ledger has {len(found)} runs, which are neither the old nor the new")

    def content(self, folder: Path) -> Content:
        return {"runs": digest_file(folder / "runs.json")}
