"""The measures a page shows of every epoch, in numpy alone; the same as those of `diagnostics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chiaroscuro.report.axes import spaced

__all__ = [
    "BINS",
    "alignment",
    "clusters",
    "explained",
    "hubness",
    "knn_accuracy",
    "mutual_information",
    "similarities",
    "spectrum",
    "uniformity",
]

BINS = 40
"""Of the similarity histograms, from -1 to 1."""

_PAIRS_OF = 1000  # rows whose pairs are looked at: half a million of them
_RIDGES = 10.0 ** np.arange(-4, 4)  # of the mean variance of a direction, for `explained`


def spectrum(x: np.ndarray) -> dict[str, Any]:
    """Singular values s of the centred matrix, falling, and two counts of dimensions in use.

        effective_rank = exp(-sum p log p),   p = s / sum s
        participation_ratio = (sum s^2)^2 / sum s^4

    Both are 0 where all rows are the same.

    References:
        roy2007rank, jing2022directclr

    Example:
        >>> found = spectrum(np.vstack([np.eye(4), -np.eye(4)]))
        >>> round(found["effective_rank"], 6), round(found["participation_ratio"], 6)
        (4.0, 4.0)
    """
    x = np.asarray(x, dtype=np.float64)
    centred = x - x.mean(axis=0)
    centred -= centred.mean(axis=0)  # a long sum is rounded: the rest of the mean
    s = np.linalg.svd(centred, compute_uv=False)
    s[s <= 4 * np.finfo(np.float64).eps * np.linalg.norm(x)] = 0
    if not s.size or s[0] <= 0:
        return {"s": s.tolist(), "effective_rank": 0.0, "participation_ratio": 0.0}
    p = s[s > 0] / s.sum()
    q = s / s[0]
    return {
        "s": s.tolist(),
        "effective_rank": float(np.exp(-(p * np.log(p)).sum())),
        "participation_ratio": float((q**2).sum() ** 2 / (q**4).sum()),
    }


def uniformity(u: np.ndarray) -> float:
    """log mean exp(-2 |u_i - u_j|^2) over distinct pairs of unit rows; 0 when all coincide.

    References:
        wang2020alignuniform

    Example:
        >>> round(uniformity(np.array([[1.0, 0.0], [-1.0, 0.0]])), 6)
        -8.0
    """
    u = u[spaced(len(u), _PAIRS_OF)].astype(np.float64)
    i, j = np.triu_indices(len(u), 1)
    size = (u**2).sum(axis=1)  # 1, and 0 of a zero row
    log_k = 4 * _pairs(u) - 2 * (size[i] + size[j])
    top = log_k.max()
    return float(top + np.log(np.exp(log_k - top).mean()))


def alignment(u1: np.ndarray, u2: np.ndarray) -> float:
    """mean |u_i - u_i^+|^2 over positive pairs of unit rows; 0 when views coincide.

    References:
        wang2020alignuniform
    """
    return float(((u1.astype(np.float64) - u2) ** 2).sum(axis=1).mean())


def similarities(
    u: np.ndarray, views: tuple[np.ndarray, np.ndarray] | None, labels: np.ndarray | None
) -> dict[str, Any]:
    """Densities of the cosine over [-1, 1]: of positives, negatives and false negatives.

    A negative is a pair of different samples; a false negative one of equal labels, which the
    objective pushes apart all the same. Without labels all are negatives.

    Args:
        u: (n, d) unit rows.
        views: unit rows of two views, or None: then there are no positives.
        labels: -1 is unlabelled.
    """
    rows = spaced(len(u), _PAIRS_OF)
    cosines = _pairs(u[rows].astype(np.float64))
    found: dict[str, Any] = {}
    if views is not None:
        found["positives"] = _density((views[0].astype(np.float64) * views[1]).sum(axis=1))
    if labels is None:
        found["negatives"] = _density(cosines)
        return found
    y = labels[rows]
    i, j = np.triu_indices(len(rows), 1)
    same = (y[i] == y[j]) & (y[i] >= 0)
    found["negatives"] = _density(cosines[~same])
    if same.any():
        found["false_negatives"] = _density(cosines[same])
    return found


def _density(cosines: np.ndarray) -> dict[str, Any]:
    counts, _ = np.histogram(np.clip(cosines, -1, 1), BINS, (-1, 1))
    width = 2 / BINS
    total = max(1, counts.sum())
    mean = float(cosines.mean()) if len(cosines) else None
    return {"density": (counts / total / width).tolist(), "mean": mean, "n": int(counts.sum())}


def _pairs(u: np.ndarray) -> np.ndarray:
    """The cosines of all distinct pairs of unit rows."""
    return (u @ u.T)[np.triu_indices(len(u), 1)]


def knn_accuracy(near: np.ndarray, labels: np.ndarray, k: int = 20) -> float | None:
    """Share of labelled rows whose k nearest others, by majority, have their label.

    Args:
        near: (n, at least k) indices of neighbours, the most similar first.
        labels: -1 is unlabelled and does not vote.
        k: 20, as in the other measures of accuracy here.
    """
    votes = labels[near[:, :k]]
    n_classes = int(labels.max(initial=-1)) + 1
    known = labels >= 0
    if not known.any():
        return None
    counts = np.stack([(votes == c).sum(axis=1) for c in range(n_classes)], axis=1)
    return float((counts.argmax(axis=1) == labels)[known].mean())


def hubness(near: np.ndarray, n: int, k: int = 10) -> tuple[np.ndarray, float]:
    """In how many lists of k neighbours each row stands, and the skewness of those counts.

    A skewness well above 1 means hubs: few rows that are neighbours of very many.

    Example:
        >>> hubness(np.array([[1], [2], [0]]), 3)[0].tolist()
        [1, 1, 1]
    """
    counts = np.bincount(near[:, :k].ravel(), minlength=n)
    apart = counts - counts.mean()
    spread = counts.std()
    return counts, float((apart**3).mean() / spread**3) if spread > 0 else 0.0


def clusters(x: np.ndarray, n_clusters: int) -> np.ndarray:
    """Lloyd's k-means from a spread-out start (k-means++), the best of four; deterministic.

    Example:
        >>> found = clusters(np.array([[0.0], [0.1], [5.0], [5.1]]), 2)
        >>> bool(found[0] == found[1] != found[2] == found[3])
        True
    """
    x = np.asarray(x, dtype=np.float64)
    n_clusters = max(1, min(n_clusters, len(np.unique(x, axis=0))))
    tries = [_lloyd(x, n_clusters, np.random.default_rng(seed)) for seed in range(4)]
    return min(tries, key=lambda one: one[0])[1]


def _lloyd(x: np.ndarray, k: int, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    centres = x[rng.integers(len(x))][None]
    while len(centres) < k:
        far = _squares(x, centres).min(axis=1)
        centres = np.vstack([centres, x[rng.choice(len(x), p=far / far.sum())]])
    own = np.full(len(x), -1)
    for _ in range(100):
        far = _squares(x, centres)
        now = far.argmin(axis=1)
        if (now == own).all():
            break
        own = now
        # an empty cluster keeps its centre
        centres = np.stack(
            [x[own == c].mean(axis=0) if (own == c).any() else centres[c] for c in range(k)]
        )
    return float(far.min(axis=1).sum()), own


def _squares(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    squares = (x**2).sum(axis=1)[:, None] - 2 * x @ centres.T + (centres**2).sum(axis=1)
    return np.maximum(squares, 0)


def mutual_information(a: np.ndarray, b: np.ndarray) -> float:
    """I(a; b) / sqrt(H(a) H(b)) of two labellings: 0 independent, 1 the same partition.

    Example:
        >>> round(mutual_information(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])), 6)
        1.0
    """
    joint = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(joint, (a, b), 1 / len(a))
    pa, pb = joint.sum(axis=1), joint.sum(axis=0)
    entropy = lambda p: -float((p[p > 0] * np.log(p[p > 0])).sum())
    both = entropy(pa) + entropy(pb) - entropy(joint.ravel())
    scale = np.sqrt(entropy(pa) * entropy(pb))
    return float(np.clip(both / scale, 0, 1)) if scale > 0 else 0.0


def explained(x: np.ndarray, targets: Sequence[np.ndarray]) -> list[float | None]:
    """Share of the variance of each target that a linear map of x predicts on held-out rows (R^2).

    Ridge regression on every other row, judged on those between, and the other way round; the
    penalty of each target is the one of least generalised cross-validation |y - y_hat|^2 /
    (n - freedom)^2 on the rows it is fitted to. At or below 0 is nothing; a constant gives None.

    Args:
        x: (n, d), n at least 4.
        targets: (n, t) each; shares are pooled over the columns of one.

    Example:
        >>> x = np.arange(12.0)[:, None] % 5
        >>> [round(share, 3) for share in explained(x, [2 * x + 1])]
        [1.0]
        >>> explained(x, [np.ones((12, 1))])
        [None]
    """
    x = np.asarray(x, dtype=np.float64)
    left, total = np.zeros(len(targets)), np.zeros(len(targets))
    for side in (0, 1):
        fit, held = slice(side, None, 2), slice(1 - side, None, 2)
        mean = x[fit].mean(axis=0)
        a, b = x[fit] - mean, x[held] - mean
        values, vectors = np.linalg.eigh(a.T @ a)
        values = np.maximum(values, 0)
        inner, outer = a @ vectors, b @ vectors
        for at, y in enumerate(targets):
            centre = y[fit].mean(axis=0)
            weights = _ridge(inner, values, y[fit] - centre)
            left[at] += ((y[held] - centre - outer @ weights) ** 2).sum()
            total[at] += ((y[held] - y[held].mean(axis=0)) ** 2).sum()
    return [float(1 - a / b) if b > 0 else None for a, b in zip(left, total, strict=True)]


def _ridge(inner: np.ndarray, values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The weights on the principal directions, of the penalty with the least error."""
    n = len(inner)
    projected = inner.T @ y
    best, least = np.zeros_like(projected), np.inf
    for ridge in _RIDGES * (values.mean() or 1.0):
        weights = projected / (values + ridge)[:, None]
        freedom = float((values / (values + ridge)).sum())
        error = float(((y - inner @ weights) ** 2).sum()) / max(n - freedom, 1e-9) ** 2
        if error < least:
            best, least = weights, error
    return best
