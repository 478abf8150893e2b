"""Several ranks, one batch: the only file that communicates.

The loss of a batch spread over ranks is a sum of one share per rank. A rank holds its own rows,
gathers those of the others where its objective needs them, and computes its share; the backward
pass of the gather adds up what the shares of all ranks ask of its rows. Nothing here depends on
how many rows a rank has, none included, and a rank that must refuse its input makes all of them
refuse it, with the same sentence: nobody waits for someone who has left.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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
    "agree_on_step",
    "average_gradients",
    "barrier",
    "distributed_loss",
    "gather_rows",
    "in_parallel",
    "is_first",
    "joined_ranks",
    "lost_ranks",
    "on_any_rank",
    "on_every_rank",
    "rank",
    "require_alike",
    "share_buffers",
    "sum_over_ranks",
    "world_size",
]

Group = Any  # torch.distributed.ProcessGroup, which a build of torch may lack
T = TypeVar("T")


# ---- who is there ----


def world_size(group: Group = None) -> int:
    """How many ranks share the work; 1 where no process group was initialised.

    Example:
        >>> world_size(), rank(), is_first()
        (1, 0, True)
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def rank(group: Group = None) -> int:
    """Which of the ranks this is; 0 where no process group was initialised."""
    return dist.get_rank(group) if dist.is_available() and dist.is_initialized() else 0


def is_first(group: Group = None) -> bool:
    """Whether this is the rank that writes files and speaks."""
    return rank(group) == 0


def barrier(group: Group = None) -> None:
    """Wait here until every rank has come."""
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
    """The loss of the whole batch whose rows are spread over the ranks, the same on every rank.

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
    ranks, me = world_size(group), rank(group)
    if ranks == 1:
        return objective(z1, z2, labels, queue)
    mine = _attempt(lambda: header(objective, z1, z2, labels, queue))
    headers = [Header(*row) for row in _exchange(mine, Header(), group)]
    agree(headers)
    counts = [int(header.n) for header in headers]
    z1, z2 = _joined(z1, headers, "z1"), None if z2 is None else _joined(z2, headers, "z2")
    if objective.reduces != "samples":
        z1, z2 = _gathered_views(z1, z2, counts, objective.reduces == "batch", group)
        labels = None if labels is None else _gathered(labels.to(z1.device), counts, group)
    share = _attempt(lambda: _share(objective, (z1, z2, labels, queue), counts, me))
    value = share if isinstance(share, Exception) else [float(share.detach())]
    shares = _exchange(value, [0.0], group)
    return _Whole.apply(
        share, math.fsum(s for (s,) in shares), ranks if gradients == "averaged" else 1
    )


LossInputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]


def _share(objective: Objective, batch: LossInputs, counts: list[int], me: int) -> Tensor:
    """What this rank adds to the loss: the shares of all ranks sum to it."""
    n, total = counts[me], sum(counts)
    if objective.reduces == "samples":
        need(
            total >= objective.least,
            lambda: (
                f"`{CALL}` needs at least {objective.least} pairs on all {len(counts)} ranks "
                f"together; received {total}."
            ),
        )
        return objective(*batch) * (n / total) if n else _nothing(*batch[:2])
    if objective.reduces == "anchors":
        start = sum(counts[:me])
        return objective(*batch, window=(start, start + n))
    return objective(*batch) / len(counts)


def _nothing(z1: Tensor, z2: Tensor | None) -> Tensor:
    """The share of a rank without rows: zero, and yet the root of a backward pass."""
    return wide(z1).sum() if z2 is None else wide(z1).sum() + wide(z2).sum()


class _Whole(torch.autograd.Function):
    """The value of the whole loss, with the gradient of this rank's share times a factor."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, value: float, factor: int) -> Tensor:
        ctx.factor = factor
        return torch.full_like(share, value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.factor, None, None


class _Gather(torch.autograd.Function):
    """The rows of all ranks; their gradient is summed over all ranks, and each takes its own.

    Where every rank computes the same share, it knows the sum without asking.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], alike: bool, group: Group) -> Tensor:
        ctx.counts, ctx.alike, ctx.group, ctx.dtype = counts, alike, group, rows.dtype
        return wide(_gathered(rows, counts, group))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        me = rank(ctx.group)
        own = slice(sum(ctx.counts[:me]), sum(ctx.counts[: me + 1]))
        g, factor = (grads[0], len(ctx.counts)) if ctx.alike else (_summed(grads[0], ctx.group), 1)
        return (g[own] * factor).to(ctx.dtype), None, None, None


def _gathered_views(
    z1: Tensor, z2: Tensor | None, counts: list[int], alike: bool, group: Group
) -> tuple[Tensor, Tensor | None]:
    """Both views in one message, so that no two ranks can mistake their order."""
    if z2 is None:
        return _Gather.apply(z1, counts, alike, group), None
    common = torch.promote_types(z1.dtype, z2.dtype)
    rows = torch.cat([z1.to(common), z2.to(common)], dim=1)
    z1, z2 = _Gather.apply(rows, counts, alike, group).chunk(2, dim=1)
    return z1, z2


# ---- agreeing before anyone waits ----


def _joined(z: Tensor, headers: list[Header], name: str) -> Tensor:
    """Rows that take part in the backward pass if any rank's do: it communicates."""
    if z.requires_grad or not any(getattr(header, f"{name}_wants") for header in headers):
        return z
    return z.detach().requires_grad_()


def on_every_rank(work: Callable[[], T], group: Group = None) -> T:
    """What `work()` gives; where it fails on one rank, all of them raise and none waits for it.

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


def on_any_rank(flag: bool, group: Group = None) -> bool:
    """Whether it is true on any rank.

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
    """The result, or the error in its place: to be raised when all ranks know of it."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - `_exchange` raises it
        return error


def _exchange(
    numbers: Iterable[float] | Exception, blank: Sequence[float], group: Group
) -> list[list[float]]:
    """The numbers of every rank, in rank order; or an error of any of them, raised on all.

    Args:
        numbers: as many from every rank, or the error that kept this one from having them.
        blank: as many numbers, which such a rank sends.
        group: as above.
    """
    failed = numbers if isinstance(numbers, Exception) else None
    text = b"" if failed is None else _spoken(failed).encode()
    row = [len(text), *(blank if isinstance(numbers, Exception) else numbers)]
    mine = torch.tensor([float(x) for x in row], dtype=torch.float64)
    rows = _gathered(mine[None], [1] * world_size(group), group).tolist()
    lengths = [int(row[0]) for row in rows]
    if not any(lengths):
        return [row[1:] for row in rows]
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
    """An error as the others hear it: whose fault it is, and the sentence."""
    ours = isinstance(error, ChiaroError)
    sentence = str(error) if ours else f"{type(error).__name__}: {error}"
    return (_INPUT if isinstance(error, InputError) else _OTHER) + sentence


# ---- rows, gradients and buffers ----


def gather_rows(t: Tensor, group: Group = None) -> Tensor:
    """The rows of all ranks in rank order, without gradient; each may bring another number of them.

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
    """The module, to be called: on several ranks its gradients are averaged as they come."""
    return module if world_size() == 1 else nn.parallel.DistributedDataParallel(module)


def sum_over_ranks(t: Tensor, group: Group = None) -> Tensor:
    """The sum of the ranks' tensors of one shape, with its gradient: of each, that of all sums.

    Args:
        t: of the same shape and type on every rank.
        group: a process group; the default one if None.

    Example:
        >>> sum_over_ranks(torch.ones(2))
        tensor([1., 1.])
    """
    return t if world_size(group) == 1 else _Sum.apply(t, group)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return _summed(t, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _summed(grads[0], ctx.group), None


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
    has = [p.grad is not None for p in wanted]
    present = _exchange(has, has, group)
    for p, present_somewhere in zip(wanted, map(any, zip(*present, strict=True)), strict=True):
        if present_somewhere:
            own = torch.zeros_like(p) if p.grad is None else p.grad
            p.grad = _summed(own, group).div_(ranks)


def share_buffers(module: nn.Module, group: Group = None) -> None:
    """Give every rank the buffers of the first, such as the running statistics of BatchNorm.

    Args:
        module: the same on every rank.
        group: a process group; the default one if None.
    """
    buffers = [buffer.detach() for buffer in module.buffers()]
    if world_size(group) == 1 or not buffers:
        return
    parcels = [buffer.reshape(-1).view(torch.uint8).to(_device(group)) for buffer in buffers]
    shared = torch.cat(parcels)
    dist.broadcast(shared, group=group, group_src=0)
    for buffer, parcel in zip(buffers, shared.split([len(p) for p in parcels]), strict=True):
        buffer.copy_(parcel.to(buffer.device).clone().view(buffer.dtype).view(buffer.shape))


def _gathered(t: Tensor, counts: list[int], group: Group) -> Tensor:
    """The rows of all ranks, whose numbers are known; as bytes, which every backend can send."""
    width = math.prod(t.shape[1:])
    mine = t.detach().reshape(len(t), width).contiguous().view(torch.uint8)
    padded = mine.new_zeros(max(counts), mine.shape[1], device=_device(group))
    padded[: len(mine)] = mine
    everyone = padded.new_empty(len(counts), *padded.shape)
    dist.all_gather(list(everyone.unbind(0)), padded, group=group)
    rows = torch.cat([theirs[:n] for theirs, n in zip(everyone, counts, strict=True)])
    return rows.to(t.device).view(t.dtype).reshape(sum(counts), *t.shape[1:])


def _summed(t: Tensor, group: Group) -> Tensor:
    """The sum over ranks, as a new tensor."""
    total = t.detach().to(_device(group), copy=True, memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total.to(t.device)


def _device(group: Group) -> torch.device:
    """Where the backend wants its tensors."""
    if dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


# ---- beginning and end ----


@contextmanager
def joined_ranks() -> Iterator[None]:
    """Join the other ranks that `torchrun` started, as its environment says; leave at the end.

    Without `torchrun`, with one rank, or in a group that exists already, nothing happens.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or not dist.is_available() or dist.is_initialized():
        yield
        return
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()
