"""One step: the loss of a batch, its gradients, and what moves because of them."""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.distributed import average_gradients, distributed_loss, gather_rows
from chiaroscuro.engine.schedules import towards_one
from chiaroscuro.engine.settings import Settings
from chiaroscuro.engine.state import State, device_of
from chiaroscuro.engine.stream import Batch
from chiaroscuro.errors import need

__all__ = ["take_step"]


def take_step(
    state: State, networks: Any, batch: Batch, settings: Settings, lr: float, steps: int
) -> float:
    """Move everything that moves by one step, and return the loss it started from.

    Args:
        state: what is moved.
        networks: those of the state, as they are called: compiled, or over several ranks.
        batch: this rank's part.
        settings: of the training.
        lr: of this step.
        steps: of the whole training.
    """
    for group in state.optimiser.param_groups:
        group["lr"] = lr
    state.optimiser.zero_grad(set_to_none=True)
    loss = _backward(state, networks, batch, settings)
    average_gradients(state.objective.parameters())
    if settings.optimiser.clip:
        learnt = [p for group in state.optimiser.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(learnt, settings.optimiser.clip)
    state.optimiser.step()
    _follow(state, settings, steps)
    return loss


def _backward(state: State, networks: Any, batch: Batch, settings: Settings) -> float:
    """The loss of the whole batch, its gradients left in the parameters."""
    x1, x2, y = batch
    if settings.micro_batch:
        sides = [functools.partial(networks, side=side) for side in (0, 1)]
        see = lambda z1, z2: distributed_loss(state.objective, z1, z2, y)
        with _precision(settings):
            value = cached_backward(sides, (x1, x2), see, settings.micro_batch)
    else:
        with _precision(settings):
            if state.target is None:
                z1, z2 = networks(x1, x2)
                value = distributed_loss(state.objective, z1, z2, y)
            else:
                value = _against_target(state, networks, batch, settings.symmetric)
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


def _precision(settings: Settings) -> AbstractContextManager:
    """Networks in the precision asked for; objectives widen what they are given."""
    half = settings.precision == "bfloat16"
    return torch.autocast(device_of(settings).type, torch.bfloat16, enabled=half)


def _against_target(state: State, networks: Any, batch: Batch, symmetric: bool) -> Tensor:
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


def _enqueue(state: State, keys: Tensor) -> None:
    """The newest keys take the places of the oldest [he2020moco, Alg. 1]."""
    if state.queue is None:
        return
    size = len(state.queue)
    keys = keys[-size:]
    places = (state.oldest + torch.arange(len(keys), device=keys.device)) % size
    state.queue = state.queue.index_copy(0, places, keys.to(state.queue.dtype))
    state.oldest = (state.oldest + len(keys)) % size


def _follow(state: State, settings: Settings, steps: int) -> None:
    """The slow copies take their step."""
    if state.target is not None:
        momentum = settings.network.momentum
        if settings.network.momentum_schedule == "cosine":
            momentum = towards_one(momentum, state.step, steps)
        state.target.update(state.networks, momentum)
    if state.average is not None:
        state.average.update(state.networks, settings.network.average)
