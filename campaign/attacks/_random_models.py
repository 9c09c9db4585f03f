"""Random small models: what is drawn is plain JSON, and `build` makes the model of it."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import nn

from campaign.attack import Case

ATTENTIVE = ("ipot", "transformer")
"""Those that step in latent space and take all of the accelerated ways."""
OTHERS = ("perceiver_io", "lno", "oformer", "transolver")
"""Those built from the same layers, which take some."""
BOUND = ("transolver", "fno", "meshgraphnet")
"""Those that answer at their input points."""
GRIDDED = ("fno",)
STEPPED = ("fno", "deeponet", "meshgraphnet")
"""Those of which only the training step, and answers in pieces, are accelerated."""


def draw_spec(random: Random, name: str) -> Case:
    """The sizes of a problem that a model can be asked for."""
    dimension = random.choice((1, 2, 2, 3)) if name not in GRIDDED else random.choice((1, 2))
    globe = name in ATTENTIVE and random.random() < 0.1
    several = name in (*ATTENTIVE, *OTHERS) and random.random() < 0.4
    return {
        "dimension": 2 if globe else dimension,
        "channels": random.choice((1, 1, 2, 3)),
        "outputs": random.choice((1, 1, 2, 3)),
        "parameters": random.choice((0, 0, 0, 1, 3)),
        "steps": random.choice((2, 3)) if several else 1,
        "periodic": not globe and random.random() < 0.2,
        "globe": globe,
    }


def draw_model(random: Random, name: str, widths: tuple[int, ...]) -> Case:
    """The settings of a model; widths beyond those given are not drawn."""
    width = random.choice(widths)
    heads = random.choice([h for h in (1, 2, 4, 8) if width % h == 0 and width // h >= 4])
    case: Case = {"name": name, "width": width, "heads": heads, "blocks": random.choice((1, 2, 3))}
    case["seed"] = random.randrange(1 << 16)
    case["norms"] = random.random() < 0.7
    if name in ATTENTIVE:
        case |= _attentive(random, width, widths)
    return case


def _attentive(random: Random, width: int, widths: tuple[int, ...]) -> Case:
    lifted = random.random() < 0.5
    options: tuple = (8, 16, 5) if len(widths) > 3 else (16,)
    if lifted:  # else features are divided among heads, and not every number of them can be
        options += (None,) * (1 + len(options))
    return {
        "cross_heads": random.choice([h for h in (1, 2, 4) if width % h == 0]),
        "cross_head_width": random.choice(options),
        "latents": random.choice((1, 3, 16, 17, 40)),
        "gain": random.choice((1.0, 2.0, 2.0, 8.0, 30.0)),
        "bins": random.choice((1, 3, 8)),
        "coordinates": random.choice(("unit", "raw")),
        "feed_forward": random.choice((1, 2, 4)),
        "tied": random.random() < 0.3,
        "lifted": lifted,
        "narrow": not lifted or random.random() < 0.3,
        "local": lifted and random.random() < 0.5,
    }


def spec_of(case: Case) -> Any:
    """The facts that the model of a case is sized from."""
    from ipot.spec import Need, Spec

    size, batch = case["spec"], case["batch"]
    dimension = size["dimension"]
    outputs = tuple(f"u{i}" for i in range(size["outputs"]))
    inputs = tuple(f"a{i}" for i in range(size["channels"]))
    history = int(size["steps"] > 1 and case["model"]["name"] not in (*ATTENTIVE, "oformer"))
    domain = ((-180.0, 180.0), (-90.0, 90.0)) if size["globe"] else ((0.0, 1.0),) * dimension
    provides = {Need.FIXED_POINTS, Need.SAME_POINTS}
    if batch["grid"]:
        provides.add(Need.GRID)
    return Spec(
        name="random",
        inputs=outputs * history + inputs,
        outputs=outputs,
        domain=domain,
        periods=(1.0,) * dimension if size["periodic"] else (),
        geographic=size["globe"],
        parameters=tuple(f"p{i}" for i in range(size["parameters"])),
        steps=size["steps"],
        history=history,
        provides=frozenset(provides),
        shape=tuple(batch["grid"] or (batch["points"],)),
    )


def _config(case: Case) -> Any:
    from ipot import registry

    model, size = case["model"], case["spec"]
    name, width, heads, blocks = (model[k] for k in ("name", "width", "heads", "blocks"))
    common = {"width": width, "heads": heads, "blocks": blocks}
    sizes: dict[str, dict[str, Any]] = {
        "perceiver_io": {**common, "latents": 9, "cross_heads": 1, "bins": (3,)},
        "lno": {**common, "modes": 9, "layers": 1},
        "oformer": {
            **common,
            "rotary": (9.0, 2.0),
            "cross_rotary": 4.0,
            "decoder_width": 12,
            "latent_width": 14,
            "cross_heads": 2,
        },
        "transolver": {
            **common,
            "slices": 4,
            "reference": 3 if size["dimension"] < 3 else 0,
            "projection": "points",
        },
        "fno": {"width": width, "layers": blocks, "modes": (2,), "projection": 8},
        "deeponet": {"width": width, "layers": 2},
        "meshgraphnet": {"width": width, "layers": blocks, "edges": "nearest", "neighbours": 3},
    }
    kind = registry.module("models", name).Config
    if name not in ATTENTIVE:
        return kind(**sizes[name])
    chosen = common | {"cross_gain": model["gain"], "bins": (model["bins"],)}
    chosen |= {k: model[k] for k in ("cross_heads", "cross_head_width", "coordinates", "tied")}
    chosen |= {k: model[k] for k in ("feed_forward", "lifted", "local")}
    chosen |= {"max_frequency": (6.0,), "decoder": "narrow" if model["narrow"] else "full"}
    if name == "ipot":
        chosen["latents"] = model["latents"]
    return kind(**chosen)


def build(case: Case) -> Any:
    """The model of a case in float32, in the scales of its data or without any."""
    from ipot.data.statistics import Statistics
    from ipot.recipes.experiment import build_model

    spec, scales = spec_of(case), case["batch"]
    statistics = Statistics.identity(spec.channels, len(spec.outputs), len(spec.parameters))
    if case["normalized"]:
        statistics.input_mean.fill_(scales["offset"] * scales["scale"])
        statistics.input_scale.fill_(scales["scale"])
        statistics.output_mean.fill_(0.5)
        statistics.output_scale.fill_(3.0)
    seed = case["model"]["seed"]
    model = build_model(
        case["model"]["name"], _config(case), spec, seed=seed, statistics=statistics
    )
    if case["model"]["norms"]:
        _shuffle_norms(model, seed)
    return model.eval()


def _shuffle_norms(model: nn.Module, seed: int) -> None:
    """Norms that are not at their start, where their affine part does nothing."""
    random = torch.Generator().manual_seed(seed)
    for layer in model.modules():
        if isinstance(layer, nn.LayerNorm):
            with torch.no_grad():
                shape = layer.weight.shape
                layer.weight.copy_(1 + 0.3 * torch.randn(shape, generator=random))
                layer.bias.copy_(0.3 * torch.randn(shape, generator=random))
