"""Graph formulas as loops over pairs, in float64: what the fast versions are compared with."""

import itertools
import math

import numpy as np

__all__ = ["cross_entropy", "generalised", "kmeans_inertia", "nearest", "unnormalised"]


def unnormalised(W):
    """Def. 2.6 of tan2024, entry by entry."""
    n = len(W)
    return np.array(
        [[sum(W[i]) if i == j else -W[i][j] for j in range(n)] for i in range(n)], dtype=float
    )


def generalised(W):
    """(L(P) + L(P^T)) / 2 with P the row-normalised weights."""
    n = len(W)
    P = np.array([[W[i][j] / sum(W[i]) if sum(W[i]) else 0.0 for j in range(n)] for i in range(n)])
    return (unnormalised(P) + unnormalised(P.T)) / 2


def cross_entropy(W, z, tau, split=None):
    """Eq. (3) for the Gaussian kernel: both laws of Def. 2.2 normalised over all subgraphs."""
    n = len(W)
    k = lambda i, j: math.exp(-sum((a - b) ** 2 for a, b in zip(z[i], z[j], strict=True)) / 2 / tau)
    allowed = lambda i, j: j != i and (split is None or (i < split) != (j < split))
    graphs = list(itertools.product(*[[j for j in range(n) if allowed(i, j)] for i in range(n)]))
    pi = [math.prod(W[i][j] for i, j in enumerate(g)) for g in graphs]
    K = [math.prod(k(i, j) for i, j in enumerate(g)) for g in graphs]
    return -sum(p / sum(pi) * math.log(q / sum(K)) for p, q in zip(pi, K, strict=True) if p > 0)


def nearest(x, count):
    """The nearest others by Euclidean distance from differences, equal ones by index."""
    lists = []
    for i, row in enumerate(x):
        others = [(float(((row - y) ** 2).sum()), j) for j, y in enumerate(x) if j != i]
        lists.append([j for _, j in sorted(others)[:count]])
    return np.array(lists)


def kmeans_inertia(x, k):
    """The least inertia over all ways to cut sorted numbers into k runs: exact in one dimension."""
    x = np.sort(np.asarray(x, dtype=float))
    cost = lambda a, b: float(((x[a:b] - x[a:b].mean()) ** 2).sum())
    cuts = itertools.combinations(range(1, len(x)), k - 1)
    return min(sum(cost(a, b) for a, b in itertools.pairwise((0, *cut, len(x)))) for cut in cuts)
