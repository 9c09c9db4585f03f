"""An experiment: a problem or data of one's own, a model, and how to train one on the other.

`experiment` turns names and a preset into settings, `ipot.own.fit` turns data into such; `build`
turns settings into a model, and `ipot.recipes.running` trains it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ipot import registry, trust
from ipot.data.dataset import Dataset
from ipot.data.statistics import Statistics, at_each_point
from ipot.data.store import Store
from ipot.errors import IpotError, RunError, UnknownName, Unsupported, shown
from ipot.models._shapes import refuse_beyond_memory
from ipot.models._wrappers import seen_spec, wrap, wrap_globe
from ipot.models.base import OneStep, Operator
from ipot.problems.base import MOST, Problem
from ipot.recipes import default, paper, systems
from ipot.recipes.own_data import OWN_DATA, OwnData, as_experiment
from ipot.run_folder import Run
from ipot.spec import Spec
from ipot.training.settings import Training
from ipot.typed_json import from_dict, to_dict

PRESETS = ("default", "paper", "authors")
MOST_STEPS = 1_000_000
LIMITS = {
    "data": dict.fromkeys(("train", "validation", "test"), 1_000_000_000),
    "training": {"batch": 1 << 31, "workers": 4096, "epochs": 10**12, "step_epochs": 10**12},
}
"""The largest numbers among the settings, which no machine can take."""

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
    """All settings of a run; the names are what the registry knows problem and model by.

    Of data of one's own, `problem` is an `OwnData` and its name "own data".
    """

    problem: Problem
    model: Any
    training: Training
    data: Data
    problem_name: str
    model_name: str = "ipot"
    preset: str = "default"
    normalize: bool = True

    @property
    def spec(self) -> Spec:
        """The facts that the model is built from: the problem's, and what it is to answer with."""
        own = {"change": self.training.change, "each_point": self.training.each_point}
        return replace(self.problem.spec, **own)

    def small(self, *, minutes: float | None = None) -> Experiment:
        """This experiment at sizes for a first look, as with `--small`, trained for some minutes if
        these are given."""
        found = small(self)
        training = found.training if minutes is None else replace(found.training, minutes=minutes)
        return replace(found, training=training)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for config.json."""
        problem = self.problem
        own = problem.as_dict() if isinstance(problem, OwnData) else None
        return {
            "problem": {"name": self.problem_name, **(own or to_dict(problem, infinite=True))},
            "model": {"name": self.model_name, **to_dict(self.model, infinite=True)},
            "training": to_dict(self.training, infinite=True),
            "data": to_dict(self.data),
            "preset": self.preset,
            "normalize": self.normalize,
        }

    @classmethod
    def from_dict(
        cls,
        content: dict[str, Any],
        where: str,
        *,
        trusted: bool = False,
        data: OwnData | None = None,
    ) -> Experiment:
        """The settings in a config.json; `data` are the user's own, for a run on such.

        A problem or model that lives outside this package is code: it is imported only where the
        file is `trusted`, or where the program has imported it already.
        """
        content = as_experiment(content)
        if missing := [name for name in ENTRIES if name not in content]:
            raise RunError(f"{where} is not a run of this version: {', '.join(missing)} missing")
        for name, expected in ENTRIES.items():
            if not isinstance(content[name], expected):
                wanted = IN_WORDS[expected]
                got = shown(content[name])
                raise RunError(f"{where}: {name} must be {wanted}, got {got}")
        for name in ("epochs", "minutes"):  # how long a run takes is not guessed
            if name not in content["training"]:
                raise RunError(f"{where}: training.{name} is missing. Put it back, or start anew.")
        code = content.get("code")
        code = code if isinstance(code, dict) else {}
        problem_name, problem = _problem_in(
            content["problem"], where, trusted=trusted, data=data, recorded=code.get("problem")
        )
        model = dict(content["model"])
        model_name = trust.named_in_file(
            *("models", model.pop("name", None), where),
            trusted=trusted,
            recorded=code.get("model"),
        )
        found = cls(
            problem=problem,
            model=from_dict(_config_class(model_name, where), model, where, "model", infinite=True),
            training=from_dict(Training, content["training"], where, "training", infinite=True),
            data=_counts(content["data"], where, data),
            problem_name=problem_name,
            model_name=model_name,
            preset=content["preset"],
            normalize=content["normalize"],
        )
        refuse_sizes(found, f"{where}: ")
        return found


def read_settings(folder: Run, *, trusted: bool = False, data: OwnData | None = None) -> Experiment:
    """The settings of a run; `data` are the user's own, for a run on such."""
    where = str(folder.config_file)
    found = Experiment.from_dict(folder.config(), where, trusted=trusted, data=data)
    if isinstance(found.problem, OwnData) and found.problem.facts is None:
        raise RunError(
            f"{folder.path} holds a fit of an earlier release, which did not write down the facts "
            f"of its data: end it by ipot.fit(data, resume={str(folder.home)!r}), or "
            f"`ipot fit ... --resume {folder.home}`"
        )
    return found


def refuse_sizes(settings: Experiment, where: str = "") -> None:
    """Refuse sizes of an experiment that are beyond any machine; `where` is the file, if any."""
    problem = settings.problem
    numbers = [(f"problem.{f.name}", getattr(problem, f.name), MOST) for f in fields(problem)]
    for group, limits in LIMITS.items():
        part = getattr(settings, group)
        numbers += [(f"{group}.{name}", getattr(part, name), most) for name, most in limits.items()]
    for name, value, most in numbers:
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, int) and abs(number) > most and not name.endswith("seed"):
                raise RunError(f"{where}{name} is {number}: {most} is the most. Choose less.")
    if isinstance(problem, OwnData) and problem.facts is None:
        return
    try:
        steps = problem.spec.steps
    except IpotError:
        raise
    except Exception as error:  # settings of any problem, put together in any way
        raise RunError(f"{where}the settings of {problem.name} do not fit: {error!r}") from error
    if not 1 <= steps <= MOST_STEPS:
        raise RunError(f"{where}problem: {steps} steps, and 1 to {MOST_STEPS} can be taken")


ENTRIES: dict[str, type] = {
    **dict.fromkeys(("problem", "model", "training", "data"), dict),
    "preset": str,
    "normalize": bool,
}
"""What config.json of a run must have, and of which type."""
IN_WORDS: dict[type, str] = {dict: "an object with names", str: "a text", bool: "true or false"}


def _problem_in(
    content: dict[str, Any], where: str, *, trusted: bool, data: OwnData | None, recorded: Any
) -> tuple[str, Problem]:
    """The problem of a config.json by its name, or the data of one's own that it describes."""
    settings = dict(content)
    name = settings.pop("name", None)
    if name == OWN_DATA:
        told = OwnData.from_dict(settings, where)
        if data is not None:
            return OWN_DATA, told.found_again(data, where)
        return OWN_DATA, told
    if data is not None:
        raise RunError(f"{where} is not a run of `ipot.fit`: it is of the problem {shown(name)}")
    name = trust.named_in_file("problems", name, where, trusted=trusted, recorded=recorded)
    problem_class = _problem_class(name, where)
    return name, from_dict(problem_class, settings, where, "problem", infinite=True)


def _counts(content: dict[str, Any], where: str, data: OwnData | None) -> Data:
    """How many samples there are; of data of one's own, an earlier release did not say."""
    found = from_dict(Data, content, where, "data")
    if data is None or data.splits is None:
        return found
    parts = replace(found, **data.splits.counts())
    if found.train and found != parts:
        raise RunError(
            f"{where}: data says {found}, and these data are divided into {parts}. Put back what "
            "was written, or start anew."
        )
    return parts


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
        config = registry.config_of(name)
    except UnknownName as error:
        raise RunError(f"{where}: {error}") from error
    ready = isinstance(config, type) and is_dataclass(config)
    if not (ready and isinstance(model, type) and issubclass(model, Operator)):
        raise RunError(f"{where}: {name} has no MODEL and Config; see docs/extend.md")
    return config


def experiment(problem: str, model: str | None = None, preset: str = "default") -> Experiment:
    """The settings of a preset, to be changed with `dataclasses.replace`; the model is the one that
    does best on the problem unless said (`systems.MODEL_OF`)."""
    if preset not in PRESETS:
        raise UnknownName(f"unknown preset {shown(preset)}. Known: {', '.join(PRESETS)}")
    if model is None:
        model = systems.model_of(problem, preset)
    model = model if "." in model else model.replace("-", "_").lower()
    found = registry.find("problems", problem)
    registry.find("models", model)
    if model != "ipot":
        if preset == "paper" and "." in model:
            raise UnknownName(f"{model} has no preset `paper`: only the systems of the paper do")
        if preset == "authors":
            raise UnknownName(
                f"{model} has no preset `authors`: it is IPOT as its authors' code has it. Use "
                "--preset paper"
            )
        recipe, view = systems.recipe(model, found.name, preset, registry.default_config(model))
        found = replace(found, **view)
    elif preset in ("paper", "authors"):
        sizes = paper.model if preset == "paper" else paper.authors
        recipe = default.Recipe(sizes(found.name), paper.training(found.name), False)
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


def small(settings: Experiment) -> Experiment:
    """An experiment at sizes for a first look: a small problem, few samples, a small model."""
    return replace(
        settings,
        problem=settings.problem.small(),
        data=replace(settings.data, train=32, validation=8, test=8),
        model=systems.small(settings.model_name, settings.model),
    )


def build(settings: Experiment, statistics: Statistics | None = None) -> Operator:
    """The model, with its initial weights drawn from the training seed.

    Without statistics the scales are 1, for weights that bring their own.
    """
    return build_model(
        settings.model_name,
        settings.model,
        settings.spec,
        seed=settings.training.seed,
        statistics=statistics,
    )


def statistics_of(settings: Experiment, data: Dataset) -> Statistics | None:
    """The scales of the training data; none where the experiment wants none."""
    if not settings.normalize:
        return None
    model_class, spec = registry.find("models", settings.model_name), settings.spec
    since = (spec.history, len(spec.outputs)) if spec.change else None
    found = Statistics.of(data, since=since, each=issubclass(model_class, OneStep))
    if spec.each_point:
        mean, scale = at_each_point(data)
        return replace(found, output_mean=mean, output_scale=scale)
    if not isinstance(settings.problem, OwnData):
        return found
    return replace(found, output_scale=found.output_scale.masked_fill(constant_outputs(data), 0.0))


def constant_outputs(data: Dataset) -> Tensor:
    """Which outputs (K) are one number in all samples: they are answered with it."""
    lows, highs = [], []
    for _, targets, _ in data.columns():
        low, high = torch.aminmax(targets.reshape(-1, targets.shape[-1]).cpu(), dim=0)
        lows.append(low)
        highs.append(high)
    return torch.stack(lows).amin(0) == torch.stack(highs).amax(0)


def build_model(
    name: str, config: Any, spec: Spec, *, seed: int = 0, statistics: Statistics | None = None
) -> Operator:
    """A named model for a spec."""
    model_class = registry.find("models", name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            refuse_beyond_memory(name, config, spec)
            inner = model_class(config, seen_spec(spec))
        except Unsupported as error:
            raise Unsupported(f"{str(error).rstrip('.')}. {able(spec, besides=name)}") from error
        except (ValueError, TypeError, RuntimeError) as error:
            raise RunError(f"the settings of {name} do not fit {spec.name}: {error}") from error
    sizes = (spec.channels, len(spec.outputs), len(spec.parameters))
    return wrap_globe(wrap(inner, statistics or Statistics.identity(*sizes)), spec)


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
    model_class, config = registry.find("models", name), registry.default_config(name)
    try:
        with torch.device("meta"):  # no memory and no work for weights that nobody wants
            model_class(config, spec)
    except Unsupported:
        return False
    except (ValueError, TypeError, RuntimeError):
        return model_class.needs <= spec.provides
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
    settings.problem.refuse_beyond_memory(split, getattr(settings.data, split), **view)
    return settings.problem.load(
        split,
        getattr(settings.data, split),
        store=store,
        seed=settings.data.seed,
        device=device,
        report=None if report is None else lambda *progress: report(split, *progress),
        **view,
    )
