"""`train`: one loop, in which everything that is random is a function of the settings.

A run that is killed at any moment and resumed ends with the weights, bit by bit, of one that was
not (same machine, build and threads): order and views have no state, and all that has one is in the
checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import torch

from chiaroscuro.artifacts import Run, environment
from chiaroscuro.data import Dataset
from chiaroscuro.engine.batches import open_training_data
from chiaroscuro.engine.distributed import (
    anyone,
    barrier,
    in_parallel,
    is_first,
    joined_ranks,
    rank,
    together,
    world_size,
)
from chiaroscuro.engine.fingerprint import fingerprint
from chiaroscuro.engine.loggers import Logger
from chiaroscuro.engine.networks import Networks, as_compiled
from chiaroscuro.engine.progress import Progress
from chiaroscuro.engine.reading import read_settings
from chiaroscuro.engine.settings import WITHOUT_EFFECT, Settings
from chiaroscuro.engine.state import State, device_of, fresh, restore, save
from chiaroscuro.engine.step import take_step
from chiaroscuro.engine.stream import Steps, watched_workers
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["Callback", "Moment", "train"]

AGAIN = 1.0
"""Seconds after which a Ctrl-C is another one."""


@dataclass(frozen=True, eq=False)
class Moment:
    """The end of an epoch, as callbacks see it.

    `networks` are in evaluation mode, without gradients, and the averaged ones where the settings
    keep an average; `data` are the samples trained on.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    settings: Settings
    networks: Networks
    data: Dataset
    run: Run


Callback = Callable[[Moment], Mapping[str, float] | None]
"""Called after every epoch, on the first rank; the numbers it returns join the history's record.

It may look at everything and change nothing: torch's random states are put back after it, and
training draws from no others (neither Python's `random` nor numpy's global one). Where it cannot
measure (a `ChiaroError`) that is said once, and training goes on without its numbers.
"""


def train(
    settings: Any,
    out: str | os.PathLike = "run",
    callbacks: Sequence[Callback | Logger] = (),
    resume: bool = False,
    progress: TextIO | None = None,
) -> Run:
    """Train as the settings say, and leave a run folder.

    Under `torchrun` every rank takes its part of each batch, and the loss sees all of it. Ctrl-C
    finishes the step, writes a checkpoint and raises `KeyboardInterrupt`; a second one stops at
    once. The run folder has to be one that all ranks see.

    Args:
        settings: `Settings`, a preset's name, a TOML file or text, or a dictionary.
        out: the run folder: new, or with `resume` one that holds a run of the same settings.
        callbacks: monitors (`Callback`) and loggers (`Logger`).
        resume: go on from the newest good checkpoint; from the start if there is none.
        progress: where to show the progress: a bar on a terminal, else lines; None is nowhere.

    Example:
        >>> import tempfile
        >>> from chiaroscuro.engine import train
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=1"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = train(read_settings("digits", small), folder)
        ...     run.history().records[-1]["step"]
        11
    """
    chosen = read_settings(settings)
    with joined_ranks(), _asked_to_stop() as stop, watched_workers():
        state, training = together(lambda: _begun(chosen, callbacks, stop, progress))
        run = _open(chosen, out, resume)
        notes = (*_other_machine(run), *restore(state, run)) if resume else ()
        _loop(training, state, run, notes)
        barrier()
    return run


@dataclass(frozen=True, eq=False)
class _Training:
    """What stays the same from the first step to the last."""

    settings: Settings
    data: Dataset
    batches: Steps
    monitors: tuple[Callback, ...]
    loggers: tuple[Logger, ...]
    failed: set[int]
    """Monitors, by their place, that could not measure: it is said once."""
    stop: Callable[[], bool]
    progress: TextIO | None

    @property
    def steps(self) -> int:
        return self.settings.epochs * self.batches.per_epoch


# ---- the loop ----


def _loop(training: _Training, state: State, run: Run, notes: Sequence[str]) -> None:
    settings, steps, per_epoch = training.settings, training.steps, training.batches.per_epoch
    device, saving = device_of(settings), settings.saving
    networks: Any = as_compiled(state.networks) if settings.compile else state.networks
    if not settings.micro_batch:  # those pass through each network many times before they add up
        networks = in_parallel(networks)
    ahead = training.batches.stream(state.step, steps, settings.data.workers)
    shown = Progress(training.progress if is_first() else None, steps, state.step, settings.batch)
    state.networks.train()
    with (
        shown,
        contextlib.closing(ahead) as stream,
        _recording(training.loggers, run) as record,
    ):
        for sentence in (*notes, *_notes(training, run)):
            shown.say(sentence)

        def end_epoch() -> None:
            record(together(lambda: _epoch_end(training, state, run, shown)), True)
            state.losses = (0.0, 0)

        # saved at the end of an epoch, before it was recorded
        if state.losses[1] and state.step % per_epoch == 0:
            with shown.paused():
                if anyone(is_first() and not _recorded(run, state.step)):
                    end_epoch()
            state.losses = (0.0, 0)
        while state.step < steps:
            if anyone(training.stop()):
                save(state, run, saving.keep)
                how = f"`--resume --out {run.folder}` goes on."
                shown.say(f"stopped after step {state.step} of {steps}; {how}")
                raise KeyboardInterrupt
            epoch = state.step // per_epoch
            x1, x2, y = together(lambda: next(stream))
            batch = x1.to(device), x2.to(device), None if y is None else y.to(device)
            lr = settings.optimiser.lr * settings.schedule.factor(state.step, steps, per_epoch)
            loss = take_step(state, networks, batch, settings, lr, steps)
            state.step += 1
            state.losses = (state.losses[0] + loss, state.losses[1] + 1)
            shown.step(state.step, epoch, loss)
            ended = state.step % per_epoch == 0
            with shown.paused():
                if state.step % saving.record == 0:
                    record({"step": state.step, "loss": loss, "lr": lr}, False)
                due = state.step % saving.every == 0 if saving.every else ended
                if due or state.step == steps:  # first: whatever a monitor does, this is kept
                    save(state, run, saving.keep)
                if ended:
                    end_epoch()


@contextlib.contextmanager
def _recording(
    loggers: Sequence[Logger], run: Run
) -> Iterator[Callable[[Mapping[str, Any], bool], None]]:
    """What puts a record into the history, durably or not, and shows it to the loggers.

    They begin with the first record: what they start must not be there when workers are forked.
    """
    begun: list[Logger] = []

    def write(entry: Mapping[str, Any], durable: bool) -> None:
        run.append(entry, durable)
        for logger in loggers:
            if logger not in begun:
                logger.begin(run, int(entry["step"]))
                begun.append(logger)
            logger.record(entry)

    try:
        yield lambda entry, durable: together(lambda: write(entry, durable) if is_first() else None)
    finally:
        for logger in begun:
            logger.end()


def _epoch_end(training: _Training, state: State, run: Run, shown: Progress) -> dict[str, Any]:
    """The record of an epoch, with what the monitors measure; on the first rank."""
    if not is_first():
        return {}
    mean = state.losses[0] / state.losses[1]
    epoch = (state.step - 1) // training.batches.per_epoch
    moment = Moment(
        step=state.step,
        steps=training.steps,
        epoch=epoch,
        loss=mean,
        settings=training.settings,
        networks=state.best,
        data=training.data,
        run=run,
    )
    measures: dict[str, float] = {}
    failed: dict[str, str] = {}
    with _random_kept(device_of(training.settings)), torch.no_grad():
        state.best.eval()
        for place, monitor in enumerate(training.monitors):
            try:
                measures |= monitor(moment) or {}
            except ChiaroError as error:
                if place not in training.failed:
                    training.failed.add(place)
                    failed["failed_monitor"] = str(error)  # for those who look later
                    shown.say(f"A monitor cannot measure, and training goes on: {error}")
        state.best.train()
    speed: dict[str, float] = {}
    if state.step > shown.start:
        shown.epoch(state.step, epoch, mean, measures)
        speed = {"images_per_second": shown.rate(state.step), "seconds": shown.seconds}
    else:  # another process took its steps
        shown.say(f"epoch {epoch + 1} was saved and is recorded now, loss {mean:.4f}")
    known = {"step": state.step, "epoch": epoch + 1, "mean_loss": mean}
    return {**known, **measures, **failed, **speed}


def _recorded(run: Run, step: int) -> bool:
    """Whether the history has the record of the epoch that ended with this step."""
    return any("epoch" in r and r.get("step") == step for r in run.history().records)


def _random_kept(device: torch.device) -> contextlib.AbstractContextManager:
    """torch's random states, of the CPU and of the networks' device, end as they began."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = device.index
    if index is None:
        index = torch.accelerator.current_device_index()
    return torch.random.fork_rng(devices=[index], device_type=device.type)


# ---- beginning ----


def _begun(
    settings: Settings,
    callbacks: Sequence[Callback | Logger],
    stop: Callable[[], bool],
    progress: TextIO | None,
) -> tuple[State, _Training]:
    """All that training needs, tried out: what does not fit is refused before a folder is made."""
    device = device_of(settings)
    need(
        settings.precision == "full" or _has_bfloat16(device),
        lambda: (
            f'`precision = "{settings.precision}"` needs a device that has it; `{device}` lacks it.'
        ),
    )
    data, state = open_training_data(settings), fresh(settings)
    state.data = fingerprint(data)
    labels = "labels" in state.objective.takes
    batches = Steps.of(settings, data, labels, rank(), world_size())
    loggers = tuple(c for c in callbacks if isinstance(c, Logger))
    monitors = tuple(c for c in callbacks if not isinstance(c, Logger))
    training = _Training(settings, data, batches, monitors, loggers, set(), stop, progress)
    for epoch in range(settings.epochs):
        settings.schedule.factor(epoch * batches.per_epoch, training.steps, batches.per_epoch)
    two = batches.order.indices(0, 0, rank(), world_size())[:2]
    with _random_kept(device), torch.no_grad():
        state.networks.eval()
        for side, x in enumerate(batches.pairs(two, 0)):
            state.networks(x.to(device), side=side)
        state.networks.train()
    if settings.compile:
        as_compiled(state.networks)
    return state, training


def _notes(training: _Training, run: Run) -> list[str]:
    """What one should know before the first step."""
    settings, data, notes = training.settings, training.data, []
    if 0 < settings.epochs <= settings.schedule.warmup and settings.schedule.name != "lambda":
        notes.append(
            f"`schedule.warmup` of {settings.schedule.warmup:g} epochs is no shorter than the "
            f"training of {settings.epochs}: the learning rate only rises, at most to "
            f"`optimiser.lr` {settings.optimiser.lr:g}."
        )
    skipped = [{"path": one.path, "reason": one.reason} for one in data.skipped]
    together(lambda: run.write_skipped(skipped) if skipped and is_first() else None)
    if skipped:
        notes.append(f"{data.skipped_said()} All are in `{run.folder / 'skipped.json'}`.")
    return notes


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.amp.is_autocast_available(device.type)


def _open(settings: Settings, out: str | os.PathLike, resume: bool) -> Run:
    """The run folder, which all ranks see: made by the first, or found to hold these settings."""
    there = os.path.exists(os.path.join(out, "settings.toml"))
    extra = {"threads": torch.get_num_threads(), "ranks": world_size()}
    make = is_first() and not (resume and there)
    together(lambda: Run.create(out, settings.table(), extra) if make else None)
    run = together(lambda: Run.open(out))
    if resume:
        _same(settings.table(), Settings.of(run.settings()).table(), str(out))
    return run


def _same(now: Mapping[str, Any], then: Mapping[str, Any], out: str, under: str = "") -> None:
    for key, value in now.items():
        name = f"{under}{key}"
        if isinstance(value, Mapping):
            _same(value, then[key], out, f"{name}.")
        elif value != then[key] and not name.startswith(WITHOUT_EFFECT):
            raise InputError(
                f"Resuming `{out}` needs the settings it began with; `{name}` was "
                f"{then[key]!r} and is {value!r} now."
            )


def _other_machine(run: Run) -> list[str]:
    """A sentence if what rounding depends on is not what the run began with."""
    then = together(run.environment)
    packages = then.get("packages") or {}
    compared = {
        "threads": (then.get("threads"), torch.get_num_threads()),
        "torch": (packages.get("torch"), environment()["packages"]["torch"]),
    }
    other = [
        f"{name} {was} then and {now} now"
        for name, (was, now) in compared.items()
        if was is not None and was != now
    ]
    if not other:
        return []
    return [
        f"`{run.folder}` goes on with {', '.join(other)}: the weights will be alike, not the same "
        "to the bit."
    ]


# ---- stopping ----


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; a second one is not waited for.

    A launcher passes on the Ctrl-C that its ranks have seen already: at once is not a second time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked: list[float] = []

    def note(number: int, frame: Any) -> None:
        asked.append(time.monotonic())
        if asked[-1] - asked[0] > AGAIN:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
