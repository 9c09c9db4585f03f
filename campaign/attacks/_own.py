"""Operations on data of somebody's own: fitting, saving, answering in every format."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import torch

import ipot
from campaign import libraries
from campaign.attack import Lost
from campaign.attacks._contents import Content, digest, digest_file, run_content, unclocked
from campaign.attacks._operations import HERE, TINY, Operation
from ipot import cli
from ipot.data.own import Dataset
from ipot.errors import RunError
from ipot.formats.numpy_files import write_mapped
from ipot.own.fit import fit
from ipot.run_folder import Run
from ipot.saved.folder import is_saved
from ipot.surrogate.files import answer_files
from ipot.training import checkpoint, journal


def waves(count: int) -> dict[str, np.ndarray]:
    """Data of somebody's own."""
    random = np.random.default_rng(3)
    points, phases = random.random((12, 2)), random.random((count, 1))
    along = 6 * points.sum(-1)[None]
    return {"points": points, "values": np.cos(along + phases), "targets": np.sin(along - phases)}


@cache
def own_data(count: int) -> Dataset:
    """Waves as a data set, made once in a process."""
    return Dataset.from_arrays(**waves(count))


def model_content(path: Path) -> Content:
    """A saved model, in terms that can be compared."""
    model = ipot.load(path, device="cpu")
    bounds = {} if model.bounds is None else model.bounds.state()
    tensors = {k: v for k, v in bounds.items() if isinstance(v, torch.Tensor)}
    told = json.loads((path / "config.json").read_text())
    return {
        "weights": digest(model.model.state_dict()),
        "bounds": digest(tensors),
        "config": unclocked(told),
    }


class Fit(Operation):
    """`ipot.fit(out=...)`, then `ipot.fit(resume=...)`."""

    name = "fit"
    count = 31

    def act(self, folder: Path, shared: Path) -> None:
        out, data = folder / "model", own_data(self.count)
        # What is there does not tell which it must be: a save that was killed may have the run
        # elsewhere for a moment, and only resume= looks for it there.
        if out.exists():
            try:
                fit(data, resume=out, **HERE)
                return
            except RunError as error:
                if "there is no run to go on with" not in str(error):
                    raise
        training = {"save_seconds": 0.0, "batch": 8}
        fit(data, out=out, epochs=2, model=TINY, training=training, **HERE)

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        out = folder / "model"
        look_at_fit(out / "training", None if reference is None else reference["run"])
        if is_saved(out):
            found = model_content(out)
            if reference is not None and found != reference["model"]:
                raise Lost("the saved model is another than that of an undisturbed fit")

    def content(self, folder: Path) -> Content:
        out = folder / "model"
        return {"model": model_content(out), "run": run_content(out / "training")}


def look_at_fit(path: Path, reference: Content | None) -> None:
    """The run inside a fit, which may have been stopped before there were weights."""
    run = Run(path)
    if not run.config_file.exists():
        return
    run.config()
    for file in (run.last, run.best):
        if file.exists():
            checkpoint.load(file)
    rows = unclocked(journal.read(run.metrics))
    if reference is not None and any(row not in reference["rows"] for row in rows):
        raise Lost(f"metrics.jsonl has rows that no undisturbed run has: {rows}")


class Save(Operation):
    """`model.save(..., overwrite=True)` over another model, whose run lies in the folder."""

    name = "save"

    def prepare(self, shared: Path) -> None:
        for name, seed in (("old", 1), ("new", 2)):
            model = fit(own_data(12), epochs=1, model=TINY, seed=seed, **HERE)
            model.save(shared / name)

    def start(self, folder: Path, shared: Path) -> None:
        shutil.copytree(shared / "old", folder / "model")
        (folder / "model" / "training").mkdir()
        (folder / "model" / "training" / "kept.txt").write_text("the run\n")

    def act(self, folder: Path, shared: Path) -> None:
        ipot.load(shared / "new", device="cpu").save(folder / "model", overwrite=True)

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        found = model_content(folder / "model")
        if found not in [model_content(shared / name) for name in ("old", "new")]:
            raise Lost("the folder holds neither the old model nor the new one")

    def content(self, folder: Path) -> Content:
        kept = digest_file(folder / "model" / "training" / "kept.txt")
        return model_content(folder / "model") | {"kept": kept}


class Predict(Operation):
    """`ipot predict --out`, over an older answer."""

    def __init__(self, kind: str, *needs: str) -> None:
        self.kind, self.needs = kind, needs
        self.name = f"predict {kind}"

    case = "case.npz"

    def prepare(self, shared: Path) -> None:
        fit(own_data(12), epochs=1, model=TINY, **HERE).save(shared / "model")
        given = waves(1)
        np.savez(shared / self.case, points=given["points"], values=given["values"])
        self._before(shared)

    def _before(self, shared: Path) -> None:
        (shared / "old").write_bytes(b"an older answer\n" * 40)

    def start(self, folder: Path, shared: Path) -> None:
        folder.mkdir(exist_ok=True)
        shutil.copy(shared / "old", self._output(folder))

    def act(self, folder: Path, shared: Path) -> int | None:
        output = self._output(folder)
        if self.kind == "npy":
            write_mapped(output, (3, 4000), _count)
        elif libraries.missing(["tyro"]) is None:
            case = [str(shared / self.case), "--out", str(output)]
            more = ["--overwrite", "--device", "cpu"]
            return cli.main(["predict", str(shared / "model"), *case, *more])
        else:
            model = ipot.load(shared / "model", device="cpu")
            answer_files(model, shared / self.case, output)
        return None

    def look(self, folder: Path, shared: Path, reference: Content | None) -> None:
        found = digest_file(self._output(folder))
        new = None if reference is None else reference["answer"]
        if found not in (digest_file(shared / "old"), new):
            raise Lost(f"the answer is neither the old one nor the new one, but {found}")

    def content(self, folder: Path) -> Content:
        return {"answer": digest_file(self._output(folder))}

    def _output(self, folder: Path) -> Path:
        return folder / f"answer.{self.kind}"


class Forecast(Predict):
    """Predictions of a model of labelled data, which answers in netCDF."""

    case = "case.nc"

    def __init__(self) -> None:
        super().__init__("nc", "xarray", "netCDF4")

    def prepare(self, shared: Path) -> None:
        import xarray

        times = np.arange("2020-01-01", "2020-01-13", dtype="datetime64[D]")
        phases = np.arange(12)[:, None, None] + np.arange(3)[:, None] + np.arange(4)
        places = {"time": times, "latitude": [10.0, 0, -10], "longitude": [0.0, 10, 20, 30]}
        values = np.sin(phases).astype(np.float32)
        data = xarray.Dataset({"t": (tuple(places), values)}, coords=places)
        fit(data, targets="t", epochs=1, model=TINY, **HERE).save(shared / "model")
        data.isel(time=slice(-3, None)).to_netcdf(shared / self.case, engine="netcdf4")
        self._before(shared)


def _count(array: np.ndarray) -> np.ndarray:
    array[:] = np.arange(array.size, dtype=np.float32).reshape(array.shape)
    return array
