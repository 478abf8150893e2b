"""Pairs: does an image find its text among all texts, a text its image, an image its class?"""

from __future__ import annotations

import bisect
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.diagnostics.rows import labels_of, rows_of
from chiaroscuro.errors import need
from chiaroscuro.numerics import unit

__all__ = ["Places", "first_places", "retrieval", "zero_shot_accuracy"]

PLACES = (1, 5, 10)
TIE = 1e-6
"""Cosines nearer than this are the same: embeddings in float32 say no more."""
QUERIES, CANDIDATES = 1024, 4096


class Places(NamedTuple):
    """Where the first relevant candidate of each query stands, ties and all."""

    before: Tensor
    """Irrelevant candidates that are nearer than the nearest relevant one."""
    level: Tensor
    """Irrelevant candidates level with it."""
    relevant: Tensor
    """Relevant candidates level with it, itself included."""

    def recall(self, k: int) -> Tensor:
        """The probability that a relevant candidate is among the first k.

            1 - prod_{i < m} (level - i) / (level + relevant - i),   m = k - before

        the level ones in random order: the m places that are left hold only irrelevant ones with
        the probability of the product.
        """
        left = (k - self.before).clamp(min=0)
        level, relevant = self.level.double(), self.relevant.double()
        miss = torch.ones_like(level)
        for i in range(int(left.max())):
            share = (level - i).clamp(min=0) / (level + relevant - i).clamp(min=1)
            miss = torch.where(i < left, miss * share, miss)
        return 1 - miss

    def rank(self) -> Tensor:
        """The expected place of the first relevant one: before + (level + r + 1) / (r + 1)."""
        r = self.relevant.double()
        return self.before + (self.level + r + 1) / (r + 1)


def retrieval(images: Any, texts: Any, owner: Any = None) -> dict[str, Any]:
    """Return recall and median rank of image-to-text and text-to-image retrieval, by cosine.

        recall_k = mean over queries of P(a relevant candidate is among the k nearest)

    An image may have several texts: any of them counts, and each is a query of its own. Level
    candidates are taken in random order, and what is reported is the expectation: a collapsed
    embedding scores exactly chance, not 1. `chance` is what random embeddings expect.

    Relations: swapping the sides of one-to-one pairs swaps the two directions. Rotating all rows,
    or scaling any, changes nothing.

    Args:
        images: (n, d).
        texts: (m, d).
        owner: (m,), the row of the image a text belongs to, every image owning at least one;
            None pairs row with row.

    Numerics: float64, in tiles: exact for any n, and no n x m matrix. Cosines within 1e-6 are
    level. `median_rank` is the median of expected ranks; `chance`'s is the first place by which
    half of the queries have met a relevant candidate.

    Example:
        >>> ranks = retrieval(torch.eye(4), torch.eye(4))
        >>> ranks["image_to_text"]["recall_1"], ranks["text_to_image"]["median_rank"]
        (1.0, 1.0)
        >>> round(retrieval(torch.ones(20, 3), torch.ones(20, 3))["image_to_text"]["recall_5"], 6)
        0.25
    """
    call = "retrieval(images, texts)"
    u, w = rows_of(call, images, 1), rows_of(call, texts, 1)
    need(
        u.shape[1] == w.shape[1],
        lambda: f"`{call}` needs one dimension; received {u.shape[1]} and {w.shape[1]}.",
    )
    need(
        owner is not None or len(u) == len(w),
        lambda: (
            f"`{call}` needs as many texts as images, or an `owner` for each text; received "
            f"{len(u)} images and {len(w)} texts."
        ),
    )
    of = torch.arange(len(u)) if owner is None else labels_of(call, owner, len(w))
    counts = torch.bincount(of, minlength=len(u))
    need(
        len(counts) == len(u) and bool((counts > 0).all()),
        lambda: (
            f"`{call}` needs an `owner` from 0 to {len(u) - 1}, and a text for every image; "
            f"received owners up to {int(of.max())}, and "
            f"{int((counts[: len(u)] == 0).sum())} images without."
        ),
    )
    u, w = unit(u), unit(w)
    ones = torch.ones(len(w), dtype=torch.int64)
    return {
        "n_images": len(u),
        "n_texts": len(w),
        "image_to_text": _summary(first_places(u, w, torch.arange(len(u)), of), counts, len(w)),
        "text_to_image": _summary(first_places(w, u, of, torch.arange(len(u))), ones, len(u)),
    }


def first_places(queries: Tensor, candidates: Tensor, of: Tensor, owned: Tensor) -> Places:
    """Count, tile by tile, what stands before each query's nearest relevant candidate.

    Args:
        queries, candidates: unit rows in float64.
        of, owned: what each query and each candidate belongs to; equal means relevant.
    """
    n = len(queries)
    best = torch.full((n,), -math.inf, dtype=torch.float64)
    before, level, relevant = (torch.zeros(n, dtype=torch.int64) for _ in range(3))
    for sweep in ("best", "count"):
        for i in range(0, n, QUERIES):
            a = slice(i, i + QUERIES)
            for j in range(0, len(candidates), CANDIDATES):
                b = slice(j, j + CANDIDATES)
                s = queries[a] @ candidates[b].T
                own = of[a, None] == owned[b]
                if sweep == "best":
                    nearest = torch.where(own, s, -math.inf).amax(dim=1)
                    best[a] = torch.maximum(best[a], nearest)
                    continue
                gap = s - best[a, None]
                tied = gap.abs() <= TIE
                before[a] += (~own & (gap > TIE)).sum(dim=1)
                level[a] += (~own & tied).sum(dim=1)
                relevant[a] += (own & tied).sum(dim=1)
    return Places(before, level, relevant)


def zero_shot_accuracy(z: Any, prompts: Any, labels: Any) -> dict[str, float]:
    """Return the accuracy of zero-shot classification by the nearest prompt (cosine).

        class = argmax_c cos(z_i, prompt_c)    [radford2021clip, Sec. 3.1.2]

    `zero_shot` is over all images, `zero_shot_balanced` the mean over the classes that occur,
    which a frequent class cannot carry. Level prompts share the image equally. In [0, 1]; one
    over the number of classes where the embedding is collapsed.

    Args:
        z: (n, d), of images.
        prompts: (c, d), of one text for each class, in the order of the labels.
        labels: (n,), from 0 to c - 1.

    References:
        radford2021clip

    Example:
        >>> zero_shot_accuracy(torch.eye(3), torch.eye(3), torch.tensor([0, 1, 1]))
        {'zero_shot': 0.6666666666666666, 'zero_shot_balanced': 0.75}
    """
    call = "zero_shot_accuracy(z, prompts, labels)"
    u, p = rows_of(call, z, 1), rows_of(call, prompts, 1)
    y = labels_of(call, labels, len(u))
    need(
        u.shape[1] == p.shape[1] and int(y.max()) < len(p),
        lambda: (
            f"`{call}` needs one dimension and a prompt for each label; received dimensions "
            f"{u.shape[1]} and {p.shape[1]}, labels up to {int(y.max())} and {len(p)} prompts."
        ),
    )
    s = unit(u) @ unit(p).T
    top = s >= s.amax(dim=1, keepdim=True) - TIE
    hits = top.gather(1, y[:, None])[:, 0].double() / top.sum(dim=1)
    classes = [hits[y == label].mean().item() for label in y.unique()]
    return {"zero_shot": float(hits.mean()), "zero_shot_balanced": float(np.mean(classes))}


def _summary(matches: Places, counts: Tensor, n_candidates: int) -> dict[str, Any]:
    recalls = {f"recall_{k}": float(matches.recall(k).mean()) for k in PLACES}
    median = float(np.median(matches.rank().numpy()))
    return {**recalls, "median_rank": median, "chance": _chance(counts, n_candidates)}


def _chance(counts: Tensor, n_candidates: int) -> dict[str, float]:
    """What queries with so many relevant candidates each expect of random embeddings."""
    values, times = torch.unique(counts, return_counts=True)
    shares = (times.double() / times.sum()).tolist()

    def met(k: int) -> float:
        missed = [_none_of(int(r), n_candidates, k) for r in values]
        return 1 - sum(share * miss for share, miss in zip(shares, missed, strict=True))

    half = bisect.bisect_left(range(1, n_candidates + 1), 0.5 - 1e-12, key=met)
    return {**{f"recall_{k}": met(k) for k in PLACES}, "median_rank": float(half + 1)}


def _none_of(r: int, m: int, k: int) -> float:
    """The probability that k of m at random hold none of r: C(m - r, k) / C(m, k)."""
    if k > m - r:
        return 0.0
    a, b, c, d = (math.lgamma(x + 1) for x in (m - r, m - k, m, m - r - k))
    return math.exp(a + b - c - d)
