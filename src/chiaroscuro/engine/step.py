"""One step: the loss of a batch, its gradients, and what moves because of them.

Nothing here asks an accelerator for a number: a loss is read later, together with others.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.crops import Crops, Triples, views_of
from chiaroscuro.engine.distributed import (
    Spread,
    average_gradients,
    gather_alike,
    on_any_rank,
    on_every_rank,
    share_buffers,
    spread_losses,
    world_size,
)
from chiaroscuro.engine.networks import taking
from chiaroscuro.engine.options import FitOptions
from chiaroscuro.engine.schedules import towards_one
from chiaroscuro.engine.sharding import clip_gradients
from chiaroscuro.engine.state import State, device_of, diverged
from chiaroscuro.engine.stream import PairBatch
from chiaroscuro.errors import InputError, need
from chiaroscuro.numerics import wide
from chiaroscuro.objectives import adapt, adapts

__all__ = ["read_losses", "take_step"]


def take_step(
    state: State, networks: Any, batch: PairBatch, options: FitOptions, steps: int
) -> Tensor:
    """Move everything that moves by one step, and return the loss it started from.

    That is a scalar on the device which nobody has waited for, on several ranks this rank's share
    of the loss; `read_losses` reads it. The learning rate is that of the optimiser's groups as
    they are.

    Args:
        state: what is moved.
        networks: those of the state, as they are called: compiled, or over several ranks (with
            micro-batches, which synchronise here, never the latter).
        batch: this rank's part.
        options: options of the training.
        steps: steps of the whole training.
    """
    state.optimiser.zero_grad(set_to_none=True)
    loss = _backward(state, networks, batch, options)
    if state.objective.reduces == "samples":  # else the loss itself has shared them out
        average_gradients(state.objective.parameters())
    if state.scaler is not None:
        state.scaler.unscale_(state.optimiser)
    if options.clip:
        learnt = [p for group in state.optimiser.param_groups for p in group["params"]]
        clip_gradients(learnt, options.clip)
    if state.scaler is None:
        state.optimiser.step()
    else:  # takes no step where a gradient has overflowed
        state.scaler.step(state.optimiser)
        state.scaler.update()
    if state.scheduler is not None and not isinstance(state.scheduler, ReduceLROnPlateau):
        state.scheduler.step()
    _follow(state, options, steps)
    return loss


def read_losses(state: State, losses: list[Tensor]) -> list[float]:
    """Return the losses of the last steps as numbers, in one transfer, and forget them.

    One that is not finite ends the training. All ranks have to call this.

    Args:
        state: after those steps.
        losses: what `take_step` returned for each, in order; emptied.
    """
    if not losses:
        return []
    shares = gather_alike(torch.stack([wide(loss) for loss in losses])).tolist()
    losses.clear()
    if state.checks:
        checks, state.checks = state.checks, []
        on_every_rank(lambda: [check() for check in checks])
    values = [math.fsum(column) for column in zip(*shares, strict=True)]
    for step, value in enumerate(values, start=state.step - len(values)):
        if not math.isfinite(value):
            raise diverged(state, f"The loss of step {step} is {value}", step)
    return values


def _backward(state: State, networks: Any, batch: PairBatch, options: FitOptions) -> Tensor:
    """Return the loss of the whole batch, its gradients left in the parameters."""
    x1, x2, y = batch
    triples = isinstance(x2, Triples)
    need(
        not triples or (state.target is None and not options.own_target),
        "Hard negatives need both sides to learn; received a target: a momentum encoder "
        "(`network.momentum`) or the network itself (`network.own_target`).",
    )
    seen = _of_triples if triples else _pair_or_crops
    if options.micro_batch:
        views = views_of(x1, x2)
        second = (1, 2) if triples else (1,)
        sides = [
            functools.partial(networks, side=int(view in second)) for view in range(len(views))
        ]
        share_buffers(state.networks)
        with _precision(options):
            see = lambda *z: seen(state, z, y)
            scale = 1.0 if state.scaler is None else state.scaler.scale
            value = cached_backward(sides, views, see, options.micro_batch, scale, state.checks)
        average_gradients(state.networks.parameters())
    else:
        with _precision(options):
            if state.target is None and not options.own_target:
                with _explained(state, x1, x2):
                    z = networks(x1, x2)
                value = seen(state, views_of(*z), y)
            else:
                value = _against_target(state, networks, batch, options)
        (value if state.scaler is None else state.scaler.scale(value)).backward()
    return value.detach()


def _pair_or_crops(state: State, z: Sequence[Tensor], y: Tensor | None) -> Tensor:
    """Return the loss of two views; or of all crops against the first two, which learn as well."""
    if len(z) > 2:
        return _of_crops(state, z, z[:2], y)
    (spread,) = _losses(state, z, [(0, 1)], y)
    _adapt(state, [spread])
    return spread.loss


def _of_triples(state: State, z: Sequence[Tensor], y: Tensor | None) -> Tensor:
    """Return the loss of pairs whose candidates are the hard negatives of all anchors as well."""
    need(
        "queue" in state.objective.takes,
        lambda: (
            "Hard negatives need an objective that takes further candidates, such as `InfoNCE`; "
            f"received `{type(state.objective).__name__}`."
        ),
    )
    negatives = z[2].split(len(z[0]))  # as many views as an anchor has negatives
    views = range(2, 2 + len(negatives))
    (spread,) = _losses(state, [*z[:2], *negatives], [(0, 1)], y, views)
    _adapt(state, [spread])
    return spread.loss


def _of_crops(
    state: State, z: Sequence[Tensor], targets: Sequence[Tensor], y: Tensor | None
) -> Tensor:
    """Return the mean loss of the ordered pairs (crop v, target i), v != i [caron2021dino,
    eq. 3]. The queue takes the targets.
    """
    views = [*z, *(one for one in targets if not any(one is crop for crop in z))]
    place = [next(k for k, view in enumerate(views) if view is one) for one in targets]
    pairs = [(v, i) for i in range(len(targets)) for v in range(len(z)) if v != i]
    losses = _losses(state, views, [(v, place[i]) for v, i in pairs], y, state.queue)
    kept = [spread for spread, pair in zip(losses, pairs, strict=True) if pair in ((0, 1), (1, 0))]
    kept.reverse()  # the first crop with the second target comes first
    _adapt(state, kept)
    if state.queue is not None:
        for spread in kept:
            _enqueue(state, _rows(spread.z2))
    return torch.stack([spread.loss for spread in losses]).mean()


def _explained(state: State, x1: Any, x2: Any) -> AbstractContextManager:
    """Say what the networks were given, where they refuse the first batch."""
    first = state.losses[1] == 0 and world_size() == 1
    return taking(state.networks.encoders[0], x1, x2) if first else contextlib.nullcontext()


def _losses(
    state: State,
    z: Sequence[Tensor],
    pairs: Sequence[tuple[int, int]],
    y: Tensor | None,
    queue: Tensor | Sequence[int] | None = None,
) -> list[Spread]:
    """Return the losses of pairs of views, over all ranks' rows. Samples are finite, so embeddings
    that are not have diverged.
    """
    needed = adapts(state.objective) or state.queue is not None
    firsts = [pair for pair in pairs if pair[0] < 2] if needed else []  # as `_adapt` sees them
    wanted = [k for pair in firsts for k in pair]
    try:
        return spread_losses(state.objective, z, pairs, y, queue, wanted)
    except InputError:  # on every rank
        finite = all(bool(torch.isfinite(one.detach()).all()) for one in z)
        if on_any_rank(not finite):
            what = f"The embeddings of step {state.step} are not finite"
            raise diverged(state, what) from None
        raise


def _adapt(state: State, spreads: Sequence[Spread]) -> None:
    """Once a step, after its losses: what the objective measures sees the pairs of all ranks."""
    if adapts(state.objective):
        first = torch.cat([_rows(spread.z1) for spread in spreads])
        adapt(state.objective, first, torch.cat([_rows(spread.z2) for spread in spreads]))


def _rows(z: Tensor | None) -> Tensor:
    """Return rows of all ranks, which the loss was asked to gather."""
    need(z is not None, "A step needs the rows of all ranks, which its loss has not gathered.")
    return z  # type: ignore[return-value]


def _precision(options: FitOptions) -> AbstractContextManager:
    """Networks in the precision asked for; objectives widen what they are given."""
    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(options.precision)
    return torch.autocast(device_of(options.device).type, half, enabled=half is not None)


def _against_target(state: State, networks: Any, batch: PairBatch, options: FitOptions) -> Tensor:
    """Return the loss of what learns against what the target says of the other view.

    The target is the momentum encoder, or the network itself, without predictor and gradient.
    With both orders of the views, the queue is a candidate in each and takes the keys of both.
    """
    x1, x2, y = batch
    both = options.symmetric or isinstance(x2, Crops)
    if state.target is None:
        q, z = networks(x1, x2, projections=True)
        keys = [z[1].detach(), z[0].detach()]
    else:
        target: Any = state.target.module
        first, second, *_ = views_of(x1, x2)
        with torch.no_grad():
            sides = ((1, second), (0, first)) if both else ((1, second),)
            keys = [target.project(target.encode(x, side), side) for side, x in sides]
        q = views_of(*networks(x1, x2)) if both else [networks(x1)]
    if len(q) > 2:
        return _of_crops(state, q, keys[::-1], y)
    q, keys = (q, keys) if both else (q[:1], keys[:1])
    pairs = [(k, len(q) + k) for k in range(len(q))]
    spreads = _losses(state, [*q, *keys], pairs, y, state.queue)
    _adapt(state, spreads)
    if state.queue is not None:
        for spread in spreads:
            _enqueue(state, _rows(spread.z2))
    return spreads[0].loss if len(spreads) == 1 else spreads[0].loss + spreads[1].loss


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
    """Update the momentum encoders."""
    if state.target is not None:
        momentum = options.momentum
        if options.momentum_schedule == "cosine":
            momentum = towards_one(momentum, state.step, steps)
        state.target.update(state.networks, momentum)
    if state.average is not None:
        state.average.update(state.networks, options.average)
