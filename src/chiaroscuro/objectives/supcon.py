"""Supervised contrastive learning: every sample of the anchor's class is a positive."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chiaroscuro.errors import InputError, need
from chiaroscuro.kernels import Cosine, Kernel, Leaf
from chiaroscuro.numerics import readable, widest
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import Layout, log_sum_exp, prepare, recomputed, rows_at_once

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

    def loss(self, batch: Batch) -> Tensor:
        attract, repel = self.split(batch)
        return repel - attract

    def losses(self, batch: Batch) -> Tensor:
        attract, repel = self._per_anchor(batch)
        return repel - attract

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        attract, repel = self._per_anchor(batch)
        return attract.mean().to(repel.dtype), repel.mean()

    def _per_anchor(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean log k of its positives, and log-sum-exp over all others, of each anchor."""
        z1, z2, labels = batch.z1, batch.z2, batch.labels
        if labels is None:
            raise InputError("`SupCon(z1, z2, labels)` needs labels; received none.")
        z = z1 if z2 is None else torch.cat([z1, z2])
        y = labels.to(z.device) if z2 is None else labels.to(z.device).repeat(2)
        if not readable(z, y):
            return _by_blocks(self.kernel, z, y)
        repel = log_sum_exp(self.kernel, z, Layout.within(len(z)))[1][0]
        y = torch.unique(y, return_inverse=True)[1]
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
        if len(parts) == 1 and parts[0].is_leaf and _linear(parts[0].leaf):
            rows, rate, *_ = parts[0].features(z)
            return _by_class_sums(rows, y, positives) * rate, repel
        return _by_blocks_of_classes(self.kernel, z, y, positives), repel


def _linear(leaf: Leaf) -> bool:
    return leaf.statistic == "inner" and not leaf.own


def _by_class_sums(rows: Tensor, y: Tensor, positives: Tensor) -> Tensor:
    """mean_p a_i . a_p of each row, from a_i . (sum of its class - a_i)."""
    a = widest(rows)
    sums = torch.zeros(int(y.max()) + 1, a.shape[1], dtype=a.dtype, device=a.device)
    others = sums.index_add(0, y, a)[y] - a
    return (a * others).sum(dim=1) / positives


def _by_blocks_of_classes(kernel: Kernel, z: Tensor, y: Tensor, positives: Tensor) -> Tensor:
    """mean_p log k(z_i, z_p): rows sorted by class, each with the range that its classes cover."""
    order = torch.argsort(y, stable=True)
    y, weights = y[order], 1 / positives[order].to(z.dtype)
    edges = torch.cat([y.new_zeros(1), torch.bincount(y).cumsum(0)]).tolist()
    blocks = [slice(i, min(i + _BLOCK, len(z))) for i in range(0, len(z), _BLOCK)]
    covered = [slice(edges[int(y[b.start])], edges[int(y[b.stop - 1]) + 1]) for b in blocks]

    def block(k: int, tensors: Sequence[Tensor], twice: bool) -> Tensor:
        rows, means = blocks[k], []
        pieces = range(covered[k].start, covered[k].stop, _BLOCK)
        for j in pieces:
            columns = slice(j, min(j + _BLOCK, covered[k].stop))
            log_k = prepared.log(tensors, rows, columns, twice)
            means.append((log_k * _alike(y, rows, columns)).sum(dim=1))
        return torch.stack(means).sum(dim=0) * weights[rows]

    prepared = prepare(kernel, z[order])
    each = recomputed(block, len(blocks), prepared.tensors)
    return torch.empty_like(each).index_copy(0, order, each)


def _by_blocks(kernel: Kernel, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both of each anchor where no number may be read: every row with every other."""
    n, prepared = len(z), prepare(kernel, z)
    step = rows_at_once(z, n, prepared.breadth)
    pieces = [slice(i, min(i + step, n)) for i in range(0, n, step)]

    def block(k: int, tensors: Sequence[Tensor], twice: bool) -> Tensor:
        log_k = prepared.log(tensors, pieces[k], slice(0, n), twice)
        index = torch.arange(n, device=z.device)
        own = index[pieces[k], None] == index
        positive = (y[pieces[k], None] == y) & ~own
        attract = (log_k * positive).sum(dim=1) / positive.sum(dim=1)
        repel = torch.logsumexp(log_k.masked_fill(own, -torch.inf), dim=1)
        return torch.cat([attract, repel])

    sums = recomputed(block, len(pieces), prepared.tensors)
    if len(pieces) > 1:
        each = [x.view(2, -1) for x in sums.split([2 * (p.stop - p.start) for p in pieces])]
        sums = torch.cat(each, dim=1)
    attract, repel = sums.view(2, n).unbind()
    return attract, repel


def _alike(y: Tensor, rows: slice, columns: slice) -> Tensor:
    """1 for two different rows of one class, else 0."""
    index = torch.arange(len(y), device=y.device)
    return (y[rows, None] == y[columns]) & (index[rows, None] != index[columns])
