"""Settings of the other systems, as their authors published them.

A row is one system on one problem: its architecture, how it was trained, and how it must see the
problem where it cannot take the default view. Preset `paper` is the published schedule; `default`
keeps architecture, batch and rate and takes our own: a warm-up, a cosine, a limit on gradients.
One-cycle schedules are kept by both, since they stretch over any run; of them the rate alone, and
not the momentum that torch's turns with it. Where a system was published with Adam's L2 penalty it
has that (`decay`), and otherwise AdamW's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from ipot.recipes import default, paper
from ipot.training.settings import Training

Changes = dict[str, Any]

# What `default` takes from our own loop instead of the published one; a limit on gradients stays.
OURS = ("schedule", "step_epochs", "warmup")


@dataclass(frozen=True)
class Row:
    """What differs from the system's own defaults on a problem."""

    model: Changes = field(default_factory=dict)
    training: Changes = field(default_factory=dict)
    view: Changes = field(default_factory=dict)
    ours: Changes = field(default_factory=dict)
    """Training settings of the preset `default` alone."""


@dataclass(frozen=True)
class System:
    """How a system is trained, and its problems."""

    training: Changes
    rows: dict[str, Row]


MODEL_OF: dict[str, str] = {"darcy": "lattice", "navier_stokes": "lattice"}
"""The model of a problem unless another is named: the best by validation error at equal time, where
that is not IPOT itself (docs/accuracy.md)."""


def model_of(problem: str, preset: str = "default") -> str:
    """The model if none is named; the paper's presets are of the paper's model."""
    return MODEL_OF.get(problem, "ipot") if preset == "default" else "ipot"


def recipe(system: str, problem: str, preset: str, config: Any) -> tuple[default.Recipe, Changes]:
    """The settings of a system for a problem, and the changes of the problem's view.

    `config` are the defaults of the model, which serve a problem that has no row.
    """
    if system == "transformer":
        return _transformer(problem, preset, config)
    found = SYSTEMS.get(system, System({}, {}))
    row = found.rows.get(paper.STAND_INS.get(problem, problem), Row())
    training: Changes = found.training | row.training
    if preset == "paper":
        training = training | {"last_batch": "fill"}
    if preset == "default":
        if training.get("schedule") != "one-cycle":
            training = {k: v for k, v in training.items() if k not in OURS}
        training = training | {"clip": training.get("clip") or Training.clip} | row.ours
    return default.Recipe(replace(config, **row.model), Training(**training)), row.view


def small(system: str, config: Any) -> Any:
    """The model at sizes for a first look: minutes on a CPU. An unknown model keeps its sizes."""
    return replace(config, **SMALL.get(system, {}))


def _transformer(problem: str, preset: str, config: Any) -> tuple[default.Recipe, Changes]:
    """IPOT's settings, without its inducing points."""
    own = {f.name for f in fields(config)}
    if preset == "paper":
        full, training = paper.model(problem), paper.training(problem)
        sizes = {name: getattr(full, name) for name in own}
        view = paper.PROBLEM.get(problem, {})
        return default.Recipe(type(config)(**sizes), training, False), view
    base = default.recipe(problem)
    sizes = {k: v for k, v in default.MODEL.get(problem, {}).items() if k in own}
    return default.Recipe(replace(config, **sizes), base.training), {}


# Authors who step in physical space train on single steps from true frames, all of them at once;
# ours takes two of them at a time, so that an update costs no more than it must.
FORCED: Changes = {"unroll": 1}
SOME: Changes = {"unroll": 1, "pieces": 2}
QUICKER: Changes = {"learning_rate": 5e-4, "batch": 4}
OFORMER_SLIM: Changes = {"blocks": 5, "decoder_width": 96, "latent_width": 192, "propagators": 1}
OFORMER_FILM: Changes = {"heads": 1, "blocks": 5, "decoder_width": 192, "latent_width": 384}
OFORMER_FILM |= {"frequency": 8.0, "rotary": (2048.0, 1024.0, 512.0, 512.0, 64.0)}
OFORMER_FILM |= {"cross_rotary": 1024.0}
# The die at every node and time: for systems that answer where they see.
REPEATED: Changes = {"repeated": True}
# Anomalies and not departures from a simple forecast, which have no past frames to go on from.
ABSOLUTE: Changes = {"target": "anomaly"}
SLOPES: Changes = {"gradient_loss": 0.1}
# Targets scaled by their mean and deviation at every point of the grid.
EACH_POINT: Changes = {"each_point": True}
SYSTEMS: dict[str, System] = {
    # The authors' scripts, and Geo-FNO's for meshes that are grids. A rollout is trained whole.
    "fno": System(
        {"epochs": 500, "batch": 20, "weight_decay": 1e-4, "schedule": "step", "step_epochs": 100}
        | {"clip": None, "precision": "float32", "decay": "coupled"},
        {
            "burgers": Row({"modes": (16,), "width": 64}),
            "darcy": Row({}, EACH_POINT),
            "navier_stokes": Row(
                {"width": 20}, {"learning_rate": 2.5e-3}, ours={"unroll": 5, "pieces": 2}
            ),
            "airfoil": Row({"modes": (24, 12)}),
            "plasticity": Row({"modes": (12, 12, 8)}, view=REPEATED),
            "shallow_water": Row(ours=SOME),
            "era5": Row(ours=SOME),
        },
    ),
    # alasdairtran/fourierflow. Four layers that share their Fourier weights have the numbers of
    # parameters that the IPOT paper prints, where it prints any that can be reached.
    "ffno": System(
        {"epochs": 200, "batch": 20, "weight_decay": 1e-4, "clip": None, "precision": "float32"},
        {
            "darcy": Row(),
            "navier_stokes": Row({}, {"learning_rate": 2.5e-3, "batch": 19} | FORCED, ours=SOME),
            "airfoil": Row({"modes": (32, 16)}, {"batch": 10}),
            "elasticity": Row({"padding": (0.0,)}),
            "plasticity": Row({"modes": (32, 12, 8)}, {"batch": 2}, view=REPEATED),
            "shallow_water": Row(ours=SOME),
            "era5": Row({"layers": 24}, ours=SOME),
            "sst": Row(ours=SOME, view=ABSOLUTE),
        },
    ),
    # Geo-FNO's on elasticity; elsewhere sizes that have the printed numbers of parameters.
    "deeponet": System(
        {"epochs": 1000, "batch": 20, "weight_decay": 1e-4, "schedule": "step", "step_epochs": 100}
        | {"clip": None, "precision": "float32", "decay": "coupled"},
        {
            "burgers": Row({"activation": "tanh"}),
            "darcy": Row(),
            "navier_stokes": Row({}, FORCED, ours=SOME),
            "airfoil": Row(),
            "elasticity": Row({"width": 256}, view={"inputs": "mesh"}),
            "plasticity": Row(),
            "shallow_water": Row({}, FORCED, ours=SOME),
            "era5": Row({}, FORCED, ours=SOME),
            "sst": Row({}, FORCED, ours=SOME, view=ABSOLUTE),
        },
    ),
    # BaratiLab/OFormer for Burgers, Darcy and Navier-Stokes; for the others sizes that have the
    # printed numbers of parameters. On Darcy 32,000 steps, Adam's penalty, and 0.1 times the
    # relative errors of both derivatives, together about twice our joint one; on Navier-Stokes a
    # curriculum over time in the first 0.16 of the run.
    "oformer": System(
        {"epochs": 500, "batch": 8, "learning_rate": 8e-4, "clip": None}
        | {"schedule": "one-cycle", "warmup": 0.2},
        {
            "burgers": Row(
                {"attention": "fourier", "heads": 1, "blocks": 4, "decoder_width": 96}
                | {"latent_width": 96, "cross_heads": 8, "propagators": 3, "frequency": 2.0}
                | {"rotary": (8192.0, 4096.0, 4096.0, 1024.0), "cross_rotary": 1024.0},
                {"batch": 16},
            ),
            "darcy": Row(
                {}, {"epochs": 256, "gradient_loss": 0.2, "decay": "coupled"} | EACH_POINT
            ),
            "navier_stokes": Row(
                OFORMER_FILM, {"batch": 16, "learning_rate": 5e-4, "grow": 0.16, "warmup": 0.3}
            ),
            "airfoil": Row(OFORMER_SLIM),
            "elasticity": Row(),
            "plasticity": Row(
                OFORMER_SLIM | {"width": 64, "blocks": 4, "decoder_width": 64, "latent_width": 128},
                {"queries": 0.25},
            ),
            "shallow_water": Row(OFORMER_FILM, {"learning_rate": 5e-4, "queries": 0.25}),
            "era5": Row(OFORMER_FILM, {"learning_rate": 5e-4, "queries": 0.25}),
            "sst": Row({"width": 32, "blocks": 2, "decoder_width": 64, "latent_width": 64}),
        },
    ),
    # mkirchmeyer/DINo. One rate serves decoder and dynamics; theirs are 1e-2 and 1e-3.
    "dino": System(
        {"epochs": 2000, "batch": 32, "weight_decay": 0.0, "clip": None, "precision": "float32"},
        {
            "navier_stokes": Row(ours={"batch": 10}),
            "shallow_water": Row(
                {"code": 200, "width": 256, "layers": 6, "dynamics": 800, "frequency": 128.0},
                {"batch": 4},
            ),
            "era5": Row({"code": 200, "width": 256, "layers": 6, "dynamics": 800}, {"batch": 8}),
        },
    ),
    # deepmind-research, which trains ten million steps at this rate; ours must be quicker.
    "meshgraphnet": System(
        {"epochs": 500, "batch": 2, "learning_rate": 1e-4, "weight_decay": 0.0, "clip": None},
        {
            "burgers": Row({"positions": False}, ours=QUICKER),
            "darcy": Row(ours=QUICKER),
            "navier_stokes": Row({}, FORCED, ours=QUICKER | SOME),
            "airfoil": Row(ours=QUICKER),
            "elasticity": Row(ours=QUICKER),
            "plasticity": Row(ours=QUICKER, view=REPEATED),
            "shallow_water": Row({}, FORCED, ours=QUICKER | SOME),
            "era5": Row({}, FORCED, ours=QUICKER | SOME),
            "sst": Row(ours=QUICKER | SOME, view=ABSOLUTE),
        },
    ),
    # thuml/Transolver, scripts of the standard benchmark: one-cycle, and on Darcy 0.1 times the
    # relative errors of both derivatives, which together are about twice our joint one. On
    # plasticity it is a 2-D model that is given the time. Trained in float32, as here: in bf16 it
    # broke away from the mean field upwards at the highest rate.
    "transolver": System(
        {"epochs": 500, "batch": 4, "weight_decay": 1e-5, "clip": 0.1, "precision": "float32"}
        | {"schedule": "one-cycle", "warmup": 0.3},
        {
            "darcy": Row({}, {"gradient_loss": 0.2}),
            "navier_stokes": Row(
                {"width": 256, "slices": 32}, {"batch": 2, "clip": None} | FORCED, ours=SOME
            ),
            "airfoil": Row({"reference": 0}),
            "elasticity": Row({"reference": 0}, {"batch": 1}),
            "plasticity": Row(
                {"reference": 0, "projection": "points"}, {"batch": 8}, view=REPEATED
            ),
            "shallow_water": Row({"reference": 4}, ours=SOME),
            "era5": Row(ours=SOME),
            "sst": Row({"reference": 4}, ours=SOME, view=ABSOLUTE),
        },
    ),
    # L-I-M-I-T/LatentNeuralOperator, settings of the forward problems. Its one-cycle starts at a
    # lower rate (1e-4 of the highest); its limit on gradients is as good as none.
    "lno": System(
        {"epochs": 500, "batch": 4, "weight_decay": 5e-5, "clip": 1000.0}
        | {"schedule": "one-cycle", "warmup": 0.2},
        {
            "darcy": Row(),
            "navier_stokes": Row({"width": 256, "blocks": 8}, FORCED, ours=SOME),
            "airfoil": Row({"blocks": 8, "layers": 3}),
            "elasticity": Row({"blocks": 8, "layers": 3}),
            "plasticity": Row({"blocks": 8, "layers": 3}),
            "shallow_water": Row(ours=SOME),
            "era5": Row(ours=SOME),
            "sst": Row(ours=SOME, view=ABSOLUTE),
        },
    ),
    # vpuri3/FLARE.py: sizes, epochs, batch and decay of its script of comparisons for elasticity,
    # Darcy and airfoil; rate, rise of one-cycle and every other problem are guesses.
    "flare": System(
        {"epochs": 500, "batch": 2, "weight_decay": 1e-5, "schedule": "one-cycle", "warmup": 0.1},
        {
            "darcy": Row({"latents": 256, "heads": 16}),
            "navier_stokes": Row({}, FORCED, ours=SOME),
            "airfoil": Row({"latents": 256}),
            "elasticity": Row(),
            "plasticity": Row(view=REPEATED),
            "shallow_water": Row(ours=SOME),
            "era5": Row(ours=SOME),
            "sst": Row({"width": 32, "blocks": 2}, ours=SOME, view=ABSOLUTE),
        },
    ),
    # Its paper's setting could not be found beyond its architecture: the recipe of the benchmark
    # that it was compared in, which is Transolver's; it is stable in mixed precision.
    "lrsa": System(
        {"epochs": 500, "batch": 4, "weight_decay": 1e-5, "clip": 1.0, "schedule": "one-cycle"}
        | {"warmup": 0.3},
        {
            "darcy": Row({}, {"gradient_loss": 0.2}),
            "navier_stokes": Row({}, {"batch": 2} | FORCED, ours=SOME),
            "airfoil": Row({"reference": 0}),
            "elasticity": Row({"reference": 0}, {"batch": 1}, ours={"batch": 4}),
            "plasticity": Row({"reference": 0, "mixing": "points"}, {"batch": 8}, view=REPEATED),
            "shallow_water": Row({"reference": 4}, ours=SOME),
            "era5": Row(ours=SOME),
            "sst": Row({"width": 32, "blocks": 2, "reference": 4}, ours=SOME, view=ABSOLUTE),
        },
    ),
    # Ours. Small batches at a lower rate were better at equal epochs (docs/log.md, 2026-11-17), and
    # a loss on gradients where a step asks at all queries.
    "relay": System(
        {"epochs": 200, "batch": 5, "learning_rate": 7e-4},
        {
            "darcy": Row(ours=SLOPES | {"augment": True}),
            "navier_stokes": Row(
                {"change": True}, ours={"epochs": 150, "queries": 0.25, "augment": True}
            ),
            "airfoil": Row(ours=SLOPES | {"augment": True}),
            "elasticity": Row(ours=SLOPES | {"augment": True}),
            "plasticity": Row(
                {"bins": (8,), "max_frequency": (16.0,)},
                ours={"epochs": 100, "queries": 0.1, "augment": True},
            ),
            "shallow_water": Row(ours={"epochs": 100, "queries": 0.25}),
            "era5": Row(ours={"epochs": 50, "batch": 10, "queries": 0.25}),
            "sst": Row(
                {"width": 32, "blocks": 2, "latents": 32, "states": 32, "heads": 4},
                ours={"learning_rate": 1e-3} | default.TRAINING["sst"],
            ),
        },
    ),
    # Ours as well. A rollout is learnt in pieces, since each step begins from frames at the places.
    "lattice": System(
        {"epochs": 400, "batch": 10, "learning_rate": 1e-3, "weight_decay": 1e-3},
        {
            "burgers": Row({"width": 32}, ours={"augment": True}),
            "darcy": Row(ours=SLOPES | {"augment": True, "points_least": 0.25}),
            "navier_stokes": Row(
                {"finest": 0},
                ours={"epochs": 300, "unroll": 1, "pieces": 4, "batch": 20, "augment": True},
            ),
            "airfoil": Row(ours=SLOPES | {"augment": True}),
            "plasticity": Row({"width": 32}, ours={"augment": True}, view=REPEATED),
            "shallow_water": Row(ours={"unroll": 4, "pieces": 1, "batch": 8}),
            "era5": Row(ours={"epochs": 50, "unroll": 2, "pieces": 1}),
            "sst": Row({"width": 32}, ours=default.TRAINING["sst"]),
        },
    ),
    # Nobody has printed its sizes for these problems: IPOT's, problem by problem.
    "perceiver_io": System(
        {"epochs": 500},
        {
            "burgers": Row({"bins": (32,), "blocks": 2}, {"batch": 20}),
            "darcy": Row({"bins": (32,)}),
            "navier_stokes": Row(
                {"latents": 512, "blocks": 2, "heads": 4, "bins": (12,), "max_frequency": (20.0,)},
                FORCED,
                ours=SOME,
            ),
            "plasticity": Row({"bins": (8,), "max_frequency": (16.0,)}),
            "shallow_water": Row({"blocks": 2}, ours=SOME),
            "era5": Row({"bins": (32,), "max_frequency": (64.0,), "blocks": 2}, ours=SOME),
            "sst": Row({"latents": 32, "width": 32, "blocks": 1}, ours=SOME, view=ABSOLUTE),
        },
    ),
}

_FEW = {"width": 64, "blocks": 2, "heads": 4, "cross_heads": 2, "bins": (8,)}
_FEW |= {"max_frequency": (16.0,)}
SMALL: dict[str, Changes] = {
    "ipot": _FEW | {"latents": 64},
    "transformer": _FEW,
    "relay": _FEW | {"latents": 32, "states": 64},
    "lattice": {"width": 16, "most_width": 64, "blocks": 1, "heads": 4},
    "perceiver_io": _FEW | {"latents": 64, "cross_heads": 1},
    "transolver": {"width": 48, "blocks": 3, "heads": 4, "slices": 16},
    "lno": {"width": 48, "blocks": 2, "heads": 4, "modes": 48},
    "flare": {"width": 32, "blocks": 3, "heads": 4, "latents": 32, "layers": 2},
    "lrsa": {"width": 48, "blocks": 3, "heads": 4, "latents": 32},
    "meshgraphnet": {"width": 32, "layers": 6},
    "oformer": {"width": 32, "blocks": 3, "decoder_width": 64, "latent_width": 64}
    | {"rotary": (256.0, 64.0, 16.0), "cross_rotary": 256.0},
    "deeponet": {"width": 64, "sensors": 256},
    "fno": {"width": 24, "modes": (6,)},
    "ffno": {"width": 32, "modes": (6,), "latent": (16,)},
    "dino": {"code": 32, "width": 64, "layers": 3, "dynamics": 128, "fit_steps": 50},
}
