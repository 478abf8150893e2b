"""Measure by labels: retrieval of the same class, and classes from a few examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures import Labelled

__all__ = ["few_shot", "label_retrieval"]

QUERIES, GALLERY = 2_000, 20_000
"""At most so many rows, evenly spaced: the ranking of every query is sorted."""
DRAWS = 50


def label_retrieval(
    gallery: Labelled, queries: Labelled, ks: tuple[int, ...] = (1, 5, 10)
) -> dict[str, float]:
    """Rank the gallery by cosine for each query; rows of the query's class are relevant.

        AP(q) = mean over relevant ranks r of (relevant among the first r) / r
        map   = mean of AP(q),   recall_k = share of queries with a relevant row among the first k

    `recall_k` is that of metric learning, a hit or not; queries whose class the gallery lacks count
    as 0. Ties are in the order of the gallery.

    Args:
        gallery, queries: vectors and labels; more than 20,000 or 2,000 rows are thinned evenly.
        ks: of `recall_k`; those above the size of the gallery are left out.

    Example:
        >>> gallery = Labelled(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), np.array([0, 1, 1]))
        >>> label_retrieval(gallery, Labelled(np.array([[1.0, 0.0]]), np.array([1])), ks=(1, 2))
        {'map': 0.5833333333333333, 'recall_1': 0.0, 'recall_2': 1.0}
    """
    g, labels = _unit(_thin(gallery.h, GALLERY)), _thin(gallery.labels, GALLERY)
    q, wanted = _unit(_thin(queries.h, QUERIES)), _thin(queries.labels, QUERIES)
    need(len(g) > 0 and len(q) > 0, f"Retrieval needs rows; received {len(g)} and {len(q)}.")
    precisions, firsts = [], []
    places = np.arange(1, len(g) + 1)
    for start in range(0, len(q), 256):
        order = np.argsort(-(q[start : start + 256] @ g.T), axis=1, kind="stable")
        relevant = labels[order] == wanted[start : start + 256, None]
        hits = np.cumsum(relevant, axis=1)
        total = hits[:, -1]
        precision = np.where(relevant, hits / places, 0.0).sum(axis=1)
        precisions.append(precision / np.maximum(total, 1))
        firsts.append(np.where(total > 0, relevant.argmax(axis=1), len(g)))
    first = np.concatenate(firsts)
    recalls = {f"recall_{k}": float((first < k).mean()) for k in ks if k <= len(g)}
    return {"map": float(np.concatenate(precisions).mean()), **recalls}


def few_shot(
    train: Labelled, test: Labelled, shots: int, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float] | None:
    """Return the accuracy of the nearest class mean from a few labelled rows, and its half-width.

    For each draw, `shots` rows of every class are chosen from the training side; a test row gets
    the class whose mean unit vector has the largest cosine with it. The half-width is that of the
    95 % interval of the mean over draws. None where a class has too few rows.

    Args:
        train, test: vectors and labels.
        shots: labelled rows per class.
        draws: how many choices of rows.
        seed: seed of the choices.
    """
    need(
        shots >= 1 and draws >= 2,
        lambda: f"`few_shot` needs a shot and 2 draws; received {shots} and {draws}.",
    )
    labels = np.asarray(train.labels)
    classes, counts = np.unique(labels, return_counts=True)
    if counts.min() < shots:
        return None
    rows = [np.flatnonzero(labels == kind) for kind in classes]
    u, v = _unit(train.h), _unit(_thin(test.h, QUERIES))
    y = _thin(test.labels, QUERIES)
    rng, scores = np.random.default_rng(seed), []
    for _ in range(draws):
        means = np.stack([u[rng.choice(own, shots, replace=False)].mean(axis=0) for own in rows])
        scores.append(float((classes[(v @ _unit(means).T).argmax(axis=1)] == y).mean()))
    return float(np.mean(scores)), float(1.96 * np.std(scores, ddof=1) / np.sqrt(draws))


def _thin(rows: Any, most: int) -> np.ndarray:
    rows = np.asarray(rows)
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _unit(x: Any) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
