"""The training loop."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

from ipot import files
from ipot.data.dataset import Dataset
from ipot.device import peak_memory, reset_peak_memory, synchronize
from ipot.errors import Diverged, OutOfMemory
from ipot.models.base import Operator
from ipot.run_folder import Run
from ipot.samples import Batch
from ipot.training import checkpoint
from ipot.training.checkpoint import BestWeights, Result, Resumable, State
from ipot.training.distributed import World
from ipot.training.draws import Draw, Draws, RaggedSteps, ahead
from ipot.training.execution import choose, placed, precision_for, refuse_fewer_points
from ipot.training.journal import Journal, Progress, Speed, duration
from ipot.training.objective import Objective, RelativeL2, Validation, relative, with_gradients
from ipot.training.optimizer import Average, make_optimizer
from ipot.training.settings import Training, learning_rate, refuse_gradients
from ipot.training.step import Step, fast_products
from ipot.training.unroll import horizon, refuse_growth

__all__ = ["Result", "Stopped", "Trainer", "train"]

VALIDATIONS = 50
"""In a run, unless its settings say how often."""
TALK_EVERY = 10
"""Steps between two moments at which several processes agree on stopping and saving."""


class Stopped(Exception):
    """A signal ended the run; a checkpoint was written, unless the run had diverged."""

    def __init__(self, number: int, run: Run) -> None:
        super().__init__(f"stopped; continue with `ipot train --resume {run.path}`")
        self.signal = number


def train(
    model: Operator,
    data: Dataset,
    validation: Dataset,
    settings: Training,
    run: Run,
    *,
    device: torch.device,
    objective: Objective | None = None,
    world: World | None = None,
    quiet: bool = False,
) -> Result:
    """Train a model, leaving its best and last weights in the run folder.

    If the folder holds a checkpoint, training continues from it and ends as if it had never
    stopped.
    """
    trainer = Trainer(
        model, data, validation, settings, run, device, objective or RelativeL2(), world or World()
    )
    return trainer.run(Progress(quiet=quiet))


class Trainer:
    """The training loop of one run; most callers use `train`."""

    def __init__(
        self,
        model: Operator,
        data: Dataset,
        validation: Dataset,
        settings: Training,
        run: Run,
        device: torch.device,
        objective: Objective,
        world: World,
    ) -> None:
        refuse_gradients(settings)
        refuse_fewer_points(model, settings)
        if settings.grow:
            refuse_growth(model, settings)
        objective = with_gradients(objective, settings.gradient_loss, model.spec)
        self.settings, self.folder, self.device, self.world = settings, run, device, world
        self._screen: Progress | None = None
        self._unsaid: list[str] = []
        self.precision = precision_for(settings, device, self._say)
        dtype = torch.float64 if self.precision == "float64" else torch.float32
        self.model = model.to(device, dtype)
        self.data = placed(data, settings, device, dtype, self._say)
        held_out = validation.astype(dtype) if dtype == torch.float64 else validation
        self.validation = Validation(
            held_out.to(device),
            device,
            measure=getattr(objective, "measure", relative),
            keep=self.data.resident and device.type == "cuda",
        )
        self.draws = Draws(self.data, model.spec, settings, rank=world.rank, world=world.size)
        mode = choose(settings, self.data, device, world, self._say)
        groups = [{**g, "params": list(g["params"])} for g in objective.prepare(model, self.data)]
        self.optimizer = make_optimizer(self.model, settings, groups, device)
        self.average = Average(self.model, settings.average) if settings.average else None
        own = [p for group in groups for p in group["params"]]
        self.resumable = Resumable(self.model, self.optimizer, own, self.average)
        self.state = State()
        if run.last.exists():
            self.state = self.resumable.restore(run.last, epochs=settings.epochs)
        self.step = Step(
            self.model,
            objective,
            self.optimizer,
            self.draws,
            settings,
            device=device,
            precision=self.precision,
            mode=mode,
            world=world,
            say=self._say,
        )
        self.best = BestWeights(run.best)
        self.step.start(self.state.step)
        self.step.loss_sum.fill_(self.state.loss_sum)
        self._steps = settings.unroll or len(self.data[0].times)
        self._validation_error = float("nan")
        self._validated, self._validated_at = -1, self.state.seconds
        self._setup = 0.0
        self._journal: Journal | None = None

    @property
    def _epoch(self) -> int:
        return self.state.step // self.draws.steps_per_epoch

    def run(self, progress: Progress) -> Result:
        """Train from the last checkpoint, if any, to the end."""
        self._screen = progress
        for line in self._unsaid:
            self._say(line)
        try:
            return self._run(progress)
        finally:
            self.step.close()
            self.best.flush()

    def _say(self, line: str) -> None:
        """Show the user a line; before `run` has a screen it is kept for later."""
        if self._screen is None:
            self._unsaid.append(line)
        else:
            self._screen.show(line, last=True)

    def _run(self, progress: Progress) -> Result:
        state, per_epoch = self.state, self.draws.steps_per_epoch
        first, journal = state.step, None
        if self.world.first:
            journal = self._journal = Journal(
                self.folder.metrics, resume_step=state.step, say=self._say
            )
        reset_peak_memory(self.device)
        began = time.monotonic() - state.seconds
        saved, watch = time.monotonic(), Speed()
        fresh = self.step.mode != "eager"
        with signals_caught() as caught, fast_products():
            if not self.model.training:  # else a layer may have been left out on purpose
                self.model.train()
            batches = self._batches()
            while not self._finished():
                self._take_step(next(batches))
                state.step += 1
                if self.average:
                    self.average.update()
                if fresh:
                    # Compiling and capturing are not training: the clock starts after them.
                    synchronize(self.device)
                    self._setup = time.monotonic() - began - state.seconds
                    began, fresh = began + self._setup, False
                state.seconds = self._clock(began)
                watch.tick()
                ended = state.step % per_epoch == 0
                if ended:
                    self._end_epoch(journal, watch)
                    state.seconds = self._clock(began)
                # After the end of an epoch, which would otherwise be lost.
                if self._agree(caught.number is not None, ended):
                    self._save()
                    raise Stopped(caught.number or signal.SIGTERM, self.folder)
                if ended or self.device.type == "cpu":
                    progress.show(self._line(watch))
                if self._agree(time.monotonic() - saved > self.settings.save_seconds, ended):
                    self._save()
                    saved = time.monotonic()
            if state.step == first:  # there was nothing left to do
                self._validate()
            elif self._validated != state.step:
                # Time may have run out after the last line, whose epoch was then not validated.
                self._end_epoch(journal, watch, force=True)
            state.seconds = self._clock(began)
            self._save()
        if state.out_of_patience:
            self._say(
                f"stopped early: no lower validation error since epoch {state.best_epoch}, for "
                f"{100 * (self._progress() - state.best_progress):.0f} % of the run"
            )
        progress.show(self._line(watch), last=True)
        return self._result()

    def _take_step(self, work: Draw | Batch) -> None:
        if self.settings.grow:
            self.step.horizon = horizon(self._steps, self._progress(), self.settings.grow)
        try:
            self.step(work, self.state.step, self._rate())
        except OutOfMemory as error:
            if not self.folder.last.exists():
                raise
            raise OutOfMemory(f"{error} The last checkpoint is kept.") from error

    def _clock(self, began: float) -> float:
        """Seconds of the run. If the schedule depends on them, all processes get the same
        number."""
        seconds = time.monotonic() - began
        return seconds if self.settings.minutes is None else self.world.mean(seconds)

    def _agree(self, wish: bool, ended: bool) -> bool:
        """True if any process wishes it. Several processes communicate only now and then."""
        if self.world.size > 1 and not ended and self.state.step % TALK_EVERY:
            return False
        return self.world.any(wish)

    def _batches(self) -> Iterator[Draw | Batch]:
        """What the next step and all steps after it work on: draws, or batches."""
        first = self.state.step
        if self.data.resident:
            yield from ahead(self.draws, first, self.device)
        last = self.settings.epochs * self.draws.steps_per_epoch
        yield from DataLoader(
            RaggedSteps(self.draws),
            batch_size=None,
            sampler=range(first, last),
            num_workers=self.settings.workers,
            pin_memory=self.device.type == "cuda",
        )

    def _finished(self) -> bool:
        limit = self.settings.epochs * self.draws.steps_per_epoch
        if self.state.step >= limit or self.state.out_of_patience:
            return True
        minutes = self.settings.minutes
        return minutes is not None and self.state.seconds >= 60 * minutes

    def _progress(self) -> float:
        done = self.state.step / (self.settings.epochs * self.draws.steps_per_epoch)
        if self.settings.minutes is not None:
            done = max(done, self.state.seconds / (60 * self.settings.minutes))
        return done

    def _rate(self) -> float:
        epoch = self.state.step / self.draws.steps_per_epoch
        return learning_rate(self.settings, epoch=epoch, progress=self._progress())

    def _end_epoch(self, journal: Journal | None, watch: Speed, *, force: bool = False) -> None:
        """Read and check the losses, validate if it is time, and write a row of the journal."""
        total, fault = self._read()
        if fault >= 0:
            epoch = fault // self.draws.steps_per_epoch + 1
            kept = "The last checkpoint is kept. " if self.folder.last.exists() else ""
            raise Diverged(
                fault,
                f"the loss was not finite at step {fault} (epoch {epoch}). "
                f"{kept}Train again into another folder with a lower training.learning-rate, or "
                "with training.clip.",
            )
        if steps := self.state.step - self.state.reported:
            self.state.loss = total / steps
            self.state.reported = self.state.step
        row = {
            "epoch": self._epoch,
            "step": self.state.step,
            "loss": self.state.loss,
            "learning_rate": self._rate(),
            "seconds": round(self.state.seconds, 3),
            "steps_per_second": round(watch.rate(), 2),
        }
        if force or self._due() or self._finished():
            row["validation"] = self._validate()
        if journal:
            journal.write(row)

    def _due(self) -> bool:
        """True if this epoch ends with a validation: as told, or about fifty times in a run."""
        if self.settings.validate_every or self.settings.minutes is None:
            every = self.settings.validate_every or max(1, self.settings.epochs // VALIDATIONS)
            return self._epoch % every == 0
        share = self.state.seconds - self._validated_at
        return share >= 60 * self.settings.minutes / VALIDATIONS

    def _validate(self) -> float:
        """Compute the error on the validation samples, and keep the weights if they are the
        best."""
        if self.average:
            self.average.swap()
        # Other sizes than training's: compiling for them would cost more than it saves.
        stance = torch.compiler.set_stance("force_eager")
        bf16 = self.precision == "bf16"
        with stance, torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            # The same in all processes, since it may end the run.
            error = self.world.mean(self.validation(self.model))
        self._validated, self._validated_at = self.state.step, self.state.seconds
        self._validation_error = error
        if error < self.state.best_validation:
            self.state.best_validation, self.state.best_epoch = error, self._epoch
            self.state.best_progress = self._progress()
            if self.world.first:
                state = {"epoch": self._epoch, "validation": error} | checkpoint.owner(self.model)
                self.best.keep(self.model.state_dict(), state)
        elif (patience := self.settings.patience) is not None:
            waited = self._progress() - self.state.best_progress
            # Parts of a run are sums of roundings; one that is complete was not cut short.
            self.state.out_of_patience = waited > patience - 1e-9 and self._progress() < 1
        if self.average:
            self.average.swap()
        return error

    def _read(self) -> tuple[float, int]:
        """The losses since the last reading and the first faulty step, combined over all
        processes."""
        total, fault = self.step.read()
        return self.world.mean(total), self.world.earliest(fault)

    def _save(self) -> None:
        """Write everything that is needed to go on."""
        total, fault = self._read()
        self.step.loss_sum.fill_(total)
        if fault >= 0 or not self.world.first:
            return
        # All that the checkpoint counts is on disk before it: a power cut between two of these
        # leaves the checkpoint before, from which the same follows again.
        if self._journal is not None:
            self._journal.sync()
        self.best.flush()
        self.state.loss_sum = total
        self.resumable.save(self.folder.last, self.state)

    def _line(self, watch: Speed) -> str:
        done = self._progress()
        left = self.state.seconds * (1 - done) / done if done > 0 and not self._finished() else 0.0
        if self.settings.minutes is not None:
            left = min(left, 60 * self.settings.minutes - self.state.seconds)
        shown = [f"epoch {self._epoch}/{self.settings.epochs}"]
        if self.settings.minutes is not None:
            shown = [f"epoch {self._epoch}", f"{100 * min(1, done):.0f} %"]
        if self.state.loss == self.state.loss:
            shown.append(f"loss {self.state.loss:.4f}")
        if self._validation_error == self._validation_error:
            shown.append(f"validation {self._validation_error:.4f}")
        shown += [f"{watch.rate():.1f} steps/s", f"{duration(left)} left"]
        return "  ".join(shown)

    def _result(self) -> Result:
        result = Result(
            validation=self._validation_error,
            best_validation=self.state.best_validation,
            best_epoch=self.state.best_epoch,
            loss=self.state.loss,
            epochs=self._epoch,
            steps=self.state.step,
            seconds=self.state.seconds,
            setup_seconds=self._setup,
            step_kind=self.step.mode,
            precision=self.precision,
            peak_gib=peak_memory(self.device),
            out_of_patience=self.state.out_of_patience,
        )
        if self.world.first:
            files.write_json(self.folder.result, result.as_dict())
        return result


class CaughtSignal:
    """The first signal that was caught, if any."""

    number: int | None = None


@contextmanager
def signals_caught() -> Iterator[CaughtSignal]:
    """Record SIGINT and SIGTERM instead of ending within a step; the loop checks between steps."""
    caught = CaughtSignal()

    def remember(number: int, frame: Any) -> None:
        if caught.number is not None:
            raise KeyboardInterrupt
        caught.number = number

    numbers: Iterable[int] = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {n: signal.signal(n, remember) for n in numbers}
    except ValueError:  # not in the main thread: the host program handles signals
        yield caught
        return
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
