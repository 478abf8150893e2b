"""NNCLR: the positive of a view is the nearest neighbour of the other view among earlier ones."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from chiaroscuro.errors import InputError, need
from chiaroscuro.kernels import Cosine, Kernel
from chiaroscuro.objectives.infonce import pairs_and_sums
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import OtherView, rows_at_once

__all__ = ["NNCLR"]


class NNCLR(Objective):
    """Contrastive loss with the nearest neighbour of the other view as positive [dwibedi2021nnclr].

        loss = mean_i [ log sum_j k(s_i, z1_j) - log k(s_i, z1_i) ]
        s_i = argmax_{s in queue} k(z2_i, s)                        [dwibedi2021nnclr, Sec. 3.2]

    `z1` are predictions of one view, `z2` projections of the other, and the queue holds projections
    of earlier batches (the support set). The gradient stops at `z2` and at the queue. This is one
    direction; the authors add the call with the views exchanged.

    Relations: where the queue holds the rows of `z2` themselves it is
    `InfoNCE(kernel, OtherView(), anchors="first")(z2, z1)` with no gradient to `z2`.

    Args:
        kernel: by which both the neighbour is found and the contrast made; Cosine(0.1)
            [dwibedi2021nnclr, Sec. 4.1].

    Numerics: the neighbours of a block of rows are searched at a time; neither the matrix of the
    batch with the queue nor that of the batch with itself is held.

    References:
        dwibedi2021nnclr

    Example:
        >>> z = torch.eye(4)
        >>> round(float(NNCLR(Cosine(tau=0.5))(z, z, queue=z)), 5)  # log(1 + 3 exp(-2))
        0.34075
    """

    reduces = "anchors"
    takes = frozenset({"queue"})
    needs = frozenset({"queue"})
    directed = True

    def __init__(self, kernel: Kernel | None = None):
        super().__init__()
        self.kernel = Cosine(tau=0.1) if kernel is None else kernel
        need(
            isinstance(self.kernel, Kernel),
            lambda: f"`NNCLR(kernel)` needs a kernel; received {type(self.kernel).__name__}.",
        )

    def loss(self, batch: Batch) -> Tensor:
        return self._per_anchor(batch)[2] / batch.n

    def losses(self, batch: Batch) -> Tensor:
        attract, repel, _ = self._per_anchor(batch)
        return (repel - attract).flatten()

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        attract, repel, _ = self._per_anchor(batch)
        return attract.sum() / batch.n, repel.sum() / batch.n

    def _per_anchor(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        (z1, z2), queue, (start, stop) = batch.pair, batch.queue, batch.window
        if queue is None or len(queue) == 0:
            raise InputError("`NNCLR(z1, z2, queue)` needs a queue of earlier rows; received 0.")
        z2, queue = z2.detach(), queue.detach()
        neighbours = nearest(self.kernel, z2[start:stop], queue)
        support = torch.cat(
            [z2[:start], queue[neighbours], z2[stop:]]
        )  # only anchors are looked at
        swapped = replace(batch, z1=support, z2=z1, queue=None)
        return pairs_and_sums(self.kernel, swapped, OtherView(), both=False)


@torch.no_grad()
def nearest(kernel: Kernel, z: Tensor, queue: Tensor) -> Tensor:
    """The index of the most similar row of the queue, for each row of z."""
    step = rows_at_once(z, len(queue))
    pieces = [kernel.log(z[i : i + step], queue).argmax(dim=1) for i in range(0, len(z), step)]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.long, device=z.device)
