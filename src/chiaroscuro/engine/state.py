"""All that changes while a training goes on: made fresh, saved whole, put back bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine import sharding
from chiaroscuro.engine.batch_norm import synchronised
from chiaroscuro.engine.distributed import (
    gather_rows,
    is_first,
    on_any_rank,
    on_every_rank,
    rank,
    world_size,
)
from chiaroscuro.engine.fingerprint import Fingerprint
from chiaroscuro.engine.networks import Networks
from chiaroscuro.engine.opening import as_trained
from chiaroscuro.engine.optimisers import Optimiser, as_optimiser
from chiaroscuro.engine.options import FitOptions
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.models import Momentum, pack, unpack
from chiaroscuro.objectives import Objective

__all__ = [
    "Diverged",
    "State",
    "begin",
    "device_of",
    "diverged",
    "require_finite_weights",
    "restore",
    "save",
]


MOMENTS = "moments"
"""The folder beside the checkpoints for the moments of networks that are cut over ranks."""


class Diverged(ChiaroError):  # noqa: N818 - a training has, not the call
    """Training left the numbers: nothing was wrong with the call."""

    step: int = 0
    """At which it did."""


@dataclass(eq=False)
class State:
    """What a checkpoint holds. Order and views have no state: they are functions of the step."""

    networks: Networks
    objective: Objective
    optimiser: torch.optim.Optimizer
    rates: tuple[float, ...]
    """The learning rate of each group of parameters, before any schedule."""
    target: Momentum | None
    """Momentum encoder that embeds the other view (MoCo, BYOL)."""
    average: Momentum | None
    """The average of weights for evaluation."""
    queue: Tensor | None
    oldest: int = 0
    """The row of the queue that is replaced next."""
    step: int = 0
    losses: tuple[float, int] = (0.0, 0)
    """Sum and number of the losses of this epoch."""
    scheduler: Any = None
    """A scheduler of torch that sets the learning rates, or None."""
    data: Fingerprint | None = None
    """Of what is trained on: no other data are gone on with."""
    scaler: torch.amp.GradScaler | None = None
    """What scales the loss in float16, or None."""
    plain: Networks | None = None
    """Of networks that are cut over ranks the whole, on the host, filled when it is asked for; on
    all ranks but the first without any numbers until the end."""
    lanes: int = 1
    """Stretches of storage that each batch is read from, where data lie in blocks."""
    checks: list[Callable[[], None]] = field(default_factory=list)
    """What is left to be refused of the last steps, when losses are read."""

    @property
    def best(self) -> Networks:
        """What is evaluated: the average where there is one."""
        if self.plain is not None:
            return self.plain
        return self.networks if self.average is None else self.average.module  # type: ignore[return-value]

    @property
    def modules(self) -> nn.Module:
        """All that learns, under one roof."""
        return nn.ModuleDict({"networks": self.networks, "objective": self.objective})

    def gather(self, everywhere: bool = False) -> None:
        """Fill the whole of networks that are cut; all ranks have to call this.

        Args:
            everywhere: on every rank; else on the first.
        """
        if self.plain is not None:
            sharding.fill(self.plain, self.networks, everywhere)


def begin(
    networks: Networks, objective: Objective, optimiser: Optimiser, options: FitOptions
) -> State:
    """Return the state before the first step.

    Args:
        networks: moved to the device of the options, and changed in place by training; with
            `shard` they stay on the host and are filled at the end, and each device gets its part.
        objective: as well.
        optimiser: one of torch's, settings of one, or a function from parameters to one.
        options: options of the training.
    """
    device = device_of(options.device)
    if options.sync_batch_norm:
        networks = synchronised(networks, device.type)
    objective = objective.to(device)
    if options.recompute:
        sharding.recomputed(networks)
    plain = None
    if options.shard and world_size() > 1:
        plain, networks = networks, sharding.sharded(networks, device)
    else:
        networks = networks.to(device)
    torch.manual_seed(options.seed + 1_000_003 * rank())  # dropout differs from rank to rank
    half = options.precision == "float16"
    several = [p for p in objective.parameters() if p.requires_grad and p.numel() > 1]
    need(
        not (half and several and plain is not None),
        lambda: (
            '`shard` with `precision = "float16"` needs an objective that learns single numbers; '
            f"`{type(objective).__name__}` learns {several[0].numel()} together. Take bfloat16, or "
            "one temperature for all dimensions."
        ),
    )
    made = as_optimiser(optimiser, networks, objective, scaled=half)
    return State(
        networks=networks,
        objective=objective,
        optimiser=made,
        rates=tuple(float(group["lr"]) for group in made.param_groups),
        target=Momentum(networks) if options.momentum else None,
        average=Momentum(networks) if options.average else None,
        queue=_queue(networks, options).to(device) if options.queue else None,
        scaler=torch.amp.GradScaler(device.type) if half else None,
        plain=plain,
        lanes=world_size(),
    )


def _queue(networks: Networks, options: FitOptions) -> Tensor:
    """Return the candidates before there are any keys: random directions [he2020moco]."""
    d = networks.d
    need(
        d is not None,
        lambda: (
            f"`queue={options.queue}` needs to know the dimension of the projections before the "
            "first step: give the projector an attribute `d`."
        ),
    )
    draw = torch.Generator().manual_seed(options.seed)
    queue = torch.randn(options.queue, int(d), generator=draw)  # type: ignore[arg-type]
    return nn.functional.normalize(queue)


def device_of(name: str) -> torch.device:
    """Return the device of that name; "auto" is an accelerator if there is one, or the CPU."""
    if name == "auto":
        return torch.device(("cpu", *_devices()[1:2])[-1])
    try:
        device = torch.device(name)
    except RuntimeError:  # no such kind
        device = None
    available = _devices()
    if device is None or (device.type != "cpu" and str(device) not in available):
        raise InputError(
            f"`device` needs `auto` or one that is here: {', '.join(available)}; received `{name}`."
        )
    return device


def _devices() -> list[str]:
    """Return what this machine and this build of torch can compute on."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or not torch.accelerator.is_available():
        return ["cpu"]
    kind = accelerator.type
    return ["cpu", kind, *(f"{kind}:{i}" for i in range(torch.accelerator.device_count()))]


def save(state: State, run: Run, keep: int) -> None:
    """Write a checkpoint, from the first rank; all ranks have to call this."""
    random = gather_rows(_random_state(next(state.networks.parameters()).device)[None])

    is_cut = state.plain is not None
    weights = sharding.whole_weights(state.networks) if is_cut else state.networks.state_dict()
    parts = None
    if is_cut:  # before the checkpoint that counts on them
        moments = run.checkpoints.parent / MOMENTS
        parts = sharding.save_moments(state.modules, state.optimiser, moments, state.step, keep + 1)

    def write() -> None:
        slow = {name: getattr(state, name) for name in ("target", "average")}
        arrays, tree = pack(
            {
                "networks": dict(weights),
                "objective": dict(state.objective.state_dict()),
                "optimiser": None if is_cut else state.optimiser.state_dict(),
                **({} if parts is None else {"moments": parts}),
                **{name: None if m is None else dict(m.state_dict()) for name, m in slow.items()},
                **({} if state.scheduler is None else {"scheduler": state.scheduler.state_dict()}),
                **({} if state.scaler is None else {"scaler": state.scaler.state_dict()}),
                "lanes": state.lanes,
                "queue": state.queue,
                "oldest": state.oldest,
                "losses": state.losses,
                "data": None if state.data is None else tuple(state.data),
                "random": random,
            }
        )
        run.sync_history()
        checkpoints.save(run.checkpoints, state.step, arrays, tree, keep)

    on_every_rank(lambda: write() if is_first() else None)


def diverged(state: State, what: str, step: int | None = None) -> Diverged:
    """Return the error of a training whose numbers are none any more.

    Args:
        state: state of the training.
        what: is not a number.
        step: at which; that of the state if None.
    """
    error = Diverged(
        f"{what}. Lower `optimiser.lr` ({max(state.rates, default=0.0):g}), lengthen the warm-up, "
        "or set `optimiser.clip`."
    )
    error.step = state.step if step is None else step
    return error


def require_finite_weights(state: State) -> None:
    """Refuse weights that are not finite, before they are saved: the last good ones are kept."""
    bad = [
        name
        for name, p in state.networks.named_parameters()
        if not bool(torch.isfinite(_local_part(p.detach())).all())
    ]
    if on_any_rank(bool(bad)):
        count = len(list(state.networks.parameters()))
        raise diverged(
            state,
            f"After step {state.step} {len(bad)} of {count} tensors of weights are not finite, and "
            "are not saved",
        )


def _local_part(t: Tensor) -> Tensor:
    """This rank's part of a tensor that is cut over ranks; any other as it is."""
    return t.to_local() if hasattr(t, "to_local") else t


def restore(state: State, run: Run, restart: bool = False) -> tuple[str, ...]:
    """Put the newest good checkpoint into a fresh state, and drop the records after it.

    Data other than those of the checkpoint are refused, and nothing is touched. So are checkpoints
    that cannot be read, and a run that has taken steps and has no good checkpoint, unless it is to
    begin again. Returns a sentence for each newer checkpoint that is not good. All ranks have to
    call this.

    Args:
        state: before its first step.
        run: which is resumed.
        restart: begin again at step 0 where no checkpoint is good; the history is kept aside.
    """
    newest = on_every_rank(lambda: checkpoints.latest_good(run.checkpoints))
    step, saved, notes = 0, None, list(newest.bad)
    if newest.checkpoint is not None:
        step = newest.checkpoint.step
        with as_trained(run.folder, step):
            saved = unpack(newest.checkpoint.arrays, newest.checkpoint.state)
            _require_parts(state, saved)
        on_every_rank(lambda: _same_data(state.data, saved.get("data"), run))
    else:
        notes += on_every_rank(lambda: _begin_again(run, restart, newest.bad))
    on_every_rank(lambda: run.rewind(lambda r: _step(r) <= step) if is_first() else None)
    if saved is not None:
        with as_trained(run.folder, step):
            notes += _put_back(state, step, saved, run)
    return tuple(notes)


def _require_parts(state: State, saved: Any) -> None:
    """Refuse a state that would not be found out until a step is taken, or never.

    A checksum tells damage, not who wrote it.
    """
    for name in ("networks", "objective"):
        _require(name, isinstance(saved[name], dict))
    for name in ("target", "average", "queue"):
        _require(name, (saved[name] is None) == (getattr(state, name) is None))
    if state.queue is not None:
        _require("queue", saved["queue"].shape == state.queue.shape)
        _require("queue", saved["queue"].dtype == state.queue.dtype)
        _require("oldest", type(saved["oldest"]) is int and 0 <= saved["oldest"] < len(state.queue))
    _require("lanes", type(saved.get("lanes", 1)) is int and 1 <= saved.get("lanes", 1) <= 10**6)
    total, count = saved["losses"]
    _require("losses", type(total) is float and type(count) is int and math.isfinite(total))
    random = saved["random"]
    size = _random_state(torch.device("cpu")).shape[0]
    _require("random", random.dtype == torch.uint8 and random.ndim == 2)
    _require("random", len(random) >= 1 and random.shape[1] >= size)
    data = saved.get("data")
    _require("data", data is None or (isinstance(data, tuple) and len(data) in (2, 3)))
    for known, kind in zip(data or (), (int, str, str), strict=False):
        _require("data", type(known) is kind)


def _require(name: str, fits: bool) -> None:
    if not fits:
        raise ValueError(f"`{name}` is not one of its own")


def _step(record: Mapping[str, Any]) -> float:
    """Return the step of a record; 0 where it has none."""
    step = record.get("step", 0)
    return step if isinstance(step, int | float) else 0


def _begin_again(run: Run, restart: bool, bad: Sequence[str]) -> list[str]:
    """Refuse to begin again where steps were taken, unless that is asked for."""
    taken = int(max((_step(r) for r in run.history().records), default=0))
    if taken == 0:
        return []
    which = f", of {len(bad)} that are there" if bad else ": there is none"
    need(
        restart,
        lambda: (
            f"`{run.folder}` has taken {taken} steps, and no checkpoint can be loaded{which}. Put "
            "one back, or begin again at step 0 with `--resume --restart`; the history is kept "
            "aside, as `history-before-restart-1.jsonl`."
        ),
    )
    if is_first():
        run.keep_history_aside()
    return [f"`{run.folder}` begins again at step 0; it had taken {taken} steps."]


def _same_data(now: Fingerprint | None, saved: tuple | None, run: Run) -> None:
    if now is None or saved is None:
        return
    then = Fingerprint(*saved)
    # checkpoints of older versions know the contents of some rows only
    digest = now.sha256 if then.sampled else now.sampled
    if (then.rows, then.sha256) == (now.rows, digest):
        return
    what = (
        f"there were {then.rows} samples and are {now.rows} now"
        if then.rows != now.rows
        else f"the {now.rows} samples have other ids, labels or contents now (sha256 "
        f"{then.sha256[:8]}, now {digest[:8]})"
    )
    raise InputError(
        f"Resuming `{run.folder}` needs the data it began with; {what}. Put them back, or train "
        "anew into another folder."
    )


def _put_back(state: State, step: int, saved: dict, run: Run) -> list[str]:
    """Put everything back; return a sentence where the number of ranks has changed."""
    if state.plain is None:
        state.networks.load_state_dict(saved["networks"])
    else:
        sharding.set_whole_weights(state.networks, saved["networks"])
    state.objective.load_state_dict(saved["objective"])
    for name in ("target", "average"):
        if saved[name] is not None:
            getattr(state, name).load_state_dict(saved[name])
    if saved["optimiser"] is None:  # networks were cut: their moments lie in parts
        parts: Any = saved.get("moments")
        need(
            isinstance(parts, list) and all(isinstance(name, str) for name in parts),
            lambda: (
                f"`{run.folder}` keeps the moments of step {step} in pickles, which could run "
                "code; end it with the version that wrote it."
            ),
        )
        moments = run.checkpoints.parent / MOMENTS
        sharding.load_moments(state.modules, state.optimiser, moments, parts)
    else:
        need(
            state.plain is None,
            lambda: (
                f"`{run.folder}` was saved by one process; go on with one, or without "
                "`network.shard`."
            ),
        )
        state.optimiser.load_state_dict(saved["optimiser"])
        _require_moments(state.optimiser)
        _as_laid_out(state.optimiser)
    if state.scheduler is not None:
        state.scheduler.load_state_dict(saved["scheduler"])
    if state.queue is not None:
        state.queue = saved["queue"].to(state.queue.device)
    if state.scaler is not None and "scaler" in saved:
        state.scaler.load_state_dict(saved["scaler"])
    state.oldest, state.step, state.losses = saved["oldest"], step, saved["losses"]
    random, device = saved["random"], next(state.networks.parameters()).device
    state.lanes = saved.get("lanes", len(random))
    if rank() < len(random):
        _set_random_state(random[rank()], device)
    else:  # a new rank: apart from all others and from what it may have drawn before
        torch.manual_seed(torch.initial_seed() + 7_368_787 * (step + 1))
    if len(random) == world_size():
        return []
    return [
        f"`{run.folder}` was trained on {len(random)} ranks and goes on with {world_size()}: the "
        "same samples in the same order; dropout and unsynchronised batch norms see other parts."
    ]


def _random_state(device: torch.device) -> Tensor:
    """Return the state of torch's generators as bytes: the CPU's, then that of the networks'
    device.
    """
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return torch.cat(states)


def _set_random_state(saved: Tensor, device: torch.device) -> None:
    size = len(torch.get_rng_state())
    torch.set_rng_state(saved[:size].clone())
    if device.type == "cuda" and len(saved) > size:
        torch.cuda.set_rng_state(saved[size:].clone(), device)


def _require_moments(optimiser: torch.optim.Optimizer) -> None:
    """Refuse moments of another shape than their parameters, and rates that are no numbers."""
    for p, moments in optimiser.state.items():
        for name, value in moments.items():
            if name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"):
                _require(name, value is None or value.shape == p.shape)
            if name == "step":
                _require(name, float(value) >= 0)
    for group in optimiser.param_groups:
        _require("lr", math.isfinite(group["lr"]))
        _require("betas", all(0 <= beta < 1 for beta in group.get("betas", ())))


def _as_laid_out(optimiser: torch.optim.Optimizer) -> None:
    """Moments in the memory order of their parameters: loops over them then round alike."""
    for p, moments in optimiser.state.items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == p.shape:
                moments[name] = torch.empty_like(p, dtype=value.dtype).copy_(value).detach()
