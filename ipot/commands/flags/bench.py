"""The flags of `ipot bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from ipot.commands.flags import Preset
from ipot.errors import DataError

ABOUT = """
usage: ipot bench {train,infer,scale,generate,serve} [...]    (ipot bench train --help tells more)

How fast it is on this machine, beside the plain version of the same mathematics.

  train     training steps on random data in the shape of a problem
  infer     an answer for up to 1e9 points
  scale     the same from few points to many, as a table and a plot
  generate  samples a second of the generators of data
  serve     answers of `ipot serve`, to one client and to many at once
"""

Problems = Annotated[tuple[str, ...], tyro.conf.Positional]


@dataclass(kw_only=True)
class Common:
    """Flags that all of them have."""

    device: str = "auto"
    """auto, cpu or cuda."""
    seconds: float = 10.0
    """Time for one measurement, behind its warm-up."""
    small: bool = False
    """Sizes for a first look: a small problem and small systems."""
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the result as JSON: all numbers, with the machine, versions and commit."""
    out: Annotated[tyro.conf.UseAppendAction[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = ()
    """Where the result goes: a file, as JSON; of `scale` also a picture, .png, .pdf or .svg."""
    overwrite: bool = False
    """Write over what is there already."""


@dataclass(kw_only=True)
class Train(Common):
    """Time training steps on random data in the shape of a problem, ours and the plain version.

        ipot bench train darcy airfoil
        ipot bench train all --out train.json
        ipot bench train darcy --batch 4 --device cpu
        ipot bench train airfoil --ragged 0.5

    Ours is the trainer's own step, with all that it chooses by itself. The plain version has the
    same weights and batches: float32, eager, softmax(QK)V written out, features for every sample.
    `all` are the eight problems of the paper. Nothing is solved and nothing is kept.
    """

    usual: ClassVar = (
        *("problems", "preset", "batch", "precision", "step", "ragged", "device", "seconds"),
        *("small", "json", "out"),
    )

    problems: Problems
    """Problems, or all."""
    preset: Preset = "paper"
    """Whose settings: paper, the published ones; default, our own."""
    batch: int | None = None
    """Samples at a time; the preset's by default."""
    precision: Literal["auto", "float32", "bf16", "float64"] = "auto"
    """Arithmetic; of ours: the plain version is float32, or float64 beside float64."""
    step: Literal["auto", "eager", "compiled", "graph"] = "auto"
    """How our step runs; auto chooses as training does."""
    against: tuple[Literal["plain", "none"], ...] = ("plain",)
    """What to hold it against: plain or none."""
    ragged: float | None = None
    """Also time samples of uneven sizes, like 0.5: from half of the problem's points and queries to
    one and a half times as many, and as many in all. Uneven samples have no mesh in common, so they
    are held against equal ones that have meshes of their own too, and not against ours, which
    computes what depends on a shared mesh alone once for a batch."""


@dataclass(kw_only=True)
class OneProblem(Common):
    """Flags of those that time the answers of one problem's systems."""

    which: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[PROBLEM]", help_behavior_hint="(default: darcy)"),
    ] = None
    """The problem that the systems are built for."""
    problem: Annotated[
        str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="(default: darcy)")
    ] = None
    """The problem that the systems are built for."""
    preset: Preset = "paper"
    """Whose settings: paper, the published ones; default, our own."""

    @property
    def asked(self) -> str:
        """The problem, in whichever way it was said."""
        if self.which and self.problem and self.which != self.problem:
            raise DataError(
                f"{self.which} and --problem {self.problem}: one problem is timed at a time; leave "
                "one of them out"
            )
        return self.which or self.problem or "darcy"


@dataclass(kw_only=True)
class Infer(OneProblem):
    """Time an answer: so many points in, so many queries out, for one sample by default.

        ipot bench infer --points 1e6
        ipot bench infer --points 1e8 --against none
        ipot bench infer navier_stokes --points 1e5 --against plain fno
        ipot bench infer --points 7225 --batch 4 --device cpu --precision bf16 --against plain

    Points lie anywhere in the domain, or on a grid for systems that need one. Other systems have
    the sizes of their recipes. What does not fit or cannot be asked is listed with the reason.
    """

    usual: ClassVar = (
        *("which", "points", "query_points", "batch", "precision", "against", "preset", "device"),
        *("seconds", "small", "json", "out"),
    )

    points: float = 1e6
    """Input points, like 1e6; at most 1e9."""
    query_points: float | None = None
    """Queries of their own, so many; at the input points by default."""
    batch: int = 1
    """Samples at a time; on the same points."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """Arithmetic; of all but the plain version, which is float32: auto is bf16 on a GPU, float32 on
    a CPU."""
    against: tuple[str, ...] = ("plain", "transformer", "fno", "transolver", "lno")
    """What to hold it against: plain and names of systems, or none."""


@dataclass(kw_only=True)
class Scale(OneProblem):
    """Time answers from few points to many: ours, the plain version and the plain transformer.

        ipot bench scale --out scaling.png
        ipot bench scale --from 1e3 --to 1e5 --per-decade 2 --device cpu

    A version that does not fit, or would take minutes, is left out from there on; nothing is
    extrapolated.
    """

    usual: ClassVar = (
        *("which", "from_", "to", "per_decade", "against", "preset", "device", "seconds"),
        *("small", "json", "out"),
    )

    from_: Annotated[float, tyro.conf.arg(name="from")] = 1e3
    """Fewest points."""
    to: float | None = None
    """Most points; 1e8 on a GPU and 1e6 on a CPU by default."""
    per_decade: int = 1
    """Sizes for every power of ten."""
    against: tuple[str, ...] = ("plain", "transformer")
    """What to hold it against: plain and names of systems, or none."""


@dataclass(kw_only=True)
class Generate(Common):
    """Time our generators of data, and the same samples one by one on a CPU.

        ipot bench generate darcy burgers --count 50
        ipot bench generate all --small

    `all` are those whose data are generated; measured ones have no generator.
    """

    usual: ClassVar = ("problems", "count", "device", "seconds", "small", "json", "out")

    problems: Problems
    """Problems, or all."""
    count: int | None = None
    """Samples together; on a GPU as many as are stored in one file, on a CPU four by default."""


@dataclass(kw_only=True)
class Serve(Common):
    """Time answers of `ipot serve`: to one client alone, then to many that ask without a pause.

        ipot bench serve darcy --seconds 60
        ipot bench serve surrogate/ --clients 50 --points 1e5

    The server is started as a process of its own; clients wait as long as it tells them to. Without
    a model it is the one that `ipot train darcy` trains, with weights as they are drawn.
    """

    usual: ClassVar = ("served", "clients", "points", "device", "seconds", "small", "json", "out")

    served: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL or FOLDER]")
    ] = None
    """The name of a model in the package, or a folder."""
    clients: int = 20
    """Clients at once."""
    points: float = 4096.0
    """Input points, like 1e6; as many queries are asked for."""


FLAGS = {"train": Train, "infer": Infer, "scale": Scale, "generate": Generate, "serve": Serve}
