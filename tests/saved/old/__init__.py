"""Saved models and runs of 0.1.0, written before there were checksums, and copies of them.

They stay as they are: what was written once is read for ever. `saved` is the model of
`saved.folders` with a width of 4; `run` is `ipot train darcy` with a width of 4, two epochs and
four samples. `fit` and `fit_stopped` are `ipot.fit` of `own.tiny`'s mesh with a width of 4, whose
run had a config.json of its own form: one has ended, the other was stopped on its way.
"""

import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent


def copied(name, target, **entries):
    """A copy of one of the folders; entries of its config.json are set by dotted names."""
    folder = shutil.copytree(HERE / name, target)
    if entries:
        edit(folder, **entries)
    return folder


def edit(folder, **entries):
    """Set entries of config.json, such as model__width=8."""
    file = folder / "config.json"
    content = json.loads(file.read_text())
    for path, value in entries.items():
        *outer, last = path.split("__")
        inside = content
        for key in outer:
            inside = inside[key]
        inside[last] = value
    file.write_text(json.dumps(content))
