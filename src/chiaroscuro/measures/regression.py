"""How much of a target a linear map of embeddings predicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["explained"]

RIDGES = 10.0 ** np.arange(-4, 4)
"""Penalties tried, as multiples of the mean variance of a direction."""


def explained(x: np.ndarray, targets: Sequence[np.ndarray]) -> list[float | None]:
    """Return the share of each target that a linear map of x predicts on held-out rows (R^2).

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
    for ridge in RIDGES * (values.mean() or 1.0):
        weights = projected / (values + ridge)[:, None]
        freedom = float((values / (values + ridge)).sum())
        error = float(((y - inner @ weights) ** 2).sum()) / max(n - freedom, 1e-9) ** 2
        if error < least:
            best, least = weights, error
    return best
