"""Weights on disk are whole or absent, and what does not fit is named."""

import json
import resource

import pytest
import torch

from ipot.errors import RunError
from ipot.run_folder import Run
from ipot.training import checkpoint
from training.toys import EVERYTHING, fit, model


def test_round_trip_of_every_kind_of_tensor(tmp_path):
    tensors = {
        "matrix": torch.randn(3, 4).T,
        "double": torch.randn(2, dtype=torch.float64),
        "scalar": torch.tensor(3.0),
        "whole": torch.tensor([1, 2]),
        "half": torch.randn(2).bfloat16(),
    }
    state = {"step": 3, "best": float("inf"), "loss": 0.1 + 0.2}
    checkpoint.save(tmp_path / "a.safetensors", tensors, state)
    loaded, again = checkpoint.load(tmp_path / "a.safetensors")
    assert again == state
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_parameters_that_share_memory_can_be_saved(tmp_path):
    shared = torch.randn(3)
    checkpoint.save(tmp_path / "a.safetensors", {"a": shared, "b": shared}, {})
    assert torch.equal(checkpoint.load(tmp_path / "a.safetensors")[0]["b"], shared)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_file_cut_short_is_refused_with_advice(tmp_path, keep):
    fit(tmp_path)
    last = Run(tmp_path).last
    last.write_bytes(last.read_bytes()[:keep])
    with pytest.raises(RunError, match=r"cut short.*best\.safetensors") as error:
        fit(tmp_path)
    assert str(last) in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RunError, match="has not been saved yet"):
        checkpoint.load(tmp_path / "best.safetensors")


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    fit(tmp_path)
    last = Run(tmp_path).last
    tensors, state = checkpoint.load(last)
    checkpoint.save(last, tensors, state | {"momentum": 1})
    with pytest.raises(RunError, match=r"another version.*momentum"):
        fit(tmp_path)


def test_weights_that_do_not_fit_are_named(tmp_path):
    weights = model().state_dict()
    name, other = list(weights)[-2:]
    wrong = dict(weights) | {name: torch.zeros(99), "surplus": torch.zeros(1)}
    del wrong[other]
    network = model()
    with pytest.raises(RunError) as error:
        checkpoint.load_weights(network, wrong, tmp_path)
    for part in (f"missing: {other}", "unknown: surplus", f"other shape: {name}", str(tmp_path)):
        assert part in str(error.value)
    assert all(torch.equal(network.state_dict()[n], weights[n]) for n in weights)


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    monkeypatch.setattr(torch, "save", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    fit(tmp_path, **EVERYTHING | {"epochs": 1})
    fit(tmp_path, **EVERYTHING)
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".jsonl", ".json"}
    for path in tmp_path.glob("*.safetensors"):
        length = int.from_bytes(path.read_bytes()[:8], "little")
        json.loads(path.read_bytes()[8 : 8 + length])


@pytest.fixture
def small_disk():
    """Files may not grow beyond 4 kB: what a full disk does to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_the_old_file(tmp_path, request):
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, {"a": torch.ones(4)}, {"step": 1})
    request.getfixturevalue("small_disk")
    with pytest.raises(RunError, match=r"cannot write .*last.*--resume"):
        checkpoint.save(path, {"a": torch.ones(100_000)}, {"step": 2})
    tensors, state = checkpoint.load(path)
    assert state == {"step": 1}
    assert torch.equal(tensors["a"], torch.ones(4))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_optimiser_goes_there_and_back(tmp_path):
    def start():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        return network, torch.optim.AdamW(network.parameters(), lr=0.1, weight_decay=0.3)

    def steps(network, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            network(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()

    whole, optimizer = start()
    steps(whole, optimizer, 8)
    halved, optimizer = start()
    steps(halved, optimizer, 4)
    path = tmp_path / "o.safetensors"
    checkpoint.save(path, checkpoint.optimizer_tensors(optimizer), {})
    _, fresh = start()
    fresh.param_groups[0]["params"] = list(halved.parameters())
    checkpoint.load_optimizer(fresh, checkpoint.load(path)[0])
    steps(halved, fresh, 4)
    for a, b in zip(whole.parameters(), halved.parameters(), strict=True):
        assert torch.equal(a, b)


def test_prefixes_keep_sets_apart():
    tensors = checkpoint.with_prefix("model", {"a/b": torch.ones(1)})
    tensors |= checkpoint.with_prefix("modeling", {"c": torch.ones(1)})
    assert list(checkpoint.of_prefix("model", tensors)) == ["a/b"]
