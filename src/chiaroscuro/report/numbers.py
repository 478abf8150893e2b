"""What a page shows of every epoch beside the measures: densities of similarities."""

from __future__ import annotations

from typing import Any

import numpy as np

from chiaroscuro.measures import spaced

__all__ = ["BINS", "similarities"]

BINS = 40
"""Of the similarity histograms, from -1 to 1."""

_PAIRS_OF = 1000  # rows whose pairs are looked at: half a million of them


def similarities(
    u: np.ndarray, views: tuple[np.ndarray, np.ndarray] | None, labels: np.ndarray | None
) -> dict[str, Any]:
    """Return densities of the cosine over [-1, 1]: of positives, negatives and false negatives.

    A negative is a pair of different samples; a false negative one of equal labels, which the
    objective pushes apart all the same. Without labels all are negatives.

    Args:
        u: (n, d) unit rows.
        views: unit rows of two views, or None: then there are no positives.
        labels: -1 is unlabelled.
    """
    rows = spaced(len(u), _PAIRS_OF)
    cosines = _pairs(u[rows].astype(np.float64))
    densities: dict[str, Any] = {}
    if views is not None:
        densities["positives"] = _density((views[0].astype(np.float64) * views[1]).sum(axis=1))
    if labels is None:
        densities["negatives"] = _density(cosines)
        return densities
    y = labels[rows]
    i, j = np.triu_indices(len(rows), 1)
    same = (y[i] == y[j]) & (y[i] >= 0)
    densities["negatives"] = _density(cosines[~same])
    if same.any():
        densities["false_negatives"] = _density(cosines[same])
    return densities


def _density(cosines: np.ndarray) -> dict[str, Any]:
    counts, _ = np.histogram(np.clip(cosines, -1, 1), BINS, (-1, 1))
    width = 2 / BINS
    total = max(1, counts.sum())
    mean = float(cosines.mean()) if len(cosines) else None
    return {"density": (counts / total / width).tolist(), "mean": mean, "n": int(counts.sum())}


def _pairs(u: np.ndarray) -> np.ndarray:
    """Return the cosines of all distinct pairs of unit rows."""
    return (u @ u.T)[np.triu_indices(len(u), 1)]
