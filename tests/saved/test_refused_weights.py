"""Weights and bounds that are not those of the model are refused by name, and never unpickled."""

import pytest
import torch
from safetensors.torch import save_file

from ipot.errors import RunError
from ipot.saved.folder import read_folder, read_saved, write_folder
from saved.folders import SPEC, rewrite, saved
from saved.small import model


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_weights_cut_short_are_refused(place, keep):
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(RunError, match=r"model\.safetensors is damaged or cut short"):
        read_folder(place)


def test_a_pickle_in_place_of_weights_is_refused(place):
    torch.save({"weight": torch.zeros(1)}, place / "model.safetensors")
    with pytest.raises(RunError, match="damaged"):
        read_folder(place)


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, refuse)
    read_folder(write_folder(tmp_path / "m", model(SPEC), saved()))


def test_weights_that_are_not_there(place):
    (place / "model.safetensors").unlink()
    with pytest.raises(RunError, match="is not there: the folder is not whole"):
        read_folder(place)


NAME = "inner.decoder.head.1.bias"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop(NAME), f"missing: {NAME}"),
        (lambda t: t.update(surplus=torch.zeros(1)), "unknown: surplus"),
        (lambda t: t.update({NAME: torch.zeros(3)}), f"other shape or type: {NAME}"),
        (lambda t: t.update({NAME: t[NAME].double()}), f"other shape or type: {NAME}"),
        (lambda t: t[NAME].fill_(float("nan")), f"{NAME} holds 2 values that are not finite"),
        (lambda t: t[NAME].fill_(float("inf")), f"{NAME} holds 2 values that are not finite"),
    ],
)
def test_other_weights_are_refused_by_name(place, edit, message):
    rewrite(place, edit)
    with pytest.raises(RunError, match=message):
        read_folder(place)


def test_bounds_with_nan_are_refused(place):
    save_file({"scores": torch.tensor([float("nan")])}, place / "bounds.safetensors")
    with pytest.raises(RunError, match=r"bounds\.safetensors: scores"):
        read_saved(place)
