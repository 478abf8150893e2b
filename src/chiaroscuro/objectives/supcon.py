"""Supervised contrastive learning: every sample of the anchor's class is a positive."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from chiaroscuro.errors import InputError, need
from chiaroscuro.kernels import Cosine, Kernel
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

    def loss(self, batch: Batch) -> Tensor:
        attract, repel = self.split(batch)
        return repel - attract

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
        features, rates = map(list, zip(*(part.features(z) for part in parts), strict=True))
        everyone = Layout.within(len(z))
        repel = log_sum_exp(parts, features, rates, everyone)[1].mean()
        if len(parts) == 1 and parts[0].leaf.statistic == "inner":
            attract = _by_class_sums(features[0], y, positives) * rates[0] * parts[0].leaf.factor
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
    z, y, positives = z[order], y[order], positives[order]
    total = z.new_zeros(())
    starts = range(0, len(z), _BLOCK)
    for i in starts:
        for j in starts:
            rows, columns = slice(i, i + _BLOCK), slice(j, j + _BLOCK)
            if y[rows][-1] < y[columns][0] or y[columns][-1] < y[rows][0]:
                continue
            alike = y[rows, None] == y[columns]
            if i == j:
                alike.fill_diagonal_(False)
            weights = alike / positives[rows, None]
            total = total + checkpoint(
                lambda a, b, w: (kernel.log(a, b) * w).sum(),
                z[rows], z[columns], weights,
                use_reentrant=False,
            )  # fmt: skip
    return total / len(z)
