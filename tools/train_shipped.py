"""Train the models that come with the package: each is a folder of ipot/trained.

    python tools/train_shipped.py darcy --minutes 20                      # one of them
    python tools/train_shipped.py --minutes 25 --device cuda --pack shipped.tar.gz    # all of them

Each is a plain `ipot train`: the command stands on its card and in results/runs.json. What was cut
goes on when the same is called again. Afterwards the weights are rounded, the test error is
measured before and after, and config.json, model.safetensors, README.md and samples.npz are
written. A model whose card has a lower test error stays, unless --replace is given.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import ipot  # noqa: E402
from ipot import safe_read, trained  # noqa: E402
from ipot.data.ranges import ranges_held  # noqa: E402
from ipot.data.store import Store  # noqa: E402
from ipot.errors import RunError  # noqa: E402
from ipot.evaluation.evaluate import leads  # noqa: E402
from ipot.models.base import Operator, parameter_count  # noqa: E402
from ipot.recipes import ledger  # noqa: E402
from ipot.recipes.experiment import load_data  # noqa: E402
from ipot.recipes.studies import Answer, Question, ask_model  # noqa: E402
from ipot.report.tables import bytes_, percent  # noqa: E402
from ipot.run_folder import Run  # noqa: E402
from ipot.saved.folder import WEIGHTS  # noqa: E402
from ipot.saved.samples import archive  # noqa: E402
from ipot.saved.weights import rounded  # noqa: E402
from ipot.surrogate.surrogate import Surrogate  # noqa: E402

OUT, PAGE = ROOT / "ipot" / "trained", ROOT / "docs" / "trained.md"
BEGIN = "<!-- table: written by tools/train_shipped.py, not by hand -->"
END = "<!-- end of table -->"
WORSE = 1.04
"""How much rounding may add to the test error; weights that would lose more stay float32."""
STOPPED = 128
"""The exit code of what a signal stopped is this and more; others failed by themselves."""
RESERVE = 0.9
"""The part of a model's time that it is trained in; the rest is for scores and files."""
LEAST = 0.05
"""Minutes of training at least."""
KEPT = ((8, "float32"), (4, "float32"), (2, "float32"), (2, "float16"), (1, "float16"))
"""How many test samples are in samples.npz, and in which numbers: the first that fits, or the last.
"""
NOT_ON_CARD = ("environment", "training")
"""What is told of a run and is no matter here: the machine's own names, and settings that stand in
config.json already."""


@dataclass(frozen=True)
class How:
    """A model of a problem, in the words of `ipot train`, without the time that it takes."""

    model: str
    data: str = ""
    """--problem and --count: those of the problem unless said."""
    settings: str = ""
    """--model and --training: those of the recipe unless said."""


@dataclass(frozen=True)
class Recipe:
    """One of the models that come with the package."""

    title: str
    share: float
    """The part of the time that it gets, relative to the others."""
    cpu: How
    """For one or two cores, which do some thousand steps in a quarter of an hour: few samples,
    coarse grids, narrow models with a higher rate."""
    gpu: How
    """For one GPU: the sizes of docs/accuracy.md, and models of a width that together stay within
    25 MB."""
    also: Mapping[str, Question] = field(default_factory=dict)
    """Further test errors for its card, by their names."""
    timed: bool = True
    """False where its recipe says when to stop: longer training learns its samples by heart."""


NARROW = "--model.width 16 --model.most-width 128 --model.blocks 1 --training.learning-rate 2e-3"
FEW = "--model.latents 64 --model.width 64 --model.blocks 2 --model.heads 4 --model.cross-heads 2"
FEW += " --training.learning-rate 2e-3"
MANY_TIMES = "--training.batch 2 --training.pieces 4"
"""All samples of a step start at the same times. With eight samples of one time in a step, flows
were not learnt at all in 480 steps; with two samples of four times they were in 100."""
WIDE = "--model.width 32 --model.most-width 128"
RECIPES = {
    "airfoil": Recipe(
        "Transonic flow around a wing",
        12,
        How(
            "lattice",
            "--problem.size 111 --problem.resolution 111 --problem.tolerance 1e-3"
            " --count.train 200 --count.validation 20 --count.test 30",
            NARROW,
        ),
        # As coarse as on a CPU: the page solves cases to compare, and the whole mesh takes minutes.
        How("ipot", "--problem.size 111 --problem.resolution 111 --problem.tolerance 1e-3"),
    ),
    "burgers": Recipe(
        "Burgers on the circle",
        8,
        How(
            "lattice",
            "--problem.resolution 256 --count.train 1000 --count.validation 100 --count.test 100",
            "--model.width 32 --model.most-width 64 --training.batch 20"
            " --training.learning-rate 2e-3",
        ),
        How("lattice", "", "--model.width 32 --model.most-width 64"),
    ),
    "darcy": Recipe(
        "Darcy flow through two media",
        20,
        How(
            "lattice",
            "--problem.size 253 --problem.resolution 43 --count.train 1000 --count.validation 50"
            " --count.test 100",
            "--model.width 24 --model.most-width 96 --model.blocks 1 --training.batch 5"
            " --training.learning-rate 3e-3",
        ),
        How("lattice", "", WIDE),
        {"from a quarter of the sensors": Question(keep=0.25)},
    ),
    "elasticity": Recipe(
        "Stress around a cavity in rubber",
        15,
        How(
            "lattice",
            "--count.train 1000 --count.validation 50 --count.test 100",
            "--model.width 24 --model.most-width 96 --model.blocks 1 --model.places 32"
            " --training.batch 5 --training.learning-rate 3e-3 --training.augment",
        ),
        How("ipot"),
    ),
    "navier_stokes": Recipe(
        "Forced turbulence on the torus",
        20,
        How(
            "lattice",
            "--problem.size 64 --count.train 300 --count.validation 10 --count.test 20",
            f"{NARROW} {MANY_TIMES} --training.warmup 0.05 --training.validate-every 2",
        ),
        How("lattice", "--problem.size 64", WIDE),
    ),
    "plasticity": Recipe(
        "Forging of a metal block",
        12,
        How(
            "ipot",
            "--problem.size 61 --problem.mass-scaling 100 --count.train 250"
            " --count.validation 20 --count.test 30",
            f"{FEW} --training.queries 0.04 --training.validate-every 5",
        ),
        How("ipot"),
    ),
    "shallow_water": Recipe(
        "Jets on a rotating sphere",
        12,
        How(
            "lattice",
            "--problem.size 64 --count.train 64 --count.validation 8 --count.test 8",
            f"{NARROW} --model.finest 0 --training.unroll 1 {MANY_TIMES}"
            " --training.warmup 0.05 --training.validate-every 4",
        ),
        How("lattice", "", f"{WIDE} --model.blocks 1"),
    ),
    "sst": Recipe("Sea-surface temperature", 8, How("ipot"), How("ipot"), timed=False),
}

# Of docs/log.md, 2026-11-15: the best of nine settings on validation, scored on the test years.
RIDGE = {"step 1": 0.3386, "step 2": 0.4431, "step 4": 0.5323, "step 8": 0.6093}
BESIDE = {"sst": {"ridge regression (docs/log.md)": RIDGE}}
"""Root mean squares of other forecasts on the same test samples, by problem and step."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, score and write the models that are asked for, one after another."""
    flags = _flags(arguments)
    if flags.table:
        write_table()
        return 0
    if flags.ranges:
        for name in flags.names or trained.names():
            print(write_ranges(name, flags), flush=True)
        if flags.out == OUT:
            write_table()
        return 0
    names = flags.names or sorted(RECIPES, key=lambda name: -RECIPES[name].share)
    end = time.monotonic() + 60 * flags.minutes
    # One commit for all that this call trains, even if files are edited while it runs.
    os.environ.setdefault("IPOT_COMMIT", ledger.commit())
    failed = 0
    for i, name in enumerate(names):
        rest = sum(RECIPES[other].share for other in names[i:])
        run = flags.work / name
        code = _generated(name, flags)
        share = (end - time.monotonic()) / 60 * RECIPES[name].share / rest
        code = code or _trained(name, run, max(LEAST, RESERVE * share), flags)
        if code:
            print(f"{name}: ended with {code}; the same call goes on with it", file=sys.stderr)
            failed = failed or code
            if code < 0 or code >= STOPPED:  # by hand, or for want of time: the others as well
                break
            continue
        print(ship(name, run, flags), flush=True)
        if flags.out == OUT:
            write_table()
    if flags.pack is not None:
        _pack(flags.pack, names, flags)
    return failed


def _flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = ", ".join(RECIPES)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all unless said: {known}")
    parser.add_argument("--minutes", type=float, default=100.0, help="for all of it together")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--work", type=Path, default=Path("runs/shipped"), help="the runs")
    parser.add_argument("--data", type=Path, default=None, help="generated data, as elsewhere")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--record", type=Path, default=Path("results/runs.json"))
    parser.add_argument("--pack", type=Path, help="an archive (.tar.gz) of what was written")
    parser.add_argument("--replace", action="store_true", help="also what has a lower test error")
    parser.add_argument("--table", action="store_true", help="only write that of docs/trained.md")
    parser.add_argument(
        "--ranges",
        action="store_true",
        help="only write what models that are there saw in training, of data generated anew",
    )
    flags = parser.parse_args(arguments)
    if unknown := [name for name in flags.names if name not in RECIPES]:
        parser.error(f"no recipe for {', '.join(unknown)}; there are: {known}")
    if not flags.minutes > 0:
        parser.error(f"--minutes must be positive, got {flags.minutes:g}")
    return flags


def how(name: str, device: str) -> How:
    """How a model is trained on a device."""
    return RECIPES[name].cpu if device == "cpu" else RECIPES[name].gpu


def words(name: str, device: str, minutes: float) -> list[str]:
    """The arguments of `ipot train` for a model, but for where it goes."""
    chosen = how(name, device)
    found = [name, chosen.model, *chosen.data.split(), *chosen.settings.split()]
    if RECIPES[name].timed:
        found += ["--minutes", f"{minutes:.2f}", "--epochs", "1000000"]
    return found


def _ipot(*arguments: str) -> int:
    """An `ipot` command in a process of its own, so that all memory comes back."""
    print("ipot", shlex.join(arguments), flush=True)
    return subprocess.run([sys.executable, "-m", "ipot", *arguments], check=False).returncode


def _generated(name: str, flags: argparse.Namespace) -> int:
    """Generate what is missing, so that the time for training is known afterwards."""
    if not ipot.experiment(name).problem.generated:
        return 0
    data = how(name, flags.device).data.split()
    return _ipot("generate", name, *data, *_places(flags), "--quiet")


def _places(flags: argparse.Namespace) -> list[str]:
    data = [] if flags.data is None else ["--data", str(flags.data)]
    return [*data, "--device", flags.device]


def _trained(name: str, run: Path, minutes: float, flags: argparse.Namespace) -> int:
    """Train it, or go on with what was cut, in the time that was given to it at first."""
    if (run / "config.json").exists():
        minutes = Run.open(run).config()["training"]["minutes"] or minutes
    given = words(name, flags.device, minutes)
    flags.record.parent.mkdir(parents=True, exist_ok=True)
    there = ["--out", str(run), "--record", str(flags.record), "--resume-or-start", "--quiet"]
    return _ipot("train", *given, *there, *_places(flags))


def ship(name: str, run: Path, flags: argparse.Namespace) -> str:
    """Score a run, round its weights and write the folder; what became of it, in a line."""
    recipe, store = RECIPES[name], Store(flags.data)
    model = ipot.load(run, device=flags.device)
    whole = _asked(model, Question(), store)
    stored, answer = _rounded(model, whole, store)
    others = {what: _asked(model, how, store) for what, how in recipe.also.items()}
    record = ledger.record_of(run, tests=_tests(whole, recipe, others))
    ledger.add(flags.record, [record])
    record = next(r for r in ledger.read(flags.record) if r["id"] == record["id"])
    there = _error_of(flags.out / name)
    error = answer.scores.relative_l2
    if there is not None and there <= error and not flags.replace:
        return f"{name}: kept, its test error is {there:.4g}, and that of {run} {error:.4g}"
    if not model.layout.span("values")[0]:  # of a run that did not write them down
        model.layout = replace(model.layout, **_ranges(model, store))
    model.scores = scores_of(name, answer, whole, others) | {"validation": record["validation"]}
    about = {k: v for k, v in model.about.items() if k not in NOT_ON_CARD}
    about["samples"] = about["samples"] | {"held out": len(answer.scores.per_sample)}
    model.about = {
        "title": recipe.title,
        **about,
        "parameters": parameter_count(model.model),
        "machine": record["machine"],
        "torch": record["torch"],
        "command": record["command"],
        "commit": record["commit"],
        "weights": f"stored as {stored}",
        "note": _note(record),
        "license": "MIT",
    }
    _write(name, model, stored, store, flags)
    size = sum(p.stat().st_size for p in (flags.out / name).iterdir())
    return f"{name}: test error {error:.4g} ({whole.scores.relative_l2:.4g} before), {size:,} bytes"


def write_ranges(name: str, flags: argparse.Namespace) -> str:
    """Give a model that is there the ranges of its training data; its weights stay as they are."""
    folder = flags.out / name
    model = ipot.load(folder, device="cpu")
    before = (folder / WEIGHTS).read_bytes()
    stored = safe_read.read_json(folder / trained.CONFIG).get("stored", "float32")
    model.layout = replace(model.layout, **_ranges(model, Store(flags.data)))
    with tempfile.TemporaryDirectory(dir=flags.out, prefix=".") as place:
        new = model.save(Path(place) / name, precision=stored)
        if (new / WEIGHTS).read_bytes() != before:
            raise RunError(f"{folder}: its weights are written differently by this release")
        for file in new.iterdir():
            file.replace(folder / file.name)
    low, high = model.layout.span("values")
    return f"{name}: values from {min(low, default=0):.4g} to {max(high, default=0):.4g}"


def _ranges(model: Surrogate, store: Store) -> dict[str, Any]:
    """The ranges of the data that a model was trained on."""
    assert model.settings is not None
    return ranges_held(load_data(model.settings, "train", store=store, device=torch.device("cpu")))


def _asked(model: Surrogate, question: Question, store: Store) -> Answer:
    assert model.settings is not None
    return ask_model(model.model, model.settings, question, store=store)


def _tests(whole: Answer, recipe: Recipe, others: Mapping[str, Answer]) -> dict[str, float]:
    """The errors for the ledger, by the names that it has for them."""
    asked = {recipe.also[what].describe(): a.scores.relative_l2 for what, a in others.items()}
    return {ledger.AS_TRAINED: whole.scores.relative_l2} | asked


def _rounded(model: Surrogate, whole: Answer, store: Store) -> tuple[str, Answer]:
    """Round the weights of a model in place, and score it; undone where it loses by it."""
    operator: Operator = model.model
    before = {name: tensor.clone() for name, tensor in operator.state_dict().items()}
    try:
        operator.load_state_dict(rounded(before, dict(operator.named_parameters())))
    except RunError:  # weights beyond the range of float16
        return "float32", whole
    after = _asked(model, Question(), store)
    if after.scores.relative_l2 <= WORSE * whole.scores.relative_l2:
        return "float16", after
    operator.load_state_dict(before)
    return "float32", whole


def scores_of(
    name: str, answer: Answer, whole: Answer, others: Mapping[str, Answer]
) -> dict[str, Any]:
    """What the card says of its errors: on the test split, of the weights as they are stored."""
    each = answer.scores.per_sample
    found: dict[str, Any] = {
        "held_out": answer.scores.relative_l2,
        "median": answer.median,
        "worst": max(each),
        "deviation": statistics.stdev(each) if len(each) > 1 else None,
        "before rounding": whole.scores.relative_l2,
        **{what: other.scores.relative_l2 for what, other in others.items()},
    }
    simple = {"mean field": answer.mean_field} if answer.mean_field is not None else {}
    simple |= {what: scores.relative_l2 for what, scores in answer.references.items()}
    if simple:
        found["baselines"] = simple
    steps = leads(len(answer.scores.rmse_per_time))
    if len(steps) > 1:
        rows = {"this model": answer.scores, **answer.references}
        found["root mean square"] = {
            what: {f"step {step}": scores.rmse_per_time[step - 1] for step in steps}
            for what, scores in rows.items()
        } | BESIDE.get(name, {})
    return found


def _note(record: ledger.Record) -> str:
    minutes = record["seconds"] / 60
    if "core" in record["machine"]:
        return (
            f"trained for {minutes:.1f} minutes on a CPU that other work shared, to be tried and "
            "not to be compared: docs/accuracy.md has what a GPU reaches in as long"
        )
    return f"trained for {minutes:.1f} minutes on a GPU"


def _error_of(folder: Path) -> float | None:
    """The test error on the card of a model that is there already."""
    try:
        return safe_read.read_json(folder / trained.CONFIG)["scores"]["held_out"]
    except FileNotFoundError:
        return None


def _write(
    name: str, model: Surrogate, stored: str, store: Store, flags: argparse.Namespace
) -> None:
    """The folder takes the place of the one before when all of it is there."""
    assert model.settings is not None
    flags.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=flags.out, prefix=".") as place:
        new = model.save(Path(place) / name, precision=stored)
        data = load_data(model.settings, "test", store=store, device=torch.device("cpu"))
        (new / trained.SAMPLES).write_bytes(archive(data, model.layout, KEPT))
        target = flags.out / name
        if target.exists():
            target.rename(Path(place) / "before")
        new.rename(target)


def table() -> str:
    """What the cards say, as the table of docs/trained.md."""
    trained.names.cache_clear()
    rows = [
        "| name | problem | model | test error | samples | simple answer | minutes | on | size |",
        "|---|---|---|--:|--:|--:|--:|---|--:|",
    ]
    for name in trained.names():
        facts = trained.facts(name)
        best = facts["simple"]
        cells = [
            f"`{name}`",
            facts["title"],
            f"`{facts['model']}`",
            percent(facts["error"]),
            str(facts["test_samples"]),
            "-" if best is None else f"{percent(best['error'])} ({best['name']})",
            f"{facts['seconds'] / 60:.1f}",
            "CPU" if "core" in facts["machine"] else facts["machine"],
            bytes_(facts["folder_bytes"]),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def write_table() -> None:
    """Put it between its two marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


def _pack(file: Path, names: Sequence[str], flags: argparse.Namespace) -> None:
    """One archive that is unpacked in the root of the repository."""
    with tarfile.open(file, "w:gz") as archive:
        for name in names:
            if (flags.out / name).exists():
                archive.add(flags.out / name, f"ipot/trained/{name}")
        if flags.record.exists():
            archive.add(flags.record, "results/runs.json")
    print(f"{file}: unpack it in the root of the repository, then python tools/accuracy_tables.py")


if __name__ == "__main__":
    raise SystemExit(main())
