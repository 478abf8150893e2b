"""RankMe, alpha-ReQ and LiDAR as their papers define them, so that papers can be compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from chiaroscuro.measures.rows import pairs_of

__all__ = ["alpha_req", "lidar", "rankme"]


def rankme(s: np.ndarray) -> float:
    """Return the exponential of the entropy of singular values that are not centred.

        exp(-sum_k p_k log p_k),   p_k = s_k / sum_j s_j + 1e-7

    Relations: without the constant, and of the centred matrix, it is `effective_rank`.

    Args:
        s: singular values of the rows as they come.

    References:
        garrido2023rankme

    Example:
        >>> round(rankme(np.ones(4)), 3)
        4.0
    """
    if not np.any(s):
        return 0.0
    p = s / s.sum() + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))


def alpha_req(s: np.ndarray) -> float | None:
    """Return the exponent alpha of s_k^2 ~ k^(-alpha) over all ranks above a thousandth.

    Relations: `decay` fits the same law without the head and the tail of the spectrum.

    Args:
        s: singular values of the centred rows, falling.

    References:
        agrawal2022alpha

    Example:
        >>> round(alpha_req(np.arange(1.0, 9.0) ** -0.5), 6)
        1.0
    """
    kept = s[s > 1e-3 * s[0]] if len(s) and s[0] > 0 else s[:0]
    if len(kept) < 3:
        return None
    slope = float(np.polyfit(np.log(np.arange(1, len(kept) + 1)), 2 * np.log(kept), 1)[0])
    return max(0.0, -slope) if math.isfinite(slope) else None


def lidar(h1: Any, h2: Any, ridge: float = 1e-4) -> float:
    """Return the rank of the space in which samples differ more than their views do.

        exp(-sum_k p_k log p_k),   p of the eigenvalues of Sw^(-1/2) Sb Sw^(-1/2)

    with Sb the covariance of the samples' means and Sw that of views around them, plus a ridge.

    Args:
        h1, h2: two views, (n, d), row i of both from sample i.
        ridge: 1e-4 on the diagonal of Sw, as its authors have it.

    References:
        thilak2024lidar

    Example:
        >>> basis = np.vstack([np.eye(4), -np.eye(4)])
        >>> round(lidar(basis, basis), 3)
        4.0
    """
    a, b = pairs_of("lidar(h1, h2)", h1, h2)
    middle, apart = (a + b) / 2, (a - b) / 2
    between = np.cov(middle.T, bias=True).reshape(a.shape[1], -1)
    within = apart.T @ apart / len(a) + ridge * np.eye(a.shape[1])
    values, vectors = np.linalg.eigh(within)
    root = vectors / np.sqrt(np.maximum(values, ridge))
    eigenvalues = np.linalg.eigvalsh(root.T @ between @ root)
    eigenvalues = eigenvalues[eigenvalues > 1e-12 * max(1.0, float(eigenvalues.max(initial=0.0)))]
    p = eigenvalues / eigenvalues.sum() if len(eigenvalues) else eigenvalues
    return float(np.exp(-(p * np.log(p)).sum())) if len(p) else 0.0
