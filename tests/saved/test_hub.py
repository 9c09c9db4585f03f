"""To a hub and back, with a hub that is only a folder."""

import inspect
import logging
import shutil
import sys
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest
import torch

import ipot
from ipot.errors import RunError, Unsupported
from ipot.saved.folder import Saved, read_folder, write_folder
from ipot.saved.hub import fetch_from_hub, push_to_hub
from saved.small import config, facts, model


@pytest.fixture
def place(tmp_path):
    saved = Saved(model_name="ipot", model=config(), spec=facts())
    return write_folder(tmp_path / "model", model(facts()), saved)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Keeps the files that are let through, and notes what it was asked."""
    store, asked = tmp_path / "hub", []

    def copy(source, target, patterns):
        target.mkdir(parents=True, exist_ok=True)
        for file in source.iterdir():
            if any(fnmatch(file.name, p) for p in patterns):
                shutil.copy(file, target)

    def create_repo(repo_id, *, private, exist_ok, token):
        asked.append(("create", repo_id, private, exist_ok, token))
        return f"https://hub/{repo_id}"

    def upload_folder(*, repo_id, folder_path, allow_patterns, revision, commit_message, token):
        asked.append(("upload", repo_id, revision, commit_message, token))
        copy(type(store)(folder_path), store / repo_id, allow_patterns)

    def snapshot_download(repo_id, *, revision, allow_patterns, token):
        asked.append(("download", repo_id, revision, token))
        if not (store / repo_id).exists():
            raise OSError("404 not found\n\nmuch advice")
        copy(store / repo_id, tmp_path / "cache", allow_patterns)
        return str(tmp_path / "cache")

    fake = SimpleNamespace(
        create_repo=create_repo, upload_folder=upload_folder, snapshot_download=snapshot_download
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return SimpleNamespace(store=store, asked=asked)


def test_up_and_down_again(place, hub):
    (place / "training").mkdir()
    (place / "secrets.env").write_text("mine")
    address = push_to_hub(place, "me/model", private=True, revision="v1", token="t")
    assert address == "https://hub/me/model"
    assert hub.asked[0] == ("create", "me/model", True, True, "t")
    assert hub.asked[1][:3] == ("upload", "me/model", "v1")
    sent = hub.store / "me/model"
    assert sorted(p.name for p in sent.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    for name in ("run.py", "weights.bin", "other.safetensors"):
        (sent / name).write_text("not asked for")
    fetched = fetch_from_hub("me/model", "v1")
    assert hub.asked[2] == ("download", "me/model", "v1", None)
    assert {p.name for p in fetched.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    weights = read_folder(fetched)[0].state_dict()
    assert all(torch.equal(weights[n], t) for n, t in model(facts()).state_dict().items())


def test_errors_of_the_hub_are_told_in_a_line(hub):
    with pytest.raises(RunError, match=r"cannot download me/none: 404 not found\. Check") as error:
        fetch_from_hub("me/none")
    assert "advice" not in str(error.value)


def test_other_models_are_refused(tmp_path, hub):
    (hub.store / "me/bert").mkdir(parents=True)
    (hub.store / "me/bert" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RunError, match="me/bert is not a model saved by ipot"):
        fetch_from_hub("me/bert")
    with pytest.raises(RunError, match="is not a saved model"):
        push_to_hub(tmp_path, "me/nothing")
    assert [asked[0] for asked in hub.asked] == ["download"]


def test_a_hub_that_is_not_installed(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(Unsupported, match=r"pip install 'ipot\[hub\]'"):
        push_to_hub(place, "me/model")
    with pytest.raises(Unsupported, match=r"pip install 'ipot\[hub\]'"):
        fetch_from_hub("me/model")


def test_the_real_one_takes_what_is_given():
    hub = pytest.importorskip("huggingface_hub")
    for function, names in (
        (hub.create_repo, ("private", "exist_ok", "token")),
        (hub.upload_folder, ("repo_id", "folder_path", "allow_patterns", "commit_message")),
        (hub.snapshot_download, ("revision", "allow_patterns", "token")),
    ):
        assert set(names) <= set(inspect.signature(function).parameters)


# ---- which commit it was

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("revision", [None, "v1", COMMIT])
def test_the_commit_is_kept_and_told_unless_it_is_pinned(
    place, tmp_path, monkeypatch, caplog, revision
):
    cache = shutil.copytree(place, tmp_path / "snapshots" / COMMIT)
    fake = SimpleNamespace(snapshot_download=lambda repo_id, **options: str(cache))
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    with caplog.at_level(logging.WARNING, logger="ipot"):
        loaded = ipot.from_pretrained("me/model", revision=revision, device="cpu")
    assert loaded.about["revision"] == COMMIT
    assert loaded.about["repository"] == "me/model"
    told = [record.getMessage() for record in caplog.records]
    if revision == COMMIT:
        assert told == []
    else:
        taken = "the main branch" if revision is None else "revision v1"
        assert told == [
            f"me/model: took {taken}, which is commit {COMMIT} now; pin it with revision={COMMIT!r}"
        ]


def test_code_is_never_fetched_nor_run():
    assert "trusted" not in inspect.signature(ipot.from_pretrained).parameters


def test_samples_go_up_only_when_they_are_asked_for(tmp_path, hub):
    saved = Saved(model_name="ipot", model=config(), spec=facts(), samples=b"rows of the data")
    place = write_folder(tmp_path / "with", model(facts()), saved)
    push_to_hub(place, "me/mine")
    assert not (hub.store / "me/mine" / "samples.npz").exists()
    push_to_hub(place, "me/open", samples=True)
    assert (fetch_from_hub("me/open") / "samples.npz").read_bytes() == b"rows of the data"
