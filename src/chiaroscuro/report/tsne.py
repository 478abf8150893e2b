"""Neighbour embeddings (t-SNE) of the same rows at every epoch, so that points move smoothly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures import nearest, spaced
from chiaroscuro.report.axes import aligned, principal_axes, unit_rows

__all__ = ["EXACT", "PERPLEXITY", "has_open_tsne", "joint_probabilities", "tsne"]

PERPLEXITY = 30.0
"""Neighbours that count of each point [maaten2008tsne: 5 to 50; 30 in its authors' code]."""

EXACT = 2000
"""Rows up to which all pairs repel each other; more rows go to openTSNE, if it is installed."""

LANDMARKS = 1000
"""Rows that are embedded of more than `EXACT` without openTSNE; the others follow them."""

EXAGGERATION = 12.0
"""Of the attraction in the first steps [the default of openTSNE and scikit-learn]."""

_FEW = 500  # rows that get more steps, which cost little
_FIRST_OF_FEW, _FIRST = (250, 750), (120, 380)  # steps with and without exaggeration, last epoch
_LATER = (20, 50)  # of the epochs before it
_LATER_EXAGGERATION = 4.0
_FOLLOWED = 5  # landmarks that a row which is none is put between


def tsne(frames: Sequence[np.ndarray], perplexity: float = PERPLEXITY) -> list[np.ndarray]:
    """Return a t-SNE map (n, 2) of each frame: the same rows, so that a point keeps its place.

    The last frame starts from its principal axes. Each frame before it starts from the map of the
    one after it, under a few steps of exaggeration, which let points pass each other: what an
    epoch does not separate does not stay separated. All are then turned to fit the last.

    Up to `EXACT` rows the gradient is exact. More rows use openTSNE where it is installed
    (`pip install openTSNE`); where it is not, `LANDMARKS` of them are embedded and each of the
    others is put between its nearest.

    Args:
        frames: (n, d) unit rows each, n at least 3.
        perplexity: less where there are few rows.

    Relations: on one frame its divergence is at most that of scikit-learn's `TSNE`, within 5 %.

    References:
        maaten2008tsne

    Example:
        >>> two = np.repeat(np.eye(2), 12, axis=0) + 0.01 * np.arange(24)[:, None] * [1, -1]
        >>> (y,) = tsne([two])
        >>> bool(np.ptp(y[:12], axis=0).max() < np.linalg.norm(y[:12].mean(0) - y[12:].mean(0)))
        True
    """
    need(bool(frames), "`tsne` needs at least 1 frame; received none.")
    n = len(frames[-1])
    need(n >= 3, lambda: f"`tsne` needs at least 3 rows; received {n}.")
    if n > EXACT and not has_open_tsne():
        return _followed(frames, perplexity)
    perplexity = min(perplexity, max(1.0, (n - 1) / 3))
    embed = _open_tsne if n > EXACT else _exact
    out: list[np.ndarray] = []
    for u in reversed(frames):
        if out:
            out.append(embed(u, out[-1], perplexity, _LATER, _LATER_EXAGGERATION))
        else:
            start = principal_axes(u)
            start = 1e-2 * start / (start.std(axis=0).max() or 1.0)
            steps = _FIRST_OF_FEW if n <= _FEW else _FIRST
            out.append(embed(u, start, perplexity, steps, EXAGGERATION))
    return aligned(out[::-1])


def has_open_tsne() -> bool:
    """Return whether openTSNE can be imported."""
    import importlib.util

    return importlib.util.find_spec("openTSNE") is not None


def joint_probabilities(u: np.ndarray, perplexity: float) -> np.ndarray:
    """Return the symmetric affinities p_ij of t-SNE, which sum to 1.

        p_j|i ~ exp(-beta_i |u_i - u_j|^2),   exp(entropy of p_.|i) = perplexity

    Args:
        u: (n, d).
        perplexity: below n - 1.

    References:
        maaten2008tsne
    """
    u = np.asarray(u, dtype=np.float64)
    size = (u**2).sum(axis=1)
    far = np.maximum(size[:, None] + size - 2 * u @ u.T, 0)
    np.fill_diagonal(far, np.inf)
    far -= far.min(axis=1, keepdims=True)  # the nearest at 0: the exponent neither over- nor under
    low, high = np.zeros(len(u)), np.full(len(u), np.inf)
    beta = np.ones(len(u))
    for _ in range(60):  # bisection, all rows at once
        p = np.exp(-beta[:, None] * far)
        total = p.sum(axis=1)
        mean = np.where(p > 0, p * np.where(np.isfinite(far), far, 0), 0).sum(axis=1) / total
        entropy = np.log(total) + beta * mean
        flat = entropy > math.log(perplexity)
        low, high = np.where(flat, beta, low), np.where(flat, high, beta)
        beta = np.where(np.isinf(high), 2 * beta, (low + high) / 2)
        beta = np.minimum(beta, 1e12)  # rows that coincide
    p = p / total[:, None]
    return (p + p.T) / (2 * len(u))


def _exact(
    u: np.ndarray, start: np.ndarray, perplexity: float, steps: tuple[int, int], exaggeration: float
) -> np.ndarray:
    """Gradient descent on KL(p | q), q_ij ~ 1 / (1 + |y_i - y_j|^2), over all pairs."""
    p = joint_probabilities(u, perplexity).astype(np.float32)
    y = start.astype(np.float32)
    velocity, gain = np.zeros_like(y), np.ones_like(y)
    for step in range(sum(steps)):
        early = step < steps[0]
        gradient = _gradient(p, y, exaggeration if early else 1.0)
        # steps grow where the direction stays and shrink where it turns
        turned = (gradient > 0) == (velocity > 0)
        gain = np.maximum(np.where(turned, 0.8 * gain, gain + 0.2), 0.01)
        rate = max(len(u) / EXAGGERATION, 50.0)
        velocity = (0.5 if early else 0.8) * velocity - rate * gain * gradient
        y = y + velocity
        y -= y.mean(axis=0)
    return y.astype(np.float64)


def _gradient(p: np.ndarray, y: np.ndarray, exaggeration: float = 1.0) -> np.ndarray:
    """4 sum_j (p_ij - q_ij) (y_i - y_j) / (1 + |y_i - y_j|^2)."""
    size = (y**2).sum(axis=1)
    near = y @ y.T
    near *= -2
    near += size[:, None]
    near += size + 1
    np.reciprocal(near, out=near)
    np.fill_diagonal(near, 0)
    pull = p * near
    pull *= exaggeration
    near *= near / near.sum()
    pull -= near
    return 4 * (pull.sum(axis=1)[:, None] * y - pull @ y)


def _open_tsne(
    u: np.ndarray, start: np.ndarray, perplexity: float, steps: tuple[int, int], exaggeration: float
) -> np.ndarray:
    """Return the map by openTSNE: nearest neighbours attract, a grid repels, O(n) a step."""
    import openTSNE

    affinities = openTSNE.affinity.PerplexityBasedNN(
        u, perplexity=perplexity, metric="euclidean", random_state=0, n_jobs=1
    )
    made: Any = openTSNE.TSNEEmbedding(
        start, affinities, negative_gradient_method="fft", random_state=0, n_jobs=1
    )
    made = made.optimize(steps[0], exaggeration=exaggeration, momentum=0.5)
    return np.asarray(made.optimize(steps[1], momentum=0.8), dtype=np.float64)


def _followed(frames: Sequence[np.ndarray], perplexity: float) -> list[np.ndarray]:
    """Return the map of `LANDMARKS` rows; each other row at the mean of its nearest ones."""
    rows = spaced(len(frames[-1]), LANDMARKS)
    maps = tsne([u[rows] for u in frames], perplexity)
    out = []
    for u, y in zip(frames, maps, strict=True):
        neighbours = nearest(unit_rows(u), _FOLLOWED, among=rows)
        place = np.full(len(u), -1)
        place[rows] = np.arange(len(rows))
        weights = np.maximum(neighbours.cosines, 1e-6) ** 8  # the nearest counts most
        near = y[place[neighbours.ids]]
        whole = (near * (weights / weights.sum(axis=1, keepdims=True))[..., None]).sum(axis=1)
        whole[rows] = y
        out.append(whole)
    return out
