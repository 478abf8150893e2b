"""k-means that gives the same clusters for the same seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.rows import as_array

__all__ = ["Clusters", "kmeans"]


class Clusters(NamedTuple):
    """Result of k-means: the cluster of each row, the centres, and the inertia."""

    labels: np.ndarray
    centres: np.ndarray
    inertia: float


def kmeans(x: Any, k: int, seed: int = 0, n_starts: int = 10) -> Clusters:
    """Return the best of several runs of Lloyd's algorithm from k-means++ starts [arthur2007].

        min over centres of sum_i min_c |x_i - c|^2

    Relations: `sklearn.cluster.KMeans`, which does the work. Clusters are numbered by their first
    rows; where there are fewer distinct rows than clusters, there are as many clusters as rows.

    Args:
        x: (n, d).
        k: clusters, 1 to n.
        seed: seed of the starts.
        n_starts: 10.

    Numerics: float64, around the mean.

    References:
        arthur2007

    Example:
        >>> kmeans(np.array([[0.0], [0.1], [5.0], [5.1]]), 2).labels.tolist()
        [0, 0, 1, 1]
    """
    x = as_array(x).astype(np.float64)
    need(
        x.ndim == 2 and bool(np.isfinite(x).all()),
        lambda: f"`kmeans(x)` needs a finite matrix (n, d); received shape {x.shape}.",
    )
    need(
        isinstance(k, int | np.integer) and 1 <= k <= len(x),
        lambda: f"`kmeans(x, k)` needs 1 to {len(x)} clusters; received {k}.",
    )
    need(
        n_starts >= 1,
        lambda: f"`kmeans(x, k, n_starts)` needs at least 1 start; received {n_starts}.",
    )
    need(
        isinstance(seed, int | np.integer) and seed >= 0,
        lambda: f"`kmeans(x, k, seed)` needs whole numbers from 0; received {seed!r}.",
    )
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]

    middle = x.mean(axis=0)
    distinct = len(np.unique(x, axis=0)) if k > 1 else 1
    start = np.random.RandomState(seed % (1 << 32))
    made = KMeans(min(int(k), distinct), n_init=n_starts, random_state=start).fit(x - middle)
    known, first, inverse = np.unique(made.labels_, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    centres = made.cluster_centers_[known][np.argsort(first)] + middle
    return Clusters(rank[inverse].astype(np.int64), centres, float(made.inertia_))
