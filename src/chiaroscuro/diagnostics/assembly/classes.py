"""What labels say of embeddings: neighbours and probes beside shuffled labels, sizes, leaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.assembly.folds import RidgeFolds
from chiaroscuro.measures import (
    Labelled,
    Neighbours,
    Space,
    interval,
    nearest,
    rows_of,
    shuffled,
    voted,
)

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = ["class_measures", "explained_by_class"]

NEIGHBOURS = 20
FOLDS = 5


def class_measures(
    out: Measured, embeddings: Embeddings, spaces: Mapping[str, Space], seed: int
) -> None:
    """Add what the labels allow to what was measured.

    Args:
        out: is added to.
        embeddings: with labels; rows with a negative one are left out.
        spaces: h and z, which know the rows to use, the metric, and neighbours.
        seed: seed of folds and permutations.
    """
    any_space = next(iter(spaces.values()))
    some, metric = any_space.some, any_space.metric
    every = np.asarray(embeddings.labels)
    counts = np.unique(every[every >= 0], return_counts=True)[1]
    shares = counts / counts.sum()
    out.numbers |= {
        "n_classes": len(counts),
        "largest_class": float(shares.max()),
        "class_evenness": float(-(shares * np.log(shares)).sum() / math.log(len(counts))),
    }
    kept = some[every[some] >= 0]
    y = np.unique(every[kept], return_inverse=True)[1]
    split = None if embeddings.split is None else np.asarray(embeddings.split)[kept]
    if split is not None and (min((split == 0).sum(), (split == 1).sum()) < 2):
        split = None
    if len(np.unique(y)) < 2 or len(y) <= NEIGHBOURS:
        return
    arrays = {
        "": embeddings.h,
        "z_": embeddings.z,
        "untrained_": embeddings.layers.get("untrained"),
    }
    for prefix, rows in arrays.items():
        if rows is None:
            continue
        known = spaces.get({"": "h", "z_": "z"}.get(prefix, ""))
        x = np.asarray(rows[kept], dtype=np.float64).reshape(len(kept), -1)
        near = _near(x, split, metric, known if len(kept) == len(some) else None)
        _accuracy(out, prefix, Labelled(x, y), near, split, seed)
        if prefix == "":
            explained = explained_by_class(x, y)
            out.numbers |= {
                "label_in_one_dimension": float(explained.max()),
                "label_in_typical_dimension": float(np.median(explained)),
                "label_dimension": int(explained.argmax()),
            }
    if out.numbers.get("untrained_knn_accuracy") is not None:
        gain = out.numbers["knn_accuracy"] - out.numbers["untrained_knn_accuracy"]
        out.numbers["gain_over_untrained"] = gain


def explained_by_class(h: Any, labels: np.ndarray) -> np.ndarray:
    """The share of each dimension's variance that the labels explain, corrected for chance.

        1 - (within / (n - c)) / (total / (n - 1)),   c classes

    At most 1, where a dimension is a function of the label; about 0 where it knows nothing of it.
    Nothing is known of a constant dimension: 0.

    Args:
        h: (n, d).
        labels: (n,), 0 to c - 1, n > c.

    Example:
        >>> h = np.array([[0.0, 1.0], [0.0, -1.0], [2.0, 1.0], [2.0, -1.0]])
        >>> explained_by_class(h, np.array([0, 0, 1, 1])).round(2).tolist()
        [1.0, -0.5]
    """
    x = rows_of("explained_by_class", h)
    y = np.asarray(labels, dtype=np.int64)
    n, c = len(x), int(y.max()) + 1
    if n <= c:
        return np.zeros(x.shape[1])
    x = x - x.mean(axis=0)
    sums = np.zeros((c, x.shape[1]))
    np.add.at(sums, y, x)
    counts = np.maximum(np.bincount(y, minlength=c), 1)
    total = np.einsum("ij,ij->j", x, x)
    within = total - (sums**2 / counts[:, None]).sum(axis=0)
    live = total > 1e-20 * total.max()
    share = 1 - (within / (n - c)) / (np.where(live, total, 1.0) / (n - 1))
    return np.where(live, share, 0.0)


def _near(x: np.ndarray, split: np.ndarray | None, metric: str, known: Space | None) -> Neighbours:
    """The neighbours of each row, or of each held-out row on the training side."""
    if split is None:
        return nearest(x, min(NEIGHBOURS, len(x) - 1), metric) if known is None else known.near
    bank, test = np.flatnonzero(split == 0), np.flatnonzero(split == 1)
    near = nearest(x[bank], min(NEIGHBOURS, len(bank)), metric, queries=x[test])
    return near._replace(ids=bank[near.ids])


def _accuracy(
    out: Measured,
    prefix: str,
    rows_and_labels: Labelled,
    near: Neighbours,
    split: np.ndarray | None,
    seed: int,
) -> None:
    x, y = rows_and_labels
    test = np.arange(len(y)) if split is None else np.flatnonzero(split == 1)
    named = lambda labels: voted(near, labels)
    hits = (named(y) == y[test]).astype(np.float64)
    knn = lambda labels: float((named(labels) == labels[test]).mean())
    out.numbers[f"{prefix}knn_accuracy"] = float(hits.mean())
    out.numbers["labelled_rows"] = len(test)
    probe = RidgeFolds(x, _parts(len(y), split, seed))
    linear = lambda _, labels: probe.accuracy(labels)
    rows = np.arange(len(y))
    if prefix == "untrained_":
        p = linear(rows, y)
    else:  # the labels keep their law and lose their rows
        control = shuffled(linear, rows, y, repeats=1, seed=seed)
        out.controls[f"{prefix}linear_accuracy"], p = control, control.value
        out.controls[f"{prefix}knn_accuracy"] = shuffled(
            lambda _, labels: knn(labels), rows, y, seed=seed
        )
        out.numbers[f"{prefix}knn_chance"] = out.controls[f"{prefix}knn_accuracy"].mean
        out.intervals[f"{prefix}knn_accuracy"] = interval(np.mean, hits, replace=True, seed=seed)
    out.numbers[f"{prefix}linear_accuracy"] = p
    out.numbers[f"{prefix}linear_error"] = math.sqrt(max(p * (1 - p), 0.25 / len(test)) / len(test))


def _parts(n: int, split: np.ndarray | None, seed: int) -> list[np.ndarray]:
    """Rows that the ridge probe is asked about: the test side, or five folds."""
    if split is not None:
        return [split == 1]
    fold = np.random.default_rng(seed).permutation(n) % FOLDS
    return [fold == k for k in range(FOLDS)]
