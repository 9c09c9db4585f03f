"""A whole experiment under torchrun, as a user starts it."""

import os
import subprocess
import sys
from pathlib import Path

from training.toys import contents

SCRIPT = """
import sys
from dataclasses import replace
from training.toys import TINY
from ipot.data.store import Store
from ipot.recipes.experiment import experiment
from ipot.recipes.running import run

relay = {"width": 16, "blocks": 1, "heads": 2, "latents": 3, "states": 4, "cross_heads": 2}
for name, sizes in (("ipot", vars(TINY)), ("relay", relay)):
    whole = experiment("training.toys", name)
    training = replace(whole.training, epochs=2, batch=4, step="eager", validate_every=1)
    small = replace(whole, model=replace(whole.model, **sizes), training=training)
    result = run(small, f"{sys.argv[1]}/{name}", store=Store(sys.argv[2]), device="cpu")
    print("steps", result.steps)
"""


def test_an_experiment_under_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    here = Path(__file__).parent.parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, script, tmp_path / "run", tmp_path / "store"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("steps 6") == 4
    for name in ("ipot", "relay"):
        _, _, rest = contents(tmp_path / "run" / name)
        assert [row["epoch"] for row in rest["rows"]] == [1, 2]
    # Both processes read one set of samples, generated once.
    recipes = list((tmp_path / "store").rglob("recipe.json"))
    assert len(recipes) == 2
