"""`ipot.fit` with other models than IPOT: the relay in all that a fit does, any by name."""

import json

import numpy as np
import pytest
import torch

import ipot
from ipot.cli import main
from ipot.data.own import Dataset
from ipot.errors import IpotError, RunError, UnknownName, Unsupported
from ipot.own.sizing import plan
from own import tiny
from own.tiny import KINDS, X

TINY = {"name": "relay", "width": 16, "latents": 4, "states": 4, "heads": 2, "cross_heads": 2}
TINY |= {"blocks": 1}


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    """It takes seconds to import, and is a copy of the journal."""
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)


def quick(source, **settings):
    return tiny.quick(source, **{"model": TINY, **settings})


@pytest.mark.parametrize("kind", KINDS)
def test_a_relay_is_fitted_to_every_kind_of_data(kind):
    data = tiny.data(kind)
    model = quick(data)
    assert model.model.name == "relay"
    assert np.isfinite(model.scores["validation"])
    assert np.isfinite(model.evaluate(data).relative_l2)


def test_it_predicts_anywhere_with_bounds_and_after_it_is_saved(tmp_path):
    data = tiny.data("mesh", 40)
    model = quick(data, out=tmp_path / "m")
    asked = {
        "points": X,
        "values": tiny.waves(1, X)[0][0],
        "queries": tiny.random(5).random((7, 2)),
    }
    u, low, high = model.predict(**asked, interval=0.8)
    assert ((low <= u) & (u <= high)).all()
    assert "relay" in " ".join(model.summary())
    again = ipot.load(tmp_path / "m", device="cpu")
    assert again.model.name == "relay"
    np.testing.assert_array_equal(again.predict(**asked), u)
    np.testing.assert_array_equal(again.predict(**asked, interval=0.8)[1], low)
    again.calibrate(data)
    assert np.isfinite(again.predict(**asked, interval=0.5)[2]).all()
    config = json.loads((tmp_path / "m" / "training" / "config.json").read_text())
    assert config["model"]["name"] == "relay"
    assert config["model"]["states"] == 4


def test_it_goes_on_and_is_a_start_for_another(tmp_path):
    data = tiny.data("mesh")
    model = quick(data, out=tmp_path / "m")
    own = {"epochs": None, "model": None}
    again = quick(data, resume=tmp_path / "m", **own)
    told = quick(data, resume=tmp_path / "m", **own | {"model": {"states": 4}})
    for other in (again, told):
        assert all(
            torch.equal(a, b)
            for a, b in zip(
                model.model.state_dict().values(), other.model.state_dict().values(), strict=True
            )
        )
    for wrong, name in (("ipot", "model.name"), ({"states": 8}, "model.states")):
        with pytest.raises(RunError, match=f"{name} is another than the run was started with"):
            quick(data, resume=tmp_path / "m", **own | {"model": wrong})
    tuned = quick(data, start_from=tmp_path / "m", model=None, epochs=1)
    assert (tuned.model.name, tuned.model.inner.config.states) == ("relay", 4)
    with pytest.raises(RunError, match="it holds relay, and ipot cannot start from"):
        quick(data, start_from=tmp_path / "m", model="ipot", epochs=1)


def test_the_command(tmp_path, capsys):
    a, u = tiny.waves(12, X)
    np.savez(tmp_path / "waves.npz", points=X, values=a, targets=u)
    out = str(tmp_path / "m")
    asked = ["fit", str(tmp_path / "waves.npz"), "--model", "relay", "--epochs", "1", "--out", out]
    assert main([*asked, "--device", "cpu"]) == 0
    assert (
        "model: relay, 32 inducing points, width 64, 2 blocks, frequencies"
        in capsys.readouterr().err
    )
    assert ipot.load(out, device="cpu").model.name == "relay"


@pytest.mark.parametrize("name", ["transformer", "perceiver-io", "lno", "deeponet", "fno"])
def test_any_model_that_takes_the_data(name):
    model = tiny.quick(tiny.data("grid"), model=name, epochs=1)
    assert model.model.name == name.replace("-", "_")
    assert np.isfinite(model.scores["validation"])


def test_sizes_are_small_on_a_cpu_and_points_are_seen_whole_where_they_must():
    line = np.linspace(0, 1, 40)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1)
    values = tiny.random().random((8, 40, 40))
    data = Dataset.from_arrays(points=grid, values=values, targets=values)
    cpu, gpu = (plan(data, device=torch.device(d), name="relay") for d in ("cpu", "cuda"))
    assert cpu.model.width < gpu.model.width
    assert cpu.model.max_frequency == gpu.model.max_frequency == (20.0,)
    assert cpu.training.points < 1
    fno = plan(data, device=torch.device("cpu"), name="fno")
    assert (fno.training.points, fno.training.queries) == (1, 1)
    assert fno.training.precision == "float32"


REFUSED = {
    "unknown": ({"model": "relai"}, UnknownName, "Did you mean 'relay'"),
    "no name": (
        {"model": {"name": 3}},
        Unsupported,
        "model.name must be the name of a model, got 3",
    ),
    "neither": ({"model": 3}, Unsupported, "model must be the name of a model or a dictionary"),
    "a setting of another": (
        {"model": {"name": "relay", "tied": True}},
        Unsupported,
        "no such setting as 'tied'",
    ),
    "the paper's sizes": (
        {"model": "relay", "preset": "paper"},
        Unsupported,
        "preset='paper' has the sizes of ipot, and the model is relay",
    ),
    "no grid": ({"model": "fno"}, Unsupported, "needs .*grid.*Models that can: .*relay"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case, tmp_path):
    settings, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as told:
        quick(tiny.data("mesh"), **settings, out=tmp_path / "m")
    assert isinstance(told.value, IpotError)
    assert not (tmp_path / "m").exists()
