"""Anatomy of the contrastive loss: attraction, repulsion, entropy, and the hardest negatives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.diagnostics.rows import labels_of, pairs_of, some_of
from chiaroscuro.errors import need
from chiaroscuro.kernels import Cosine, Kernel
from chiaroscuro.measures.record import Record
from chiaroscuro.pairwise import AllButSelf, Negatives

__all__ = ["Anatomy", "Contrast", "anatomy"]

ROWS = 2048
TILE = 1024
DIFFERENCES = 1 << 22
"""Differences of coordinates held at once, for kernels that need every one."""


class Loss(Protocol):
    """What is compared with what: `InfoNCE` is one, `Contrast` another."""

    @property
    def kernel(self) -> Any: ...
    @property
    def negatives(self) -> Any: ...
    @property
    def anchors(self) -> Any: ...


@dataclass(frozen=True)
class Contrast:
    """Arguments of `InfoNCE`, for embeddings without a known objective.

    Example:
        >>> from chiaroscuro.pairwise import AllButPair
        >>> Contrast(Cosine(tau=0.1), AllButPair()).anchors
        'both'
    """

    kernel: Kernel = field(default_factory=lambda: Cosine(tau=0.5))
    negatives: Negatives = field(default_factory=AllButSelf)
    anchors: str = "both"


@dataclass(frozen=True, eq=False)
class Anatomy(Record):
    """Means over anchors; loss = repulsion + entropy - attraction.

    `effective_negatives` is the perplexity of the negatives, of `n_negatives`; `bound` the upper
    bound and `gap` its distance from the loss; `margin` the mean of log k of the positive less that
    of the hardest negative, `won` the share of anchors where it is above 0; `hardest` (a, k) the
    samples of the hardest negatives of the anchors `rows` (a,), hardest first, and `hardness` their
    log k. With labels, `false_hardest` and `false_hardest_k` are the shares of the anchor's own
    class among the hardest and among the k hardest, `false_mass` the share of the repulsion it
    receives, `false_all` its share among all negatives: what chance would give.
    """

    loss: float
    attraction: float
    repulsion: float
    entropy: float
    effective_negatives: float
    n_negatives: int
    bound: float
    gap: float
    margin: float
    won: float
    hardest: np.ndarray
    hardness: np.ndarray
    rows: np.ndarray
    false_hardest: float | None
    false_hardest_k: float | None
    false_mass: float | None
    false_all: float | None
    n: int


def anatomy(
    z1: Any,
    z2: Any,
    loss: Loss | None = None,
    labels: Any = None,
    n_hardest: int = 10,
    rows: int | None = ROWS,
    seed: int = 0,
) -> Anatomy:
    """Decompose the loss [cosentino2022, Prop. C.1], and bound it from above [Prop. 3.1].

        loss = mean_i [ -log k(z_i, z_i+) + E_{c~p_i} log k(z_i, c) + H(p_i) ]
        p_i(c) = k(z_i, c) / sum_c' k(z_i, c')   over the candidates c of anchor i
        bound = mean_i [ -log k(z_i, z_i+) + max_c log k(z_i, c) ] + log m,   m candidates

    The paper has log k = beta cos, beta = 1/tau, and prints a minus before the second term of eq.
    (13); its own proof (15) has the plus. The bound is its eq. (3) for `AllButPair`, and is stated
    there with the hardest *negative*; where the positive is a candidate, as in NT-Xent, that can
    fail, and the maximum here is over all candidates, which never does.

    gap is in [0, log m]: 0 where all candidates weigh the same (a collapsed batch), log m where
    one has all the weight. entropy is in [0, log m] and bound - loss at most that.
    effective_negatives is in [1, n_negatives]: all where they weigh the same, and falling with tau.

    Relations: loss is `InfoNCE(kernel, negatives, anchors)(z1, z2)`; attraction its `attract`;
    repulsion + entropy its `repel`.

    Args:
        z1, z2: two views, (n, d), n >= 2.
        loss: an `InfoNCE`, or a `Contrast` of kernel, negatives and anchors; NT-Xent at tau = 0.5
            without one [chen2020simclr].
        labels: (n,), to tell false negatives: samples of the anchor's own class.
        n_hardest: how many of the hardest to look at; 10.
        rows: so many pairs at most, drawn by the seed: the numbers are those of a batch of that
            size. 2,048, between the batches of the papers. None takes all.

    Numerics: float64, in tiles; the sums are kept relative to a running maximum.

    References:
        cosentino2022

    Example:
        >>> parts = anatomy(torch.eye(4), torch.eye(4))
        >>> round(parts.loss, 6), round(parts.effective_negatives, 6), parts.won
        (0.594438, 6.0, 1.0)
    """
    call = "anatomy(z1, z2)"
    loss = Contrast() if loss is None else loss
    x1, x2 = pairs_of(call, z1, z2)
    y = None if labels is None else labels_of(call, labels, len(x1))
    kept = some_of("anatomy", len(x1), rows, seed)
    z = torch.cat([x1[kept], x2[kept]])
    n = len(kept)
    classes = None if y is None else y[kept].repeat(2)
    count = (n - 1) * (loss.negatives.own_view + loss.negatives.other_view)
    need(
        n_hardest >= 1,
        lambda: f"`{call}` needs at least 1 hardest negative to look at; received {n_hardest}.",
    )
    with torch.no_grad():
        pair = loss.kernel.log_paired(z[:n], z[n:]).repeat(2)
        last = 2 * n if loss.anchors == "both" else n
        seen = [
            _look(z, slice(i, min(i + TILE, last)), loss, classes, min(n_hardest, count))
            for i in range(0, last, TILE)
        ]
    top, mean, log_sum, mass, hardness, hardest = (
        torch.cat(part) for part in zip(*seen, strict=True)
    )
    p = pair[:last]
    perplexity = (log_sum - mean).clamp(min=0, max=math.log(count)).exp()
    margin = p - top
    if loss.negatives.positive:
        total = torch.logaddexp(log_sum, p)
        w = (p - total).exp()
        mean, log_sum, top = w * p + (1 - w) * mean, total, torch.maximum(top, p)
    m = count + loss.negatives.positive
    sample = torch.arange(last) % n
    result = float((log_sum - p).mean())
    bound = float((top - p).mean()) + math.log(m)
    false: list[float | None] = [None] * 4
    if classes is not None:
        own = classes[hardest % n] == classes[:last, None]
        same = (torch.bincount(classes[:n])[classes[:last]] - 1).double() / (n - 1)
        shares = own[:, 0].double(), own.double(), mass, same
        false = [float(share.mean()) for share in shares]
    return Anatomy(
        loss=result,
        attraction=float(p.mean()),
        repulsion=float(mean.mean()),
        entropy=float((log_sum - mean).mean()),
        effective_negatives=float(perplexity.mean()),
        n_negatives=count,
        bound=bound,
        gap=max(0.0, bound - result),
        margin=float(margin.mean()),
        won=float((margin > 0).double().mean()),
        hardest=kept[hardest % n].numpy(),
        hardness=hardness.numpy(),
        rows=kept[sample].numpy(),
        false_hardest=false[0],
        false_hardest_k=false[1],
        false_mass=false[2],
        false_all=false[3],
        n=n,
    )


def _look(
    z: Tensor, anchors: slice, loss: Loss, classes: Tensor | None, n_hardest: int
) -> tuple[Tensor, ...]:
    """Of some anchors, over their negatives: max, mean of log k under p, log-sum, false mass, best.

    `best` are the largest log k and the stacked rows that have them.
    """
    n, d = len(z) // 2, z.shape[1]
    i = torch.arange(anchors.start, anchors.stop)
    top = torch.full((len(i),), -torch.inf, dtype=z.dtype)
    total, weighed, false = (torch.zeros(len(i), dtype=z.dtype) for _ in range(3))
    best, at = z.new_zeros(len(i), 0), i.new_zeros(len(i), 0)
    every = any(
        getattr(part.kernel, "statistic", "power") == "power" for part in loss.kernel.parts(d)
    )
    size = max(1, DIFFERENCES // (d * len(i))) if every else 2 * TILE
    for start in range(0, 2 * n, size):
        j = torch.arange(start, min(start + size, 2 * n))
        log_k = loss.kernel.log(z[i], z[j])
        own_view = (i < n)[:, None] == (j < n)
        counted = torch.where(own_view, loss.negatives.own_view, loss.negatives.other_view)
        log_k = log_k.masked_fill(~counted | ((i % n)[:, None] == j % n), -torch.inf)
        higher = torch.maximum(top, log_k.amax(dim=1))
        level = higher.masked_fill(higher == -torch.inf, 0.0)
        k = (log_k - level[:, None]).exp()
        fade = (top - level).exp()
        total = total * fade + k.sum(dim=1)
        weighed = weighed * fade + (k * log_k.masked_fill(k == 0, 0.0)).sum(dim=1)
        if classes is not None:
            false = false * fade + (k * (classes[i, None] == classes[j])).sum(dim=1)
        top = higher
        both = torch.cat([best, log_k], dim=1)
        where = torch.cat([at, j.expand(len(i), -1)], dim=1)
        best, chosen = both.topk(min(n_hardest, both.shape[1]), dim=1)
        at = where.gather(1, chosen)
    return top, weighed / total, top + total.log(), false / total, best, at
