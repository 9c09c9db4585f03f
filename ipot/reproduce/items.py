"""The cells of the paper's tables and figures, as data.

A cell is one number or picture of the paper and the way to ours: a job (one system trained on one
problem by its published settings) and how its test data are seen. Several cells may share a job. A
system that is missing in a table of the paper is missing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ipot.recipes.published import NUMBERS, RELATIVE_L2, SOURCES, Number
from ipot.recipes.studies import Question

ITEMS = {
    "table1": "performance and efficiency of all systems on all problems",
    "table2": "ERA5 at other resolutions, and with land masked",
    "table3": "ERA5 by the number of inducing points, and without them",
    "figure3": "fields and errors: Darcy from 100, 50 and 25 % of its inputs, and three meshes",
    "figure4": "rollouts: shallow water to t = 40, ERA5 from all inputs and from the sea alone",
    "figure5": "time and memory from a thousand points to a million",
    "shallow-water": "appendix: mean squared errors over four spans of time, IPOT and DINo",
    "perceiver-io": "appendix: Perceiver IO on Navier-Stokes at three viscosities",
    "navier-stokes": "appendix: IPOT on Navier-Stokes at three viscosities",
    "interpolated": "appendix: what cubic interpolation makes of ERA5 with land masked",
    "ablation": "which of the paper's equations and its authors' code makes Darcy's number",
    "claims": "in the text: cost linear in points, and a processor whose depth is apart from them",
}
"""What can be reproduced; `settings`, the appendix's tables of sizes, needs no run."""

Changes = tuple[tuple[str, Any], ...]
AS_IN_TRAINING = Question()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One system trained on one problem by its published settings, but for some changes."""

    problem: str
    model: str = "ipot"
    problem_changes: Changes = ()
    model_changes: Changes = ()
    training_changes: Changes = ()
    files: str | None = None
    """Folder with the published data; None generates them."""

    @property
    def view(self) -> str:
        """The problem and what is changed of it."""
        return "-".join([self.problem, *_words(self.problem_changes)])

    @property
    def name(self) -> str:
        """What its folder and its records are called."""
        words = [self.view, *(["published"] if self.files else []), self.model]
        return "-".join([*words, *_words(self.model_changes), *_words(self.training_changes)])


def _words(changes: Changes) -> list[str]:
    """Like latents=64."""
    shown = ((n, f"{v:g}" if isinstance(v, float | int) else v) for n, v in changes)
    return [f"{name}={value}" for name, value in shown]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is measured without a training: time and memory of answers, or interpolated inputs."""

    kind: Literal["scaling", "interpolation"]
    problem: str
    model: str = "ipot"
    model_changes: Changes = ()
    points: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number or a picture of the paper, and the way to ours."""

    item: str
    row: str
    column: str
    job: Job | None = None
    question: Question = AS_IN_TRAINING
    frames: tuple[int, int] | None = None
    """The score is the plain mean squared error from this time to before that one; None is the
    relative L2 error."""
    picture: Literal["", "fields", "rollout"] = ""
    measurement: Measurement | None = None
    published: Number | None = field(default=None, hash=False)
    impossible: str = ""
    """Why there is no way to ours."""

    @property
    def name(self) -> str:
        """As it is asked for on the command line."""
        return f"{self.item}/{self.row}/{self.column}"

    @property
    def asks(self) -> str:
        """What its number is called in a record."""
        if self.frames is None:
            return self.question.describe()
        first, last = self.frames
        return f"mean squared error from t = {first} to before {last}"


CLIPPED: Changes = (("clip", 1.0),)
DARCY = Job(problem="darcy", training_changes=CLIPPED)
"""IPOT on Darcy. In bf16, which our kernels are for, its published schedule breaks away unless
gradients are limited; `ablation/float32` is without a limit."""
THIS_PAPER = SOURCES["ipot"]
NO_GRID = (
    "elasticity has no grid. Geo-FNO learns a map onto one, which `fno` here does not; `ffno` does"
)


def _printed(**wanted: Any) -> list[Number]:
    """What the paper prints: rows of published.toml with these values."""
    mine = [number for number in NUMBERS if number.source == THIS_PAPER]
    return [n for n in mine if all(getattr(n, name) == v for name, v in wanted.items())]


def _one(**wanted: Any) -> Number | None:
    return next(iter(_printed(**wanted)), None)


def _table1() -> Iterable[Cell]:
    """The plain test error of every system that the table has a number for."""
    for number in _printed(condition="", metric=RELATIVE_L2):
        if number.parameters is None:  # those of the appendix
            continue
        refused = NO_GRID if (number.problem, number.model) == ("elasticity", "fno") else ""
        yield Cell(
            item="table1",
            row=number.problem,
            column=number.model,
            job=_clipped(Job(problem=number.problem, model=number.model)),
            published=number,
            impossible=refused,
        )


def _clipped(job: Job) -> Job:
    return DARCY if (job.problem, job.model) == ("darcy", "ipot") else job


# Degrees between two nodes, and the number of rows from pole to pole that has them.
RESOLUTIONS = {"4": 45, "1": 180, "0.25": 720}


def _table2() -> Iterable[Cell]:
    for model in ("fno", "oformer", "ipot"):
        job = Job(problem="era5", model=model)
        for degrees, rows in RESOLUTIONS.items():
            yield Cell(
                item="table2",
                row=f"{degrees}deg",
                column=model,
                job=job,
                question=Question(resolution=rows),
                published=_one(model=model, condition=f"inputs at {degrees}°"),
            )
        yield Cell(
            item="table2",
            row="masked-land",
            column=model,
            job=job,
            # FNO takes whole grids: the paper interpolates what is hidden.
            question=Question(mask="sea", fill="cubic" if model == "fno" else None),
            published=_one(model=model, condition="land masked"),
        )


def _table3() -> Iterable[Cell]:
    for count in (64, 128, 256, 512):
        # 512 are the paper's own setting: that run is table 1's.
        changes: Changes = () if count == 512 else (("latents", count),)
        yield Cell(
            item="table3",
            row=f"{count}-inducing-points",
            column="ipot",
            job=Job(problem="era5", model_changes=changes),
            published=_one(condition=f"{count} inducing points"),
        )
    for model in ("transformer", "oformer"):
        yield Cell(
            item="table3",
            row="no-inducing-points",
            column=model,
            job=Job(problem="era5", model=model),
            published=_one(problem="era5", model=model, condition=""),
        )


def _figure3() -> Iterable[Cell]:
    for share in (1.0, 0.5, 0.25):
        yield Cell(
            item="figure3",
            row="darcy",
            column=f"{100 * share:g}%",
            job=DARCY,
            question=Question(keep=share),
            picture="fields",
        )
    for problem in ("airfoil", "elasticity", "plasticity"):
        yield Cell(
            item="figure3",
            row=problem,
            column="100%",
            job=Job(problem=problem),
            picture="fields",
        )


def _figure4() -> Iterable[Cell]:
    water, weather = Job(problem="shallow_water"), Job(problem="era5")
    for row, column, job, question in (
        ("shallow_water", "t=40", water, Question(steps=39)),
        ("era5", "all-inputs", weather, Question()),
        ("era5", "sea-alone", weather, Question(mask="sea")),
    ):
        yield Cell(
            item="figure4",
            row=row,
            column=column,
            job=job,
            question=question,
            picture="rollout",
        )


THOUSAND_TO_MILLION = (1_000, 10_000, 100_000, 1_000_000)


def _figure5() -> Iterable[Cell]:
    versions: list[tuple[str, str, Changes]] = [
        ("ipot-256", "ipot", (("latents", 256),)),
        ("ipot-512", "ipot", (("latents", 512),)),
        ("transformer", "transformer", ()),
        ("fno", "fno", ()),
        ("oformer", "oformer", ()),
    ]
    for row, model, changes in versions:
        measured = Measurement(
            kind="scaling",
            problem="era5_synthetic",  # sizes alone count here, and they are those of era5
            model=model,
            model_changes=changes,
            points=THOUSAND_TO_MILLION,
        )
        yield Cell(item="figure5", row=row, column="cost", measurement=measured)


SPANS = ((0, 10), (10, 20), (20, 30), (30, 40))


def _shallow_water() -> Iterable[Cell]:
    for model in ("dino", "ipot"):
        for first, last in SPANS:
            yield Cell(
                item="shallow-water",
                row=f"t={first}-{last}",
                column=model,
                job=Job(problem="shallow_water", model=model),
                question=Question(steps=39),
                frames=(first, last),
                published=_one(
                    problem="shallow_water", model=model, condition=f"t = {first} to {last}"
                ),
            )


def _viscosities(item: str, model: str) -> Iterable[Cell]:
    for viscosity in (1e-3, 1e-4, 1e-5):
        # 1e-3 is the problem's own setting: that run is table 1's.
        changes: Changes = () if viscosity == 1e-3 else (("viscosity", viscosity),)
        yield Cell(
            item=item,
            row=f"viscosity={viscosity:g}",
            column=model,
            job=Job(problem="navier_stokes", model=model, problem_changes=changes),
            published=_one(problem="navier_stokes", model=model, viscosity=viscosity),
        )


def _interpolated() -> Iterable[Cell]:
    measured = Measurement(kind="interpolation", problem="era5")
    yield Cell(item="interpolated", row="masked-land", column="cubic", measurement=measured)


def _claims() -> Iterable[Cell]:
    linear = Measurement(
        kind="scaling", problem="darcy", points=(*THOUSAND_TO_MILLION, 3_162_278, 10_000_000)
    )
    yield Cell(item="claims", row="linear-in-points", column="ipot", measurement=linear)
    for blocks in (1, 4, 16):
        measured = Measurement(
            kind="scaling",
            problem="darcy",
            model_changes=(("blocks", blocks),),
            points=THOUSAND_TO_MILLION,
        )
        yield Cell(
            item="claims", row="depth-apart", column=f"{blocks}-blocks", measurement=measured
        )


def _ablation() -> Iterable[Cell]:
    """Keys of the processor raw or normalised, times the encoder's feed-forward on or off; and both
    ends in float32 without a limit on gradients, as they were published."""
    raw: Changes = (("raw_keys", True),)
    without: Changes = (("encoder_feed_forward", 0),)
    exact: Changes = (("precision", "float32"),)
    for row, column, model, training in (
        ("normalised-keys", "with-feed-forward", (), CLIPPED),
        ("normalised-keys", "without", without, CLIPPED),
        ("raw-keys", "with-feed-forward", raw, CLIPPED),
        ("raw-keys", "without", (*raw, *without), CLIPPED),
        ("float32", "paper", (), exact),
        ("float32", "authors", (*raw, *without), exact),
    ):
        yield Cell(
            item="ablation",
            row=row,
            column=column,
            job=Job(problem="darcy", model_changes=model, training_changes=training),
            published=_one(problem="darcy", model="ipot"),
        )


CELLS: tuple[Cell, ...] = (
    *_table1(),
    *_table2(),
    *_table3(),
    *_figure3(),
    *_figure4(),
    *_figure5(),
    *_shallow_water(),
    *_viscosities("perceiver-io", "perceiver_io"),
    *_viscosities("navier-stokes", "ipot"),
    *_interpolated(),
    *_ablation(),
    *_claims(),
)
"""Every cell of the paper, in its order."""

MINUTES: dict[tuple[str, str], float] = {
    ("darcy", "ipot"): 1,
    ("darcy", "fno"): 3,
    ("darcy", "ffno"): 2,
    ("darcy", "deeponet"): 1,
    ("darcy", "oformer"): 19,
    ("darcy", "meshgraphnet"): 100,
    ("navier_stokes", "ipot"): 51,
    ("navier_stokes", "fno"): 28,
    ("navier_stokes", "ffno"): 72,
    ("navier_stokes", "oformer"): 90,
    ("navier_stokes", "perceiver_io"): 60,
    ("navier_stokes-viscosity=0.0001", "ipot"): 25,
    ("navier_stokes-viscosity=0.0001", "perceiver_io"): 30,
    ("navier_stokes-viscosity=1e-05", "ipot"): 13,
    ("navier_stokes-viscosity=1e-05", "perceiver_io"): 15,
    ("airfoil", "ipot"): 1,
    ("elasticity", "ipot"): 2,
    ("plasticity", "ipot"): 5,
    ("shallow_water", "ipot"): 5,
    ("era5", "ipot"): 12,
}
"""Minutes of a published schedule on an H200: seconds an epoch times epochs (docs/speed.md)."""
