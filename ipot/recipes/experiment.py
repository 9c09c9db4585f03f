"""An experiment: a problem, a model, and how to train one on the other.

`experiment` turns names and a preset into settings, `build` turns settings into a model, `run`
does all of it and leaves a run folder, and `restore` reads one back.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ipot import files, registry, safe_read
from ipot.config import Run, environment, from_dict, to_dict
from ipot.data.dataset import Dataset
from ipot.data.statistics import Statistics
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import IpotError, RunError, UnknownName, Unsupported
from ipot.lock import locked
from ipot.models import _shapes as shapes
from ipot.models._globe import place, seen_spec
from ipot.models._shapes import refuse_beyond_memory
from ipot.models._wrappers import wrap
from ipot.models.base import Operator
from ipot.problems.base import Problem
from ipot.recipes import default, paper, systems
from ipot.recipes.sizes import refuse_data, refuse_sizes, refuse_training
from ipot.spec import Need, Spec
from ipot.training import checkpoint
from ipot.training.distributed import (
    PATIENCE,
    World,
    first_process,
    launch,
    restarted,
    world,
)
from ipot.training.journal import Progress
from ipot.training.objective import RelativeL2
from ipot.training.settings import Training
from ipot.training.state import result_from
from ipot.training.trainer import Result, Trainer
from ipot.training.unroll import examine as examine_pieces
from ipot.typed_json import from_value, shown

PRESETS = ("default", "paper")

WHOLE = frozenset({Need.GRID, Need.FIXED_POINTS, Need.SAME_POINTS, Need.EDGES})
"""Needs that are met by all input points together, and not by some of them."""

FACTS = (
    *("inputs", "history", "outputs", "parameters", "sphere", "latlon", "geographic"),
    *("domain", "periods", "query_domain", "query_periods"),
)
"""What two problems must share for weights of one to be a start for the other."""

# Told of a split: its name, samples done, samples wanted, bytes of each.
SplitReport = Callable[[str, int, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Data:
    """How many samples, and the seed they are drawn from."""

    train: int = 1000
    """Training samples."""
    validation: int = 100
    """Samples that choose the best epoch; the test split is opened by evaluation alone."""
    test: int = 200
    """Test samples."""
    seed: int = 0
    """Seed of the draws."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All settings of a run; the names are what the registry knows problem and model by."""

    problem: Problem
    model: Any
    training: Training
    data: Data
    problem_name: str
    model_name: str = "ipot"
    preset: str = "default"
    normalize: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Plain values for config.json."""
        return {
            "problem": {"name": self.problem_name, **to_dict(self.problem)},
            "model": {"name": self.model_name, **to_dict(self.model)},
            "training": to_dict(self.training),
            "data": to_dict(self.data),
            "preset": self.preset,
            "normalize": self.normalize,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], where: str, *, trusted: bool = False) -> Experiment:
        """The same from config.json.

        A problem or model that lives outside this package is code: it is imported only where the
        file is `trusted`, or where the program has imported it already.
        """
        if missing := [name for name in ENTRIES if name not in content]:
            raise RunError(f"{where} is not a run of this version: {', '.join(missing)} missing")
        for name, kind in ENTRIES.items():
            if not isinstance(content[name], kind):
                wanted = {dict: "an object with names", str: "a text", bool: "true or false"}[kind]
                got = shown(content[name])
                raise RunError(f"{where}: {name} must be {wanted}, got {got}")
        problem, model = dict(content["problem"]), dict(content["model"])
        names = [
            registry.named_in_file(kind, group.pop("name", None), where, trusted=trusted)
            for kind, group in (("problems", problem), ("models", model))
        ]
        found = cls(
            problem=from_dict(_problem_class(names[0], where), problem, where, "problem"),
            model=from_dict(_config_class(names[1], where), model, where, "model"),
            training=from_dict(Training, content["training"], where, "training"),
            data=from_dict(Data, content["data"], where, "data"),
            problem_name=names[0],
            model_name=names[1],
            preset=content["preset"],
            normalize=content["normalize"],
        )
        refuse_sizes(found, f"{where}: ")
        return found


ENTRIES: dict[str, type] = {
    **dict.fromkeys(("problem", "model", "training", "data"), dict),
    "preset": str,
    "normalize": bool,
}
"""What config.json of a run must have, and of which type."""


def _problem_class(name: str, where: str) -> type:
    """The class of a problem, from a module that may be imported."""
    try:
        problem = registry.find("problems", name)
    except UnknownName as error:
        raise RunError(f"{where}: {error}") from error
    if not isinstance(problem, Problem):
        raise RunError(f"{where}: PROBLEM of {name} is no ipot.problems.base.Problem")
    return type(problem)


def _config_class(name: str, where: str) -> Any:
    """The class of a model's settings, from a module that may be imported."""
    try:
        model = registry.find("models", name)
        config = getattr(registry.module("models", name), "Config", None)
    except UnknownName as error:
        raise RunError(f"{where}: {error}") from error
    ready = isinstance(config, type) and is_dataclass(config)
    if not (ready and isinstance(model, type) and issubclass(model, Operator)):
        raise RunError(f"{where}: {name} has no MODEL and Config; see docs/extend.md")
    return config


def experiment(problem: str, model: str = "ipot", preset: str = "default") -> Experiment:
    """The settings of a preset, to be changed with `dataclasses.replace`."""
    if preset not in PRESETS:
        raise UnknownName(f"unknown preset {preset!r}. Known: {', '.join(PRESETS)}")
    model = model if "." in model else model.replace("-", "_").lower()
    found = registry.find("problems", problem)
    module = registry.module("models", model)
    registry.find("models", model)
    if model != "ipot":
        if preset == "paper" and "." in model:
            raise UnknownName(f"{model} has no preset `paper`: only the systems of the paper do")
        recipe, view = systems.recipe(model, found.name, preset, module.Config())
        found = replace(found, **view)
    elif preset == "paper":
        recipe = default.Recipe(paper.model(found.name), paper.training(found.name), False)
        found = replace(found, **paper.PROBLEM.get(found.name, {}))
    else:
        recipe = default.recipe(found.name)
    return Experiment(
        problem=found,
        model=recipe.model,
        training=recipe.training,
        data=Data(**found.sizes),
        problem_name=problem,
        model_name=model,
        preset=preset,
        normalize=recipe.normalize,
    )


def build(settings: Experiment, statistics: Statistics | None = None) -> Operator:
    """The model, with its initial weights drawn from the training seed.

    Without statistics the scales are 1, for weights that bring their own.
    """
    return build_model(
        settings.model_name,
        settings.model,
        settings.problem.spec,
        seed=settings.training.seed,
        statistics=statistics,
    )


def build_model(
    name: str, config: Any, spec: Spec, *, seed: int = 0, statistics: Statistics | None = None
) -> Operator:
    """A named model for a spec."""
    kind = registry.find("models", name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            refuse_beyond_memory(name, config, spec)
            inner = kind(config, seen_spec(spec))
        except Unsupported as error:
            raise Unsupported(f"{str(error).rstrip('.')}. {able(spec, besides=name)}") from error
        except (ValueError, TypeError, RuntimeError) as error:
            raise RunError(f"the settings of {name} do not fit {spec.name}: {error}") from error
    sizes = (spec.channels, len(spec.outputs), len(spec.parameters))
    return place(wrap(inner, statistics or Statistics.identity(*sizes)), spec)


def able(spec: Spec, besides: str = "") -> str:
    """Which models can do with what a problem provides, in a sentence."""
    names = [name for name in registry.names("models") if name != besides and _may(name, spec)]
    return f"Models that can: {', '.join(names)}." if names else "No other model can either."


def _may(name: str, spec: Spec) -> bool:
    """Whether a model takes a problem as it is, or in the view of its recipe."""
    if _can(name, spec):
        return True
    known = spec.name in registry.names("problems")
    return known and _can(name, experiment(spec.name, name).problem.spec)


def _can(name: str, spec: Spec) -> bool:
    """Whether a model takes a problem. Its sizes may still not fit: that is for its settings."""
    kind, config = registry.find("models", name), registry.module("models", name).Config()
    try:
        with torch.device("meta"):  # no memory and no work for weights that nobody wants
            kind(config, spec)
    except Unsupported:
        return False
    except (ValueError, TypeError, RuntimeError):
        return kind.needs <= spec.provides
    return True


def load_data(
    settings: Experiment,
    split: str,
    *,
    store: Store,
    device: torch.device,
    report: SplitReport | None = None,
    **view: Any,
) -> Dataset:
    """A split of an experiment's problem."""
    refuse_data(settings.problem, split, getattr(settings.data, split), view)
    return settings.problem.load(
        split,
        getattr(settings.data, split),
        store=store,
        seed=settings.data.seed,
        device=device,
        report=None if report is None else lambda *progress: report(split, *progress),
        **view,
    )


@dataclass(frozen=True)
class Start:
    """Another run, whose weights are where training starts."""

    folder: Run
    settings: Experiment

    @classmethod
    def read(cls, path: Path | str, *, trusted: bool = False) -> Start:
        """Its folder and settings; the same trust is needed as for loading it."""
        folder = Run.open(path)
        where = str(folder.config_file)
        return cls(folder, Experiment.from_dict(folder.config(), where, trusted=trusted))


def run(
    settings: Experiment,
    out: Path | str,
    *,
    device: str = "auto",
    store: Store | None = None,
    start_from: Path | str | None = None,
    report: SplitReport | None = None,
    quiet: bool = False,
    trusted: bool = False,
    patience: float = PATIENCE,
) -> Result:
    """Generate, train, and leave a run folder.

    `start_from` is another run whose best weights (and scales) are taken as the start. What it
    names outside this package is imported only where it is `trusted`. `patience` is how many
    seconds processes under torchrun wait for one that does not answer. A folder that holds a run is
    refused, unless it is that of this very torchrun, which restarts what has failed.
    """
    return _run(settings, out, False, device, store, start_from, report, quiet, trusted, patience)


def run_or_resume(
    settings: Experiment,
    out: Path | str,
    *,
    device: str = "auto",
    store: Store | None = None,
    start_from: Path | str | None = None,
    report: SplitReport | None = None,
    quiet: bool = False,
    trusted: bool = False,
    patience: float = PATIENCE,
) -> Result:
    """Start a run, go on with one that was stopped, or read how one ended.

    The options are those of `run`. A folder with a run of another experiment is refused.
    """
    return _run(settings, out, True, device, store, start_from, report, quiet, trusted, patience)


def _run(
    settings: Experiment,
    out: Path | str,
    go_on: bool,
    device: str,
    store: Store | None,
    start_from: Path | str | None,
    report: SplitReport | None,
    quiet: bool,
    trusted: bool,
    patience: float,
) -> Result:
    refuse_sizes(settings)
    place, folder = choose(device), Run(Path(out))
    with (
        _left_as_found(folder.path),
        world(place, patience) as here,
        claimed(folder.path, here),
    ):
        source = None if start_from is None else Start.read(start_from, trusted=trusted)
        # One process looks, for what it finds there may be another thing a moment later.
        if here.lead(lambda: _goes_on(folder, settings, source, go_on)):
            return ended(folder) or _resumed(folder, place, here, store, quiet, trusted)
        # A model or weights that will not do are refused before any data are generated.
        extra: dict[str, Any] = {"environment": environment()}
        if (by := launch()) is not None:
            extra["launch"] = by
        if source is not None:
            extra["start_from"] = str(source.folder.path.resolve())
        _refuse(settings, source, place)
        # The trainer may refuse its settings too; only behind it is there a run.
        trainer = _trainer(settings, folder, source, place, here, store, report)
        here.lead(lambda: Run.create(out, settings.as_dict() | extra))
        return trainer.run(Progress(quiet=quiet or not here.first))


@contextmanager
def claimed(path: Path, here: World) -> Iterator[None]:
    """Have a run folder for oneself; of several processes the first one takes the lock for all."""
    with ExitStack() as held:
        here.lead(lambda: held.enter_context(locked(path, "training")))
        yield


def _goes_on(folder: Run, settings: Experiment, source: Start | None, go_on: bool) -> bool:
    """Whether there is a run to go on with; refused where it must not, or has other settings."""
    if not folder.config_file.exists():
        folder.refuse_existing()
        return False
    again = restarted() and Run.open(folder.path).config().get("launch") == launch()
    if not go_on and not again:
        folder.refuse_existing()
    refuse_other(Run.open(folder.path), settings)
    asked = None if source is None else str(source.folder.path.resolve())
    if folder.config().get("start_from") != asked:
        raise RunError(
            f"{folder.path} holds a run with other settings (start_from: "
            f"{folder.config().get('start_from')}, and not {asked}). Choose another --out."
        )
    return True


@contextmanager
def _left_as_found(path: Path) -> Iterator[None]:
    """Take away a folder that was made for nothing: a run that was refused leaves none."""
    existed = path.exists()
    try:
        yield
    except IpotError:
        if not existed:
            with suppress(OSError):  # not empty: there was a run after all
                path.rmdir()
        raise


def resume(
    path: Path | str,
    *,
    device: str = "auto",
    store: Store | None = None,
    quiet: bool = False,
    trusted: bool = False,
    patience: float = PATIENCE,
) -> Result:
    """Continue a run from its last checkpoint; before the first one, from its start.

    Code outside this package that the run names, or the one that it started from, is imported only
    where the run is `trusted`.
    """
    folder, place = Run.open(path), choose(device)
    Experiment.from_dict(folder.config(), str(folder.config_file), trusted=trusted)
    with world(place, patience) as here, claimed(folder.path, here):
        return _resumed(folder, place, here, store, quiet, trusted)


def _resumed(
    folder: Run,
    place: torch.device,
    here: World,
    store: Store | None,
    quiet: bool,
    trusted: bool,
) -> Result:
    """Go on with a run in a folder that nobody else works in."""
    config = folder.config()
    settings = Experiment.from_dict(config, str(folder.config_file), trusted=trusted)
    start = config.get("start_from")
    from_value(str | None, start, f"{folder.config_file}: start_from")
    source = None
    if start is not None and not folder.last.exists():
        source = Start.read(start, trusted=trusted)
    _refuse(settings, source, place)
    trainer = _trainer(settings, folder, source, place, here, store, None)
    return trainer.run(Progress(quiet=quiet or not here.first))


def ended(folder: Run) -> Result | None:
    """What a run said of itself at its end; None where it has not got there."""
    advice = "Remove it, and the run goes on from its last checkpoint."
    try:
        content = safe_read.read_json(folder.result, most=1 << 20, advice=advice)
    except FileNotFoundError:
        return None
    try:
        return result_from(content)
    except RunError as error:
        raise RunError(f"cannot read {folder.result}: {error}. {advice}") from error


def run_seeds(
    settings: Experiment, out: Path | str, seeds: list[int], **options: Any
) -> dict[str, Any]:
    """The same experiment with several training seeds, and the mean and spread of its errors.

    A seed whose run has ended is not trained again; one that was stopped goes on.
    """
    if len(set(seeds)) != len(seeds):
        raise Unsupported(f"the same seed twice tells nothing of the spread: {seeds}")
    rows = []
    with locked(Path(out), "training several seeds") if first_process() else nullcontext():
        for seed in seeds:
            folder = Path(out) / f"seed-{seed}"
            changed = replace(settings, training=replace(settings.training, seed=seed))
            result = run_or_resume(changed, folder, **options)
            rows.append({"seed": seed, "best_validation": result.best_validation})
        errors = [row["best_validation"] for row in rows]
        if not all(math.isfinite(error) for error in errors):
            raise RunError(
                f"{out}: validation errors of its runs are {errors}: not all are finite. Remove "
                "the result.json of that seed, and it goes on."
            )
        summary = {
            "runs": rows,
            "mean": statistics.fmean(errors),
            "spread": statistics.stdev(errors) if len(errors) > 1 else 0.0,
        }
        if first_process():
            files.write_json(Path(out) / "seeds.json", summary)
    return summary


def refuse_other(folder: Run, wanted: Experiment) -> None:
    """Refuse a run of another experiment, naming what differs."""
    found, asked = folder.config(), wanted.as_dict()
    groups = {name: found.get(name) for name in ("problem", "model", "training", "data")}
    other = [name for name, group in groups.items() if not isinstance(group, dict)]
    other += [
        f"{name}.{key}"
        for name, group in groups.items()
        if isinstance(group, dict)
        for key, value in asked[name].items()
        if group.get(key) != value
    ]
    other += [name for name in ("preset", "normalize") if found.get(name) != asked[name]]
    if other:
        raise RunError(
            f"{folder.path} holds a run with other settings ({', '.join(other)}). "
            "Choose another --out."
        )


def restore(
    path: Path | str,
    device: torch.device | str = "cpu",
    weights: str = "best",
    *,
    trusted: bool = False,
) -> tuple[Operator, Experiment]:
    """A trained model and its settings from a run folder.

    Code outside this package that the run names is imported only where it is `trusted`.
    """
    if weights not in ("best", "last"):
        raise UnknownName(f"unknown weights {weights!r}. Known: best, last")
    folder = Run.open(path)
    settings = Experiment.from_dict(folder.config(), str(folder.config_file), trusted=trusted)
    file, prefix = (folder.best, "") if weights == "best" else (folder.last, "model")
    _refuse_unlike(settings, file, folder.config_file, prefix)
    model = build(settings)
    tensors, state = checkpoint.load(file)
    checkpoint.refuse_other(state, checkpoint.owner(model), file)
    if weights == "last":
        tensors = checkpoint.of_prefix("model", tensors)
    checkpoint.load_weights(model, tensors, file)
    return model.to(device).eval(), settings


def _refuse_unlike(settings: Experiment, file: Path, config: Path, prefix: str) -> None:
    """Refuse weights of another model before they are read, or memory is taken for theirs."""
    found, state = checkpoint.header(file)
    found = shapes.of_prefix(prefix, found)
    spec = settings.problem.spec
    kind = registry.find("models", settings.model_name)
    owner = {"model": kind.__module__.removeprefix("ipot.models."), "problem": spec.name}
    checkpoint.refuse_other(state, owner, file)
    wanted = shapes.wanted_shapes(settings.model_name, settings.model, spec, found, config)
    # The type of numbers is that of the training, and weights are converted.
    plain = [{name: (shape, "") for name, (shape, _) in all_.items()} for all_ in (found, wanted)]
    shapes.refuse_unlike(plain[0], plain[1], file)


def _trainer(
    settings: Experiment,
    folder: Run,
    source: Start | None,
    place: torch.device,
    here: World,
    store: Store | None,
    report: SplitReport | None,
) -> Trainer:
    """Data, model and loop of an experiment, ready to run."""
    train_data, validation = _splits(settings, store or Store(), place, here, report)
    model = build(settings, Statistics.of(train_data) if settings.normalize else None)
    _load_start(model, source)
    model.examine(train_data)
    unroll, objective = settings.training.unroll, model.objective()
    if objective is None:
        if unroll is not None:
            examine_pieces(train_data, model.spec, unroll)
        objective = RelativeL2()
    elif here.size > 1:
        raise Unsupported(
            f"{settings.model_name} keeps something for each sample: one process only"
        )
    return Trainer(model, train_data, validation, settings.training, folder, place, objective, here)


def _refuse(settings: Experiment, source: Start | None, place: torch.device) -> None:
    """Refuse a model, its training or its start before any data are generated."""
    model = build(settings)
    refuse_training(model, place)
    refuse_subsets(model, settings.training)
    for name in ("unroll", "augment"):
        if getattr(settings.training, name) and model.objective() is not None:
            raise Unsupported(
                f"{settings.model_name} is trained in a way of its own: leave --training.{name} out"
            )
    if source is not None:
        refuse_start(settings, source)
        _load_start(model, source)


def refuse_start(settings: Experiment, source: Start) -> None:
    """Refuse to start from a run of another model, or of a problem with other facts."""
    other = source.settings
    ours, theirs = settings.problem.spec, other.problem.spec
    kinds = [registry.find("models", e.model_name) for e in (settings, other)]
    apart = [name for name in FACTS if getattr(ours, name) != getattr(theirs, name)]
    elsewhere = ours.name != theirs.name and bool(apart)
    if kinds[0] is kinds[1] and not elsewhere:
        return
    mine, found = settings.model_name, other.model_name
    if elsewhere:
        mine, found = f"{mine} for {ours.name}", f"{found} for {theirs.name}"
    differ = f" (other {', '.join(apart)})" if elsewhere else ""
    raise RunError(
        f"--start-from {source.folder.path}: it holds {found}, and {mine} cannot start from "
        f"that{differ}. Choose a run of the same model and problem."
    )


def refuse_subsets(model: Operator, training: Training) -> None:
    """Refuse random subsets where a model, or cutting trajectories, takes all of a mesh."""
    bound = {"points": WHOLE, "queries": {Need.SAME_POINTS}}
    for name, needs in bound.items():
        if getattr(training, name) == 1:
            continue
        if found := sorted(need.value for need in needs & model.needs):
            raise Unsupported(
                f"{model.name} needs {found[0]} and takes them all: set --training.{name} 1"
            )
        if training.unroll is not None:
            raise Unsupported(
                f"--training.unroll starts from true frames at all points: set --training.{name} 1"
            )


def _load_start(model: Operator, source: Start | None) -> None:
    """The best weights of another run, with its scales."""
    if source is not None:
        file = source.folder.best
        weights, state = checkpoint.load(file)
        problem = source.settings.problem.spec.name
        checkpoint.refuse_other(state, {"model": model.name, "problem": problem}, file)
        checkpoint.load_weights(model, weights, file)


def _splits(settings, store, place, here: World, report) -> tuple[Dataset, Dataset]:
    """Training and validation data; the first process generates, the others then read."""

    def load() -> tuple[Dataset, Dataset]:
        keys = {"store": store, "device": place, "report": report}
        return load_data(settings, "train", **keys), load_data(settings, "validation", **keys)

    return here.lead(load) or load()
