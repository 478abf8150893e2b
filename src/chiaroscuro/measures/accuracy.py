"""What the nearest rows say of a row's class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.neighbours import Neighbours, nearest
from chiaroscuro.measures.rows import labels_of, rows_of

__all__ = ["Labelled", "knn_accuracies", "knn_accuracy", "knn_leave_one_out", "voted"]

TAU = 0.07
VOTES = ("weighted", "majority")


class Labelled(NamedTuple):
    """Samples and their classes: (n, d) numbers and (n,) integers, tensors or arrays."""

    h: Any
    labels: Any


def knn_accuracy(
    train: Labelled,
    test: Labelled,
    n_neighbours: int = 20,
    vote: str = "weighted",
    metric: str = "cosine",
) -> float:
    """Return the accuracy of a nearest-neighbour classifier on test samples.

        weighted: argmax_c sum of exp(s_j / 0.07) over neighbours j of class c [wu2018instance, 3.4]
        majority: argmax_c number of neighbours of class c

    In [0, 1]: 1 where every sample's neighbours share its class; 1 over the number of classes,
    about, where embeddings say nothing.

    Relations: with one neighbour both votes are the same. A rotation of all rows, or a factor on
    any row (of cosines), changes nothing.

    Args:
        train, test: (h, labels) each.
        n_neighbours: 20 and 200 are the literature's; 200 in [wu2018instance, Sec. 4.2].
        vote: "weighted" or "majority"; equal counts go to the class whose neighbours are nearer.
        metric: "cosine" or "euclidean", which has the majority vote only.

    Numerics: those of `nearest`. A zero row has cosine 0 with all others.

    References:
        wu2018instance

    Example:
        >>> train = Labelled(np.tile(np.eye(4), (5, 1)), np.tile(np.arange(4), 5))
        >>> knn_accuracy(train, Labelled(np.eye(4), np.arange(4)), n_neighbours=5)
        1.0
    """
    accuracies = knn_accuracies(train, test, [n_neighbours], [vote], metric)
    return accuracies[n_neighbours, vote]


def knn_accuracies(
    train: Labelled,
    test: Labelled,
    n_neighbours: Sequence[int],
    votes: Sequence[str],
    metric: str = "cosine",
) -> dict[tuple[int, str], float]:
    """Return `knn_accuracy` of several numbers of neighbours and votes, from one search."""
    call = "knn_accuracy(train, test)"
    bank, queries = rows_of(call, train.h, 1), rows_of(call, test.h, 1)
    y = labels_of(call, train.labels, len(bank))
    truth = labels_of(call, test.labels, len(queries))
    need(
        bank.shape[1] == queries.shape[1],
        lambda: f"`{call}` needs one dimension; received {bank.shape[1]} and {queries.shape[1]}.",
    )
    for k, vote in product(n_neighbours, votes):
        _check(call, k, len(bank), vote)
    near = nearest(bank, max(n_neighbours), metric, queries)
    named = {
        (k, vote): voted(Neighbours(near.ids[:, :k], near.distances[:, :k]), y, vote)
        for k, vote in product(n_neighbours, votes)
    }
    return {asked: float((names == truth).mean()) for asked, names in named.items()}


def knn_leave_one_out(
    h: Any, labels: Any, n_neighbours: int = 20, vote: str = "majority", metric: str = "cosine"
) -> float:
    """Return the leave-one-out accuracy of a nearest-neighbour classifier.

    In [0, 1]. For embeddings without a split; where samples come in groups (drawings of one
    handwriting), a sample's neighbours may be its twins and the number flatters.

    Relations: it is `knn_accuracy` of each sample against all the others.

    Args:
        h: (n, d).
        labels: (n,).
        n_neighbours: 20.
        vote: "majority" or "weighted", as for `knn_accuracy`.
        metric: "cosine" or "euclidean".

    References:
        wu2018instance

    Example:
        >>> h, labels = np.tile(np.eye(2), (3, 1)), np.tile(np.arange(2), 3)
        >>> knn_leave_one_out(h, labels, n_neighbours=2)
        1.0
    """
    call = "knn_leave_one_out(h, labels)"
    x = rows_of(call, h)
    y = labels_of(call, labels, len(x))
    _check(call, n_neighbours, len(x) - 1, vote)
    return float((voted(nearest(x, n_neighbours, metric), y, vote) == y).mean())


def voted(near: Neighbours, y: np.ndarray, vote: str = "majority") -> np.ndarray:
    """Return the class that the neighbours of each query vote for; negative labels do not vote.

    Args:
        near: of `nearest`.
        y: labels of the rows that are neighbours.
        vote: "majority": one each, equal counts to the nearer; "weighted": exp(cosine / 0.07).

    Example:
        >>> near = Neighbours(np.array([[1, 2, 0]]), np.array([[0.1, 0.2, 0.3]]))
        >>> voted(near, np.array([1, 0, 1])).tolist()
        [1]
    """
    n, k = near.ids.shape
    if vote == "weighted":
        cosines = near.cosines
        ballots = np.exp((cosines - cosines[:, :1]) / TAU)  # the nearest counts 1: no overflow
    else:
        # less than one whole vote together: they decide between equal counts only
        scale = np.where(near.distances[:, -1:] > 0, near.distances[:, -1:], 1.0)
        ballots = 1 + (1 - (near.distances / scale) ** 2 / 2) / (4 * k + 4)
    names = y[near.ids]
    known = names >= 0
    n_classes = int(y.max(initial=0)) + 1
    at = np.arange(n)[:, None] * n_classes + names
    votes = np.bincount(at[known], ballots[known], n * n_classes).reshape(n, n_classes)
    return votes.argmax(axis=1)


def _check(call: str, n_neighbours: int, n: int, vote: str) -> None:
    need(
        1 <= n_neighbours <= n,
        lambda: f"`{call}` needs 1 to {n} neighbours, of {n} samples; received {n_neighbours}.",
    )
    need(
        vote in VOTES,
        lambda: f"`{call}` needs a vote `weighted` or `majority`; received `{vote}`.",
    )
