"""All that changes while a training goes on: made fresh, saved whole, put back bit by bit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine.batch_norm import synchronised
from chiaroscuro.engine.distributed import gather_rows, is_first, rank, together, world_size
from chiaroscuro.engine.fingerprint import Fingerprint
from chiaroscuro.engine.networks import Networks, build
from chiaroscuro.engine.optimisers import optimiser
from chiaroscuro.engine.settings import Settings
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.models import Momentum, pack, unpack
from chiaroscuro.objectives import Objective

__all__ = ["State", "device_of", "fresh", "restore", "save"]


@dataclass(eq=False)
class State:
    """What a checkpoint holds. Order and views have no state: they are functions of the step."""

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
    data: Fingerprint | None = None
    """Of what is trained on: no other data are gone on with."""

    @property
    def best(self) -> Networks:
        """What is evaluated: the average where there is one."""
        return self.networks if self.average is None else self.average.module  # type: ignore[return-value]


def fresh(settings: Settings) -> State:
    """The state before the first step."""
    network, device = settings.network, device_of(settings)
    networks = build(network, settings.seed)
    if network.sync_batch_norm:
        networks = synchronised(networks)
    networks = networks.to(device)
    objective = settings.make_objective().to(device)
    torch.manual_seed(settings.seed + 1_000_003 * rank())  # dropout differs from rank to rank
    queue = None
    if network.queue:
        draw = torch.Generator().manual_seed(settings.seed)
        d = networks.projectors[-1].d
        queue = torch.randn(network.queue, int(d), generator=draw).to(device)  # type: ignore[arg-type]
        queue = nn.functional.normalize(queue)
    return State(
        networks=networks,
        objective=objective,
        optimiser=optimiser(settings.optimiser, networks, objective),
        target=Momentum(networks) if network.momentum else None,
        average=Momentum(networks) if network.average else None,
        queue=queue,
    )


def device_of(settings: Settings) -> torch.device:
    """Where the networks are."""
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(settings.device)
    except RuntimeError:  # no such kind
        device = None
    there = _devices()
    if device is None or (device.type != "cpu" and str(device) not in there):
        raise InputError(
            f"`device` needs `auto` or one that is here: {', '.join(there)}; received "
            f"`{settings.device}`."
        )
    return device


def _devices() -> list[str]:
    """What this machine and this build of torch can compute on."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or not torch.accelerator.is_available():
        return ["cpu"]
    kind = accelerator.type
    return ["cpu", kind, *(f"{kind}:{i}" for i in range(torch.accelerator.device_count()))]


def save(state: State, run: Run, keep: int) -> None:
    """Write a checkpoint, from the first rank; all ranks have to call this."""
    random = gather_rows(_random_state(next(state.networks.parameters()).device)[None])

    def write() -> None:
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
                "data": None if state.data is None else tuple(state.data),
                "random": random,
            }
        )
        checkpoints.save(run.checkpoints, state.step, arrays, tree, keep)

    together(lambda: write() if is_first() else None)


def restore(state: State, run: Run) -> tuple[str, ...]:
    """Put the newest good checkpoint into a fresh state, and drop the records after it.

    Data other than those of the checkpoint are refused, and nothing is touched. Returns a sentence
    for each newer checkpoint that is not good. All ranks have to call this.
    """
    found = together(lambda: checkpoints.latest_good(run.checkpoints))
    step, saved = 0, None
    if found.checkpoint is not None:
        step = found.checkpoint.step
        saved = unpack(found.checkpoint.arrays, found.checkpoint.state)
        together(lambda: _same_data(state.data, saved.get("data"), run))
    together(lambda: run.rewind(lambda r: r.get("step", 0) <= step) if is_first() else None)
    if saved is not None:
        _put_back(state, step, saved, run)
    return found.bad


def _same_data(now: Fingerprint | None, saved: tuple[int, str] | None, run: Run) -> None:
    if now is None or saved is None or now == tuple(saved):
        return
    then = Fingerprint(*saved)
    what = (
        f"there were {then.rows} samples and are {now.rows} now"
        if then.rows != now.rows
        else f"the {now.rows} samples have other ids, labels or contents now (sha256 "
        f"{then.sha256[:8]}, now {now.sha256[:8]})"
    )
    raise InputError(
        f"Resuming `{run.folder}` needs the data it began with; {what}. Put them back, or train "
        "anew into another folder."
    )


def _put_back(state: State, step: int, saved: dict, run: Run) -> None:
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
    _set_random_state(random[rank()], next(state.networks.parameters()).device)


def _random_state(device: torch.device) -> Tensor:
    """The state of torch's generators as bytes: the CPU's, then that of the networks' device."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return torch.cat(states)


def _set_random_state(saved: Tensor, device: torch.device) -> None:
    size = len(torch.get_rng_state())
    torch.set_rng_state(saved[:size].clone())
    if device.type == "cuda" and len(saved) > size:
        torch.cuda.set_rng_state(saved[size:].clone(), device)


def _as_laid_out(optimiser: torch.optim.Optimizer) -> None:
    """Moments in the memory order of their parameters: loops over them then round alike."""
    for p, moments in optimiser.state.items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == p.shape:
                moments[name] = torch.empty_like(p, dtype=value.dtype).copy_(value).detach()
