"""Train an experiment in a run folder, resume it, and read the trained model back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from ipot import registry, safe_read
from ipot.data.dataset import Dataset
from ipot.data.ranges import ranges_held
from ipot.data.statistics import Moments
from ipot.data.store import Store
from ipot.device import choose
from ipot.errors import RunError, UnknownName, Unsupported, shown
from ipot.lock import locked
from ipot.models import _shapes as shapes
from ipot.models.base import Operator
from ipot.recipes.experiment import (
    Experiment,
    SplitReport,
    build,
    constant_outputs,
    load_data,
    read_settings,
    refuse_sizes,
    statistics_of,
)
from ipot.recipes.own_data import OwnData, as_experiment
from ipot.recipes.starting import Start, load_start, refuse_start
from ipot.run_folder import Run, differences, environment, left_as_found, run_at
from ipot.spec import ALL_POINTS, Need
from ipot.training import checkpoint
from ipot.training.checkpoint import result_from
from ipot.training.distributed import World, launch, restarted, world
from ipot.training.journal import Progress
from ipot.training.objective import BalancedL2, Objective, RelativeL2
from ipot.training.settings import PATIENCE, Training, refuse_gradients
from ipot.training.trainer import Result, Trainer
from ipot.training.unroll import examine as examine_pieces
from ipot.typed_json import from_value


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
    or_resume: bool = False,
    noted: Mapping[str, Any] | None = None,
) -> Result:
    """Generate, train, and leave a run folder.

    `start_from` is another run whose best weights (and scales) are taken as the start. What it
    names outside this package is imported only where it is `trusted`. `patience` is how many
    seconds processes under torchrun wait for one that does not answer. A folder that holds a run is
    refused, unless it is that of this very torchrun, which restarts what has failed. With
    `or_resume` a run of the same experiment that was stopped there goes on, and of one that has
    ended the result is read. `noted` is kept in its config.json for whoever goes on with it.
    """
    refuse_sizes(settings)
    torch_device, folder = choose(device), Run(Path(out))
    with (
        left_as_found(folder.path),
        world(torch_device, patience) as here,
        claimed(folder.path, here),
    ):
        source = None if start_from is None else Start.read(start_from, trusted=trusted)
        # One process looks, for what it finds there may be another thing a moment later.
        if here.lead(lambda: _goes_on(folder, settings, source, or_resume)):
            own = settings.problem if isinstance(settings.problem, OwnData) else None
            return ended(folder) or _resumed(folder, own, torch_device, here, store, quiet, trusted)
        # A model or weights that will not do are refused before any data are generated.
        extra: dict[str, Any] = {**(noted or {}), "environment": environment()}
        if code := registry.code_of(problem=settings.problem_name, model=settings.model_name):
            extra["code"] = code
        if (by := launch()) is not None:
            extra["launch"] = by
        if source is not None:
            extra["start_from"] = str(source.folder.path.resolve())
        _refuse(settings, source, torch_device)
        # The trainer may refuse its settings too; only behind it is there a run.
        trainer = _trainer(settings, folder, source, torch_device, here, store, report)

        def create() -> None:
            if not isinstance(settings.problem, OwnData):  # whose layout has them
                extra[RANGES] = ranges_held(trainer.data)
            Run.create(out, settings.as_dict() | extra)

        here.lead(create)
        return trainer.run(Progress(quiet=quiet or not here.first))


RANGES = "ranges"
"""The entry of config.json with the ranges of the training data, of a problem of the package; data
of one's own have them in their layout."""


@contextmanager
def claimed(path: Path, here: World) -> Iterator[None]:
    """Lock a run folder; of several processes the first one takes the lock for all."""
    with ExitStack() as held:
        here.lead(lambda: held.enter_context(locked(path, "training")))
        yield


def _goes_on(folder: Run, settings: Experiment, source: Start | None, or_resume: bool) -> bool:
    """True if there is a run to resume; refused where it must not be, or has other settings."""
    if not folder.config_file.exists():
        folder.refuse_existing()
        return False
    again = restarted() and Run.open(folder.path).config().get("launch") == launch()
    if not or_resume and not again:
        folder.refuse_existing()
    refuse_other(Run.open(folder.path), settings)
    asked = None if source is None else str(source.folder.path.resolve())
    if folder.config().get("start_from") != asked:
        raise RunError(
            f"{folder.path} holds a run with other settings (start_from: "
            f"{folder.config().get('start_from')}, and not {asked}). Choose another --out."
        )
    return True


def resume(
    path: Path | str,
    *,
    device: str = "auto",
    store: Store | None = None,
    quiet: bool = False,
    trusted: bool = False,
    patience: float = PATIENCE,
    data: OwnData | None = None,
) -> Result:
    """Continue a run from its last checkpoint; before the first one, from its start.

    A run on data of one's own goes on with the same `data`. Code outside this package that the run
    names, or the one that it started from, is imported only where the run is `trusted`.
    """
    folder, torch_device = Run.open(run_at(path).path), choose(device)
    read_settings(folder, trusted=trusted, data=data)
    with world(torch_device, patience) as here, claimed(folder.path, here):
        return _resumed(folder, data, torch_device, here, store, quiet, trusted)


def _resumed(
    folder: Run,
    data: OwnData | None,
    device: torch.device,
    here: World,
    store: Store | None,
    quiet: bool,
    trusted: bool,
) -> Result:
    """Resume a run in a folder that is locked."""
    settings, start = _with_data(folder, data, trusted), folder.config().get("start_from")
    from_value(str | None, start, f"{folder.config_file}: start_from")
    source = None
    if start is not None and not folder.last.exists():
        source = Start.read(start, trusted=trusted)
    _refuse(settings, source, device)
    trainer = _trainer(settings, folder, source, device, here, store, None)
    return trainer.run(Progress(quiet=quiet or not here.first))


def _with_data(folder: Run, data: OwnData | None, trusted: bool) -> Experiment:
    """The settings of a run to resume; refused if it needs data that were not given."""
    settings = read_settings(folder, trusted=trusted, data=data)
    if isinstance(settings.problem, OwnData) and data is None:
        raise RunError(
            f"{folder.path} is a run on data of your own, which are not in it: go on with "
            f"ipot.fit(data, resume={str(folder.home)!r}), or `ipot fit ... --resume {folder.home}`"
        )
    return settings


def ended(folder: Run) -> Result | None:
    """The result of a run; None if it has not ended."""
    advice = "Remove it, and the run goes on from its last checkpoint."
    try:
        content = safe_read.read_json(folder.result, most=1 << 20, advice=advice)
    except FileNotFoundError:
        return None
    try:
        return result_from(content)
    except RunError as error:
        raise RunError(f"cannot read {folder.result}: {error}. {advice}") from error


def refuse_other(folder: Run, wanted: Experiment) -> None:
    """Refuse a run of another experiment, naming what differs."""
    groups = ("problem", "model", "training", "data")
    asked = wanted.as_dict()
    if isinstance(wanted.problem, OwnData):
        # One number tells data apart; what describes them holds numbers that equal nothing (NaN).
        asked["problem"] = {n: asked["problem"][n] for n in ("name", "fingerprint")}
    if other := differences(as_experiment(folder.config()), asked, groups):
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
    data: OwnData | None = None,
) -> tuple[Operator, Experiment]:
    """A trained model and its settings from a run folder; `data` as for `resume`.

    Code outside this package that the run names is imported only where it is `trusted`.
    """
    if weights not in ("best", "last"):
        raise UnknownName(f"unknown weights {shown(weights)}. Known: best, last")
    folder = Run.open(run_at(path).path)
    settings = read_settings(folder, trusted=trusted, data=data)
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
    spec = settings.spec
    model_class = registry.find("models", settings.model_name)
    owner = {"model": registry.name_of(model_class), "problem": spec.name}
    checkpoint.refuse_other(state, owner, file)
    wanted = shapes.wanted_shapes(settings.model_name, settings.model, spec, found, config)
    # The type of numbers is that of the training, and weights are converted.
    plain = [{name: (shape, "") for name, (shape, _) in all_.items()} for all_ in (found, wanted)]
    shapes.refuse_unlike(plain[0], plain[1], file)


def _trainer(
    settings: Experiment,
    folder: Run,
    source: Start | None,
    device: torch.device,
    here: World,
    store: Store | None,
    report: SplitReport | None,
) -> Trainer:
    """Data, model and loop of an experiment, ready to run."""
    train_data, validation = _splits(settings, store or Store(), device, here, report)
    model = build(settings, statistics_of(settings, train_data))
    if source is not None:
        load_start(model, source)
    model.examine(train_data)
    model.measure(train_data[0].points)
    training, objective = settings.training, model.objective()
    if objective is None:
        if training.unroll is not None:
            examine_pieces(train_data, model.spec, training.unroll)
        objective = objective_for(settings, train_data)
    elif here.size > 1:
        raise Unsupported(
            f"{settings.model_name} keeps something for each sample: one process only"
        )
    return Trainer(model, train_data, validation, training, folder, device, objective, here)


def objective_for(settings: Experiment, data: Dataset) -> Objective:
    """The relative L2 error; for your own data with every channel divided by its own size.

    Also for a single channel, since squares of very large or small numbers overflow float32.
    """
    if not isinstance(settings.problem, OwnData):
        return RelativeL2()
    sizes = Moments()
    for _, targets, _ in data.columns():
        sizes.add(targets.double().square())
    size = sizes.mean().sqrt()
    size = torch.where(size > 0, size, torch.ones_like(size))
    # What is constant is answered as such, and counts nothing: nothing is learnt of it.
    return BalancedL2(size.masked_fill(constant_outputs(data), torch.inf).float())


def _refuse(settings: Experiment, source: Start | None, device: torch.device) -> None:
    """Refuse a model, its training or its start before any data are generated."""
    model = build(settings)
    refuse_beyond_memory(model, device)
    refuse_subsets(model, settings.training)
    refuse_gradients(settings.training)
    for name in ("unroll", "augment", "gradient_loss"):
        if getattr(settings.training, name) and model.objective() is not None:
            flag = name.replace("_", "-")
            raise Unsupported(
                f"{settings.model_name} is trained in a way of its own: leave --training.{flag} out"
            )
    if source is not None:
        refuse_start(settings, source)
        load_start(model, source)


def refuse_beyond_memory(model: Operator, device: torch.device) -> None:
    """Refuse a model whose weights, gradients and two moments of each do not fit into memory."""
    if device.type == "cpu":
        shapes.refuse_tensors(model, "weights, gradients and the optimiser's two moments", 4)


def refuse_subsets(model: Operator, training: Training) -> None:
    """Refuse random subsets where a model, or cutting trajectories, takes all of a mesh."""
    bound = {"points": ALL_POINTS, "queries": {Need.SAME_POINTS}}
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


def _splits(settings, store, device, here: World, report) -> tuple[Dataset, Dataset]:
    """Training and validation data; the first process generates, the others then read."""

    def load() -> tuple[Dataset, Dataset]:
        keys = {"store": store, "device": device, "report": report}
        return load_data(settings, "train", **keys), load_data(settings, "validation", **keys)

    return here.lead(load) or load()
