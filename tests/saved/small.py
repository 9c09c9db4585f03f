"""Small models with weights and scales drawn at random, for tests of what is done with them."""

import torch

from ipot import registry
from ipot.data.statistics import Statistics
from ipot.recipes.experiment import build_model
from ipot.spec import Spec

BOX = ((0.0, 1.0), (-1.0, 3.0))
SIZES = {
    "ipot": {"latents": 4, "width": 8, "blocks": 1, "heads": 2, "cross_heads": 2, "bins": (3,)},
    "relay": {"latents": 3, "states": 4, "width": 8, "blocks": 1, "heads": 2, "cross_heads": 2}
    | {"bins": (3,)},
    "lattice": {"width": 4, "most_width": 8, "levels": 1, "blocks": 1, "processor": 1, "heads": 2}
    | {"bins": (3,), "places": (6,)},
    "transformer": {"width": 8, "blocks": 1, "heads": 2, "cross_heads": 2, "bins": (3,)},
}


def facts(**changes) -> Spec:
    known = {"name": "a test", "inputs": ("a", "b"), "outputs": ("u", "v"), "domain": BOX}
    return Spec(**known | changes)


def config(name="ipot", **changes):
    return registry.module("models", name).Config(**SIZES.get(name, {}) | changes)


def model(spec, name="ipot", seed=0, **changes):
    random = torch.Generator().manual_seed(seed)

    def draw(count):
        return torch.rand(count, generator=random, dtype=torch.float64) + 0.5

    sizes = {
        "input": spec.channels,
        "output": len(spec.outputs),
        "parameter": len(spec.parameters),
    }
    scales = {f"{k}_{what}": draw(n) for k, n in sizes.items() for what in ("mean", "scale")}
    made = build_model(
        name, config(name, **changes), spec, seed=seed, statistics=Statistics(**scales)
    )
    return made.eval()
