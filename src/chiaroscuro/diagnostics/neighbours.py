"""Neighbours: what the nearest samples say about a sample's class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from chiaroscuro.diagnostics.rows import Labelled, labels_of, rows_of
from chiaroscuro.errors import need
from chiaroscuro.numerics import unit

__all__ = ["knn_accuracy", "knn_leave_one_out"]

TAU = 0.07
CHUNK = 1024


def knn_accuracy(
    train: Labelled, test: Labelled, n_neighbours: int = 20, vote: str = "weighted"
) -> float:
    """The share of test samples whose nearest training samples, by cosine, name their class.

        weighted: argmax_c sum of exp(s_j / 0.07) over neighbours j of class c [wu2018instance, 3.4]
        majority: argmax_c number of neighbours of class c

    In [0, 1]: 1 where every sample's neighbours share its class; 1 over the number of classes,
    about, where embeddings say nothing.

    Relations: with one neighbour both votes are the same. A rotation of all rows, or a factor on
    any row, changes nothing.

    Args:
        train, test: (h, labels) each.
        n_neighbours: 20 and 200 are the literature's; 200 in [wu2018instance, Sec. 4.2].
        vote: "weighted" or "majority"; equal counts go to the class whose neighbours are nearer.

    Numerics: float64, in chunks of 1,024 queries. A zero row has cosine 0 with all others.

    References:
        wu2018instance

    Example:
        >>> train = Labelled(torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5))
        >>> knn_accuracy(train, Labelled(torch.eye(4), torch.arange(4)), n_neighbours=5)
        1.0
    """
    return knn_accuracies(train, test, [n_neighbours], [vote])[n_neighbours, vote]


def knn_accuracies(
    train: Labelled, test: Labelled, n_neighbours: Sequence[int], votes: Sequence[str]
) -> dict[tuple[int, str], float]:
    """`knn_accuracy` of several numbers of neighbours and votes, from cosines taken once."""
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
    bank, queries = unit(bank), unit(queries)
    hits = dict.fromkeys(product(n_neighbours, votes), 0)
    for start in range(0, len(queries), CHUNK):
        some = slice(start, start + CHUNK)
        s = queries[some] @ bank.T
        for k in n_neighbours:
            nearest = s.topk(k, dim=1)
            for vote in votes:
                hits[k, vote] += int((_named(*nearest, y, vote) == truth[some]).sum())
    return {asked: count / len(queries) for asked, count in hits.items()}


def knn_leave_one_out(h: Any, labels: Any, n_neighbours: int = 20, vote: str = "majority") -> float:
    """The share of samples whose nearest others, by cosine, name their class.

    In [0, 1]. For embeddings without a split; where samples come in groups (drawings of one
    handwriting), a sample's neighbours may be its twins and the number flatters.

    Relations: it is `knn_accuracy` of each sample against all the others.

    Args:
        h: (n, d).
        labels: (n,).
        n_neighbours: 20.
        vote: "majority" or "weighted", as for `knn_accuracy`.

    References:
        wu2018instance

    Example:
        >>> knn_leave_one_out(torch.eye(2).repeat(3, 1), torch.arange(2).repeat(3), n_neighbours=2)
        1.0
    """
    call = "knn_leave_one_out(h, labels)"
    u = unit(rows_of(call, h))
    y = labels_of(call, labels, len(u))
    _check(call, n_neighbours, len(u) - 1, vote)
    hits = 0
    for start in range(0, len(u), CHUNK):
        s = u[start : start + CHUNK] @ u.T
        own = torch.arange(len(s))
        s[own, start + own] = -torch.inf
        named = _named(*s.topk(n_neighbours, dim=1), y, vote)
        hits += int((named == y[start : start + CHUNK]).sum())
    return hits / len(u)


def _named(nearest: Tensor, at: Tensor, y: Tensor, vote: str) -> Tensor:
    """The class that neighbours name, from their cosines (q, k), falling, and places (q, k)."""
    if vote == "weighted":
        ballots = ((nearest - nearest[:, :1]) / TAU).exp()  # the nearest counts 1: no overflow
    else:
        # less than one whole vote together: they decide between equal counts only
        ballots = 1 + (nearest + 1) / (4 * nearest.shape[1] + 4)
    votes = torch.zeros(len(at), int(y.max()) + 1, dtype=nearest.dtype)
    return votes.scatter_add_(1, y[at], ballots).argmax(dim=1)


def _check(call: str, n_neighbours: int, n: int, vote: str) -> None:
    need(
        1 <= n_neighbours <= n,
        lambda: f"`{call}` needs 1 to {n} neighbours, of {n} samples; received {n_neighbours}.",
    )
    need(
        vote in ("weighted", "majority"),
        lambda: f"`{call}` needs a vote `weighted` or `majority`; received `{vote}`.",
    )
