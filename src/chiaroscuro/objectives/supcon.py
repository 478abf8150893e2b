"""Supervised contrastive learning: every sample of the anchor's class is a positive."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chiaroscuro.errors import InputError, need
from chiaroscuro.kernels import Cosine, Kernel
from chiaroscuro.numerics import full_precision
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import Layout, log_sum_exp

__all__ = ["SupCon"]

_BLOCK = 512


class SupCon(Objective):
    """Supervised contrastive loss in its L_out form [khosla2020supcon, eq. 2].

        loss = mean_i [ log sum_{c != i} k(z_i, c) - mean_{p in positives(i)} log k(z_i, p) ]

    Anchors are all rows of both views; positives(i) are all others with the label of i. The mean
    over positives stands *outside* the logarithm, as the authors recommend; L_in, which some
    libraries compute under this name, puts it inside and is never larger.
    A single view works too (`z2=None`), if no class is alone in the batch.

    Relations: with all labels different it is `InfoNCE(kernel, AllButSelf())`.

    Args:
        kernel: Cosine(0.1) as in [khosla2020supcon, Sec. 4].

    Numerics: for `Cosine` and `Dot` the positives cost O(n d) through class sums; other kernels
    visit the pairs of each class in blocks.

    References:
        khosla2020supcon

    Example:
        >>> z = torch.eye(4)
        >>> round(float(SupCon(Cosine(tau=0.5))(z, z, torch.tensor([0, 1, 2, 3]))), 6)
        0.594438
    """

    takes = frozenset({"labels", "one view"})

    def __init__(self, kernel: Kernel | None = None):
        super().__init__()
        self.kernel = Cosine(tau=0.1) if kernel is None else kernel
        need(
            isinstance(self.kernel, Kernel),
            lambda: f"`SupCon(kernel)` needs a kernel; received {type(self.kernel).__name__}.",
        )

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        z1, z2, labels = batch.z1, batch.z2, batch.labels
        if labels is None:
            raise InputError("`SupCon(z1, z2, labels)` needs labels; received none.")
        z = z1 if z2 is None else torch.cat([z1, z2])
        y = labels if z2 is None else labels.repeat(2)
        y = torch.unique(y.to(z.device), return_inverse=True)[1]
        positives = torch.bincount(y)[y] - 1
        lonely = (positives == 0).nonzero().flatten()
        need(
            len(lonely) == 0,
            lambda: (
                f"`SupCon(z1, z2, labels)` needs at least one positive per anchor; received "
                f"{len(lonely)} of {len(z)} without, the first is row {int(lonely[0])} with label "
                f"{int(labels[lonely[0] % len(labels)])}. Pass a second view."
            ),
        )
        parts = self.kernel.parts(z.shape[1])
        features = [part.features(z) for part in parts]
        everyone = Layout.within(len(z))
        repel = log_sum_exp(parts, features, everyone)[1].mean()
        if len(parts) == 1 and parts[0].leaf.statistic == "inner":
            attract = _by_class_sums(features[0].rows, y, positives) * features[0].rate
        else:
            attract = _by_blocks(self.kernel, z, y, positives)
        return attract.to(repel.dtype), repel


def _by_class_sums(rows: Tensor, y: Tensor, positives: Tensor) -> Tensor:
    """mean_i mean_p a_i . a_p, from a_i . (sum of its class - a_i)."""
    a = rows.double() if rows.device.type != "mps" else rows
    sums = torch.zeros(int(y.max()) + 1, a.shape[1], dtype=a.dtype, device=a.device)
    others = sums.index_add(0, y, a)[y] - a
    return ((a * others).sum(dim=1) / positives).mean()


def _by_blocks(kernel: Kernel, z: Tensor, y: Tensor, positives: Tensor) -> Tensor:
    """mean_i mean_p log k(z_i, z_p): rows sorted by class, only blocks that share one visited."""
    order = torch.argsort(y, stable=True)
    y, weights = y[order], 1 / positives[order].to(z.dtype)
    blocks = range(0, len(z), _BLOCK)
    shared = [
        (slice(i, i + _BLOCK), slice(j, j + _BLOCK))
        for i in blocks
        for j in blocks
        if y[i] <= y[j : j + _BLOCK][-1] and y[j] <= y[i : i + _BLOCK][-1]
    ]

    def block(rows: slice, columns: slice, z: Tensor) -> Tensor:
        alike = y[rows, None] == y[columns]
        if rows == columns:
            alike.fill_diagonal_(False)
        return (kernel.log(z[rows], z[columns]) * (alike * weights[rows, None])).sum()

    return _SumOfBlocks.apply(block, shared, z[order], *kernel.parameters()) / len(z)


class _SumOfBlocks(torch.autograd.Function):
    """A sum over blocks, each computed again in the backward pass instead of being kept."""

    @staticmethod
    def forward(ctx: Any, block: Any, shared: list, z: Tensor, *parameters: Tensor) -> Tensor:
        ctx.block, ctx.shared = block, shared
        ctx.save_for_backward(z, *parameters)
        return torch.stack([block(rows, columns, z) for rows, columns in shared]).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = ctx.saved_tensors  # read once: checkpointing recomputes it on each reading
        wanted = [t for t in saved if t.requires_grad]
        graph = torch.is_grad_enabled()
        totals = [torch.zeros_like(t) for t in wanted]
        with torch.enable_grad(), full_precision(saved[0].device):
            for rows, columns in ctx.shared:
                value = ctx.block(rows, columns, saved[0])
                found = torch.autograd.grad(
                    value, wanted, grads[0], create_graph=graph, allow_unused=True
                )
                totals = [a if b is None else a + b for a, b in zip(totals, found, strict=True)]
        each = iter(totals)
        return None, None, *(next(each) if t.requires_grad else None for t in saved)
