"""`ipot demo`: from a PDE to a picture, in about three minutes on a CPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from ipot.commands.flags.demo import Demo
from ipot.commands.output import Generation, emit, say, show
from ipot.commands.parsing import parse
from ipot.data.dataset import Dataset
from ipot.data.statistics import mean_field
from ipot.data.store import Store
from ipot.device import choose, use_quickest
from ipot.errors import RunError
from ipot.evaluation.predict import predict
from ipot.lock import locked
from ipot.models.base import Operator
from ipot.recipes.demo import COARSE, FINE, demo
from ipot.recipes.experiment import Experiment, build, load_data
from ipot.recipes.running import restore, run
from ipot.recipes.studies import Answer, Question, answer, guess_error, seen_test_data
from ipot.report import plots, tables
from ipot.samples import Sample, collate
from ipot.training.objective import RelativeL2

FRACTIONS = (1.0, 0.5, 0.25)
CURVE = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1)


def main(arguments: list[str]) -> None:
    """Run the command."""
    flags = parse(Demo, arguments, "demo")
    with locked(flags.out, "running the demo"):  # which removes an earlier run
        _demo(flags)


def _demo(flags: Demo) -> None:
    settings, store = demo(flags.minutes, flags.seed), Store(flags.data or flags.out / "data")
    folder = _clear(flags.out / "run")
    say("1/3  data: -∇·(a ∇u) = 1 on the unit square, solved by finite volumes")
    generation = Generation(store, quiet=flags.quiet)
    if choose(flags.device).type == "cpu":
        _settle_threads(settings, store, generation)
    say(f"2/3  training for {flags.minutes:g} minutes on {COARSE} x {COARSE}")
    run(
        settings,
        folder,
        device=flags.device,
        store=store,
        report=generation,
        quiet=flags.quiet,
    )
    say("3/3  evaluation on samples that it has never seen")
    model, settings = restore(folder, choose(flags.device))
    show_room = Showroom(model, settings, store, choose(flags.device))
    rows = show_room.rows()
    picture = plots.save(show_room.picture(rows), flags.out / "demo.png")
    rows.append(show_room.averaged())  # the same fields to the eye
    if flags.json:
        emit({"picture": str(picture), "rows": [_plain(label, a) for label, a, _ in rows]})
        return
    guess = show_room.guess_error
    cells = [
        [label, f"{a.points:,}", f"{a.queries:,}", tables.percent(a.scores.relative_l2)]
        for label, a, _ in rows
    ]
    cells.append(
        [
            "the mean field, without any sensor",
            "0",
            f"{rows[0][1].queries:,}",
            tables.percent(guess),
        ]
    )
    columns = ["what it is given", "sensors", "queries", "relative L2 error"]
    show(tables.table(f"Darcy flow, {settings.data.test} unseen samples", columns, cells))
    say(f"picture: {picture}    run folder: {folder}")
    say(f"go on:   ipot evaluate {folder} --mask disk --data {store.root}")


class Showroom:
    """The trained model and the questions that the demo asks it."""

    def __init__(
        self, model: Operator, settings: Experiment, store: Store, device: torch.device
    ) -> None:
        self.model, self.settings, self.store, self.device = model, settings, store, device
        train = load_data(settings, "train", store=store, device=device)
        self.guess_error = _error_of_mean(train, self._data(Question()))

    def rows(self) -> list[tuple[str, Answer, Question]]:
        """Every question with its answer."""
        asked = [(_sensors(f), Question(keep=f)) for f in FRACTIONS]
        asked.append(("all sensors, 3x finer queries", Question(query_resolution=FINE)))
        asked.append(("25 % of them, 3x finer queries", Question(keep=0.25, query_resolution=FINE)))
        return [
            (label, answer(self.model, self.settings, q, self._data(q)), q) for label, q in asked
        ]

    def averaged(self) -> tuple[str, Answer, Question]:
        """All sensors, and the mean of the answers to the sample and to its mirror images."""
        question = Question(symmetric=True)
        found = answer(self.model, self.settings, question, self._data(question))
        return "all sensors, mean over the square's 8 symmetries", found, question

    def picture(self, rows: list[tuple[str, Answer, Question]]) -> Any:
        """One test case, asked in every way, beside the error over all of them."""
        index = _typical(rows[0][1])
        cases = [(label, *self._case(q, index)) for label, _, q in rows]
        questions = [Question(keep=f) for f in CURVE]
        answers = [answer(self.model, self.settings, q, self._data(q)) for q in questions]
        errors = [a.scores.relative_l2 for a in answers]
        panel = {
            "series": {"the model": ([100 * f for f in CURVE], errors)},
            "xlabel": "sensors observed (%)",
            "ylabel": "relative L2",
            "reference": {"mean field": self.guess_error},
        }
        title = "Darcy flow: permeability at the sensors in, pressure anywhere out"
        return plots.overview(
            cases, spec=self.settings.problem.spec, curve_panel=panel, title=title
        )

    def _case(self, question: Question, index: int) -> tuple[Sample, torch.Tensor]:
        sample = self._data(question)[index]
        return sample, predict(self.model, collate([sample]).to(self.device))[0].cpu()

    def _data(self, question: Question) -> Any:
        return seen_test_data(self.settings, question, store=self.store, device=self.device)


def _error_of_mean(train: Dataset, test: Dataset) -> float:
    """What a guess without any sensor scores."""
    guess = mean_field(train)
    error = None if guess is None else guess_error(guess, test)
    assert error is not None, "the demo's samples share their queries"
    return error


def _sensors(fraction: float) -> str:
    return "all sensors" if fraction == 1 else f"{100 * fraction:g} % of the sensors"


def _settle_threads(settings: Experiment, store: Store, generation: Generation) -> None:
    """Use as many threads as serve a training step best, now and on this machine."""
    data = load_data(settings, "train", store=store, device=torch.device("cpu"), report=generation)
    model, loss = build(settings), RelativeL2()
    batch = data.batch(torch.arange(settings.training.batch))
    use_quickest(lambda: loss(model, batch).backward())


def _typical(a: Answer) -> int:
    """The sample with the median error: neither the best nor the worst."""
    order = sorted(range(len(a.scores.per_sample)), key=a.scores.per_sample.__getitem__)
    return order[len(order) // 2]


def _plain(label: str, a: Answer) -> dict[str, Any]:
    return {"label": label, **a.as_dict()}


def _clear(folder: Path) -> Path:
    """Make room for a new demo; only a folder that holds a run is ever removed."""
    if folder.exists():
        if not (folder / "config.json").is_file():
            raise RunError(f"{folder} is in the way and is not a run; choose another --out")
        with locked(folder, "running the demo"):  # not while somebody trains there
            shutil.rmtree(folder)
    return folder
