"""Embeddings on the sphere: how evenly they cover it, and how close positives are."""

from __future__ import annotations

import math
from typing import Any

import torch

from chiaroscuro.diagnostics.rows import rows_of
from chiaroscuro.errors import need
from chiaroscuro.numerics import unit

__all__ = ["alignment", "mean_cosine", "uniformity"]

CHUNK = 1024


def uniformity(h: Any) -> float:
    """How unevenly unit rows cover the sphere [wang2020alignuniform, Sec. 4.1.2].

        log mean_{i != j} exp(-2 |u_i - u_j|^2),   u = h / |h|

    From 0 where all rows coincide down to about -4 in high dimension; n points cannot go below -8.
    Lower is more even.

    Relations: invariant to rotations and to a factor on any row.

    Args:
        h: (n, d), n >= 2.

    Numerics: float64, in chunks of 1,024 rows; the mean is over distinct pairs. A zero row stays 0.

    References:
        wang2020alignuniform

    Example:
        >>> round(uniformity(torch.tensor([[1.0, 0.0], [-3.0, 0.0]])), 6)  # opposite: -2 * 4
        -8.0
    """
    u = unit(rows_of("uniformity(h)", h))
    n, size = len(u), u.square().sum(dim=1)
    sums = []
    for start in range(0, n, CHUNK):
        some = u[start : start + CHUNK]
        t = (size[start : start + CHUNK, None] + size - 2 * some @ u.T).clamp_(min=0)
        t = -2 * t
        own = torch.arange(len(some))
        t[own, start + own] = -torch.inf
        sums.append(torch.logsumexp(t.flatten(), dim=0))
    return float(torch.logsumexp(torch.stack(sums), dim=0)) - math.log(n * (n - 1))


def mean_cosine(h: Any) -> float:
    """The mean cosine of distinct rows: 1 where all point one way, about 0 where they are spread.

        mean_{i != j} u_i . u_j = (|sum_i u_i|^2 - sum_i |u_i|^2) / (n (n - 1))

    From -1 / (n - 1) to 1.

    Args:
        h: (n, d), n >= 2.

    Example:
        >>> mean_cosine(torch.ones(3, 2)), mean_cosine(torch.eye(3))
        (1.0, 0.0)
    """
    u = unit(rows_of("mean_cosine(h)", h))
    n = len(u)
    return round(float((u.sum(dim=0).square().sum() - u.square().sum()) / (n * (n - 1))), 15)


def alignment(h1: Any, h2: Any) -> float:
    """How far positives are apart [wang2020alignuniform, Sec. 4.1.1].

        mean_i |u1_i - u2_i|^2,   u = h / |h|

    From 0 where the two views of every sample coincide to 4 where they are opposite; 2 where they
    have nothing to do with each other.

    Relations: it is 2 - 2 times the mean cosine of positives.

    Args:
        h1, h2: two views, (n, d), row i of both from sample i.

    References:
        wang2020alignuniform

    Example:
        >>> alignment(torch.eye(2), torch.eye(2)), alignment(torch.eye(2), -torch.eye(2))
        (0.0, 4.0)
    """
    u1, u2 = (unit(rows_of("alignment(h1, h2)", h, 1)) for h in (h1, h2))
    need(
        u1.shape == u2.shape,
        lambda: (
            f"`alignment(h1, h2)` needs paired rows; received {tuple(u1.shape)} and "
            f"{tuple(u2.shape)}."
        ),
    )
    return float((u1 - u2).square().sum(dim=1).mean())
