"""`ipot.fit`: any data of one's own, a folder, a run that goes on, and what is refused before."""

import json
import multiprocessing
import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from saved.old import copied
from training.toys import Kill, assert_same_run

import ipot
from ipot import files
from ipot.cli import main
from ipot.data.own import Dataset
from ipot.errors import Busy, DataError, RunError, Unsupported
from ipot.lock import locked
from ipot.own import fit as fitting
from ipot.own.fit import Interrupted
from ipot.recipes import own_data, running
from ipot.recipes.experiment import experiment
from ipot.recipes.own_data import fingerprint
from ipot.report.tables import percent
from ipot.samples import collate
from ipot.saved.folder import is_saved
from ipot.training.objective import RelativeL2
from own import tiny
from own.tiny import KINDS, X, quick


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    """It takes seconds to import, and is a copy of the journal."""
    monkeypatch.setattr("ipot.training.journal._tensorboard", lambda folder: None)


def weights(model):
    return model.model.state_dict()


def same(one, other):
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


# ---- any data


@pytest.mark.parametrize("kind", [*KINDS, "samples"])
def test_every_kind_of_data_is_fitted_and_scored(kind):
    data = tiny.data("uneven" if kind == "samples" else kind)
    if kind == "samples":
        data = Dataset.from_samples(list(data))
    model = quick(data)
    assert np.isfinite(model.scores["validation"])
    assert model.about["epochs"] == 2
    assert np.isfinite(model.evaluate(data).relative_l2)


@pytest.mark.parametrize("count", [2, 3, 29, 30, 31])
def test_few_samples(count):
    model = quick(tiny.data("mesh", count))
    found = model.about["samples"]
    assert sum(found.values()) == count
    assert found["train"] >= 1
    assert (found["validation"] >= 1) == (count >= own_data.FEW)
    assert found["held out"] == (10 if count >= 30 else 0)
    assert ("held_out" in model.scores) == (model.bounds is not None) == (count >= 30)


def test_one_sample_is_refused():
    with pytest.raises(DataError, match="at least two samples are needed to learn from, got 1"):
        quick(tiny.data("mesh").select([0]))


def test_parts_share_no_sample_and_are_drawn_by_the_seed():
    data = tiny.data("mesh", 40)
    parts = own_data.split(data, 3)
    found = [{s.values.sum().item() for s in part} for part in vars(parts).values()]
    assert sum(map(len, found)) == 40
    assert len(set.union(*found)) == 40
    again, other = own_data.split(data, 3), own_data.split(data, 4)
    assert again.train[0].values.equal(parts.train[0].values)
    assert {s.values.sum().item() for s in other.validation} != found[1]


ODD = {
    "constant targets": {"targets": np.full((10, 12), 3.0)},
    "targets of zero": {"targets": np.zeros((10, 12))},
    "constant values": {"values": np.full((10, 12), 7.0)},
    "the same sample again": {
        "values": np.tile(tiny.waves(1, X)[0], (10, 1)),
        "targets": np.tile(tiny.waves(1, X)[1], (10, 1)),
    },
    "tiny numbers": {"targets": 1e-12 * tiny.waves(10, X)[1]},
    "large numbers": {"values": 1e12 * tiny.waves(10, X)[0]},
    "the same place twice": {"points": np.concatenate([X[:6], X[:6]])},
    "all at one place": {"points": np.full((12, 2), 0.3)},
    "on a line": {"points": X * (1, 0)},
}


@pytest.mark.parametrize("case", ODD)
def test_odd_data(case):
    model = quick(tiny.data("mesh", **ODD[case]))
    given = tiny.arrays("mesh") | ODD[case]
    found = model.predict(points=given["points"], values=given["values"])
    assert np.isfinite(found).all()
    if case == "constant targets":
        assert np.abs(found - 3).max() < 2


def test_a_constant_is_learnt_by_its_mean():
    """Constant channels have no scale, and their mean is the answer from the first step on."""
    targets = np.stack([tiny.waves(10, X)[1], np.full((10, 12), 1e6)], -1)
    model = quick(tiny.data("mesh", targets=targets), epochs=20)
    found = model.predict(points=X, values=tiny.waves(10, X)[0])
    np.testing.assert_allclose(found[..., 1], 1e6, rtol=1e-5)


# ---- several outputs of very different size


def test_a_small_channel_is_not_drowned_by_a_large_one(monkeypatch):
    """A velocity of 1 beside a pressure of 1e5, each of a number of its own."""
    line, numbers = np.linspace(0, 1, 8), tiny.random().standard_normal((48, 2))
    small = numbers[:, :1] * np.sin(2 * np.pi * line)
    large = 1e5 * numbers[:, 1:] * np.cos(2 * np.pi * line)
    data = Dataset.from_arrays(
        queries=line, parameters=numbers, targets=np.stack([small, large], -1)
    )
    settings = {"epochs": 20, "training": {"learning_rate": 1e-2, "batch": 4}, "blend": False}
    fair = quick(data, **settings).scores["per_channel"]
    assert fair["target_0"] < 0.7
    assert fair["target_1"] < 0.9
    monkeypatch.setattr(running, "objective_for", lambda settings, data: RelativeL2())
    assert quick(data, **settings).scores["per_channel"]["target_0"] > 1


def objective(data):
    own = own_data.OwnData.of(data, own_data.split(data, 0))
    settings = replace(experiment("darcy"), problem=own)
    return running.objective_for(settings, data.data)


def test_the_objective_has_a_scale_for_every_channel():
    a, u = tiny.waves(10, X)
    two = tiny.data("mesh", values=a, targets=np.stack([u, 0 * u, 100 * u], -1))
    scale = objective(two).scale
    assert scale[1] == torch.inf
    assert scale[2] / scale[0] == pytest.approx(100, rel=1e-5)
    assert scale[0] == pytest.approx(np.sqrt((u**2).mean()), rel=1e-5)
    one = objective(tiny.data("mesh", values=a, targets=1e25 * u)).scale
    assert one.item() == pytest.approx(1e25 * np.sqrt((u**2).mean()), rel=1e-5)


def test_weights_are_trained_by_and_scored_by():
    """Queries of next to no weight may be as wrong as they like."""
    a, u = tiny.waves(32, X)
    weights = np.where(np.arange(u.shape[1]) < u.shape[1] // 2, 1.0, 1e-9)
    data = tiny.data("mesh", values=a, targets=u, weights=weights)
    batch = collate([data[i] for i in range(4)])

    class Wrong(torch.nn.Module):
        def forward(self, batch):  # right where it counts
            return torch.where(batch.weights[:, None, :, None] == 1, batch.truth, batch.truth + 9)

    assert objective(data)(Wrong(), batch) < 1e-2
    scores = quick(data).scores
    assert scores["weighted"]
    assert not quick(tiny.data("mesh", values=a, targets=u)).scores["weighted"]
    half = tiny.data("mesh", values=a, targets=u[:, : u.shape[1] // 2], queries=X[: len(X) // 2])
    # The baselines do not know of weights, so theirs are those of the half that counts.
    for name, error in quick(half).scores["baselines"].items():
        assert scores["baselines"][name] == pytest.approx(error, rel=0.05), name


# ---- the same again


def test_the_same_seed_gives_the_same_model_and_another_another():
    data = tiny.data("uneven", 31)
    first, again, other = (quick(data, seed=seed) for seed in (0, 0, 1))
    assert same(first, again)
    assert first.scores == again.scores
    assert not same(first, other)


def test_random_numbers_and_threads_of_the_caller_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(fitting, "use_quickest", lambda work, repeats: torch.set_num_threads(2))
    state = torch.get_rng_state()
    quick(tiny.data("mesh"), epochs=None, minutes=0.001)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 1


def test_threads_are_only_tried_where_time_is_the_limit(monkeypatch):
    monkeypatch.setattr(fitting, "use_quickest", lambda work, repeats: pytest.fail("tried"))
    quick(tiny.data("mesh"))


def test_minutes_end_a_run():
    model = quick(tiny.data("mesh"), epochs=None, minutes=0.005)
    assert model.about["steps"] > 1
    assert model.about["seconds"] < 20


# ---- what is said


def test_sizes_and_scores_are_said_and_quiet_is_quiet(capsys):
    data = tiny.data("mesh", 31)
    quick(data)
    assert capsys.readouterr() == ("", "")
    model = quick(data, quiet=False)
    said = capsys.readouterr().err
    assert "31 samples, 12 points and 12 queries each" in said
    assert "8 inducing points, width 16" in said
    assert "training: 2 epochs on cpu" in said
    for name, error in (("ipot", model.scores["held_out"]), *model.scores["baselines"].items()):
        assert name in said
        assert percent(error) in said
    assert set(model.scores["baselines"]) == {"mean field", "nearest neighbour", "linear (PCA)"}


# ---- a folder


def test_a_fit_with_a_folder_is_saved_there(tmp_path):
    model = quick(tiny.data("mesh", 31), out=tmp_path / "deep" / "model")
    folder = tmp_path / "deep" / "model"
    assert {p.name for p in folder.iterdir()} == {
        *("model.safetensors", "config.json", "README.md", "bounds.safetensors", "samples.npz"),
        "training",
    }
    again = ipot.load(folder, device="cpu")
    assert same(model, again)
    a = tiny.waves(2, X)[0]
    np.testing.assert_array_equal(
        again.predict(points=X, values=a), model.predict(points=X, values=a)
    )


def test_a_folder_that_is_taken_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "open_data", lambda *a, **k: pytest.fail("data were read"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    (tmp_path / "file").write_text("")
    for out, message in (
        ("full", "is not empty. Choose another folder"),
        ("file", "is a file"),
        ("file/below", "cannot be written to"),
    ):
        with pytest.raises(RunError) as caught:
            quick(tiny.data("mesh"), out=tmp_path / out)
        assert message in str(caught.value)
        assert f"out={tmp_path / out}" in str(caught.value)
    with pytest.raises(RunError, match="cannot be written to"):
        quick(tiny.data("mesh"), out="/proc/ipot/model")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full"]


def test_a_folder_in_which_another_fits_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "open_data", lambda *a, **k: pytest.fail("data were read"))
    new, begun = tmp_path / "new", copied("fit_stopped", tmp_path / "begun")
    said = []

    def other():
        for how in ({"out": new}, {"resume": begun}, {"out": begun, "or_resume": True}):
            with pytest.raises(Busy) as caught:
                fitting.fit(tiny.data("mesh"), device="cpu", quiet=True, **how)
            said.append(str(caught.value))

    with locked(new / "training", "training"), locked(begun / "training", "training"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(said) == 3
    assert all("is in use by another thread of this process (training since" in s for s in said)


def test_a_fit_that_was_killed_as_it_began_is_begun_again(tmp_path):
    """Before its settings were whole: there is nothing to go on with, nor in the way."""
    training = tmp_path / "model" / "training"
    training.mkdir(parents=True)
    dead = f"{files.machine()}-{os.getpid()}-1"  # this number, of an earlier process
    (training / ".lock").write_text("{}")
    (training / f".config.json.{dead}-00000000.tmp").write_text('{"format')
    quick(tiny.data("mesh"), out=tmp_path / "model")
    assert not list(tmp_path.rglob(".*"))


def test_no_folder_is_left_where_the_data_are_refused(tmp_path):
    with pytest.raises(DataError):
        quick(tiny.data("mesh").select([0]), out=tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


# ---- a run that was stopped


STOPPED = {"epochs": 4, "training": {"save_seconds": 0.0, "batch": 4}, "quiet": True}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["mesh", "uneven"])
def test_stopped_by_a_signal_it_goes_on_as_if_it_had_not(
    tmp_path, monkeypatch, kind, number, plain_loss
):
    data = tiny.data(kind, 31)
    whole = quick(data, out=tmp_path / "whole", **STOPPED)
    with monkeypatch.context() as during:
        during.setattr(running, "objective_for", lambda settings, data: Kill(4, number))
        with pytest.raises(Interrupted) as caught:
            quick(data, out=tmp_path / "stopped", **STOPPED)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert str(caught.value) == (
        f"stopped; go on with ipot.fit(data, resume={str(tmp_path / 'stopped')!r})"
    )
    assert caught.value.signal == number
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    resumed = quick(data, resume=tmp_path / "stopped", **STOPPED)
    assert same(whole, resumed)
    assert whole.scores == resumed.scores
    assert_same_run(tmp_path / "stopped" / "training", tmp_path / "whole" / "training")
    assert same(ipot.load(tmp_path / "stopped", device="cpu"), whole)


@pytest.fixture
def plain_loss(monkeypatch):
    """That of the disturbances, which must be the same to the bit."""
    monkeypatch.setattr(running, "objective_for", lambda settings, data: RelativeL2())


class Trip(RelativeL2):
    """A loss that raises."""

    def __init__(self, step):
        self.left = step

    def __call__(self, network, batch):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the disk is gone")
        return super().__call__(network, batch)


@pytest.mark.parametrize("save_seconds", [0.0, 1e9])
def test_stopped_by_an_error_it_goes_on_too(tmp_path, monkeypatch, plain_loss, save_seconds):
    """From the last checkpoint, or from the start where there is none."""
    settings = STOPPED | {"training": {"save_seconds": save_seconds, "batch": 4}}
    data = tiny.data("mesh")
    whole = quick(data, out=tmp_path / "whole", **settings)
    with monkeypatch.context() as during:
        during.setattr(running, "objective_for", lambda settings, data: Trip(4))
        with pytest.raises(RuntimeError, match="the disk is gone"):
            quick(data, out=tmp_path / "stopped", **settings)
    with pytest.raises(RunError, match="go on with a run that was stopped there by resume="):
        quick(data, out=tmp_path / "stopped", **settings)
    # Once, without the settings: they are those of the run.
    assert same(whole, quick(data, epochs=None, model=None, resume=tmp_path / "stopped"))


def killed(path, data):
    running.objective_for = lambda settings, data: Kill(4, signal.SIGKILL)
    torch.set_num_threads(1)
    quick(data, out=path, **STOPPED)


def test_killed_it_goes_on_too(tmp_path, plain_loss):
    data = tiny.data("mesh")
    whole = quick(data, out=tmp_path / "whole", **STOPPED)
    process = multiprocessing.get_context("fork").Process(
        target=killed, args=(tmp_path / "killed", data)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert same(whole, quick(data, resume=tmp_path / "killed", **STOPPED))


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(tmp_path):
    data = tiny.data("mesh", 31)
    first = quick(data, out=tmp_path / "model", seed=3)
    for settings in ({"epochs": None, "model": None}, {"out": tmp_path / "model", "seed": 3}):
        again = quick(data, resume=tmp_path / "model", **settings)
        assert same(first, again)
        assert first.scores == again.scores  # on the same samples, drawn by the same seed


def test_a_fit_that_was_stopped_is_loaded_like_any_run(tmp_path, monkeypatch):
    data = tiny.data("mesh", 31)
    with monkeypatch.context() as during:
        during.setattr(running, "objective_for", lambda settings, data: Kill(5, signal.SIGINT))
        with pytest.raises(Interrupted):
            quick(data, out=tmp_path / "model", **STOPPED)
    for path in (tmp_path / "model", tmp_path / "model" / "training"):
        model = ipot.load(path, device="cpu")
        assert model.predict(points=X, values=tiny.waves(2, X)[0]).shape == (2, len(X))
        assert model.about["samples"] == {"train": 11, "validation": 10, "held out": 10}
        assert model.problem is None
    # A picture beside the run is in nobody's way when the model is saved around it.
    assert main(["plot", str(tmp_path / "model"), "--kind", "loss", "--device", "cpu"]) == 0
    assert (tmp_path / "model" / "training" / "loss.png").exists()
    quick(data, resume=tmp_path / "model", **STOPPED)
    assert is_saved(tmp_path / "model")


def test_a_run_is_started_or_goes_on(tmp_path):
    data = tiny.data("mesh")
    first = quick(data, out=tmp_path / "model", or_resume=True)
    again = quick(data, out=tmp_path / "model", or_resume=True)
    assert same(first, again)
    with pytest.raises(RunError, match=r"training\.epochs is another"):
        quick(data, out=tmp_path / "model", or_resume=True, epochs=3)


def test_a_fit_starts_from_the_weights_of_another(tmp_path):
    data = tiny.data("mesh")
    first = quick(data, out=tmp_path / "one")
    later = {"training": {"learning_rate": 1e-12}, "model": None, "epochs": 1}
    second = quick(data, out=tmp_path / "two", start_from=tmp_path / "one", seed=1, **later)
    assert second.config == first.config  # though it is not what would be chosen for these data
    for name, tensor in weights(first).items():
        torch.testing.assert_close(weights(second)[name], tensor)
    with pytest.raises(RunError, match=r"start_from is another"):
        quick(data, resume=tmp_path / "two", start_from=tmp_path / "two", **later)
    with pytest.raises(RunError, match=r"cannot start from that \(other .*outputs"):
        quick(tiny.data("channels"), start_from=tmp_path / "one", model=None)


def test_a_start_in_other_units_is_refused(tmp_path):
    def units(a, u):
        named = {"inputs": "a", "outputs": "u", "units": {"a": a, "u": u}}
        return tiny.Dataset.from_arrays(**tiny.arrays("mesh"), **named)

    one = tmp_path / "one"
    quick(units("K", "m s-1"), out=one)
    with pytest.raises(
        RunError, match=r"it learned a in K, and here it is in degC\. Give the data"
    ):
        quick(units("degC", "m s-1"), start_from=one)
    with pytest.raises(RunError, match="it learned u in m s-1, and here it is in km/h"):
        quick(units("K", "km/h"), start_from=one)
    with pytest.raises(DataError, match=r"u is in Pa, and in .*one.* in m s-1"):
        quick(units("K", "Pa"), start_from=one)
    quick(units("kelvin", ""), start_from=one, epochs=1)


def test_without_a_folder_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(running, "objective_for", lambda settings, data: Kill(1, signal.SIGINT))
    with pytest.raises(Interrupted, match=r"nothing is kept, since no out=\.\.\. was given"):
        quick(tiny.data("mesh"))


def test_what_cannot_be_gone_on_with(tmp_path, monkeypatch):
    data, folder = tiny.data("all"), tmp_path / "model"
    quick(data, out=folder)
    given = tiny.arrays("all")
    for name in ("values", "targets", "parameters"):
        changed = given[name].copy()
        changed[7] += 1e-3  # one that is not among those that are looked at closely
        other = Dataset.from_arrays(**given | {name: changed})
        with pytest.raises(RunError, match="was trained on other data than these"):
            quick(other, resume=folder)
    for other in (data.select(range(9)), Dataset.from_arrays(**given, periods={0: 1.0})):
        with pytest.raises(RunError, match="was trained on other data than these"):
            quick(other, resume=folder)
    monkeypatch.setattr(fitting, "open_data", lambda *a, **k: pytest.fail("data were read"))
    for changes, message in (
        ({"epochs": 3}, "epochs is another than the run was started with"),
        ({"minutes": 3.0, "epochs": None}, "minutes is another"),
        ({"seed": 5}, "seed is another"),
        ({"preset": "paper"}, "preset is another"),
        ({"model": {"width": 32}}, r"model\.width is another"),
        ({"training": {"batch": 3}}, r"training\.batch is another"),
    ):
        with pytest.raises(RunError, match=message):
            quick(data, resume=folder, **changes)
    with pytest.raises(RunError, match=r"there is no run to go on with. Start one by out="):
        quick(data, resume=tmp_path / "nowhere")
    with pytest.raises(RunError, match="are two folders: give one"):
        quick(data, resume=folder, out=tmp_path / "other")
    config = folder / "training" / "config.json"
    shutil.copy(Path(__file__).parents[1] / "saved" / "old" / "run" / "config.json", config)
    with pytest.raises(RunError, match=r"is not a run of `ipot\.fit`"):
        quick(data, resume=folder)


def test_a_run_far_from_the_origin_of_before_origins_were_told_apart_goes_on(tmp_path):
    far, elsewhere = tiny.arrays("far away"), tiny.arrays("far away")
    elsewhere["points"] = elsewhere["points"] + 1e6
    data, other = Dataset.from_arrays(**far), Dataset.from_arrays(**elsewhere)
    assert data.layout.origin
    assert fingerprint(data) != fingerprint(other)
    quick(data, out=tmp_path / "model")
    for path in (tmp_path / "model").glob("*.*"):
        path.unlink()  # as if it had been stopped before its end
    file = tmp_path / "model" / "training" / "config.json"
    content = json.loads(file.read_text())
    with pytest.raises(RunError, match="data"):
        quick(other, resume=tmp_path / "model")
    content["problem"]["fingerprint"] = fingerprint(data, origins=False)
    file.write_text(json.dumps(content))
    quick(data, resume=tmp_path / "model")


def test_every_number_counts_in_a_fingerprint():
    """The sums of all, and the order of those in samples that are looked at closely."""
    given = tiny.arrays("all", 40)
    first = fingerprint(Dataset.from_arrays(**given))
    for name in ("values", "targets", "parameters"):
        changed, turned = given[name].copy(), given[name].copy()
        changed[7, 0] += 1e-3
        turned[8] = turned[8, ::-1]
        for array in (changed, turned):
            assert fingerprint(Dataset.from_arrays(**given | {name: array})) != first


def test_fingerprints_tell_data_sets_apart():
    kinds = [fingerprint(tiny.data(kind)) for kind in KINDS]
    assert len(set(kinds)) == len(KINDS)
    assert kinds == [fingerprint(tiny.data(kind)) for kind in KINDS]


# ---- settings


@pytest.mark.parametrize("kind", ["line", "channels", "space", "globe", "parameters"])
def test_the_sizes_of_the_paper(kind):
    sizes = {"latents": 8, "width": 16, "cross_head_width": 8, "blocks": 1}
    model = quick(tiny.data(kind), epochs=1, preset="paper", model=sizes)
    assert model.config.tied
    assert np.isfinite(model.scores["validation"])


@pytest.mark.plain
def test_settings_that_cannot_be_are_refused_before_data_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "open_data", lambda *a, **k: pytest.fail("data were read"))
    for changes, message in (
        ({"preset": "best"}, "unknown preset 'best'. Known: default, paper"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"epochs": 2.5}, "epochs must be a whole number"),
        ({"minutes": 0}, "minutes must be a positive number, got 0"),
        ({"minutes": float("nan")}, "minutes must be a positive number, got nan"),
        ({"minutes": "5"}, "minutes must be a positive number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"model": {"widht": 3}}, "model: no such setting as 'widht'. Known: width, blocks"),
        ({"training": {"lr": 3}}, "training: no such setting as 'lr'. Known: epochs"),
    ):
        with pytest.raises(Unsupported) as caught:
            quick(tiny.data("mesh"), out=tmp_path / "model", **changes)
        assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.plain
def test_settings_that_do_not_fit_are_refused_by_name(tmp_path):
    for changes, message in (
        ({"model": {"width": 15, "heads": 2}}, "model.width must be a multiple of model.heads"),
        ({"model": {"width": "wide"}}, "model.width must be a whole number, got 'wide'"),
        ({"training": {"batch": 0}}, "training.batch must be positive, got 0"),
        ({"training": {"schedule": "none"}}, "training.schedule must be 'cosine' or 'step'"),
    ):
        with pytest.raises(Unsupported) as caught:
            quick(tiny.data("mesh"), out=tmp_path / "model", **changes)
        assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(Unsupported, match="torch sees no GPU here"):
        quick(tiny.data("mesh"), device="cuda")


# ---- it learns


@pytest.mark.slow
def test_it_beats_the_linear_model_where_the_operator_is_not_linear():
    """The square of a field is not in the span of anything linear."""
    line = np.linspace(0, 1, 16, endpoint=False)
    c = tiny.random(3).standard_normal((160, 2))
    a = c @ np.stack([np.cos(2 * np.pi * line), np.sin(2 * np.pi * line)])
    data = Dataset.from_arrays(points=line, values=a, targets=a**2, periods={0: 1.0})
    scores = quick(data, epochs=60, model={"width": 32, "blocks": 1, "latents": 16}).scores
    assert scores["held_out"] < 2 / 3 * min(scores["baselines"].values())
    assert scores["held_out"] < 0.2 * scores["baselines"]["linear (PCA)"]
