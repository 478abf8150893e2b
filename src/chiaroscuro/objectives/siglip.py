"""SigLIP: every pair of the batch is classified on its own, as matching or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from chiaroscuro.errors import need
from chiaroscuro.kernels import Cosine, Kernel, Learnable
from chiaroscuro.numerics import narrow_for
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import prepare, recomputed, rows_at_once

__all__ = ["SigLIP"]


class SigLIP(Objective):
    """Sigmoid loss over all pairs of two views, without a softmax [zhai2023siglip, Sec. 3.2].

        loss = - mean_i sum_j log sigmoid(y_ij (log k(z1_i, z2_j) + bias)),   y_ii = 1, else -1

    With the cosine kernel log k is cos / tau. Both tau and the bias learn: the bias starts where
    nearly all pairs are said not to match, as nearly all do not.

    Relations: symmetric in the views. A bias of -inf leaves only the positives. Each pair counts
    by itself, so a candidate that is left out (`groups`) changes no other term.

    Args:
        kernel: Cosine(tau=Learnable(0.1)), 1/tau starting at 10 [zhai2023siglip, Sec. 3.2].
        bias: where it starts, -10 [zhai2023siglip, Sec. 3.2]; a parameter. Freeze it by
            `objective.bias.requires_grad_(False)`.

    Numerics: blocks of rows against all candidates, computed again in the backward pass: memory is
    that of the embeddings. On several ranks each takes its own rows of z1 against the rows of z2
    of all.

    References:
        zhai2023siglip

    Example:
        >>> z = torch.eye(2)
        >>> round(float(SigLIP(Cosine(tau=0.1), bias=-10.0)(z, z).detach()), 6)  # log 2 + e^-10
        0.693193
    """

    reduces = "anchors"
    takes = frozenset({"groups"})

    def __init__(self, kernel: Kernel | None = None, bias: float = -10.0):
        super().__init__()
        self.kernel = Cosine(tau=Learnable(0.1)) if kernel is None else kernel
        need(
            isinstance(self.kernel, Kernel),
            lambda: f"`SigLIP(kernel)` needs a kernel; received {type(self.kernel).__name__}.",
        )
        exact = torch.as_tensor(bias, dtype=torch.float64)
        need(
            exact.ndim == 0 and bool(exact.isfinite()),
            lambda: f"`SigLIP(bias)` needs one finite number; received {bias!r}.",
        )
        start = exact.float() if torch.equal(exact.float().double(), exact) else exact
        self.bias = nn.Parameter(start.clone())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        narrow_for(self, fn)
        return super()._apply(fn, recurse)

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).sum() / batch.n

    def losses(self, batch: Batch) -> Tensor:
        attract, repel = self._per_anchor(batch)
        return repel - attract

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        attract, repel = self._per_anchor(batch)
        return attract.sum() / batch.n, repel.sum() / batch.n

    def _per_anchor(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """log sigmoid of the positive, and minus the sum of that of all others, of each anchor."""
        (z1, z2), n, (start, stop) = batch.pair, batch.n, batch.window
        prepared = prepare(self.kernel, torch.cat([z1, z2]))
        bias = self.bias.to(z1.dtype)
        own = prepared.log_paired(slice(start, stop), slice(n + start, n + stop)) + bias
        step = rows_at_once(z1, n, prepared.breadth)
        pieces = [slice(i, min(i + step, stop)) for i in range(start, stop, step)]

        def block(k: int, tensors: Sequence[Tensor], twice: bool) -> Tensor:
            rows = pieces[k]
            logits = prepared.log(tensors, rows, slice(n, 2 * n), twice) + tensors[-1]
            return -logsigmoid(-logits).masked_fill(self._left_out(batch, rows), 0.0).sum(dim=1)

        if not pieces:
            return logsigmoid(own), torch.zeros_like(own)
        return logsigmoid(own), recomputed(block, len(pieces), [*prepared.tensors, bias])

    def _left_out(self, batch: Batch, rows: slice) -> Tensor:
        """Whether a column is the row's positive, or of its group."""
        sample = torch.arange(batch.n, device=batch.z1.device)
        left_out = sample[rows, None] == sample
        if batch.groups is None:
            return left_out
        return left_out | (batch.groups[rows, None] == batch.groups)
