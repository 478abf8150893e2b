"""Rows that deserve a look: likely label errors, outliers, twins across a split."""

from __future__ import annotations

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.duplicates import Duplicates
from chiaroscuro.measures.listed import Listed
from chiaroscuro.measures.neighbours import Neighbours, nearest

__all__ = ["label_errors", "outliers", "split_duplicates"]

SURE = 0.5
"""Share of the neighbours that must name another class."""
FENCE = 3.0
"""Quartile ranges beyond the upper quartile: Tukey's outer fence."""
COMPARED = 20_000


def label_errors(near: Neighbours, labels: np.ndarray) -> Listed:
    """List likely label errors, by confident learning on neighbours [northcutt2021confident].

        p_i(c) = share of the labelled neighbours of i that have class c
        t_c = mean of p_i(c) over the rows labelled c
        listed: some c != y_i with p_i(c) > p_i(y_i) and p_i(c) >= max(1/2, t_c - 2 e_c)

    where e_c = sqrt(t_c (1 - t_c) / k) is the error of a share of k votes.

    `score` is p_i(y_i), the least first. Where classes overlap, rows between them are listed too:
    the list is an order to look in, and no proof.

    Args:
        near: the neighbours of each row, of `nearest`.
        labels: (n,), from 0; -1 is unlabelled, and neither votes nor is listed.

    References:
        northcutt2021confident

    Example:
        >>> x = np.repeat(np.eye(2), 30, axis=0) + 1e-3 * np.arange(60)[:, None] * [1, 2]
        >>> y = np.repeat([0, 1], 30)
        >>> y[7] = 1
        >>> label_errors(nearest(x, 10), y).table()["row"]
        [7]
    """
    y = np.asarray(labels)
    n, n_classes = len(y), int(y.max(initial=0)) + 1
    need(
        near.ids.shape[0] == n,
        lambda: f"`label_errors` needs neighbours of {n} rows; received {near.ids.shape[0]}.",
    )
    names = y[near.ids]
    voters = np.maximum((names >= 0).sum(axis=1), 1)
    keys = (np.arange(n)[:, None] * n_classes + names)[names >= 0]
    pairs, counts = np.unique(keys, return_counts=True)
    row, of = pairs // n_classes, pairs % n_classes
    p = counts / voters[row]
    own = np.zeros(n)
    mine = of == y[row]
    own[row[mine]] = p[mine]
    known = y >= 0
    sizes = np.bincount(y[known], minlength=n_classes)
    threshold = np.bincount(y[known], own[known], n_classes) / np.maximum(sizes, 1)
    threshold -= 2 * np.sqrt(threshold * (1 - threshold) / near.ids.shape[1])
    other = ~mine & known[row] & (p >= np.maximum(threshold[of], SURE)) & (p > own[row])
    best = np.full(n, -1)
    share = np.zeros(n)
    order = np.argsort(p[other], kind="stable")  # the largest is written last
    best[row[other][order]] = of[other][order]
    share[row[other][order]] = p[other][order]
    listed = np.flatnonzero(best >= 0)
    listed = listed[np.lexsort((listed, -share[listed], own[listed]))]
    return Listed(
        "have another label than their nearest rows, so it may be wrong",
        listed,
        {
            "score": own[listed],
            "label": y[listed],
            "suggested": best[listed],
            "neighbours_of_suggested": share[listed],
        },
    )


def outliers(near: Neighbours, n_neighbours: int = 10) -> Listed:
    """List rows that are far from their neighbours, although these are close to each other.

        r_i = mean distance of i to its nearest / mean over those of the same [breunig2000lof]
        listed: log r_i > Q3 + 3 (Q3 - Q1)

    `score` is r_i, the largest first; about 1 inside a cloud of any density.

    Args:
        near: the neighbours of each row, of `nearest`.
        n_neighbours: 10 of them are used.

    References:
        breunig2000lof

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> x[3] = 30
        >>> outliers(nearest(x, 10, "euclidean")).table()["row"][0]
        3
    """
    k = min(n_neighbours, near.ids.shape[1])
    far = near.distances[:, :k].mean(axis=1)
    around = far[near.ids[:, :k]].mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(around > 0, far / around, np.where(far > 0, np.inf, 1.0))
        logs = np.log(ratio)
    finite = logs[np.isfinite(logs)]
    if not len(finite):
        return Listed("are far from all others", np.empty(0, dtype=np.int64), {"score": ratio[:0]})
    low, high = np.quantile(finite, [0.25, 0.75])
    # twins at distance 0 leave no spread: a ratio of 2 is the least that is called far
    listed = np.flatnonzero(logs > max(high + FENCE * (high - low), np.log(2.0)))
    listed = listed[np.lexsort((listed, -ratio[listed]))]
    return Listed(
        "are far from their nearest rows, although these are close to each other",
        listed,
        {"score": ratio[listed], "nearest": near.ids[listed, 0], "distance": far[listed]},
        pointers=("nearest",),
    )


def split_duplicates(x: np.ndarray, twins: Duplicates, split: np.ndarray) -> Listed | None:
    """List held-out rows that have a duplicate on the training side; None if there are none.

    Args:
        x: (n, d).
        twins: of `near_duplicates(x)`.
        split: (n,), 0 train and 1 test.

    Example:
        >>> from chiaroscuro.measures.duplicates import near_duplicates
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> split_duplicates(x, near_duplicates(x), np.array([0, 0, 1])).table()["twin"]
        [0]
    """
    ids = np.sort(twins.ids)
    train, test = ids[split[ids] == 0], ids[split[ids] == 1]
    if not len(train) or not len(test):
        return None
    train, test = (side[:: 1 + len(side) // COMPARED] for side in (train, test))
    neighbours = nearest(x[train], 1, queries=x[test])
    close = neighbours.distances[:, 0] <= twins.distance
    if not close.any():
        return None
    return Listed(
        "are held out, and have a twin on the training side",
        test[close],
        {"twin": train[neighbours.ids[close, 0]], "distance": neighbours.distances[close, 0]},
        pointers=("twin",),
    )
