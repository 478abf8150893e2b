"""Several ranks, one batch: the only file that communicates.

The loss of a batch spread over ranks is a sum of one share per rank. A rank holds its own rows,
gathers those of the others where its objective needs them, and computes its share; the backward
pass of the gather adds up what the shares of all ranks ask of its rows. Nothing here depends on
how many rows a rank has, none included, and a rank that must refuse its input makes all of them
refuse it, with the same sentence: nobody waits for someone who has left.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import re
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from chiaroscuro.data.index import Wanted, with_shared
from chiaroscuro.engine.agreement import (
    CALL,
    DTYPES,
    Header,
    agree,
    alike,
    described,
    dtype_name,
    header,
    whole_number,
)
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.numerics import wide
from chiaroscuro.objectives import Objective

__all__ = [
    "Passenger",
    "Spread",
    "aboard",
    "agree_on_step",
    "average_gradients",
    "backends",
    "barrier",
    "distributed_loss",
    "gather_alike",
    "gather_rows",
    "in_parallel",
    "is_first",
    "joined_ranks",
    "lost_ranks",
    "on_any_rank",
    "on_every_rank",
    "opened_by_ranks",
    "rank",
    "require_alike",
    "require_device",
    "share_buffers",
    "spread_loss",
    "spread_losses",
    "sum_alike",
    "world_size",
]

Group = Any  # torch.distributed.ProcessGroup, which a build of torch may lack
T = TypeVar("T")


# ---- who is there ----


def world_size(group: Group = None) -> int:
    """Return how many ranks share the work; 1 where no process group was initialised.

    Example:
        >>> world_size(), rank(), is_first()
        (1, 0, True)
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def rank(group: Group = None) -> int:
    """Return which of the ranks this is; 0 where no process group was initialised."""
    return dist.get_rank(group) if dist.is_available() and dist.is_initialized() else 0


def is_first(group: Group = None) -> bool:
    """Return whether this is the rank that writes files and prints."""
    return rank(group) == 0


def barrier(group: Group = None) -> None:
    """Wait until every rank has reached this call."""
    if world_size(group) > 1:
        _exchange([], [], group)


# ---- the loss ----


def distributed_loss(
    objective: Objective,
    z1: Tensor,
    z2: Tensor | None = None,
    labels: Tensor | None = None,
    queue: Tensor | None = None,
    *,
    gradients: str = "averaged",
    group: Group = None,
) -> Tensor:
    """Return the loss of the whole batch whose rows are spread over the ranks, on every rank.

        loss = objective([z1 of rank 0; z1 of rank 1; ...], [z2 of rank 0; ...]) = sum_r share_r

    After the gradients of all ranks have been averaged (as `DistributedDataParallel` does) or
    summed, those of the encoder and of the objective's own parameters are the gradients of that
    loss. What a share is follows from what the objective declares to reduce over:

        "anchors"   the anchors of rank r against the candidates of all
        "batch"     the whole loss divided by the number of ranks
        "samples"   the mean over the samples of rank r, times their share n_r / n

    All ranks have to call this, and `backward` as well, in the same order. Local batches may
    differ in length; a rank may have no rows at all (then it passes z of shape (0, d)).
    Parameters of the objective, such as a learnable temperature, live outside the encoder's
    `DistributedDataParallel`: call `average_gradients(objective.parameters())` after `backward`.

    Relations: without a process group, or with one rank, it is `objective(z1, z2, labels, queue)`.

    Args:
        objective: any objective; the same on every rank.
        z1: this rank's rows of one view, (n_r, d).
        z2: of the other view, or None for an objective that takes one.
        labels: one integer for each of this rank's rows.
        queue: extra candidates, (m, d): the same on every rank, as MoCo replicates it
            [he2020moco, Sec. 3.3]. Only its shape is compared. Where it wants a gradient, that
            follows the same convention as a parameter's.
        gradients: "averaged" if they will be divided by the number of ranks, "summed" if not.
        group: a process group; the default one if None.

    Numerics: half precision travels as it is; gradients are added in float32 at least. A row that
    is not finite, tensors that do not fit, embeddings that differ in dimension or dtype, or labels
    on some ranks only raise the same sentence on every rank. Differentiating twice is refused.

    References:
        radford2021clip, he2020moco

    Example:
        >>> from chiaroscuro.objectives import InfoNCE
        >>> round(float(distributed_loss(InfoNCE(), torch.eye(4), torch.eye(4))), 6)
        0.594438
    """
    need(
        isinstance(objective, Objective),
        lambda: f"`{CALL}` needs an objective; received {type(objective).__name__}.",
    )
    need(
        gradients in ("averaged", "summed"),
        lambda: (
            f'`distributed_loss(gradients)` needs "averaged" or "summed"; received {gradients!r}.'
        ),
    )
    return spread_loss(objective, z1, z2, labels, queue, gradients, True, group).loss


class Spread(NamedTuple):
    """What `spread_loss` gives."""

    loss: Tensor
    """With its gradient; its value is the loss, or this rank's share of it."""
    z1: Tensor | None
    """The rows of all ranks, without gradient; None where they were not sent."""
    z2: Tensor | None


def spread_loss(
    objective: Objective,
    z1: Tensor,
    z2: Tensor | None = None,
    labels: Tensor | None = None,
    queue: Tensor | None = None,
    gradients: str = "averaged",
    whole: bool = False,
    group: Group = None,
) -> Spread:
    """Return the loss of `distributed_loss` and the rows it gathered: `spread_losses` of one pair.

    Args:
        objective, z1, z2, labels, queue, gradients, group: as for `distributed_loss`.
        whole: the value is the loss, by one more message; else this rank's share, of which the
            sum over ranks is the loss, and which nobody waits for.
    """
    z, pairs = ([z1], [(0, None)]) if z2 is None else ([z1, z2], [(0, 1)])
    return _spread(objective, z, pairs, labels, queue, (), gradients, whole, group)[0]


Pair = tuple[int, int | None]


def spread_losses(
    objective: Objective,
    z: Sequence[Tensor],
    pairs: Sequence[Pair],
    labels: Tensor | None = None,
    queue: Tensor | Sequence[int] | None = None,
    wanted: Sequence[int] = (),
    gradients: str = "averaged",
    group: Group = None,
) -> list[Spread]:
    """Return the losses of several pairs of views of one batch, in one message each way.

    Forward, one gather carries what each rank says of its input, the rows of all views and their
    labels. Backward, one reduce-scatter adds up the gradients of the views that learn and of the
    objective's parameters, which are then those of the losses on every rank; an objective over the
    batch needs none. Only the first call, and one with more rows than any before it, sends a second
    message.

    Args:
        objective, labels, gradients, group: as for `distributed_loss`.
        z: this rank's rows of each view, all of one shape.
        pairs: views of which there is a loss, by their numbers; (i, None) for an objective of one.
        queue: as for `distributed_loss`; or the numbers of the views whose rows on all ranks are
            extra candidates that learn.
        wanted: views whose rows of all ranks are returned even where the objective needs only its
            own.

    Returns:
        One of each pair, whose loss has the value of this rank's share.
    """
    return _spread(objective, z, pairs, labels, queue, wanted, gradients, False, group)


def _spread(
    objective: Objective,
    z: Sequence[Tensor],
    pairs: Sequence[Pair],
    labels: Tensor | None,
    queue: Tensor | Sequence[int] | None,
    wanted: Sequence[int],
    gradients: str,
    whole: bool,
    group: Group,
) -> list[Spread]:
    """As `spread_losses`; with `whole` the values are the losses, by one more message each."""
    ranks, me = world_size(group), rank(group)
    fixed = queue if queue is None or isinstance(queue, Tensor) else None
    learning = [] if queue is None or isinstance(queue, Tensor) else list(queue)
    if ranks == 1:
        more = torch.cat([z[k] for k in learning]) if learning else fixed
        spread = []
        for i, j in pairs:
            z2 = None if j is None else z[j]
            loss = objective(z[i], z2, labels, more)
            spread.append(Spread(loss, z[i].detach(), None if z2 is None else z2.detach()))
        return spread
    own = objective.reduces == "samples"
    mine = _attempt(lambda: _header_of(objective, z, pairs, labels, fixed))
    alone: list[Tensor] | Exception = []
    if own and not isinstance(mine, Exception):  # before the message, which tells of its failure
        alone = _attempt(lambda: [_alone(objective, z, pair, labels, fixed) for pair in pairs])
        mine = alone if isinstance(alone, Exception) else mine
    sent = list(dict.fromkeys(wanted)) if own else list(range(len(z)))
    rows = [z[k] for k in sent]
    failed = isinstance(mine, Exception)
    parcel = None if failed or not sent else _parcel(rows, None if own else labels)
    headers, received = _exchange_headers(mine, parcel, group)
    agree(headers)
    counts = [int(header.n) for header in headers]
    seen: dict[int, Tensor] = {}
    everyone = None
    if sent:
        matrix, everyone = _unpacked(received, rows, None if own else labels, counts)
        seen = dict(zip(sent, matrix.split(z[0].shape[1], dim=1), strict=True))
    factor = ranks if gradients == "averaged" else 1
    if own:
        need_pairs(objective, counts)
        part = counts[me] / sum(counts)
        shares: Any = [loss * part for loss in alone]  # type: ignore[union-attr]
    else:
        z = _joined(z, pairs, headers)
        w, known = _gathered_views(objective, z, seen, counts, group)
        more = torch.cat([w[k] for k in learning]) if learning else fixed
        batches = [(w[i], None if j is None else w[j], everyone, more) for i, j in pairs]
        shares = _attempt(
            lambda: [_share(objective, batch, counts, me, known) for batch in batches]
        )
    totals: list[float | None] = [None] * len(pairs)
    if whole:
        failed = isinstance(shares, Exception)
        values = shares if failed else [float(share.detach()) for share in shares]
        everywhere = _exchange(values, [0.0] * len(pairs), group)
        totals = [math.fsum(column) for column in zip(*everywhere, strict=True)]
    elif isinstance(shares, Exception):
        raise shares  # every rank sees the same rows, and refuses them alike
    return [
        Spread(
            _Whole.apply(share, total, factor),
            None if seen.get(i) is None else wide(seen[i]).detach(),
            None if j is None or seen.get(j) is None else wide(seen[j]).detach(),
        )
        for share, total, (i, j) in zip(shares, totals, pairs, strict=True)
    ]


def _header_of(
    objective: Objective,
    z: Sequence[Tensor],
    pairs: Sequence[Pair],
    labels: Tensor | None,
    queue: Tensor | None,
) -> Header:
    """Return what this rank has of all pairs: views of one shape."""
    every = [header(objective, z[i], None if j is None else z[j], labels, queue) for i, j in pairs]
    shapes = {tuple(one.shape) for one in z}
    need(
        len(shapes) == 1,
        lambda: f"`spread_losses` needs views of one shape; received {sorted(shapes)}.",
    )
    return every[0]._replace(
        z1_wants=max(one.z1_wants for one in every), z2_wants=max(one.z2_wants for one in every)
    )


def _alone(
    objective: Objective,
    z: Sequence[Tensor],
    pair: Pair,
    labels: Tensor | None,
    queue: Tensor | None,
) -> Tensor:
    """Return the loss of this rank's samples."""
    z1, z2 = z[pair[0]], None if pair[1] is None else z[pair[1]]
    return objective(z1, z2, labels, queue) if len(z1) else _nothing(z1, z2)


def _gathered_views(
    objective: Objective,
    z: Sequence[Tensor],
    seen: dict[int, Tensor],
    counts: list[int],
    group: Group,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return the rows of all ranks of each view, those that learn with their gradient, and the
    parameters of the objective by name.
    """
    names, parameters = [], []
    if torch.is_grad_enabled():
        wanted = [(k, p) for k, p in objective.named_parameters() if p.requires_grad]
        names, parameters = [k for k, _ in wanted], [p for _, p in wanted]
    learn = [k for k, one in enumerate(z) if one.requires_grad] or list(range(len(z)))
    alike = objective.reduces == "batch"
    rows, everyone = (torch.cat([part[k] for k in learn], dim=1) for part in (_one_type(z), seen))
    all_rows, *through = _Gather.apply(rows, everyone, counts, alike, group, *parameters)
    views = [wide(seen[k]) for k in range(len(z))]
    for k, view in zip(learn, all_rows.split(z[0].shape[1], dim=1), strict=True):
        views[k] = view
    return views, dict(zip(names, through, strict=True))


LossInputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]


def _share(
    objective: Objective,
    batch: LossInputs,
    counts: list[int],
    me: int,
    parameters: dict[str, Tensor],
) -> Tensor:
    """Return what this rank adds to the loss: the shares of all ranks sum to it."""
    call = partial(torch.func.functional_call, objective, parameters) if parameters else None
    if objective.reduces == "anchors":
        start = sum(counts[:me])
        window = (start, start + counts[me])
        if call is None:
            return objective(*batch, window=window)
        return call(batch, {"window": window})
    return (objective(*batch) if call is None else call(batch)) / len(counts)


def need_pairs(objective: Objective, counts: list[int]) -> None:
    """Refuse fewer samples on all ranks together than an objective over samples needs."""
    need(
        sum(counts) >= objective.least,
        lambda: (
            f"`{CALL}` needs at least {objective.least} pairs on all {len(counts)} ranks "
            f"together; received {sum(counts)}."
        ),
    )


def _nothing(z1: Tensor, z2: Tensor | None) -> Tensor:
    """Return the share of a rank without rows: zero, and yet the root of a backward pass."""
    return wide(z1).sum() if z2 is None else wide(z1).sum() + wide(z2).sum()


class _Whole(torch.autograd.Function):
    """The value of the whole loss, with the gradient of this rank's share times a factor."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, value: float | None, factor: int) -> Tensor:
        ctx.factor = factor
        return share.clone() if value is None else torch.full_like(share, value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.factor, None, None


class _Gather(torch.autograd.Function):
    """The rows of all ranks, and the parameters of the objective that will see them.

    Backward, one reduce-scatter sums the gradients of the rows, of which each rank takes its own,
    and those of the parameters, of which each takes the mean. Where every rank computes the same
    share, it knows both without asking.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        everyone: Tensor,
        counts: list[int],
        alike: bool,
        group: Group,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.counts, ctx.alike, ctx.group, ctx.dtype = counts, alike, group, rows.dtype
        ctx.shapes = [(p.shape, p.dtype) for p in parameters]
        ctx.set_materialize_grads(False)
        gathered = wide(everyone)
        gathered = gathered.clone() if gathered is everyone else gathered
        ctx.like = gathered.new_empty(0), gathered.shape
        return gathered, *(p.view_as(p) for p in parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        me, counts = rank(ctx.group), ctx.counts
        like, shape = ctx.like
        g = like.new_zeros(shape) if grads[0] is None else grads[0]
        if ctx.alike:
            own = slice(sum(counts[:me]), sum(counts[: me + 1]))
            return (g[own] * len(counts)).to(ctx.dtype), *[None] * 4, *grads[1:]
        mine, means = _shared_out(g, counts, list(grads[1:]), ctx.shapes, ctx.group)
        return mine.to(ctx.dtype), *[None] * 4, *means


def _shared_out(
    g: Tensor,
    counts: list[int],
    grads: list[Tensor | None],
    shapes: list[tuple[torch.Size, torch.dtype]],
    group: Group,
) -> tuple[Tensor, list[Tensor | None]]:
    """Return this rank's rows of a gradient summed over ranks, and the means of others' gradients.

    Each rank's part of the message holds its rows, then all of the others, then how many ranks
    have each of them.
    """
    ranks, width, most = len(counts), math.prod(g.shape[1:]), max(counts)
    dtype = functools.reduce(torch.promote_types, [kind for _, kind in shapes], g.dtype)
    place = _place(g, group)
    flat = [
        torch.zeros(shape.numel(), dtype=dtype, device=place)
        if t is None
        else t.detach().reshape(-1).to(place, dtype)
        for t, (shape, _) in zip(grads, shapes, strict=True)
    ]
    has = torch.tensor([float(t is not None) for t in grads], dtype=dtype, device=place)
    tail = torch.cat([*flat, has]) if grads else has
    message = torch.zeros(ranks, most * width + len(tail), dtype=dtype, device=place)
    for r, rows in enumerate(g.detach().split(counts)):
        message[r, : rows.numel()] = rows.reshape(-1).to(place, dtype)
    message[:, most * width :] = tail
    mine = message.new_empty(message.shape[1])
    _REDUCE_SCATTER(mine, message.view(-1), group=group)
    n = counts[rank(group)]
    own = mine[: n * width].view(n, *g.shape[1:]).to(g.device, g.dtype)
    if not grads:
        return own, []
    *sums, have = mine[most * width :].split([*[len(t) for t in flat], len(grads)])
    means = [
        (t / ranks).view(shape).to(g.device, kind) if present else None
        for t, (shape, kind), present in zip(sums, shapes, _truths(have, grads), strict=True)
    ]
    return own, means


def _truths(have: Tensor, grads: list[Tensor | None]) -> list[bool]:
    """Return which gradients any rank has; an accelerator is not asked where this rank has them
    all.
    """
    if all(t is not None for t in grads):
        return [True] * len(grads)
    return [bool(x) for x in have.tolist()]


_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or getattr(
    dist, "reduce_scatter_tensor", None
)
_ALL_GATHER = getattr(dist, "all_gather_single", None) or getattr(
    dist, "all_gather_into_tensor", None
)
"""Under the names of this version of torch."""


# ---- one message for the rows of a loss ----


def _one_type(z: Sequence[Tensor]) -> list[Tensor]:
    """Return views in the type that holds all of them."""
    common = functools.reduce(torch.promote_types, [one.dtype for one in z])
    return [one.to(common) for one in z]


def _parcel(z: Sequence[Tensor], labels: Tensor | None) -> Tensor:
    """Return the bytes of a rank's rows, views side by side so that no two ranks can mistake their
    order; then those of its labels.
    """
    rows = torch.cat(_one_type([one.detach() for one in z]), dim=1).contiguous()
    parts = [rows.view(-1).view(torch.uint8)]
    if labels is not None:
        parts.append(labels.to(rows.device, torch.int64).contiguous().view(-1).view(torch.uint8))
    return torch.cat(parts)


def _unpacked(
    received: Tensor, z: Sequence[Tensor], labels: Tensor | None, counts: list[int]
) -> tuple[Tensor, Tensor | None]:
    """Return the rows and the labels of all ranks, in rank order."""
    dtype = functools.reduce(torch.promote_types, [one.dtype for one in z])
    d, device = sum(one.shape[1] for one in z), z[0].device
    bounds = [n * d * dtype.itemsize for n in counts]
    rows = torch.cat([part[:end] for part, end in zip(received, bounds, strict=True)])
    rows = rows.to(device).view(dtype).view(sum(counts), d)
    if labels is None:
        return rows, None
    marks = torch.cat(
        [part[a : a + 8 * n] for part, a, n in zip(received, bounds, counts, strict=True)]
    )
    return rows, marks.to(device).view(torch.int64)


class _Line:
    """What the ranks of a group have agreed on: how many bytes each sends with its header."""

    def __init__(self, group: Any) -> None:
        self.group, self.capacity = group, 0


_LINES: list[_Line] = []


def _line(group: Group) -> _Line:
    """Return the line of a group, which begins anew with it: no two groups are mistaken for
    another.
    """
    chosen = dist.group.WORLD if group is None else group
    for line in _LINES:
        if line.group is chosen:
            return line
    del _LINES[:-7]
    _LINES.append(_Line(chosen))
    return _LINES[-1]


class Passenger:
    """A number that travels with the next header, and the largest of those of all ranks."""

    def __init__(self, note: int) -> None:
        self.note = note
        self.heard: int | None = None
        """None while no header has been sent."""


_ABOARD: list[Passenger] = []


@contextmanager
def aboard(note: int) -> Iterator[Passenger]:
    """Send a number along with what the loss says inside: every rank hears the largest.

    Args:
        note: this rank's, from 0.

    Example:
        >>> with aboard(3) as passenger:
        ...     pass
        >>> passenger.heard is None
        True
    """
    _ABOARD.append(Passenger(note))
    try:
        yield _ABOARD[-1]
    finally:
        _ABOARD.pop()


def _exchange_headers(
    mine: Header | Exception, parcel: Tensor | None, group: Group
) -> tuple[list[Header], Tensor]:
    """Return the headers and the padded parcels of all ranks; an error of any of them is raised on
    all.

    On the CPU both travel in one message of a size that was agreed on before; where a parcel does
    not fit, all send again, larger. On an accelerator headers go through the host, which then
    waits for no kernel, and parcels from device to device.
    """
    passenger = _ABOARD[-1] if _ABOARD else None
    note = 0 if passenger is None or passenger.heard is not None else passenger.note
    size = 0 if parcel is None else len(parcel)
    blank = [0.0, 0.0, *Header()]
    row = mine if isinstance(mine, Exception) else [size, note, *mine]
    line = _line(group)
    on_device = parcel is not None and _place(parcel, group).type != "cpu"
    capacity = 0 if on_device else line.capacity
    fits = parcel is not None and size <= capacity
    rows, received = _exchange_with(row, blank, parcel if fits else None, capacity, group)
    if not on_device and any(needed > capacity for needed, *_ in rows):
        line.capacity = capacity = int(max(needed for needed, *_ in rows))
        received = _parcels(parcel, capacity, group)
    elif on_device:
        received = _parcels(parcel, int(max(needed for needed, *_ in rows)), group)
    if passenger is not None and passenger.heard is None:
        passenger.heard = int(max(row[1] for row in rows))
    return [Header(*row[2:]) for row in rows], received


def _parcels(parcel: Tensor | None, size: int, group: Group) -> Tensor:
    """Return the parcels of all ranks, padded with zeros, (ranks, size)."""
    place = torch.device("cpu") if parcel is None else _place(parcel, group)
    padded = torch.zeros(size, dtype=torch.uint8, device=place)
    if parcel is not None:
        padded[: len(parcel)] = parcel.to(place)
    everyone = padded.new_empty(world_size(group) * size)
    if size:
        _ALL_GATHER(everyone, padded, group=group)
    return everyone.view(world_size(group), size)


# ---- agreeing before anyone waits ----


def _joined(z: Sequence[Tensor], pairs: Sequence[Pair], headers: list[Header]) -> Sequence[Tensor]:
    """Return views that take part in the backward pass if any rank's do: it communicates.

    A rank without rows may have views that ask for no gradient where those of the others do.
    """
    if any(one.requires_grad for one in z) or len(z[0]):
        return z
    wants = [any(getattr(h, name) for h in headers) for name in ("z1_wants", "z2_wants")]
    sides = [{pair[side] for pair in pairs} for side in (0, 1)]
    return [
        one.detach().requires_grad_()
        if any(want and k in side for want, side in zip(wants, sides, strict=True))
        else one
        for k, one in enumerate(z)
    ]


def on_every_rank(work: Callable[[], T], group: Group = None) -> T:
    """Return what `work()` gives; where it fails on one rank, all of them raise and none waits for
    it.

    The rank that failed raises its own error, the others its sentence.

    Args:
        work: done by every rank, without communicating.
        group: a process group; the default one if None.

    Example:
        >>> on_every_rank(lambda: 3)
        3
    """
    if world_size(group) == 1:
        return work()
    result = _attempt(work)
    _exchange(result if isinstance(result, Exception) else [], [], group)
    return result  # type: ignore[return-value]


def opened_by_ranks(work: Callable[[], T], group: Group = None) -> T:
    """Return what `work()` gives, as `on_every_rank`; ranks share out the indexing of shards.

    Of data in many shards each rank asks about and reads every world-th one, and all of them learn
    what was found: no shard is fetched by all ranks to be indexed.

    Args:
        work: opens data; done by every rank, without communicating; done again from its beginning
            when shards have been indexed.
        group: a process group; the default one if None.

    Example:
        >>> opened_by_ranks(lambda: 3)
        3
    """
    if world_size(group) == 1:
        return work()
    known: dict[str, list[Any]] = {}

    def attempt() -> tuple[T | None, Wanted | None]:
        try:
            with with_shared(known):
                return work(), None
        except Wanted as wanted:
            return None, wanted

    while True:
        result, wanted = on_every_rank(attempt, group)
        mark = 0 if wanted is None else 1 + int(wanted.key[:12], 16)  # exact as a float64
        marks = {row[0] for row in _exchange([mark], [0], group)}
        if marks == {0}:
            return result  # type: ignore[return-value]
        if len(marks) == 1 and wanted is not None:
            known[wanted.key] = _by_turns(wanted.tasks, group)
            continue
        # some have it in their cache, or read other data: whoever has not does all of it
        own = on_every_rank(lambda w=wanted: [task() for task in w.tasks] if w else [], group)
        if wanted is not None:
            known[wanted.key] = own


_AT_A_TIME = 8
"""Tasks of a rank between two messages: so many results travel together."""


def _by_turns(tasks: Sequence[Callable[[], Any]], group: Group) -> list[Any]:
    """Return the results of tasks, of which each rank does every world-th."""
    ranks, me = world_size(group), rank(group)
    results: list[Any] = [None] * len(tasks)
    for start in range(0, len(tasks), ranks * _AT_A_TIME):
        turn = range(start, min(start + ranks * _AT_A_TIME, len(tasks)))
        mine = on_every_rank(lambda turn=turn: [tasks[k]() for k in turn[me::ranks]], group)
        parcel = zlib.compress(json.dumps(mine).encode())
        sizes = [int(row[0]) for row in _exchange([len(parcel)], [0], group)]
        host = _host(group)
        everyone = _gathered(torch.frombuffer(bytearray(parcel), dtype=torch.uint8), sizes, host)
        for r, part in enumerate(everyone.split(sizes)):
            results[start + r : turn.stop : ranks] = json.loads(zlib.decompress(bytes(part)))
    return results


def on_any_rank(flag: bool, group: Group = None) -> bool:
    """Return whether it is true on any rank.

    Example:
        >>> on_any_rank(False)
        False
    """
    if world_size(group) == 1:
        return flag
    return any(bool(row[0]) for row in _exchange([flag], [False], group))


def agree_on_step(work: Callable[[], T], flag: int, group: Group = None) -> tuple[T, int]:
    """Return what `work()` gives and the largest flag of all ranks, in one exchange.

    Where the work fails on one rank, all of them raise, as in `on_every_rank`.

    Args:
        work: done by every rank, without communicating.
        flag: this rank's, from 0.
        group: a process group; the default one if None.

    Example:
        >>> agree_on_step(lambda: "batch", 0)
        ('batch', 0)
    """
    if world_size(group) == 1:
        return work(), flag
    result = _attempt(work)
    rows = _exchange(result if isinstance(result, Exception) else [flag], [0], group)
    return result, int(max(row[0] for row in rows))  # type: ignore[return-value]


def require_alike(call: str, what: str, value: float, shown: str, group: Group = None) -> None:
    """Refuse a number that differs between ranks, on all of them, naming who has which.

    Args:
        call: what needs it.
        what: the number is.
        value: this rank's, exact as a float64.
        shown: the format in which one is named, such as "{:.0f} rows".
        group: a process group; the default one if None.
    """
    if world_size(group) > 1:
        rows = _exchange([value], [0], group)
        alike(call, what, [row[0] for row in rows], shown.format)


@contextmanager
def lost_ranks(advice: str) -> Iterator[None]:
    """Turn the end of another rank, which a backend raises in its own words, into a sentence.

    Args:
        advice: how to go on.
    """
    try:
        yield
    except RuntimeError as error:
        ours = str(error).startswith("DataLoader")
        if ours or world_size() == 1 or not _LOST.search(str(error)):
            raise
        raise ChiaroError(
            f"Another of the {world_size()} ranks has ended, and rank {rank()} ends with it. "
            f"{advice}".rstrip()
        ) from None


_LOST = re.compile(
    r"[Cc]onnection (closed|reset|refused)|[Bb]roken pipe|[Tt]imed? ?out|Connect timeout|"
    r"remote process|NCCL|Application timeout|[Ss]ocket"
)
"""What gloo and NCCL say when nobody answers."""


def _attempt(work: Callable[[], T]) -> T | Exception:
    """Return the result, or the error in its place: to be raised when all ranks know of it."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - `_exchange` raises it
        return error


def _exchange(
    numbers: Iterable[float] | Exception, blank: Sequence[float], group: Group
) -> list[list[float]]:
    """Return the numbers of every rank, in rank order; or an error of any of them, raised on all.

    Args:
        numbers: as many from every rank, or the error that kept this one from having them.
        blank: as many numbers, which such a rank sends.
        group: as above.
    """
    return _exchange_with(numbers, blank, None, 0, _host(group))[0]


def _exchange_with(
    numbers: Iterable[float] | Exception,
    blank: Sequence[float],
    parcel: Tensor | None,
    size: int,
    group: Group,
) -> tuple[list[list[float]], Tensor]:
    """Return the same, with `size` bytes of every rank beside the numbers; zeros where there are
    none.
    """
    failed = numbers if isinstance(numbers, Exception) else None
    text = b"" if failed is None else _spoken(failed).encode()
    row = [len(text), *(blank if isinstance(numbers, Exception) else numbers)]
    mine = torch.tensor([float(x) for x in row], dtype=torch.float64).view(torch.uint8)
    message = torch.zeros(len(mine) + size, dtype=torch.uint8)
    message[: len(mine)] = mine
    if parcel is not None:
        message[len(mine) : len(mine) + len(parcel)] = parcel.cpu()
    everyone = _gathered(message[None], [1] * world_size(group), group)
    rows = everyone[:, : len(mine)].contiguous().view(torch.float64).tolist()
    lengths = [int(row[0]) for row in rows]
    if not any(lengths):
        return [row[1:] for row in rows], everyone[:, len(mine) :]
    spoken = _gathered(torch.tensor(list(text), dtype=torch.uint8), lengths, group)
    if failed is not None and not isinstance(failed, ChiaroError):
        raise failed
    bounds = [sum(lengths[:r]) for r in range(len(lengths) + 1)]
    heard = [bytes(spoken[a:b].tolist()).decode() for a, b in pairwise(bounds)]
    first = next(r for r, text in enumerate(heard) if text)
    where = f"On rank {first} of {len(rows)}: " if len(set(heard)) > 1 else ""
    kind = InputError if heard[first].startswith(_INPUT) else ChiaroError
    raise kind(where + heard[first][1:])


_INPUT, _OTHER = "I", "C"


def _spoken(error: Exception) -> str:
    """Return an error as the others hear it: whose fault it is, and the sentence."""
    ours = isinstance(error, ChiaroError)
    sentence = str(error) if ours else f"{type(error).__name__}: {error}"
    return (_INPUT if isinstance(error, InputError) else _OTHER) + sentence


# ---- rows, gradients and buffers ----


def gather_rows(t: Tensor, group: Group = None) -> Tensor:
    """Return the rows of all ranks in rank order, without gradient; each may bring another number
    of them.

    Args:
        t: this rank's rows, (n_r, ...), of real numbers, integers or truth values.
        group: a process group; the default one if None.

    Example:
        >>> gather_rows(torch.arange(3))
        tensor([0, 1, 2])
    """
    t = t.detach()
    if world_size(group) == 1:
        return t
    fits = t.ndim > 0 and t.dtype in DTYPES
    mine = [len(t), math.prod(t.shape[1:]), DTYPES.index(t.dtype) + 1] if fits else None
    refusal = InputError(f"`gather_rows(t)` needs rows of numbers; received {described(t)}.")
    rows = _exchange(refusal if mine is None else mine, [0, 0, 0], group)
    counts, widths, dtypes = zip(*rows, strict=True)
    alike("gather_rows(t)", "the size of a row", widths, whole_number)
    alike("gather_rows(t)", "the dtype", dtypes, dtype_name)
    return _gathered(t, [int(n) for n in counts], group)


def in_parallel(module: nn.Module) -> nn.Module:
    """Return the module, to be called: on several ranks its gradients are averaged as they come."""
    return module if world_size() == 1 else nn.parallel.DistributedDataParallel(module)


def sum_alike(t: Tensor, group: Group = None) -> Tensor:
    """Return the sum of the ranks' tensors of one shape, without gradient.

    Args:
        t: of the same shape and type on every rank.
        group: a process group; the default one if None.

    Example:
        >>> sum_alike(torch.ones(2))
        tensor([1., 1.])
    """
    return t.detach() if world_size(group) == 1 else _summed(t, group)


def gather_alike(t: Tensor, group: Group = None) -> Tensor:
    """Return the ranks' tensors of one shape, one on top of the other, without gradient.

    Args:
        t: of the same shape and type on every rank; nothing is checked.
        group: a process group; the default one if None.

    Example:
        >>> gather_alike(torch.ones(2)).shape
        torch.Size([1, 2])
    """
    if world_size(group) == 1:
        return t.detach()[None]
    return _gathered(t.detach()[None], [1] * world_size(group), group)


def average_gradients(parameters: Iterable[nn.Parameter], group: Group = None) -> None:
    """Replace every gradient by its mean over the ranks.

    For parameters that no `DistributedDataParallel` looks after, such as the temperature of an
    objective. A rank without a gradient counts as zero; a parameter without one on any rank
    keeps None.

    Args:
        parameters: the same, in the same order, on every rank.
        group: a process group; the default one if None.
    """
    wanted = [p for p in parameters if p.requires_grad]
    ranks = world_size(group)
    if ranks == 1 or not wanted:
        return
    has = torch.tensor([float(p.grad is not None) for p in wanted])
    present: list[bool] = []
    for bucket in _buckets(wanted):
        kind, place = bucket[0].dtype, _place(bucket[0], group)
        parts = [
            (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).to(place)
            for p in bucket
        ]
        flags = [] if present else [has.to(place, kind)]
        flat = torch.cat([*flags, *parts])
        dist.all_reduce(flat, group=group)
        if not present:
            counted, flat = flat.tensor_split([len(wanted)])
            present = [True] * len(wanted) if bool(has.all()) else [c > 0 for c in counted.tolist()]
        for p, mean in zip(bucket, (flat / ranks).split([len(t) for t in parts]), strict=True):
            p.grad = mean.view(p.shape).to(p.device)
    for p, anywhere in zip(wanted, present, strict=True):
        p.grad = p.grad if anywhere else None


BUCKET = 25 << 20
"""Bytes of gradients in a message, as in `DistributedDataParallel`."""


def _buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return parameters of one type and device, as many as fill a message."""
    buckets: list[list[nn.Parameter]] = []
    latest: dict[Any, tuple[list[nn.Parameter], int]] = {}
    for p in parameters:
        kind, size = (p.dtype, p.device), p.numel() * p.element_size()
        bucket, filled = latest.get(kind, ([], BUCKET))
        if filled + size > BUCKET:
            bucket, filled = [], 0
            buckets.append(bucket)
        bucket.append(p)
        latest[kind] = bucket, filled + size
    return buckets


def share_buffers(module: nn.Module, group: Group = None) -> None:
    """Give every rank the buffers of the first, such as the running statistics of BatchNorm.

    Args:
        module: the same on every rank.
        group: a process group; the default one if None.
    """
    buffers = [buffer.detach() for buffer in module.buffers()]
    if world_size(group) == 1 or not buffers:
        return
    place = _place(buffers[0], group)
    parcels = [buffer.reshape(-1).view(torch.uint8).to(place) for buffer in buffers]
    shared = torch.cat(parcels)
    dist.broadcast(shared, group=group, group_src=0)
    for buffer, parcel in zip(buffers, shared.split([len(p) for p in parcels]), strict=True):
        buffer.copy_(parcel.to(buffer.device).clone().view(buffer.dtype).view(buffer.shape))


def _gathered(t: Tensor, counts: list[int], group: Group) -> Tensor:
    """Return the rows of all ranks, whose numbers are known; as bytes, which every backend can
    send.
    """
    width = math.prod(t.shape[1:])
    mine = t.detach().reshape(len(t), width).contiguous().view(torch.uint8)
    padded = mine.new_zeros(max(counts), mine.shape[1], device=_place(t, group))
    padded[: len(mine)] = mine
    everyone = padded.new_empty(len(counts), *padded.shape)
    dist.all_gather(list(everyone.unbind(0)), padded, group=group)
    rows = torch.cat([theirs[:n] for theirs, n in zip(everyone, counts, strict=True)])
    return rows.to(t.device).view(t.dtype).reshape(sum(counts), *t.shape[1:])


def _summed(t: Tensor, group: Group) -> Tensor:
    """Return the sum over ranks, as a new tensor."""
    total = t.detach().to(_place(t, group), copy=True, memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total.to(t.device)


def _place(t: Tensor, group: Group) -> torch.device:
    """Return where a tensor travels from: its own device if the group can send from there."""
    kinds = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
    if t.device.type in kinds and (t.device.type == "cpu" or kinds[t.device.type] != "gloo"):
        return t.device
    if "cpu" in kinds:
        return torch.device("cpu")
    kind = next(iter(kinds))
    return torch.device(kind, torch.accelerator.current_device_index())


PATIENCE = timedelta(days=7)
"""How long ranks wait for one that monitors or saves; one that has died is noticed at once."""

_HOSTS: list[tuple[Any, Any]] = []


def _host(group: Group) -> Group:
    """Return the group that ranks agree in: for the default one, a patient group of its own, on the
    host."""
    if group is not None:
        return group
    for world, host in _HOSTS:
        if world is dist.group.WORLD:
            return host
    _HOSTS[:] = [(dist.group.WORLD, dist.new_group(backend="gloo", timeout=PATIENCE))]
    return _HOSTS[0][1]


# ---- beginning and end ----


_JOINED = itertools.count()
"""Groups that this process has joined, one after another, as have the others."""


@contextmanager
def joined_ranks(device: str = "auto") -> Iterator[None]:
    """Join the other ranks that `torchrun` started, as its environment says; leave at the end.

    Without `torchrun`, with one rank, or in a group that exists already, nothing happens.

    Args:
        device: device of the settings; "cpu" asks for no accelerator, however many are here.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or not dist.is_available() or dist.is_initialized():
        yield
        return
    need(
        ":" not in device,
        lambda: (
            f"Each of {world} ranks takes a device of its own; received `{device}` for all. Take "
            f"`{device.partition(':')[0]}`, and choose among devices by `CUDA_VISIBLE_DEVICES`."
        ),
    )
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    kind = None if accelerator is None or device == "cpu" else accelerator.type
    if kind is not None and backends(kind) != "gloo":
        torch.accelerator.set_device_index(_local_device(kind))
    # under a name of its own: the store of `torchrun` still has the addresses of a group before
    store, rank_, size = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(f"joined {next(_JOINED)}", store)
    dist.init_process_group(backends(kind), store=store, rank=rank_, world_size=size)
    try:
        yield
    except BaseException as error:
        _release(error)
        raise
    finally:
        _LINES.clear()
        _HOSTS.clear()
        dist.destroy_process_group()


def backends(kind: str | None) -> str:
    """Return the backends of a process group: tensors travel by that of their own device.

    So the device of the settings decides, not what the machine has.

    Args:
        kind: kind of the accelerator that is here, such as "cuda"; None if there is none.

    Example:
        >>> backends("cuda"), backends(None)
        ('cpu:gloo,cuda:nccl', 'gloo')
    """
    own = {"cuda": "nccl", "xpu": "xccl"}.get(kind or "")
    return "gloo" if own is None else f"cpu:gloo,{kind}:{own}"


def _local_device(kind: str) -> int:
    """Return the device of this rank: one for each rank of a machine."""
    local, devices = int(os.environ.get("LOCAL_RANK", "0")), torch.accelerator.device_count()
    return require_device(kind, local, devices)


def require_device(kind: str, local: int, devices: int) -> int:
    """Refuse more ranks on a machine than it has devices; return the device of this one.

    Args:
        kind: kind of device.
        local: the number of this rank on its machine, from 0.
        devices: how many there are.
    """
    need(
        local < devices,
        lambda: (
            f"Every rank of a machine needs a {kind} device of its own; this is rank {local} of "
            f"the machine, and there are {devices}. Start `torchrun --nproc-per-node {devices}`."
        ),
    )
    return local


def _release(error: BaseException | None) -> None:
    """Drop what the frames of an error hold.

    A parallel network that outlives its group may wait for ever for the ranks that have left it.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
