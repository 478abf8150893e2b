"""log-sum-exp by blocks of anchors, differentiated automatically: any kernel, device, transform.

Nothing here asks for a number, so it runs on an accelerator without waiting, and inside
`torch.compile` and `torch.func`. A block is `kernel.log(anchors, candidates)`, computed again in
the backward pass instead of being kept. The tiles of `log_sum_exp` are faster on the CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from chiaroscuro.kernels import Kernel
from chiaroscuro.kernels.kernel import mixture
from chiaroscuro.numerics import full_precision, transformed
from chiaroscuro.pairwise.layout import Layout
from chiaroscuro.pairwise.prepared import Prepared, Views, prepare

__all__ = ["by_blocks", "recomputed", "rows_at_once"]

ENTRIES = 1 << 22
"""Entries of a block on the CPU: 16 MB in float32."""
ENTRIES_ON_DEVICE = 1 << 26
"""Entries of a block on an accelerator: all pairs of 4096 samples at once."""
DIFFERENCES_ON_DEVICE = 1 << 28
"""Differences of coordinates at a time, where a gradient keeps them all: 1 GB in float32."""


def rows_at_once(z: Tensor, columns: int, breadth: int = 1) -> int:
    """How many rows of z to compare with so many columns in one block, by the kind of device.

    Args:
        z: rows, for their device.
        columns: rows that each is compared with.
        breadth: numbers that a comparison of two rows keeps, see `Prepared.breadth`.
    """
    if transformed():
        return max(1, len(z))
    entries = ENTRIES if z.device.type == "cpu" else ENTRIES_ON_DEVICE
    if breadth > 1:
        entries = min(entries, DIFFERENCES_ON_DEVICE // breadth)
    return max(1, entries // max(1, columns))


def by_blocks(
    kernel: Kernel,
    z: Tensor,
    layout: Layout,
    groups: Tensor | None = None,
    powers: tuple[float, ...] = (1.0,),
) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs, sums and gap of `log_sum_exp`; with several powers q, sums of k^q, one after another.

    Several powers leave the partner out of the sums, whatever the layout.
    """
    start, stop = layout.window
    several = (len(powers),) if len(powers) > 1 else ()
    prepared = prepare(kernel, z)
    if layout.views == 2:
        pairs = prepared.log_paired(slice(start, stop), slice(layout.n + start, layout.n + stop))
    else:
        pairs = z.new_empty(0)
    others = (layout.n - 1) * (layout.own_view + (layout.other_view and layout.views == 2))
    if others + layout.queue == 0 or start == stop:
        sums = pairs.new_full((*several, layout.anchors, stop - start), -torch.inf)
    else:
        pieces = _pieces(z, layout, prepared)
        sums_of = _Sums(prepared, layout, pieces, _samples(layout, z.device), groups, powers)
        values = recomputed(sums_of.log_k, len(pieces), prepared.tensors, sums_of)
        if len(pieces) > 1 and len(powers) > 1:
            sizes = [len(powers) * piece.anchors for piece in pieces]
            values = torch.cat([x.view(len(powers), -1) for x in values.split(sizes)], dim=1)
        sums = values.view(*several, layout.anchors, -1)
    if layout.positive and layout.views == 2 and len(powers) == 1:
        if others + layout.queue == 0:
            sums = pairs.expand(layout.anchors, -1)
        else:  # log(exp(sums) + exp(pairs)) - pairs, which is never negative
            above = -logsigmoid(pairs - sums)
            return pairs, pairs + above, above.sum()
    gap = (sums - pairs).sum() if layout.views == 2 else sums.sum()
    return pairs, sums, gap


class Reduction(ABC):
    """What becomes of a block: a one-dimensional result, with a gradient by hand (abstract).

    The result is kept from the forward pass, so that the backward pass does not reduce again.
    """

    @abstractmethod
    def reduce(self, k: int, block: Tensor) -> Tensor:
        """The result of block number k."""

    @abstractmethod
    def pull(self, k: int, block: Tensor, result: Tensor, g: Tensor) -> Tensor:
        """The gradient of the block, given that of its result."""


def recomputed(
    block: Callable[[int, Sequence[Tensor], bool], Tensor],
    count: int,
    tensors: Sequence[Tensor],
    reduction: Reduction | None = None,
) -> Tensor:
    """block(0, ...), block(1, ...), ... in a row, each computed again in the backward pass.

    Args:
        block: one-dimensional result number k of the tensors; its third argument says whether the
            gradient itself will be differentiated.
        count: how many there are.
        tensors: what they depend on and is to receive a gradient.
        reduction: what makes a one-dimensional result of a block that is none.
    """
    if transformed():
        blocks = [block(k, tensors, True) for k in range(count)]
        return torch.cat([_reduced(reduction, k, x) for k, x in enumerate(blocks)])
    return _Recomputed.apply(block, count, reduction, *tensors)


def _reduced(reduction: Reduction | None, k: int, block: Tensor) -> Tensor:
    return block if reduction is None else reduction.reduce(k, block)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Any, count: int, reduction: Any, *tensors: Tensor) -> Tensor:
        ctx.block, ctx.reduction = block, reduction
        with full_precision(tensors[0].device):
            each = [_reduced(reduction, k, block(k, tensors, False)) for k in range(count)]
        ctx.sizes = [len(result) for result in each]
        results = each[0] if count == 1 else torch.cat(each)
        ctx.save_for_backward(results, *tensors)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        results, *saved = ctx.saved_tensors  # read once: checkpointing recomputes on each reading
        graph, reduction = torch.is_grad_enabled(), ctx.reduction
        wants = ctx.needs_input_grad[3:]
        tensors = [
            x if graph or x.is_leaf else x.detach().requires_grad_(want)
            for x, want in zip(saved, wants, strict=True)
        ]
        wanted = [x for x, want in zip(tensors, wants, strict=True) if want]
        totals: list[Tensor | None] = [None] * len(wanted)
        pieces = zip(grads[0].split(ctx.sizes), results.split(ctx.sizes), strict=True)
        with torch.enable_grad(), full_precision(results.device):
            for k, (g, result) in enumerate(pieces):
                block = ctx.block(k, tensors, graph)
                if graph:
                    block = _reduced(reduction, k, block)
                elif reduction is not None:
                    g = reduction.pull(k, block.detach(), result, g)
                gradients = torch.autograd.grad(
                    block, wanted, g, create_graph=graph, allow_unused=True
                )
                totals = [
                    new if old is None else old if new is None else old + new
                    for old, new in zip(totals, gradients, strict=True)
                ]
        each = iter(totals)
        return None, None, None, *(next(each) if want else None for want in wants)


class _Piece(NamedTuple):
    """Anchors start <= row < stop of the stack against some ranges of it."""

    start: int
    stop: int
    ranges: list[tuple[int, int]]
    views: int = 0
    """Instead: each of two views of so many rows against itself, or against the other."""

    @property
    def anchors(self) -> int:
        """How many there are."""
        return self.stop - self.start


def _pieces(z: Tensor, layout: Layout, prepared: Prepared) -> list[_Piece]:
    """The blocks of anchors, and which rows have their candidates."""
    n, (start, stop), breadth = layout.n, layout.window, prepared.breadth
    each = layout.own_view != layout.other_view and layout.views == 2 == layout.anchors
    whole = stop - start == n <= rows_at_once(z, 2 * n, breadth)
    if prepared.in_views and each and whole and not layout.queue:
        return [_Piece(0, 2 * n, [], n)]
    queue = [(layout.views * n, layout.rows)] if layout.queue else []
    if layout.is_everyone or (layout.views == 1 and layout.own_view):
        spans = [(start, stop + n * (layout.anchors - 1), [(0, n * layout.views), *queue])]
    else:
        spans = []
        for view in range(layout.anchors):
            own = [(view * n, view * n + n)] if layout.own_view else []
            other = (1 - view) * n
            across = [(other, other + n)] if layout.other_view and layout.views == 2 else []
            spans.append((view * n + start, view * n + stop, sorted([*own, *across, *queue])))
    pieces = []
    for first, last, ranges in spans:
        joined = _joined(ranges)
        step = rows_at_once(z, sum(b - a for a, b in joined), breadth)
        pieces += [_Piece(i, min(i + step, last), joined) for i in range(first, last, step)]
    return pieces


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring ranges as one."""
    whole: list[tuple[int, int]] = []
    for a, b in ranges:
        if whole and whole[-1][1] == a:
            whole[-1] = whole[-1][0], b
        else:
            whole.append((a, b))
    return whole


@dataclass(frozen=True)
class _Sums(Reduction):
    """log of the sum of k^q over the candidates of each anchor, one q after another.

    The members of a mixture are summed together with the candidates: (members, ..., candidates).
    """

    prepared: Prepared
    layout: Layout
    pieces: list[_Piece]
    sample: Tensor
    groups: Tensor | None
    powers: tuple[float, ...]

    def log_k(self, k: int, tensors: Sequence[Tensor], twice: bool) -> Tensor:
        """log of each member of the kernel, for some anchors with all that they are compared to."""
        piece = self.pieces[k]
        if piece.views:
            views = Views(piece.views)
            others = Views(piece.views, exchanged=self.layout.other_view)
            logs = self.prepared.logs(tensors, views, others, twice)
        else:
            rows = slice(piece.start, piece.stop)
            some = [self.prepared.logs(tensors, rows, slice(*r), twice) for r in piece.ranges]
            logs = some[0] if len(some) == 1 else [torch.cat(x, 1) for x in zip(*some, strict=True)]
        if self.powers != (1.0,):
            logs = [mixture(logs)]
        return logs[0][None] if len(logs) == 1 else torch.stack(logs)

    def _left_out(self, k: int) -> Tensor:
        """Who is no candidate: the anchor itself, its partner, its own group."""
        piece, sample, groups = self.pieces[k], self.sample, self.groups
        if piece.views:
            anchor = column = sample[: piece.views]
        else:
            columns = [sample[slice(*some)] for some in piece.ranges]
            column = columns[0] if len(columns) == 1 else torch.cat(columns)
            anchor = sample[piece.start : piece.stop]
        left_out = anchor[:, None] == column
        if groups is None:
            return left_out
        # rows of a queue belong to no group
        return left_out | ((groups[anchor, None] == groups[column]) & (column >= 0))

    def reduce(self, k: int, block: Tensor) -> Tensor:
        log_k = block.masked_fill(self._left_out(k), -torch.inf)
        over = (0, -1) if len(log_k) > 1 else -1
        each = [torch.logsumexp(log_k if q == 1 else log_k * q, dim=over) for q in self.powers]
        return (each[0] if len(each) == 1 else torch.stack(each)).flatten()

    def pull(self, k: int, block: Tensor, result: Tensor, g: Tensor) -> Tensor:
        """q g_i k_ij^q / sum_j k_ij^q, summed over q."""
        shape = (len(self.powers), *block.shape[1:-1], 1)
        pulls = [
            ((block if q == 1 else block * q) - one).exp_().mul_(more if q == 1 else more * q)
            for q, one, more in zip(self.powers, result.view(shape), g.view(shape), strict=True)
        ]
        pull = pulls[0] if len(pulls) == 1 else torch.stack(pulls).sum(dim=0)
        return pull.masked_fill_(self._left_out(k), 0.0)


def _samples(layout: Layout, device: torch.device) -> Tensor:
    """The sample of each row of the stack; -1 for those of a queue, which are nobody's."""
    sample = torch.arange(layout.views * layout.n, device=device) % layout.n
    return sample if not layout.queue else torch.cat([sample, sample.new_full((layout.queue,), -1)])
