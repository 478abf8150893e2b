"""Positive pairs: how often a sample's other view is nearer than other samples are."""

from __future__ import annotations

from typing import Any

import numpy as np

from chiaroscuro.measures.rows import rows_of, unit

__all__ = ["pair_rank", "pair_ranks"]

LEVEL = 1e-9
CHUNK = 512


def pair_rank(h1: Any, h2: Any) -> float:
    """Return the share of other samples that are farther than the positive; ties count half.

        mean_i mean_{j != i} [cos(h1_i, h2_i) > cos(h1_i, h2_j)],  and the other way round

    From 0 to 1: 0.5 where pairs mean nothing, or all rows are the same. A constant added to the
    embeddings of one side (two modalities) changes little.

    Args:
        h1, h2: two views, (n, d), n >= 2.

    Example:
        >>> pair_rank(np.eye(4), np.eye(4)), pair_rank(np.ones((4, 2)), np.ones((4, 2)))
        (1.0, 0.5)
    """
    return float(pair_ranks(h1, h2).mean())


def pair_ranks(h1: Any, h2: Any) -> np.ndarray:
    """Return for each pair the share of other samples that are farther than it; ties count half.

    Args:
        h1, h2: two views, (n, d), n >= 2.

    Example:
        >>> pair_ranks(np.eye(3), np.eye(3)[[0, 2, 1]]).tolist()
        [1.0, 0.25, 0.25]
    """
    u, v = unit(rows_of("pair_rank", h1)), unit(rows_of("pair_rank", h2))
    n = len(u)
    own = np.einsum("ij,ij->i", u, v)
    wins = np.zeros(n)
    for a, b in ((u, v), (v, u)):
        for start in range(0, n, CHUNK):
            rows = slice(start, start + CHUNK)
            gap = own[rows, None] - a[rows] @ b.T
            wins[rows] += (gap > LEVEL).sum(axis=1) + 0.5 * (np.abs(gap) <= LEVEL).sum(axis=1)
    return (wins - 1) / (2 * (n - 1))  # each row is level with itself, half both times
