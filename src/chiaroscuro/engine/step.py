"""One step: the loss of a batch, its gradients, and what moves because of them."""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.distributed import (
    average_gradients,
    distributed_loss,
    gather_rows,
    on_any_rank,
    share_buffers,
)
from chiaroscuro.engine.options import FitOptions
from chiaroscuro.engine.schedules import towards_one
from chiaroscuro.engine.state import State, device_of, diverged
from chiaroscuro.engine.stream import PairBatch
from chiaroscuro.errors import InputError
from chiaroscuro.objectives import adapt, adapts

__all__ = ["take_step"]


def take_step(
    state: State, networks: Any, batch: PairBatch, options: FitOptions, steps: int
) -> float:
    """Move everything that moves by one step, and return the loss it started from.

    The learning rate is that of the optimiser's groups as they are.

    Args:
        state: what is moved.
        networks: those of the state, as they are called: compiled, or over several ranks (with
            micro-batches, which synchronise here, never the latter).
        batch: this rank's part.
        options: of the training.
        steps: of the whole training.
    """
    state.optimiser.zero_grad(set_to_none=True)
    loss = _backward(state, networks, batch, options)
    average_gradients(state.objective.parameters())
    if options.clip:
        learnt = [p for group in state.optimiser.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(learnt, options.clip)
    state.optimiser.step()
    if state.scheduler is not None:
        state.scheduler.step()
    _follow(state, options, steps)
    return loss


def _backward(state: State, networks: Any, batch: PairBatch, options: FitOptions) -> float:
    """The loss of the whole batch, its gradients left in the parameters."""
    x1, x2, y = batch
    if options.micro_batch:
        sides = [functools.partial(networks, side=side) for side in (0, 1)]
        see = lambda z1, z2: _loss(state, z1, z2, y)
        share_buffers(state.networks)
        with _precision(options):
            value = cached_backward(sides, (x1, x2), see, options.micro_batch)
        average_gradients(state.networks.parameters())
    else:
        with _precision(options):
            if state.target is None:
                z1, z2 = networks(x1, x2)
                value = _loss(state, z1, z2, y)
            else:
                value = _against_target(state, networks, batch, options)
        value.backward()
    loss = float(value.detach())
    if not math.isfinite(loss):
        raise diverged(state, f"The loss of step {state.step} is {loss}")
    return loss


def _loss(
    state: State,
    z1: Tensor,
    z2: Tensor,
    y: Tensor | None,
    queue: Tensor | None = None,
) -> Tensor:
    """The loss of all ranks' rows. Samples are finite, so embeddings that are not have diverged."""
    try:
        value = distributed_loss(state.objective, z1, z2, y, queue)
        if adapts(state.objective):
            adapt(state.objective, gather_rows(z1), gather_rows(z2))
        return value
    except InputError:  # on every rank
        finite = all(bool(torch.isfinite(z.detach()).all()) for z in (z1, z2))
        if on_any_rank(not finite):
            what = f"The embeddings of step {state.step} are not finite"
            raise diverged(state, what) from None
        raise


def _precision(options: FitOptions) -> AbstractContextManager:
    """Networks in the precision asked for; objectives widen what they are given."""
    half = options.precision == "bfloat16"
    return torch.autocast(device_of(options.device).type, torch.bfloat16, enabled=half)


def _against_target(state: State, networks: Any, batch: PairBatch, options: FitOptions) -> Tensor:
    """The loss of what learns against what the slow copy says of the other view.

    With both orders of the views, the queue is a candidate in each and takes the keys of both.
    """
    x1, x2, y = batch
    target: Any = state.target.module  # type: ignore[union-attr]
    with torch.no_grad():
        keys = [target.project(target.encode(x, side), side) for side, x in ((1, x2), (0, x1))]
    if options.symmetric:
        q1, q2 = networks(x1, x2)
        value = _loss(state, q1, keys[0], y, state.queue)
        value = value + _loss(state, q2, keys[1], y, state.queue)
    else:
        value = _loss(state, networks(x1), keys[0], y, state.queue)
    if state.queue is not None:
        for new in keys if options.symmetric else keys[:1]:
            _enqueue(state, gather_rows(new))
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


def _follow(state: State, options: FitOptions, steps: int) -> None:
    """The slow copies take their step."""
    if state.target is not None:
        momentum = options.momentum
        if options.momentum_schedule == "cosine":
            momentum = towards_one(momentum, state.step, steps)
        state.target.update(state.networks, momentum)
    if state.average is not None:
        state.average.update(state.networks, options.average)
