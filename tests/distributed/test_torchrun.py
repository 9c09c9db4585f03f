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

whole = experiment("training.toys")
training = replace(whole.training, epochs=2, batch=4, step="eager", validate_every=1)
small = replace(whole, model=TINY, training=training)
result = run(small, sys.argv[1], store=Store(sys.argv[2]), device="cpu")
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
    assert done.stdout.count("steps 6") == 2
    _, _, rest = contents(tmp_path / "run")
    assert [row["epoch"] for row in rest["rows"]] == [1, 2]
    # Both processes read one set of samples, generated once.
    recipes = list((tmp_path / "store").rglob("recipe.json"))
    assert len(recipes) == 2
