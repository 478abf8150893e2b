"""k-means that gives the same clusters for the same seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.graphs.graph import Floats, Integers, counted, random

__all__ = ["Clusters", "kmeans"]

_ROUNDS = 300


class Clusters(NamedTuple):
    """The cluster of each row, the centres, and the sum of squared distances to them."""

    labels: Integers
    centres: Floats
    inertia: float


def kmeans(x: Any, k: int, seed: int = 0, n_starts: int = 10) -> Clusters:
    """Lloyd's algorithm from the best of several seeded starts.

        min over centres of sum_i min_c |x_i - c|^2

    The rule: start s takes its numbers from (seed, s); the first centre is a uniform row, each next
    one a row drawn in proportion to its squared distance from the nearest centre so far
    [arthur2007]; then rows go to the nearest centre (the lower number, if equal) and centres to
    their means, until no row moves or 300 rounds have passed; a centre without rows goes to the
    row that is farthest from its own. The start of least inertia wins, the first of equal ones.
    Clusters are numbered by their first rows.

    Args:
        x: (n, d).
        k: clusters, 1 to n.
        seed: of the starts.
        n_starts: 10.

    Numerics: float64; distances by expansion around the mean.

    References:
        arthur2007

    Example:
        >>> kmeans(np.array([[0.0], [0.1], [5.0], [5.1]]), 2).labels.tolist()
        [0, 0, 1, 1]
    """
    x = np.asarray(x, dtype=np.float64)
    need(
        x.ndim == 2 and bool(np.isfinite(x).all()),
        lambda: f"`kmeans(x)` needs a finite matrix (n, d); received shape {x.shape}.",
    )
    counted("kmeans(x, k)", "clusters", k, 1, len(x))
    need(
        n_starts >= 1,
        lambda: f"`kmeans(x, k, n_starts)` needs at least 1 start; received {n_starts}.",
    )
    middle = x.mean(axis=0)
    x = x - middle
    size = np.einsum("ij,ij->i", x, x)
    runs = [_run(x, size, _start(x, size, k, seed, s)) for s in range(n_starts)]
    best = min(runs, key=lambda run: run.inertia)
    _, first, inverse = np.unique(best.labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    used = best.centres[np.unique(best.labels)][np.argsort(first)] + middle
    return Clusters(rank[inverse].astype(np.int64), used, best.inertia)


def _start(x: Floats, size: Floats, k: int, seed: int, s: int) -> Floats:
    rng = random("kmeans(x, k, seed)", seed, s)
    chosen = [int(rng.integers(len(x)))]
    nearest = _distances(x, size, x[chosen])[:, 0]
    for _ in range(k - 1):
        sums = np.cumsum(nearest)
        at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        chosen.append(min(at, len(x) - 1))
        nearest = np.minimum(nearest, _distances(x, size, x[chosen[-1:]])[:, 0])
    return x[chosen]


def _run(x: Floats, size: Floats, centres: Floats) -> Clusters:
    labels = np.full(len(x), -1)
    rows = np.arange(len(x))
    for _ in range(_ROUNDS):
        t = _distances(x, size, centres)
        moved, labels = labels, t.argmin(axis=1)
        counts = np.bincount(labels, minlength=len(centres))
        own = t[rows, labels]
        for empty in np.flatnonzero(counts == 0):
            far = int(own.argmax())
            if own[far] == 0:  # fewer distinct rows than clusters
                break
            counts[labels[far]] -= 1
            labels[far], own[far], counts[empty] = empty, 0.0, 1
        if (labels == moved).all():
            break
        sums = np.zeros_like(centres)
        for column in range(x.shape[1]):
            sums[:, column] = np.bincount(labels, weights=x[:, column], minlength=len(centres))
        filled = counts > 0
        centres = np.where(filled[:, None], sums / np.where(filled, counts, 1)[:, None], centres)
    inertia = float(np.square(x - centres[labels]).sum())
    return Clusters(labels, centres, inertia)


def _distances(x: Floats, size: Floats, centres: Floats) -> Floats:
    t = size[:, None] + np.einsum("ij,ij->i", centres, centres) - 2 * x @ centres.T
    return np.maximum(t, 0.0)
