"""`train`: one loop, in which everything that is random is a function of the settings.

A run that is killed at any moment and resumed ends with the weights, bit by bit, of one that was
not (same machine, build and threads): order and views have no state, and all that has one is in the
checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.data import Dataset, Order
from chiaroscuro.engine.batches import Pairs, open_training_data
from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.distributed import (
    average_gradients,
    barrier,
    distributed_loss,
    gather_rows,
    is_first,
    joined_ranks,
    rank,
    world_size,
)
from chiaroscuro.engine.networks import Networks, build
from chiaroscuro.engine.optimisers import optimiser
from chiaroscuro.engine.progress import Progress
from chiaroscuro.engine.schedules import SCHEDULES
from chiaroscuro.engine.settings import Settings, read_settings
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.models import Momentum, pack, unpack
from chiaroscuro.objectives import Objective

__all__ = ["Callback", "Moment", "train"]


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

It may look at everything and change nothing: torch's random state is put back after it.
"""


def train(
    settings: Any,
    out: str | os.PathLike = "run",
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    progress: TextIO | None = None,
) -> Run:
    """Train as the settings say, and leave a run folder.

    Under `torchrun` every rank takes its part of each batch, and the loss sees all of it. Ctrl-C
    finishes the step, writes a checkpoint and raises `KeyboardInterrupt`; a second one stops at
    once.

    Args:
        settings: `Settings`, a preset's name, a TOML file or text, or a dictionary.
        out: the run folder: new, or with `resume` one that holds a run of the same settings.
        callbacks: see `Callback`.
        resume: go on from the newest good checkpoint; from the start if there is none.
        progress: where lines about the progress go; None is nowhere.

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
    with joined_ranks(), _asked_to_stop() as stop:
        data = open_training_data(chosen)
        state = _fresh(chosen)
        _rehearse(chosen, data, state)
        run = _open(chosen, out, resume)
        if resume:
            _restore(state, run, progress)
        _loop(_Training(chosen, run, data, tuple(callbacks), stop, progress), state)
        barrier()
    return run


@dataclass(frozen=True, eq=False)
class _Training:
    """What stays the same from the first step to the last."""

    settings: Settings
    run: Run
    data: Dataset
    callbacks: tuple[Callback, ...]
    stop: Callable[[], bool]
    progress: TextIO | None


@dataclass(eq=False)
class _State:
    """What changes: everything that a checkpoint holds."""

    networks: Networks
    objective: Objective
    optimiser: torch.optim.Optimizer
    target: Momentum | None
    """The slow copy that embeds the other side (MoCo, BYOL)."""
    average: Momentum | None
    """The average of weights for evaluation."""
    queue: Tensor | None
    oldest: int = 0
    """The row of the queue that is replaced next."""
    step: int = 0
    losses: tuple[float, int] = (0.0, 0)
    """Sum and number of the losses of this epoch."""


# ---- the loop ----


def _loop(training: _Training, state: _State) -> None:
    settings, data = training.settings, training.data
    order = Order(len(data), settings.batch, settings.seed)
    steps = settings.epochs * len(order)
    warmup = min(steps, round(settings.schedule.warmup * len(order)))
    pairs, device = Pairs.of(settings, data), _device(settings)
    labels = _labels(state.objective, data)
    networks = _parallel(state.networks)
    shown = Progress(training.progress if is_first() else None, steps, state.step, settings.batch)
    state.networks.train()
    for place in order.steps(state.step, rank=rank(), world=world_size()):
        if place.step >= steps:
            break
        x1, x2 = (x.to(device) for x in pairs(place.indices, place.epoch))
        y = None if labels is None else torch.from_numpy(labels[place.indices]).to(device)
        factor = SCHEDULES[settings.schedule.name](place.step, steps, warmup)
        for group in state.optimiser.param_groups:
            group["lr"] = settings.optimiser.lr * factor
        state.optimiser.zero_grad(set_to_none=True)
        loss = _backward(state, networks, (x1, x2, y), settings)
        average_gradients(state.objective.parameters())
        if settings.optimiser.clip:
            nn.utils.clip_grad_norm_(_learnt(state), settings.optimiser.clip)
        state.optimiser.step()
        _follow(state, settings)
        _after(training, state, shown, loss, len(order))


def _backward(
    state: _State, networks: Any, batch: tuple[Tensor, Tensor, Tensor | None], settings: Settings
) -> float:
    """The loss of the whole batch, its gradients left in the parameters."""
    x1, x2, y = batch
    if settings.micro_batch:
        sides = [functools.partial(networks, side=side) for side in (0, 1)]
        see = lambda z1, z2: distributed_loss(state.objective, z1, z2, y)
        value = cached_backward(sides, (x1, x2), see, settings.micro_batch)
    elif state.target is None:
        z1, z2 = networks(x1, x2)
        value = distributed_loss(state.objective, z1, z2, y)
        value.backward()
    else:
        value = _against_target(state, networks, (x1, x2, y), settings.symmetric)
        value.backward()
    loss = float(value.detach())
    need(
        math.isfinite(loss),
        lambda: (
            f"The loss of step {state.step} is {loss}. Lower `optimiser.lr` "
            f"({settings.optimiser.lr}), lengthen the warm-up, or set `optimiser.clip`."
        ),
    )
    return loss


def _against_target(
    state: _State,
    networks: Any,
    batch: tuple[Tensor, Tensor, Tensor | None],
    symmetric: bool,
) -> Tensor:
    """The loss of what learns against what the slow copy says of the other view."""
    x1, x2, y = batch
    target: Any = state.target.module  # type: ignore[union-attr]
    with torch.no_grad():
        keys = [target.project(target.encode(x, side), side) for side, x in ((1, x2), (0, x1))]
    if symmetric:
        q1, q2 = networks(x1, x2)
        value = distributed_loss(state.objective, q1, keys[0], y)
        value = value + distributed_loss(state.objective, q2, keys[1], y)
    else:
        value = distributed_loss(state.objective, networks(x1), keys[0], y, state.queue)
    if state.queue is not None:
        _enqueue(state, gather_rows(keys[0]))
    return value


def _enqueue(state: _State, keys: Tensor) -> None:
    """The newest keys take the places of the oldest [he2020moco, Alg. 1]."""
    if state.queue is None:
        return
    size = len(state.queue)
    keys = keys[-size:]
    places = (state.oldest + torch.arange(len(keys), device=keys.device)) % size
    state.queue = state.queue.index_copy(0, places, keys.to(state.queue.dtype))
    state.oldest = (state.oldest + len(keys)) % size


def _follow(state: _State, settings: Settings) -> None:
    """The slow copies take their step."""
    if state.target is not None:
        state.target.update(state.networks, settings.network.momentum)
    if state.average is not None:
        state.average.update(state.networks, settings.network.average)


def _after(
    training: _Training, state: _State, shown: Progress, loss: float, per_epoch: int
) -> None:
    """Count the step; write, measure and save what is due."""
    saving, steps = training.settings.saving, shown.steps
    epoch = state.step // per_epoch
    state.step += 1
    state.losses = (state.losses[0] + loss, state.losses[1] + 1)
    lr = state.optimiser.param_groups[0]["lr"]
    ended, done = state.step % per_epoch == 0, state.step >= steps
    shown.step(state.step, epoch, loss)
    if is_first() and state.step % saving.record == 0:
        training.run.append({"step": state.step, "loss": loss, "lr": lr}, durable=False)
    began = time.perf_counter()
    if ended:
        _epoch_end(training, state, shown, epoch)
        state.losses = (0.0, 0)
    stop = _anyone(training.stop())
    due = state.step % saving.every == 0 if saving.every else ended
    if due or done or stop:
        _save(state, training)
    shown.away += time.perf_counter() - began
    if stop and not done:
        folder = training.run.folder
        shown.say(f"stopped after step {state.step} of {steps}; `--resume --out {folder}` goes on.")
        raise KeyboardInterrupt


def _epoch_end(training: _Training, state: _State, shown: Progress, epoch: int) -> None:
    if not is_first():
        return
    mean = state.losses[0] / state.losses[1]
    best = state.networks if state.average is None else state.average.module
    moment = Moment(
        step=state.step,
        steps=shown.steps,
        epoch=epoch,
        loss=mean,
        settings=training.settings,
        networks=best,  # type: ignore[arg-type]
        data=training.data,
        run=training.run,
    )
    measures: dict[str, float] = {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        best.eval()
        for callback in training.callbacks:
            measures |= callback(moment) or {}
        best.train()
    record = {"step": state.step, "epoch": epoch + 1, "mean_loss": mean, **measures}
    speed = {"images_per_second": shown.rate(state.step), "seconds": shown.seconds}
    training.run.append(record | speed)
    shown.epoch(state.step, epoch, mean, measures)


# ---- beginning ----


def _rehearse(settings: Settings, data: Dataset, state: _State) -> None:
    """Two samples go all the way: what does not fit is refused before a folder is made."""
    _labels(state.objective, data)
    order = Order(len(data), settings.batch, settings.seed)
    some = order.indices(0, 0, rank(), world_size())[:2]
    device = _device(settings)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        state.networks.eval()
        for side, x in enumerate(Pairs.of(settings, data)(some, 0)):
            state.networks(x.to(device), side=side)
        state.networks.train()


def _open(settings: Settings, out: str | os.PathLike, resume: bool) -> Run:
    """The run folder: made by the first rank, or found to hold the same settings."""
    if is_first():
        there = os.path.exists(os.path.join(out, "settings.toml"))
        if not (resume and there):
            extra = {"threads": torch.get_num_threads(), "ranks": world_size()}
            Run.create(out, settings.table(), extra)
    barrier()
    run = Run.open(out)
    if resume:
        _same(settings.table(), Settings.of(run.settings()).table(), str(out))
    return run


def _same(now: Mapping[str, Any], then: Mapping[str, Any], out: str, under: str = "") -> None:
    for key, value in now.items():
        if isinstance(value, Mapping):
            _same(value, then[key], out, f"{under}{key}.")
        elif value != then[key] and under != "saving.":
            raise InputError(
                f"Resuming `{out}` needs the settings it began with; `{under}{key}` was "
                f"{then[key]!r} and is {value!r} now."
            )


def _fresh(settings: Settings) -> _State:
    """The state before the first step."""
    network, device = settings.network, _device(settings)
    networks = build(network, settings.seed).to(device)
    if network.sync_batch_norm and world_size() > 1:
        networks = nn.SyncBatchNorm.convert_sync_batchnorm(networks)
    objective = settings.make_objective().to(device)
    torch.manual_seed(settings.seed + 1_000_003 * rank())  # dropout differs from rank to rank
    queue = None
    if network.queue:
        draw = torch.Generator().manual_seed(settings.seed)
        d = networks.projectors[-1].d
        queue = torch.randn(network.queue, int(d), generator=draw).to(device)  # type: ignore[arg-type]
        queue = nn.functional.normalize(queue)
    return _State(
        networks=networks,
        objective=objective,
        optimiser=optimiser(settings.optimiser, networks, objective),
        target=Momentum(networks) if network.momentum else None,
        average=Momentum(networks) if network.average else None,
        queue=queue,
    )


def _device(settings: Settings) -> torch.device:
    if settings.device != "auto":
        return torch.device(settings.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _labels(objective: Objective, data: Dataset) -> NDArray[np.int64] | None:
    if "labels" not in objective.takes:
        return None
    need(
        data.labels is not None,
        lambda: f"`{type(objective).__name__}` needs labels; `{data.name}` has none.",
    )
    return np.asarray(data.labels, dtype=np.int64)


def _parallel(networks: Networks) -> Any:
    if world_size() == 1:
        return networks
    return nn.parallel.DistributedDataParallel(networks)


def _learnt(state: _State) -> list[nn.Parameter]:
    return [p for group in state.optimiser.param_groups for p in group["params"]]


# ---- checkpoints ----


def _save(state: _State, training: _Training) -> None:
    random = gather_rows(torch.get_rng_state()[None])
    if not is_first():
        return
    slow = {name: getattr(state, name) for name in ("target", "average")}
    arrays, tree = pack(
        {
            "networks": dict(state.networks.state_dict()),
            "objective": dict(state.objective.state_dict()),
            "optimiser": state.optimiser.state_dict(),
            **{name: None if m is None else dict(m.state_dict()) for name, m in slow.items()},
            "queue": state.queue,
            "oldest": state.oldest,
            "losses": state.losses,
            "random": random,
        }
    )
    checkpoints.save(
        training.run.checkpoints, state.step, arrays, tree, training.settings.saving.keep
    )


def _restore(state: _State, run: Run, progress: TextIO | None) -> None:
    """Put the newest good checkpoint into a fresh state."""
    found = checkpoints.latest_good(run.checkpoints)
    if progress is not None and is_first():
        for sentence in found.bad:
            print(sentence, file=progress)
    step = 0 if found.checkpoint is None else found.checkpoint.step
    if is_first():
        run.rewind(lambda record: record.get("step", 0) <= step)
    if found.checkpoint is None:
        return
    saved = unpack(found.checkpoint.arrays, found.checkpoint.state)
    random = saved["random"]
    if len(random) != world_size():
        raise ChiaroError(
            f"`{run.folder}` was trained on {len(random)} ranks and needs as many to be resumed; "
            f"there are {world_size()}."
        )
    state.networks.load_state_dict(saved["networks"])
    state.objective.load_state_dict(saved["objective"])
    for name in ("target", "average"):
        if saved[name] is not None:
            getattr(state, name).load_state_dict(saved[name])
    state.optimiser.load_state_dict(saved["optimiser"])
    _as_laid_out(state.optimiser)
    if state.queue is not None:
        state.queue = saved["queue"].to(state.queue.device)
    state.oldest, state.step, state.losses = saved["oldest"], step, saved["losses"]
    torch.set_rng_state(random[rank()].clone())


def _as_laid_out(optimiser: torch.optim.Optimizer) -> None:
    """Moments in the memory order of their parameters: loops over them then round alike."""
    for p, moments in optimiser.state.items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == p.shape:
                moments[name] = torch.empty_like(p, dtype=value.dtype).copy_(value).detach()


# ---- stopping ----


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; a second one is not waited for."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _anyone(stop: bool) -> bool:
    """Whether any rank was asked to stop: all of them have to agree on the step."""
    return stop if world_size() == 1 else bool(gather_rows(torch.tensor([stop])).any())
