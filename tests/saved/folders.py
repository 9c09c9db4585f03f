"""A saved model in a folder, and how somebody edits it."""

import json

import torch
from safetensors.torch import load_file, save_file

from ipot.evaluation.conformal import calibrate
from ipot.saved.folder import Saved
from saved.small import config, facts

SPEC = facts(parameters=("p",), units=("K", ""), periods=(1.0, None), steps=2, dt=0.1)


def bounds():
    """What intervals are made from, of three samples at two times."""
    random = torch.Generator().manual_seed(0)
    truths = torch.rand(3, SPEC.steps, 4, len(SPEC.outputs), generator=random)
    return calibrate(truths + 0.1, truths).state()


def saved(**changes) -> Saved:
    known = {
        "model_name": "ipot",
        "model": config(),
        "spec": SPEC,
        "layout": {"flat_values": True, "origin": [0.1, 2.0], "times": [0.1, 0.2]},
        "about": {"samples": {"train": 3, "held out": 1}, "seconds": 1.5, "license": "mit"},
        "scores": {"held_out": 0.1 + 0.2, "baselines": {"mean field": 1.0}, "per_channel": {}},
        "bounds": bounds(),
    }
    return Saved(**known | changes)


def change(place, edit):
    """Edit config.json by hand."""
    file = place / "config.json"
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def at(*keys, value=None, drop=False):
    """An edit of one entry."""

    def edit(content):
        for key in keys[:-1]:
            content = content[key]
        if drop:
            del content[keys[-1]]
        else:
            content[keys[-1]] = value

    return edit


def rewrite(place, edit, name="model.safetensors"):
    """Edit the weights."""
    tensors = load_file(place / name)
    edit(tensors)
    save_file(tensors, place / name)
