"""Answers to files of one's own: any single file that `ipot predict` reads, through the same
guarded readers, in a private folder that is removed."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipot.errors import shown
from ipot.memory import at_most
from ipot.serve.limits import Limits
from ipot.serve.refused import as_refused, too_large, wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ipot.samples import Sample
    from ipot.surrogate.surrogate import Surrogate

NAME = re.compile(r"\w[\w. -]{0,99}", re.ASCII)
SINGLE = {
    ".npz": ".npz",
    ".csv": ".csv",
    ".tsv": ".tsv",
    ".txt": ".csv",
    ".dat": ".csv",
    ".parquet": ".parquet",
    ".pq": ".parquet",
    **dict.fromkeys((".h5", ".hdf5"), ".h5"),
    **dict.fromkeys((".vtu", ".vtk", ".vts", ".vti", ".vtr"), ".vtu"),
    **dict.fromkeys((".vtp", ".stl", ".ply", ".obj"), ".vtp"),
    **dict.fromkeys((".nc", ".nc4", ".cdf", ".grib", ".grib2", ".grb", ".grb2"), ".nc"),
}
"""Files that are whole by themselves, and what is answered to each. Others name more files, which
nobody has sent: .vtm, .pvtu, .foam, .case, folders."""
SEVERAL = ".h5"
"""What holds the answers to several cases, where no format was asked for."""
WRITTEN = sorted(set(SINGLE.values()))


@dataclass(frozen=True)
class Upload:
    """A file and what is asked of it."""

    name: str
    body: bytes
    interval: float | None = None
    steps: int | None = None
    grid: int | None = None
    format: str | None = None

    @property
    def suffix(self) -> str:
        """What the answer's name ends in, if it is one case."""
        return self.format or SINGLE[Path(self.name).suffix.lower()]

    @property
    def answer_name(self) -> str:
        """What the answer is called, if it is one case."""
        return f"{Path(self.name).stem}_answer{self.suffix}"


@dataclass(frozen=True)
class Answer:
    """A file that is sent back."""

    name: str
    body: bytes


def upload_of(name: str | None, options: dict[str, str], body: bytes) -> Upload:
    """The upload of a request, refused where its name or its options will not do."""
    if name is None:
        raise wrong("the file has no name: ask with ?name=case.vtu, which says what kind it is")
    if NAME.fullmatch(name) is None or ".." in name:
        raise wrong(
            f"{shown(name)} is no name of a file: letters, digits, dots, dashes and blanks, at "
            "most 100"
        )
    if (suffix := Path(name).suffix.lower()) not in SINGLE:
        raise wrong(
            f"{shown(suffix or name)} is no kind of file that can be sent alone. Known are "
            f"{', '.join(SINGLE)}; folders and files that name others are for ipot predict."
        )
    if unknown := sorted(set(options) - {"interval", "steps", "grid", "format"}):
        raise wrong(f"unknown {shown(unknown[0])}; known are name, interval, steps, grid, format")
    chosen = options.get("format")
    if chosen is not None:
        chosen = f".{chosen.removeprefix('.')}"
        if chosen not in WRITTEN:
            raise wrong(f"format must be one of {', '.join(WRITTEN)}, got {shown(chosen)}")
    return Upload(
        name,
        body,
        _number(options, "interval", float),
        _number(options, "steps", int),
        _number(options, "grid", int),
        chosen,
    )


def _number(options: dict[str, str], name: str, kind: Any) -> Any:
    if name not in options:
        return None
    try:
        return kind(options[name])
    except ValueError as error:
        raise wrong(f"{name} must be a number, got {shown(options[name])}") from error


def answer_upload(model: Surrogate, upload: Upload, limits: Limits) -> Answer:
    """The file of the answers: of the kind of the question, but .h5 where that holds one case and
    the question has several."""
    from ipot.surrogate.files import ManyCases, answer_files

    if upload.grid is not None:
        limits.refuse_rows("queries", max(upload.grid, 0) ** model.spec.query_dimension)
    if upload.steps is not None:
        limits.refuse_steps(upload.steps)
    with tempfile.TemporaryDirectory(prefix="ipot-serve-") as place:
        folder = Path(place)  # nobody else may look into it
        source, output = folder / upload.name, folder / "answer" / upload.answer_name
        source.write_bytes(upload.body)
        asked = {"interval": upload.interval, "steps": upload.steps, "grid": upload.grid}
        try:
            with at_most(limits.unpacked):
                try:
                    answer_files(within(model, limits), source, output, **asked)
                except ManyCases as many:  # before any of them is answered
                    if upload.format is not None:
                        raise wrong(
                            f"{upload.name} holds {many.count} cases, and one file that ends in "
                            f"{upload.format} holds one: ask with format=h5 or format=csv, or "
                            "send a file of one case"
                        ) from many
                    output = output.with_suffix(SEVERAL)
                    answer_files(within(model, limits), source, output, **asked)
        except Exception as error:
            refused = as_refused(error, (output.parent, folder, Path(tempfile.gettempdir())))
            raise refused from None
        if output.is_dir() or not output.is_file():
            raise wrong("the file holds several cases: ask with format=h5 or format=csv")
        if output.stat().st_size > limits.held // 4:
            raise too_large("the answer is too large to be sent: ask for fewer points or cases")
        return Answer(output.name, output.read_bytes())


def within(model: Surrogate, limits: Limits) -> Surrogate:
    """The model, which refuses questions beyond the limits wherever they come from."""
    from ipot.surrogate.surrogate import Surrogate

    class Within(Surrogate):
        """A model with limits."""

        def answers(self, samples: Sequence[Sample], **how: Any) -> list[Tensor]:
            limits.refuse_samples(samples, self.spec)
            return super().answers(samples, **how)

    known: dict[str, Any] = {"scores": model.scores, "about": model.about, "bounds": model.bounds}
    known |= {"series": model.series, "settings": model.settings}
    return Within(model.model, model.config, model.spec, model.layout, **known)
