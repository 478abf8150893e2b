"""`fit`: the training loop, as a function of objects.

A training that is killed at any moment and resumed ends with the weights, bit by bit, of one that
was not (same machine, build and threads), wherever a batch is a function of its step: all that has
a state is in the checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from chiaroscuro.artifacts import Run, checkpoints, one_writer
from chiaroscuro.artifacts.files import make_folder, writing
from chiaroscuro.artifacts.run import require_free
from chiaroscuro.data import Dataset
from chiaroscuro.engine.crops import Crops
from chiaroscuro.engine.descriptions import import_path, require_same
from chiaroscuro.engine.distributed import (
    aboard,
    agree_on_step,
    barrier,
    in_parallel,
    is_first,
    joined_ranks,
    lost_ranks,
    on_any_rank,
    on_every_rank,
    rank,
    require_alike,
    world_size,
)
from chiaroscuro.engine.fingerprint import Fingerprint
from chiaroscuro.engine.ingredients import (
    AnyLoss,
    Ingredients,
    as_objective,
    described,
    text_of,
    written,
)
from chiaroscuro.engine.loggers import Logger
from chiaroscuro.engine.networks import Networks, as_compiled, evaluating, taking
from chiaroscuro.engine.opening import INITIAL, OpenRun, save_initial
from chiaroscuro.engine.optimisers import Optimiser
from chiaroscuro.engine.options import FitOptions
from chiaroscuro.engine.progress import Progress
from chiaroscuro.engine.settings import (
    OptimiserSettings,
    ScheduleSettings,
    Settings,
    is_placeholder,
)
from chiaroscuro.engine.state import (
    Diverged,
    State,
    begin,
    device_of,
    require_finite_weights,
    restore,
    save,
)
from chiaroscuro.engine.step import read_losses, take_step
from chiaroscuro.engine.stopping import StopRequest, stop_error, stop_requests
from chiaroscuro.engine.stream import Iterated, PairBatch, Steps, watched_workers
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.objectives import Objective
from chiaroscuro.views import Unfinished

__all__ = [
    "Callback",
    "Fitted",
    "Moment",
    "Origin",
    "StopTraining",
    "fit",
    "remember",
]

CHECKED = 1000
"""Epochs of which a schedule is tried out before the first step, at most."""

_SCHEDULES = (ScheduleSettings, torch.optim.lr_scheduler.LRScheduler)

Schedule = ScheduleSettings | Callable[[int], float] | torch.optim.lr_scheduler.LRScheduler
"""How the learning rate goes: settings, a factor by step, or a scheduler of torch on the optimiser
that is given, which takes a step after each of ours; `ReduceLROnPlateau` one after each epoch, by
its mean loss."""


class StopTraining(Exception):  # noqa: N818 - nothing went wrong
    """Raise in a callback to stop training after this epoch; `fit` then returns normally.

    The state is saved, the epoch recorded with the message under `stopped`, and `resume` goes on.
    """


@dataclass(frozen=True, eq=False)
class Origin:
    """Metadata of a training run, for callbacks and checks.

    Args:
        settings: that were asked for.
        data: the samples trained on.
        run: the data, views and untrained networks behind it.
        fingerprint: fingerprint of the data: ranks compare it, and no other data are gone on with.
        notes: sentences to say before the first step.
        records: to begin the history of this process with.
        prepare: called with the run once no other process can write to it, before its state is
            restored; what it returns is called after that, on the first rank.
    """

    settings: Settings | None = None
    data: Dataset | None = None
    run: OpenRun | None = None
    fingerprint: Fingerprint | None = None
    notes: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    prepare: Callable[[Run], Callable[[], None]] | None = None


@dataclass(frozen=True, eq=False)
class Moment:
    """State at the end of an epoch, as passed to callbacks.

    `networks` are in evaluation mode, without gradients, and the averaged ones where an average is
    kept. `data` are the samples trained on; `settings`, `data`, `run` (the folder) and `origin` are
    None where there are none.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    settings: Settings | None
    networks: Networks
    data: Dataset | None
    run: Run | None
    origin: OpenRun | None = None

    @property
    def epochs(self) -> int:
        """Epochs of the whole training."""
        return self.steps * (self.epoch + 1) // self.step


Callback = Callable[[Moment], Mapping[str, float] | None]
"""Called after every epoch, on the first rank; the numbers it returns join the history's record.

It may look at everything and change nothing: torch's random states are put back after it. Whatever
it raises is said once and recorded, and training goes on without its numbers; only `StopTraining`
ends it, after the epoch.
"""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Result of `fit`.

    Args:
        networks: trained, in evaluation mode; the averaged ones where an average is kept.
        objective: with what it has learnt, such as a temperature.
        history: every record: `step`, `loss` and `lr`, or `epoch` and `mean_loss` with measures.
        run: where it was saved, or None.
    """

    networks: Networks
    objective: Objective
    history: list[dict[str, Any]]
    run: Run | None = None


def fit(
    networks: nn.Module,
    objective: Any,
    batches: Iterable[Any] | Steps,
    optimiser: Optimiser = OptimiserSettings(name="adamw", lr=1e-3),  # noqa: B008 - frozen
    schedule: Schedule | None = None,
    *,
    epochs: int = 1,
    steps_per_epoch: int | None = None,
    options: FitOptions = FitOptions(),  # noqa: B008 - frozen
    callbacks: Sequence[Callback | Logger] = (),
    out: Run | str | os.PathLike | None = None,
    resume: bool = False,
    restart: bool = False,
    progress: TextIO | None = None,
    origin: Origin | None = None,
) -> Fitted:
    """Train networks in place with an objective on batches of pairs.

    Nothing is written unless `out` is given. Under `torchrun` every rank processes its part of each
    batch, and the loss is that of the whole batch. Ctrl-C, SIGTERM and SIGHUP finish the step, save
    a checkpoint if there is a folder, and raise `KeyboardInterrupt` or, for the latter two,
    `SystemExit`; a second Ctrl-C stops at once.

    Args:
        networks: `Networks` (two encoders, projectors, a predictor), or any module that maps
            samples to embeddings (n, d).
        objective: an `Objective`, its text, or any function `(z1, z2) -> scalar`; if it has a
            parameter `labels`, it receives the labels.
        batches: our data and views (`view_batches`), or any iterable of `(x1, x2)` or
            `(x1, x2, labels)`: a `DataLoader`, a list, a generator; see `Iterated` for what
            resuming guarantees of them.
        optimiser: a torch optimiser, `OptimiserSettings`, or a function that returns an optimiser
            for a list of parameters; AdamW at 1e-3 by default.
        schedule: `ScheduleSettings`, a function from the step to a factor on the learning rate, or
            a torch scheduler; None keeps the rate constant.
        epochs: number of passes over the batches.
        steps_per_epoch: required for batches without a length.
        options: momentum encoder, gradient caching, precision, device, what is saved.
        callbacks: monitors (`Callback`) and loggers (`Logger`, which need `out`).
        out: a `Run`, or the folder of a new one: checkpoints and history go there.
        resume: continue from the newest intact checkpoint in `out`.
        restart: with `resume`, start again if no checkpoint can be loaded.
        progress: stream for progress: a bar on a terminal, otherwise lines; None shows nothing.
        origin: metadata from `train`, for callbacks.

    Example:
        >>> from chiaroscuro.objectives import InfoNCE
        >>> x = torch.randn(64, 8)
        >>> batches = [(x, x + 0.1 * torch.randn(64, 8)) for _ in range(20)]
        >>> fitted = fit(nn.Linear(8, 4), InfoNCE(), batches, epochs=2)
        >>> first, last = (r["mean_loss"] for r in fitted.history if "epoch" in r)
        >>> first > last
        True
    """
    origin = origin or Origin()
    need(
        isinstance(callbacks, Sequence) and all(map(callable, filter(_no_logger, callbacks))),
        lambda: f"`callbacks` need a list of functions and loggers; received {callbacks!r}.",
    )
    need(out is not None or not resume, "`fit(resume=True)` needs the run to go on with: `out`.")
    loggers = sum(isinstance(one, Logger) for one in callbacks)
    need(
        out is not None or not loggers,
        lambda: f"{loggers} loggers need a run folder: give `out`.",
    )
    with joined_ranks(options.device), stop_requests() as stop, watched_workers():
        plan, state = on_every_rank(
            lambda: _prepared(
                networks, objective, batches, optimiser, schedule, epochs, steps_per_epoch, options
            )
        )
        state.data = origin.fingerprint
        _same_on_all_ranks(plan, origin)
        training = _Training(plan, options, origin, callbacks, stop, progress)
        folder = out.folder if isinstance(out, Run) else None if out is None else Path(out)
        with (
            lost_ranks(_how_to_go_on(folder)),
            _locked(folder, resume or isinstance(out, Run)) as said,
        ):
            run, write = _opened(out, plan, options, state, origin, resume)
            notes = restore(state, run, restart) if resume and run is not None else ()
            on_every_rank(lambda: write() if is_first() else None)
            plan = plan.in_lanes(state.lanes).for_device(device_of(options.device))
            training = replace(training, plan=plan)
            history = _loop(training, state, run, (*origin.notes, *notes, *said))
            state.gather(everywhere=True)
            barrier()
    state.best.eval()
    return Fitted(state.best, state.objective, history, run)


def _no_logger(callback: Any) -> bool:
    return not isinstance(callback, Logger)


@dataclass(frozen=True, eq=False)
class _Plan:
    """The batches, and the learning rate at every step."""

    batches: Steps | Iterated
    epochs: int
    schedule: Schedule | None

    @property
    def steps(self) -> int:
        return self.epochs * self.batches.per_epoch

    def for_device(self, device: torch.device) -> _Plan:
        """Return the same, with views made on an accelerator where they can be."""
        return replace(self, batches=self.batches.for_device(device))

    def in_lanes(self, lanes: int) -> _Plan:
        """Return the same, with batches in the order of so many lanes."""
        return replace(self, batches=self.batches.in_lanes(lanes))

    def factor(self, step: int) -> float | None:
        """Return what the learning rates are multiplied by; None where a scheduler of torch sets
        them.
        """
        if isinstance(self.schedule, torch.optim.lr_scheduler.LRScheduler):
            return None
        if isinstance(self.schedule, ScheduleSettings):
            return self.schedule.factor(step, self.steps, self.batches.per_epoch)
        factor = 1.0 if self.schedule is None else float(self.schedule(step))
        need(
            0 <= factor < math.inf,
            lambda: (
                "A schedule needs a finite factor of at least 0 on the learning rate; that of step "
                f"{step} is {factor}."
            ),
        )
        return factor


@dataclass(frozen=True, eq=False)
class _Training:
    """What stays the same from the first step to the last."""

    plan: _Plan
    options: FitOptions
    origin: Origin
    callbacks: Sequence[Callback | Logger]
    stop: StopRequest
    progress: TextIO | None
    failed: set[int] = field(default_factory=set)
    """Callbacks, by their identity, that have failed: it is said once."""

    @property
    def monitors(self) -> list[Callback]:
        return [c for c in self.callbacks if not isinstance(c, Logger)]

    @property
    def loggers(self) -> list[Logger]:
        return [c for c in self.callbacks if isinstance(c, Logger)]


# ---- the loop ----


def _loop(
    training: _Training, state: State, run: Run | None, notes: Sequence[str]
) -> list[dict[str, Any]]:
    plan, options = training.plan, training.options
    steps, per_epoch, saving = plan.steps, plan.batches.per_epoch, options.saving
    device = device_of(options.device)
    networks: Any = as_compiled(state.networks) if options.compile else state.networks
    if (
        not options.micro_batch and state.plain is None
    ):  # those pass through each network many times before they add up
        networks = in_parallel(networks)
    ahead = plan.batches.stream(state.step, steps, options.workers, options.timeout)
    shown = Progress(
        training.progress if is_first() else None, steps, state.step, plan.batches.batch
    )
    history = [] if run is None else run.history().records
    state.networks.train()
    with (
        shown,
        contextlib.closing(ahead) as stream,
        _recording(training, run, history, shown) as record,
    ):
        for sentence in notes:
            shown.say(sentence)
        for entry in training.origin.records:
            record({"step": state.step, **entry}, True)

        def end_epoch() -> bool:
            """Record an epoch; return whether a callback stops the training."""
            state.gather()
            entry = on_every_rank(lambda: _epoch_end(training, state, run, shown))
            record(entry, True)
            state.losses = (0.0, 0)
            return bool(training.monitors) and on_any_rank("stopped" in entry)

        # saved at the end of an epoch, before it was recorded
        if state.losses[1] and state.step % per_epoch == 0:
            with shown.paused():
                if on_any_rank(is_first() and not _recorded(history, state.step)) and end_epoch():
                    return history
            state.losses = (0.0, 0)
        batches = _Agreed(stream, training.stop, steps - state.step)
        read_always = device.type == "cpu" and world_size() == 1  # elsewhere somebody would wait
        losses: list[Tensor] = []
        loss = 0.0

        def read() -> None:
            nonlocal loss
            for loss in read_losses(state, losses):
                state.losses = (state.losses[0] + loss, state.losses[1] + 1)

        while state.step < steps:
            (x1, x2, y), asked = batches.take()
            if asked:
                read()
                if run is not None:
                    save(state, run, saving.keep)
                how = _how_to_go_on(None if run is None else run.folder)
                shown.say(f"stopped after step {state.step} of {steps}; {how}".rstrip("; "))
                raise stop_error(asked)
            epoch = state.step // per_epoch
            batch = _on_device((x1, x2, y), device)
            lr = _set_rates(state, plan)
            try:
                with batches.ahead():
                    losses.append(take_step(state, networks, batch, options, steps))
                state.step += 1
                ended = state.step % per_epoch == 0
                due = state.step % saving.every == 0 if saving.every else ended
                due = due or state.step == steps
                recorded = state.step % saving.record == 0
                if read_always or recorded or due or ended:
                    read()
                if ended and isinstance(state.scheduler, ReduceLROnPlateau):
                    state.scheduler.step(state.losses[0] / state.losses[1])
                if due:
                    require_finite_weights(state)
            except Diverged as error:
                record({"step": error.step, "diverged": str(error)}, True)
                raise
            shown.step(state.step, epoch, loss)
            with shown.paused():
                if recorded:
                    record({"step": state.step, "loss": loss, "lr": lr}, False)
                if due and run is not None:  # first: whatever a monitor does, this is kept
                    save(state, run, saving.keep)
                if ended and end_epoch():
                    if run is not None and not due:
                        save(state, run, saving.keep)
                    break
    return history


class _Agreed:
    """The batches of all ranks, of which none is taken unless every rank has its part.

    On several ranks each is fetched before the step ahead of it, and the message of that step's
    loss says whether it came and whether a rank was asked to stop: no other message is needed.
    """

    FAILED = 1 << 20
    """More than any signal: a rank has no batch."""

    def __init__(self, stream: Iterator[Any], stop: StopRequest, steps: int) -> None:
        self.stream, self.stop, self.left = stream, stop, steps
        self.fetched: Any = None
        self.heard: int | None = None

    def take(self) -> tuple[Any, int]:
        """Return the next batch, and the signal by which a rank was asked to stop, or 0."""
        self.left -= 1
        if self.heard is None or self.heard == self.FAILED:
            came, asked = agree_on_step(self._batch, self.stop.signal or 0)
        else:
            came, asked = self._batch(), self.heard
        self.fetched = self.heard = None
        return came, asked

    def _batch(self) -> Any:
        if isinstance(self.fetched, Exception):
            raise self.fetched
        return next(self.stream) if self.fetched is None else self.fetched

    @contextlib.contextmanager
    def ahead(self) -> Iterator[None]:
        """Fetch the next batch, and let the step inside tell the other ranks about it."""
        if world_size() == 1 or self.left == 0:
            yield
            return
        try:
            self.fetched = next(self.stream)
        except Exception as error:  # noqa: BLE001 - raised on all ranks by the next `take`
            self.fetched = error
        failed = isinstance(self.fetched, Exception)
        with aboard(self.FAILED if failed else self.stop.signal or 0) as passenger:
            yield
        self.heard = passenger.heard


def _set_rates(state: State, plan: _Plan) -> float:
    """Set the learning rates of this step, and return the first."""
    factor = plan.factor(state.step)
    groups = state.optimiser.param_groups
    if factor is not None:
        for group, rate in zip(groups, state.rates, strict=True):
            group["lr"] = rate * factor
    return float(groups[0]["lr"])


def _on_device(batch: PairBatch, device: torch.device) -> PairBatch:
    """Return a batch on the device, its views made there if they are not made yet."""
    x1, x2, y = batch
    if isinstance(x1, Unfinished):
        x1, x2, *more = x1.views(device)
        return x1, Crops([x2, *more]) if more else x2, _moved(y, device)
    return _moved(x1, device), _moved(x2, device), _moved(y, device)


def _moved(x: Any, device: torch.device) -> Any:
    """Return a view on the device: a tensor, or a dictionary or a list of them."""
    if isinstance(x, Tensor):
        return x.to(device, non_blocking=True)
    if isinstance(x, Mapping):
        return {name: _moved(value, device) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(_moved(value, device) for value in x)
    return x


Record = Callable[[Mapping[str, Any], bool], None]


@contextlib.contextmanager
def _recording(
    training: _Training, run: Run | None, history: list[dict[str, Any]], shown: Progress
) -> Iterator[Record]:
    """Yield what puts a record into the history, durably or not, and shows it to the loggers.

    They begin with the first record: what they start must not be there when workers are forked. A
    logger that fails is said once and left alone: no logger ends a training.
    """
    begun: list[Logger] = []

    def log(logger: Logger, entry: Mapping[str, Any]) -> None:
        if run is None or id(logger) in training.failed:
            return
        try:
            if logger not in begun:
                logger.begin(run, int(entry["step"]))
                begun.append(logger)
            logger.record(entry)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said and recorded
            training.failed.add(id(logger))
            said = f"{type(logger).__name__}: {_reason(error)}"
            _append(run, history, {"step": entry["step"], "failed_logger": said}, False)
            shown.say(f"A logger has failed, and training goes on without it: {said}")

    def write(entry: Mapping[str, Any], durable: bool) -> None:
        _append(run, history, entry, durable)
        for logger in training.loggers:
            log(logger, entry)

    try:
        yield lambda entry, durable: on_every_rank(
            lambda: write(entry, durable) if is_first() else None
        )
    finally:
        for logger in begun:
            try:
                logger.end()
            except Exception as error:  # noqa: BLE001 - as above
                shown.say(f"A logger could not end: {type(logger).__name__}: {_reason(error)}")


def _append(
    run: Run | None, history: list[dict[str, Any]], entry: Mapping[str, Any], durable: bool
) -> None:
    history.append(dict(entry))
    if run is not None:
        run.append(entry, durable)


def _text(error: BaseException) -> str:
    """Return what an error says as one line that can be written."""
    return " ".join(str(error).split()).encode(errors="backslashreplace").decode()


def _reason(error: BaseException) -> str:
    """Return an error as one line."""
    text = _text(error)
    return text if isinstance(error, ChiaroError) else f"{type(error).__name__}: {text}"


def _epoch_end(
    training: _Training, state: State, run: Run | None, shown: Progress
) -> dict[str, Any]:
    """Return the record of an epoch, with what the monitors measure; on the first rank."""
    if not is_first():
        return {}
    mean = state.losses[0] / state.losses[1]
    epoch = (state.step - 1) // training.plan.batches.per_epoch
    moment = Moment(
        step=state.step,
        steps=training.plan.steps,
        epoch=epoch,
        loss=mean,
        settings=training.origin.settings,
        networks=state.best,
        data=training.origin.data,
        run=run,
        origin=training.origin.run,
    )
    measures: dict[str, float] = {}
    said: dict[str, str] = {}
    failures: list[str] = []
    device = device_of(training.options.device)
    with preserved_random_state(device), torch.no_grad(), evaluating(state.best):
        for monitor in training.monitors:
            try:
                measures |= _numbers(monitor(moment) or {})
            except StopTraining as error:
                said["stopped"] = _text(error) or import_path(monitor)
                shown.say(
                    f"A callback stops the training after step {state.step}: {said['stopped']}"
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, it is said and recorded
                if id(monitor) not in training.failed:
                    training.failed.add(id(monitor))
                    failures.append(_reason(error))
                    shown.say(f"A monitor cannot measure, and training goes on: {_reason(error)}")
    speed: dict[str, float] = {}
    if state.step > shown.start:
        shown.epoch(state.step, epoch, mean, measures)
        speed = {"images_per_second": shown.rate(state.step), "seconds": shown.seconds}
    else:  # another process took its steps
        shown.say(f"epoch {epoch + 1} was saved and is recorded now, loss {mean:.4f}")
    known = {"step": state.step, "epoch": epoch + 1, "mean_loss": mean}
    if failures:
        said["failed_monitor"] = " ".join(failures)  # for those who look later
    return {**known, **measures, **said, **speed}


_KNOWN = (
    *("step", "epoch", "mean_loss", "images_per_second", "seconds"),
    *("failed_monitor", "stopped"),
)
"""Names in the record of an epoch that are not a monitor's."""


def _numbers(measures: Mapping[str, Any]) -> dict[str, float]:
    """Return what a monitor measured as numbers that a history can hold."""
    need(
        isinstance(measures, Mapping),
        lambda: f"A monitor needs to return numbers by name; received a {type(measures).__name__}.",
    )
    for name in measures:
        need(
            isinstance(name, str) and name.isprintable() and name not in _KNOWN,
            lambda name=name: (
                f"A monitor needs printable names other than {', '.join(_KNOWN)}; received "
                f"{name!a:.80}."
            ),
        )
    try:
        return {
            name: value if type(value) in (bool, int, float) else float(value)
            for name, value in measures.items()
        }
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"A monitor needs to return numbers: {error}.") from None


def _recorded(history: Sequence[Mapping[str, Any]], step: int) -> bool:
    """Return whether the history has the record of the epoch that ended with this step."""
    return any("epoch" in r and r.get("step") == step for r in history)


def preserved_random_state(device: torch.device) -> contextlib.AbstractContextManager:
    """Leave torch's random states, of the CPU and of a device, as they were."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = device.index
    if index is None:
        index = torch.accelerator.current_device_index()
    return torch.random.fork_rng(devices=[index], device_type=device.type)


# ---- beginning ----


def _prepared(
    networks: nn.Module,
    objective: Any,
    batches: Iterable[Any] | Steps,
    optimiser: Optimiser,
    schedule: Schedule | None,
    epochs: int,
    steps_per_epoch: int | None,
    options: FitOptions,
) -> tuple[_Plan, State]:
    """Return all that training needs, tried out: what does not fit is refused before a folder is
    made."""
    device = device_of(options.device)
    need(
        options.precision == "full" or _has(device, options.precision),
        lambda: (
            f'`precision = "{options.precision}"` needs a device that has it; `{device}` lacks it.'
        ),
    )
    need(
        isinstance(epochs, int) and epochs >= 1,
        lambda: f"`epochs` needs a whole number of at least 1; received {epochs}.",
    )
    loss = as_objective(objective)
    whole = networks if isinstance(networks, Networks) else Networks([networks])
    need(
        options.queue == 0 or "queue" in loss.takes,
        lambda: (
            f"`queue={options.queue}` needs an objective with candidates; `{type(loss).__name__}` "
            "takes no queue."
        ),
    )
    need(
        len(whole.encoders) == 1 or not options.momentum or options.symmetric,
        lambda: (
            f"`momentum={options.momentum}` with {len(whole.encoders)} encoders needs "
            "`symmetric=True`: otherwise only the first of them would learn."
        ),
    )
    stream: Steps | Iterated = (
        batches.on_rank(rank(), world_size())
        if isinstance(batches, Steps)
        else Iterated(batches, options.seed, steps_per_epoch)
    )
    plan = _Plan(stream, epochs, schedule)
    need(
        schedule is None or callable(schedule) or isinstance(schedule, _SCHEDULES),
        lambda: (
            "A schedule needs `ScheduleSettings`, a function from the step to a factor, or a "
            f"scheduler of torch; received {schedule!r}."
        ),
    )
    for epoch in range(0, epochs, -(-epochs // CHECKED)):
        plan.factor(epoch * stream.per_epoch)
    state = begin(whole, loss, optimiser, options)
    if isinstance(schedule, torch.optim.lr_scheduler.LRScheduler):
        need(
            schedule.optimizer is state.optimiser,
            "A scheduler of torch needs to be made on the optimiser that is given.",
        )
        total = getattr(schedule, "total_steps", None) or plan.steps
        need(
            total >= plan.steps,
            lambda: (
                f"`{type(schedule).__name__}` needs as many steps as are trained, {plan.steps}; it "
                f"was made for {total}."
            ),
        )
        state.scheduler = schedule
    if isinstance(stream, Steps):
        need(
            "labels" not in loss.takes or stream.labels is not None,
            lambda: f"`{type(loss).__name__}` needs labels; `{stream.pairs.data.name}` has none.",
        )
        _try_out(state, stream, device)
    if options.compile:
        as_compiled(state.networks)
    return plan, state


def _try_out(state: State, batches: Steps, device: torch.device) -> None:
    """Pass two samples through the networks."""
    two = batches.order.indices(0, 0, batches.rank, batches.world)[:2]
    with preserved_random_state(device), torch.no_grad(), evaluating(state.networks):
        views = [*batches.pairs(two, 0), *batches.pairs.crops(two, 0)]
        for view, x in enumerate(views):
            side = 1 if view == 1 else 0
            with taking(state.networks.encoders[side % len(state.networks.encoders)], x):
                state.networks(x.to(device), side=side)


def _has(device: torch.device, precision: str) -> bool:
    """Return whether a device computes in a precision."""
    if device.type == "cuda" and precision == "bfloat16":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.amp.is_autocast_available(device.type)


def _same_on_all_ranks(plan: _Plan, origin: Origin) -> None:
    """Refuse ranks that would not train on the same batches."""
    require_alike("train", "the number of steps of an epoch", plan.batches.per_epoch, "{:.0f}")
    if origin.fingerprint is not None:
        rows, digest, _ = origin.fingerprint
        require_alike("train", "the number of samples", rows, "{:.0f} rows")
        part = int(digest[:12], 16)  # 48 bits: exact as a float64
        require_alike("train", "the contents of the data", part, "a sha256 of {:.0f}")


# ---- the place to save ----


def _opened(
    out: Run | str | os.PathLike | None,
    plan: _Plan,
    options: FitOptions,
    state: State,
    origin: Origin,
    resume: bool,
) -> tuple[Run | None, Callable[[], None]]:
    """Return the run to save in, and what writes into it once its state is restored."""
    if out is None or isinstance(out, Run):
        return out, lambda: None
    settings = origin.settings or _settings_of(plan, options, state)
    run = _open_folder(out, settings.table(), resume)
    if origin.prepare is not None:
        return run, origin.prepare(run)
    whole = state.networks if state.plain is None else state.plain
    objects = _objects(plan, state)
    known = described(objects, settings, None, [d for d in [whole.d] if d])
    if resume:
        _require_same_texts(run, settings)
        origin.notes.extend(require_same(str(run.folder), run.objects(), known))
    given = objects.modules().given()
    return run, lambda: remember(run, whole, known, given, anew=state.step == 0)


def _require_same_texts(run: Run, settings: Settings) -> None:
    """Refuse an objective, views or networks of another notation than those a run began with."""
    then = Settings.of(run.settings())
    for name in ("objective", "view", "second_view", "encoder", "projector", "predictor"):
        was, now = text_of(then, name), text_of(settings, name)
        need(
            was == now or (is_placeholder(was) and is_placeholder(now)),
            lambda name=name, was=was, now=now: (
                f"Resuming `{run.folder}` needs the {name} it began with, `{was}`; received "
                f"`{now}`."
            ),
        )


def _objects(plan: _Plan, state: State) -> Ingredients:
    """Return what is trained with, by the names that a run asks for."""
    networks, objective = state.networks if state.plain is None else state.plain, state.objective
    projector, pairs = networks.projectors[0], getattr(plan.batches, "pairs", None)
    return Ingredients(
        objective=objective.function if isinstance(objective, AnyLoss) else objective,
        view=getattr(pairs, "first", None),
        second_view=getattr(pairs, "second", None),
        encoder=networks.encoders[0],
        second_encoder=networks.encoders[1] if len(networks.encoders) > 1 else None,
        projector=None if isinstance(projector, nn.Identity) else projector,
        predictor=networks.predictor,
    )


def remember(
    run: Run,
    networks: Networks,
    known: Mapping[str, Any],
    given: Sequence[str] = (),
    *,
    anew: bool = False,
) -> None:
    """Write what a run needs to know of objects: how they look, and the weights they began with.

    And which networks were `given` those weights; files of weights in the settings give them too.

    Weights that are there stay, unless training begins `anew` with those that are given. What a
    save that was killed left of the weights does not count.
    """
    if anew or not checkpoints.any_saved(run.folder / INITIAL):
        if known or given or anew:
            run.write_objects(known, given)
        save_initial(run, networks)


def _open_folder(out: str | os.PathLike, settings: Mapping[str, Any], resume: bool) -> Run:
    """Return the run in a folder that all ranks see: made by the first of them, or the one there.

    Args:
        out: the folder.
        settings: that a new run is made with.
        resume: whether a run that is there is opened.
    """
    there = os.path.exists(os.path.join(out, "settings.toml"))
    extra = {"threads": torch.get_num_threads(), "ranks": world_size()}
    make = is_first() and not (resume and there)
    on_every_rank(lambda: Run.create(out, settings, extra) if make else None)
    return on_every_rank(lambda: Run.open(out))


def _settings_of(plan: _Plan, options: FitOptions, state: State) -> Settings:
    """Return settings that say what is known where only objects were given."""
    networks, batches = state.networks, plan.batches
    made_of = batches.pairs if isinstance(batches, Steps) else None
    encoders, projector = list(networks.encoders), networks.projectors[0]
    table = Settings().table()
    table |= {
        "objective": written("objective", _objects(plan, state).objective),
        "epochs": plan.epochs,
        "batch": max(2, batches.batch),
        **{name: getattr(options, name) for name in _SHARED if name in table},
    }
    source = batches.batches if isinstance(batches, Iterated) else batches.pairs.data
    table["data"] |= {"source": f"<{import_path(source)}>", "part": "all"}
    views = (None, None) if made_of is None else (made_of.first, made_of.second)
    first, second = ("" if v is None else written("view", v) for v in views)
    table["views"] = {"first": first, "second": second, "fresh": False}
    table["network"] |= {
        "encoder": written("encoder", encoders[0]),
        "second_encoder": written("encoder", encoders[1]) if len(encoders) > 1 else "",
        "projector": "" if isinstance(projector, nn.Identity) else written("projector", projector),
        "predictor": "" if networks.predictor is None else written("predictor", networks.predictor),
        **{name: getattr(options, name) for name in _SHARED if name in table["network"]},
    }
    table["optimiser"]["name"] = f"<{import_path(state.optimiser)}>"
    table["schedule"] |= {"name": "constant", "warmup": 0.0}
    return Settings.of(table)


_SHARED = (
    *("seed", "symmetric", "micro_batch", "device", "precision", "compile"),
    *("momentum", "momentum_schedule", "queue", "average", "sync_batch_norm"),
    *("shard", "recompute"),
)
"""Names that options and settings share."""


@contextlib.contextmanager
def _locked(folder: Path | None, there: bool) -> Iterator[tuple[str, ...]]:
    """Hold the right to write, on the first rank; the others hear of a refusal.

    The folder is made if need be: two that begin in one folder must not both create a run.
    """
    with contextlib.ExitStack() as stack:

        def take() -> str:
            if folder is None or not is_first():
                return ""
            if not (folder / "settings.toml").exists() or not there:
                require_free(folder)
                with writing(folder):
                    make_folder(folder)
            Run(folder).require_own()
            return stack.enter_context(one_writer(folder))

        said = on_every_rank(take)
        yield (said,) if said else ()


def _how_to_go_on(folder: Path | None) -> str:
    return "" if folder is None else f"`--resume --out {folder}` goes on."
