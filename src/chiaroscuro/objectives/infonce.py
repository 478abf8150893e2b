"""InfoNCE: kernel x negatives x temperature, of which most contrastive losses are values."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.kernels import Cosine, Kernel
from chiaroscuro.numerics import readable, transformed
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import AllButSelf, Layout, Negatives, log_sum_exp

__all__ = ["InfoNCE", "pairs_and_sums"]


class InfoNCE(Objective):
    """Contrastive loss: identify each anchor's positive among its candidates.

        loss = mean_i [ log sum_{c in candidates(i)} k(z_i, c) - log k(z_i, z_i+) ]

    Anchors are the rows of both views (`anchors="both"`) or of the first alone; the positive of
    z1_i is z2_i and the other way round.

    Relations:
        InfoNCE(Cosine(tau), AllButSelf()) is NT-Xent (SimCLR).
        InfoNCE(Cosine(tau), OtherView()) is CLIP's symmetric cross-entropy.
        InfoNCE(Dot(1.0), OtherView(), anchors="first") is the symbol-context loss.
        InfoNCE(k, AllButPair()) is the decoupled loss; adding the positive's k to its sum gives
        AllButSelf: loss_self = log(1 + exp(loss_pair)) anchor by anchor.
        On unit vectors Gaussian(tau) and Cosine(tau) give the same loss.

    Args:
        kernel: similarity of two embeddings; Cosine(0.5) is SimCLR's [chen2020simclr].
        negatives: which samples are candidates; AllButSelf() is NT-Xent's [chen2020simclr, eq. 1].
        anchors: "both" views, or "first" only [semantic2025, eq. 2].

    Numerics: never holds the n x n matrix; a collapsed batch gives log(number of candidates) and
    gradient 0.

    References:
        oord2018cpc, chen2020simclr

    Example:
        >>> z = torch.eye(4)
        >>> round(float(InfoNCE(Cosine(tau=0.5))(z, z)), 6)  # log(1 + 6 exp(-2))
        0.594438
    """

    reduces = "anchors"
    takes = frozenset({"queue", "groups"})

    def __init__(
        self,
        kernel: Kernel | None = None,
        negatives: Negatives | None = None,
        anchors: str = "both",
    ):
        super().__init__()
        self.kernel = Cosine(tau=0.5) if kernel is None else kernel
        self.negatives = AllButSelf() if negatives is None else negatives
        self.anchors = anchors
        need(
            isinstance(self.kernel, Kernel) and isinstance(self.negatives, Negatives),
            lambda: (
                f"`InfoNCE(kernel, negatives)` needs a kernel and negatives; received "
                f"{type(self.kernel).__name__} and {type(self.negatives).__name__}."
            ),
        )
        need(
            anchors in ("both", "first"),
            lambda: f'`InfoNCE(anchors)` needs "both" or "first"; received {anchors!r}.',
        )

    def loss(self, batch: Batch) -> Tensor:
        _, _, gap = self.per_anchor(batch)
        return gap / self._anchors(batch)

    def losses(self, batch: Batch) -> Tensor:
        attract, repel, _ = self.per_anchor(batch)
        return (repel - attract).flatten()

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        attract, repel, _ = self.per_anchor(batch)
        return attract.sum() / batch.n, repel.sum() / self._anchors(batch)

    def per_anchor(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """log k of positives (m), log-sum-exp over their candidates (1 or 2, m), and the gap."""
        n, extra = batch.n, 0 if batch.queue is None else len(batch.queue)
        need(
            self.negatives.count(n) + extra > 0,
            lambda: (
                f"`InfoNCE(..., {self.negatives!r})` needs at least one candidate per anchor; "
                f"received {n} pair and no queue. One pair has no negatives: take a larger batch."
            ),
        )
        need(
            self.negatives.own_view or self.negatives.other_view or extra > 0,
            lambda: (
                f"`InfoNCE(..., {self.negatives!r})` needs a queue: it takes no negatives from the "
                f"batch; received {n} pairs and no queue, whose loss is 0 whatever they are. Pass "
                "`queue=`, or take other negatives, such as `AllButSelf()`."
            ),
        )
        if batch.groups is not None and not self.negatives.positive and not extra:
            _require_another_group(self.negatives, batch.groups)
        return pairs_and_sums(self.kernel, batch, self.negatives, self.anchors == "both")

    def _anchors(self, batch: Batch) -> int:
        return batch.n * (2 if self.anchors == "both" else 1)


def _require_another_group(negatives: Negatives, groups: Tensor) -> None:
    alone = readable(groups) and bool((groups == groups[0]).all())
    need(
        not alone,
        lambda: (
            f"`InfoNCE(..., {negatives!r})` needs at least one candidate per anchor; received "
            f"{len(groups)} pairs of one group, whose candidates are all left out."
        ),
    )


def pairs_and_sums(
    kernel: Kernel, batch: Batch, negatives: Negatives, both: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`log_sum_exp` of two views and perhaps a queue: pairs (m), sums (1 or 2, m) and their gap."""
    return log_sum_exp(kernel, *stacked(kernel, batch, negatives, both), batch.groups)


def stacked(
    kernel: Kernel, batch: Batch, negatives: Negatives, both: bool
) -> tuple[Tensor, Layout]:
    """The rows of two views and perhaps a queue, and who is compared with whom."""
    n, queue = batch.n, batch.queue
    z = torch.cat(batch.pair if queue is None else [*batch.pair, queue])
    layout = Layout(
        n=n,
        views=2,
        queue=len(z) - 2 * n,
        own_view=negatives.own_view,
        other_view=negatives.other_view,
        positive=negatives.positive,
        both=both,
        window=batch.window,
        frozen_queue=queue is not None
        and not queue.requires_grad
        and not transformed()
        and not any(parameter.requires_grad for parameter in kernel.parameters()),
    )
    return z, layout
