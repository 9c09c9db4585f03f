"""A whole experiment under torchrun, as a user starts it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
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
    print(f"steps {result.steps}\\n", end="")  # in one piece, beside another process
"""


DYING = """
import os, signal, sys
from ipot.cli import main
from ipot.training.trainer import Trainer

take = Trainer._take_step

def step(self, work):
    if self.state.step == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    take(self, work)

Trainer._take_step = step
sys.exit(main(["train", *sys.argv[1:]]))
"""


AGAIN = """
import os, time, torch
from ipot.training.distributed import world

for turn in range(3):
    time.sleep(0.5 * turn * (os.environ["RANK"] == "0"))
    with world(torch.device("cpu"), patience=20) as here:
        # In one piece: words of two processes would come between each other.
        print(f"together {here.any(here.rank == 1)}\\n", end="")
"""


def torchrun(script, *words, flags=()):
    """Start a script as a user does, and wait for its end."""
    here = Path(__file__).parent.parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    launch = ["-m", "torch.distributed.run", "--standalone", *flags]
    return subprocess.run(
        [sys.executable, *launch, script, *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,  # of a machine that is busy: it takes ten
    )


def test_what_dies_is_started_again_and_goes_on(tmp_path):
    """torchrun repeats the command, which names a folder that holds the run by then."""
    script, out = tmp_path / "script.py", tmp_path / "run"
    script.write_text(DYING)
    sizes = ["--model.latents", "4", "--model.width", "8", "--model.blocks", "1"]
    sizes += ["--model.heads", "2", "--model.cross-heads", "2", "--model.bins", "2"]
    counts = ["--count.train", "8", "--count.validation", "4", "--count.test", "4"]
    words = ["burgers", "--small", *sizes, *counts, "--training.batch", "4", "--quiet"]
    words += ["--training.epochs", "3", "--training.step", "eager", "--training.save-seconds", "0"]
    words += ["--device", "cpu", "--out", out, "--data", tmp_path / "data"]
    done = torchrun(script, *words, flags=["--nproc-per-node", "1", "--max-restarts", "1"])
    assert done.returncode == 0, done.stderr
    _, _, rest = contents(out)
    assert [row["epoch"] for row in rest["rows"]] == [1, 2, 3]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Two processes that train, and then part and meet: a folder, and what they said."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "script.py").write_text(SCRIPT + AGAIN)
    words = (folder / "script.py", folder / "run", folder / "store")
    done = torchrun(*words, flags=["--nproc-per-node", "2"])
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_an_experiment_under_torchrun(together):
    folder, said = together
    assert said.count("steps 6") == 4
    for name in ("ipot", "relay"):
        _, _, rest = contents(folder / "run" / name)
        assert [row["epoch"] for row in rest["rows"]] == [1, 2]
    # Both processes read one set of samples, generated once.
    recipes = list((folder / "store").rglob("recipe.json"))
    assert len(recipes) == 2


def test_processes_that_part_find_each_other_again(together):
    """The slower one of two comes to a group behind the other."""
    assert together[1].count("together True") == 6
