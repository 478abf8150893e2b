"""The ridge classifier over folds, for several labellings of the same rows at the cost of one."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix

from chiaroscuro.diagnostics.assembly.probe import ridge_probe
from chiaroscuro.diagnostics.rows import Labelled

__all__ = ["RidgeFolds"]


class RidgeFolds:
    """Ridge classifiers, each trained on what one part of the rows leaves and asked about it.

        accuracy = sum over parts of the right answers / sum of the parts' sizes

    Mean and scatter are taken of each part once and merged [chan1983variance]; what is left is one
    solution for each labelling.

    Relations: accuracy(y) is the mean of `ridge_probe` over the parts, weighted by their sizes.

    Args:
        x: (n, d), float64.
        parts: masks (n,) of rows that are asked about, no row in two of them.
        penalty: 1.0, as `ridge_probe`.

    References:
        chan1983variance

    Example:
        >>> x, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
        >>> RidgeFolds(x, [np.array([1, 0, 0, 1]) > 0, np.array([0, 1, 1, 0]) > 0]).accuracy(y)
        1.0
    """

    def __init__(self, x: np.ndarray, parts: list[np.ndarray], penalty: float = 1.0) -> None:
        middle = x.mean(axis=0)
        self.x = x = x - middle
        self.parts, self.penalty = parts, penalty
        self.tall = all(int((~part).sum()) >= x.shape[1] for part in parts)
        if not self.tall:
            return
        rest = ~np.logical_or.reduce(parts)
        groups = [part for part in (*parts, rest) if part.any()]
        counts = np.array([int(group.sum()) for group in groups])
        means = np.stack([x[group].mean(axis=0) for group in groups])
        scatters = [_scatter(x[group]) for group in groups]
        self.fits = []
        for at in range(len(parts)):
            others = [k for k in range(len(groups)) if k != at]
            weights = counts[others]
            mean = weights @ means[others] / weights.sum()
            apart = (means[others] - mean) * np.sqrt(weights)[:, None]
            scatter = sum((scatters[k] for k in others), start=apart.T @ apart)
            deviation = np.sqrt(np.diag(scatter) / weights.sum())
            deviation = np.where(deviation > 1e-12 * np.abs(mean + middle), deviation, np.inf)
            K = scatter / deviation / deviation[:, None] + penalty * np.eye(x.shape[1])
            self.fits.append((mean, deviation, cho_factor(K, lower=True, overwrite_a=True)))

    def accuracy(self, y: np.ndarray) -> float:
        """Return the share of the rows asked about that are named rightly.

        Args:
            y: (n,), labels from 0.
        """
        right, asked = 0, sum(int(part.sum()) for part in self.parts)
        for at, part in enumerate(self.parts):
            known = np.unique(y[~part])
            if len(known) < 2:  # whoever has seen one class names it
                right += int((y[part] == known[0]).sum())
            elif self.tall:
                right += int((self._named(at, y) == y[part]).sum())
            else:
                train, rest = (Labelled(self.x[mask], y[mask]) for mask in (~part, part))
                share = ridge_probe(train, rest, self.penalty)
                right += round(share * int(part.sum()))
        return right / asked

    def _named(self, at: int, y: np.ndarray) -> np.ndarray:
        """The class that each row of a part is given."""
        part, (mean, deviation, factor) = self.parts[at], self.fits[at]
        train = np.flatnonzero(~part)
        entries = np.full(len(train), 2.0), (y[train], np.arange(len(train)))
        Y = csr_matrix(entries, shape=(int(y.max()) + 1, len(train)))  # of the centred, without -1
        share = np.asarray(Y.sum(axis=1)).ravel()
        XY = (Y @ self.x[train] - share[:, None] * mean) / deviation
        W = cho_solve(factor, XY.T)
        scores = (self.x[part] - mean) / deviation @ W + share / len(train)
        return np.asarray(scores.argmax(axis=1))


def _scatter(x: np.ndarray) -> np.ndarray:
    apart = x - x.mean(axis=0)
    return np.asarray(apart.T @ apart)
