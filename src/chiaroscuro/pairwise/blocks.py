"""log-sum-exp by blocks of anchors, differentiated automatically: any kernel, device, transform.

Nothing here asks for a number, so it runs on an accelerator without waiting, and inside
`torch.compile` and `torch.func`. A block is `kernel.log(anchors, candidates)`, computed again in
the backward pass instead of being kept. The tiles of `log_sum_exp` are faster on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.kernels import Kernel
from chiaroscuro.numerics import full_precision, transformed
from chiaroscuro.pairwise.layout import Layout

__all__ = ["by_blocks", "recomputed", "rows_at_once"]

ENTRIES = 1 << 22
"""Entries of a block on the CPU: 16 MB in float32."""
ENTRIES_ON_DEVICE = 1 << 26
"""Entries of a block on an accelerator: all pairs of 4096 samples at once."""


def rows_at_once(z: Tensor, columns: int) -> int:
    """How many rows of z to compare with so many columns in one block, by the kind of device."""
    if transformed():
        return max(1, len(z))
    entries = ENTRIES if z.device.type == "cpu" else ENTRIES_ON_DEVICE
    return max(1, entries // max(1, columns))


def by_blocks(
    kernel: Kernel, z: Tensor, layout: Layout, groups: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs, sums and gap of `log_sum_exp`."""
    start, stop = layout.window
    pairs = z.new_empty(0)
    if layout.views == 2:
        pairs = kernel.log_paired(z[start:stop], z[layout.n + start : layout.n + stop])
    others = (layout.n - 1) * (layout.own_view + (layout.other_view and layout.views == 2))
    if others + layout.queue == 0 or start == stop:
        sums = pairs.new_full((layout.anchors, stop - start), -torch.inf)
    else:
        pieces = _pieces(z, layout)
        block = lambda k, z: _sums(kernel, z, layout, groups, *pieces[k])
        sums = recomputed(block, len(pieces), z, kernel).view(layout.anchors, -1)
    if layout.positive and layout.views == 2:
        empty = others + layout.queue == 0
        sums = pairs.expand(layout.anchors, -1) if empty else torch.logaddexp(sums, pairs)
    gap = (sums - pairs).sum() if layout.views == 2 else sums.sum()
    return pairs, sums, gap


def recomputed(
    block: Callable[[int, Tensor], Tensor], count: int, z: Tensor, module: nn.Module
) -> Tensor:
    """block(0, z), block(1, z), ... in a row, each computed again in the backward pass.

    Args:
        block: one-dimensional result number k; may also depend on the module's parameters.
        count: how many there are.
        z: what they depend on.
        module: whose parameters are to receive a gradient too. Where others stand in their place,
            as inside `torch.func.functional_call`, they stand there in the backward pass as well.
    """
    if transformed():
        return torch.cat([block(k, z) for k in range(count)])
    named = dict(module.named_parameters())
    again = _Again(block, module, tuple(named))
    return _Recomputed.apply(again, count, z, *named.values())


@dataclass(frozen=True, eq=False)
class _Again:
    """A block of a module whose parameters may be others when it is computed again."""

    block: Callable[[int, Tensor], Tensor]
    module: nn.Module
    names: tuple[str, ...]

    def __call__(self, k: int, z: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        places = [
            (self.module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2])
            for name in self.names
        ]
        before = [owner._parameters[leaf] for owner, leaf in places]
        try:
            for (owner, leaf), tensor in zip(places, parameters, strict=True):
                owner._parameters[leaf] = tensor  # type: ignore[assignment]
            return self.block(k, z)
        finally:
            for (owner, leaf), kept in zip(places, before, strict=True):
                owner._parameters[leaf] = kept


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Any, count: int, z: Tensor, *parameters: Tensor) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(z, *parameters)
        with full_precision(z.device):
            results = [block(k, z, parameters) for k in range(count)]
        ctx.sizes = [len(result) for result in results]
        return torch.cat(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        z, *parameters = ctx.saved_tensors  # read once: checkpointing recomputes on each reading
        graph = torch.is_grad_enabled()
        wants = ctx.needs_input_grad[2:]
        z = z if graph else z.detach().requires_grad_(wants[0])
        wanted = [t for t, want in zip((z, *parameters), wants, strict=True) if want]
        totals: list[Tensor | None] = [None] * len(wanted)
        with torch.enable_grad(), full_precision(z.device):
            for k, g in enumerate(grads[0].split(ctx.sizes)):
                found = torch.autograd.grad(
                    ctx.block(k, z, parameters), wanted, g, create_graph=graph, allow_unused=True
                )
                totals = [
                    new if old is None else old if new is None else old + new
                    for old, new in zip(totals, found, strict=True)
                ]
        each = iter(totals)
        return None, None, *(next(each) if want else None for want in wants)


def _pieces(z: Tensor, layout: Layout) -> list[tuple[int, int, int]]:
    """(view, start, stop) of the anchors of each block."""
    start, stop = layout.window
    columns = layout.n * (layout.own_view + layout.other_view) + layout.queue
    step = rows_at_once(z, columns)
    return [
        (view, i, min(i + step, stop))
        for view in range(layout.anchors)
        for i in range(start, stop, step)
    ]


def _sums(
    kernel: Kernel,
    z: Tensor,
    layout: Layout,
    groups: Tensor | None,
    view: int,
    start: int,
    stop: int,
) -> Tensor:
    """log of the sum over all candidates but the partner, for some anchors of one view."""
    n, ranges = layout.n, []
    sample = torch.arange(n, device=z.device)
    if layout.own_view:
        ranges.append((view * n, view * n + n))
    if layout.other_view and layout.views == 2:
        ranges.append(((1 - view) * n, (1 - view) * n + n))
    samples = [sample] * len(ranges)
    if layout.queue:
        ranges.append((layout.views * n, layout.rows))
        samples.append(sample.new_full((layout.queue,), -1))
    ranges.sort()
    whole = len(ranges) == 1 or all(a[1] == b[0] for a, b in pairwise(ranges))
    candidates = (
        z[ranges[0][0] : ranges[-1][1]] if whole else torch.cat([z[i:j] for i, j in ranges])
    )
    log_k = kernel.log(z[view * n + start : view * n + stop], candidates)
    others = torch.cat(samples)
    left_out = sample[start:stop, None] == others
    if groups is not None:  # rows of a queue belong to none
        left_out = left_out | ((groups[start:stop, None] == groups[others]) & (others >= 0))
    return torch.logsumexp(log_k.masked_fill(left_out, -torch.inf), dim=1)
