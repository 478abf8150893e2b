"""Distributional alignment: do contrastive data tell apart what the task tells apart, no more?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record

__all__ = ["DISTANCES", "DistributionalAlignment", "context_distances", "distributional_alignment"]

DISTANCES = ("variation", "hellinger", "cosine")
PAIRS = 500


def context_distances(counts: Any, distance: str = "variation") -> np.ndarray:
    """Return distances (S, S) between the context distributions of symbols.

        variation: (1/2) sum_c |p(c|u) - p(c|v)|
        hellinger: sqrt(1 - sum_c sqrt(p(c|u) p(c|v)))
        cosine: 1 - s_uv / sqrt(s_uu s_vv),   s_uv = sum_c p(c|u) p(c|v)

    From 0 (the same contexts, equally often) to 1 (no context in common). Bias: the first two, of
    samples, are too large, towards 1 where contexts hardly repeat. In the third s_uu is taken from
    pairs of different samples, so that each s is without bias, and so is about the whole; it may be
    below 0, and is NaN where no context of a symbol repeats.

    Args:
        counts: (S, C), as `tabulate` gives.
        distance: one of the three.

    References:
        semantic2025

    Example:
        >>> context_distances([[2, 2, 0], [1, 1, 2]]).tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """
    N = _counts("context_distances(counts)", counts)
    need(
        distance in DISTANCES,
        lambda: f"`context_distances` needs one of {', '.join(DISTANCES)}; received `{distance}`.",
    )
    total = N.sum(axis=1, keepdims=True)
    p = N / total
    if distance == "variation":
        return np.stack([np.abs(p - row).sum(axis=1) / 2 for row in p])
    if distance == "hellinger":
        root = np.sqrt(p)
        t = np.sqrt(np.maximum(1 - root @ root.T, 0.0))
        np.fill_diagonal(t, 0.0)
        return t
    own = (N * (N - 1)).sum(axis=1) / np.maximum(total * (total - 1), 1).ravel()
    own[own <= 0] = np.nan
    t = 1 - p @ p.T / np.sqrt(own[:, None] * own)
    np.fill_diagonal(t, 0.0)
    return t


@dataclass(frozen=True, eq=False)
class DistributionalAlignment(Record):
    """Contrastive data against a task, by the distances between the symbols' laws of contexts.

    `score` 1 aligned, 0 not; `equivalent` and `other` are the mean distances of pairs that the task
    takes for the same and for different; `floor` what the first would be if the contexts were drawn
    from the same laws, `floor_sd` its spread; `auc` the chance that an equivalent pair is nearer
    than another. `split` is the share of equivalent pairs that the data tell apart (0.05 if
    aligned), `merged` the share of other pairs that they do not (0 if aligned). `shuffled` and
    `shuffled_sd` are the score with the classes dealt anew to the symbols. `pairs` of each sort
    were tested, with `repeats` divisions each.
    """

    score: float
    equivalent: float
    other: float
    floor: float
    floor_sd: float
    auc: float
    split: float
    merged: float
    shuffled: float
    shuffled_sd: float
    distances: np.ndarray
    pairs: tuple[int, int]
    repeats: int
    n_symbols: int
    n: int


def distributional_alignment(
    counts: Any,
    classes: Any,
    distance: str = "variation",
    exact: bool = False,
    repeats: int = 40,
    seed: int = 0,
) -> DistributionalAlignment:
    """Measure whether symbols of equal meaning have equal contexts [semantic2025, Def. 4.1].

        for all u, v:   u = v in the task   iff   p(c | u) = p(c | v) in the contrastive data

        score = (other - equivalent) / (other - floor)

    equivalent, other: mean distances of the laws of contexts, of pairs of one class and of two.
    floor: the same of equivalent pairs when the contexts of both symbols are thrown together and
    divided anew in their numbers: what the estimator gives for samples of one law. score is 1 where
    equivalent symbols differ by sampling alone, 0 where they differ as much as any, and 0 by
    definition where others do not differ beyond the floor: such data tell nothing apart.

    The definition has two directions, judged pair by pair at 5 % by the same divisions (an exact
    test of one law): `split` counts equivalent pairs that the data tell apart, `merged` other pairs
    that they do not. merged is also large where there are too few samples to tell.

    Bias: distances are too large (see `context_distances`), but floor and data alike, so that it
    cancels in the score as long as the symbols' numbers are alike; the mean of score over shuffled
    classes is 0.

    Args:
        counts: (S, C) of the contrastive data, as `tabulate` gives; with `exact`, probabilities
            (then the floor is 0 and nothing is divided).
        classes: (S,) of the task, such as `equivalence(...).classes`.
        distance: as for `context_distances`.
        repeats: divisions of each pair, and shuffles; 40. At most 500 pairs of each sort are
            tested, drawn by the seed; the means are over all.

    References:
        semantic2025

    Example:
        >>> classes = np.array([0, 1, 0, 1])
        >>> laws = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        >>> aligned = distributional_alignment(laws[classes], classes, exact=True)
        >>> aligned.score, aligned.split, aligned.merged
        (1.0, 0.0, 0.0)
    """
    call = "distributional_alignment(counts, classes)"
    N = _counts(call, counts)
    y = np.asarray(classes)
    need(
        y.shape == (len(N),),
        lambda: f"`{call}` needs a class for each of {len(N)} symbols; received {y.shape}.",
    )
    need(
        exact or bool((np.floor(N) == N).all()),
        lambda: f"`{call}` needs whole counts; give probabilities with `exact=True`.",
    )
    need(repeats >= 20, lambda: f"`{call}` needs at least 20 repeats; received {repeats}.")
    i, j = np.triu_indices(len(N), 1)
    same = y[i] == y[j]
    need(
        bool(same.any() and (~same).any()),
        lambda: (
            f"`{call}` needs a pair of equivalent symbols and one that is not; received "
            f"{len(np.unique(y))} classes of {len(y)} symbols."
        ),
    )
    distances = context_distances(N, distance)
    t = distances[i, j]
    need(
        bool(np.isfinite(t).all()),
        lambda: (
            f"`{call}` needs contexts that repeat, for the distance `cosine`; "
            f"{int((~np.isfinite(t)).sum())} of {len(t)} pairs have none."
        ),
    )
    rng = np.random.default_rng(seed)
    floor = floor_sd = 0.0
    beyond: dict[bool, np.ndarray] = {}
    tested: dict[bool, int] = {}
    for sort in (True, False):
        at = np.flatnonzero(same == sort)
        at = np.sort(rng.choice(at, PAIRS, replace=False)) if len(at) > PAIRS else at
        tested[sort] = len(at)
        if exact:
            beyond[sort] = t[at] > 1e-9
            continue
        drawn = np.stack([_divided(rng, N[i[k]], N[j[k]], distance, repeats) for k in at])
        count = (drawn >= t[at][:, None] - 1e-12).sum(axis=1)
        beyond[sort] = (1 + count) / (1 + repeats) <= 0.05
        if sort:
            floor, floor_sd = float(drawn.mean()), float(drawn.mean(axis=0).std())
    score = _score(t, same, floor, floor_sd)
    shuffles = []
    for _ in range(repeats):
        z = rng.permutation(y)
        shuffles.append(_score(t, z[i] == z[j], floor, floor_sd))
    return DistributionalAlignment(
        score=score,
        equivalent=float(t[same].mean()),
        other=float(t[~same].mean()),
        floor=floor,
        floor_sd=floor_sd,
        auc=_auc(t[same], t[~same]),
        split=float(beyond[True].mean()),
        merged=float((~beyond[False].astype(bool)).mean()),
        shuffled=float(np.mean(shuffles)),
        shuffled_sd=float(np.std(shuffles)),
        distances=distances,
        pairs=(tested[True], tested[False]),
        repeats=repeats,
        n_symbols=len(N),
        n=int(N.sum()) if not exact else 0,
    )


def _score(t: np.ndarray, same: np.ndarray, floor: float, floor_sd: float) -> float:
    other = float(t[~same].mean())
    if other - floor <= max(2 * floor_sd, 1e-12):
        return 0.0
    return (other - float(t[same].mean())) / (other - floor)


def _divided(
    rng: np.random.Generator, a: np.ndarray, b: np.ndarray, distance: str, repeats: int
) -> np.ndarray:
    """Distances of two symbols whose contexts are thrown together and divided anew."""
    both = (a + b).astype(np.int64)
    both = both[both > 0]
    first = rng.multivariate_hypergeometric(both, int(a.sum()), size=repeats, method="marginals")
    second = both - first
    n, m = a.sum(), b.sum()
    p, q = first / n, second / m
    if distance == "variation":
        return np.abs(p - q).sum(axis=1) / 2
    if distance == "hellinger":
        return np.sqrt(np.maximum(1 - np.sqrt(p * q).sum(axis=1), 0.0))
    own = [(x * (x - 1)).sum(axis=1) / max(k * (k - 1), 1) for x, k in ((first, n), (second, m))]
    size = np.sqrt(own[0] * own[1])
    apart = 1 - np.divide((p * q).sum(axis=1), size, out=np.zeros(repeats), where=size > 0)
    return np.where(size > 0, apart, 1.0)


def _auc(near: np.ndarray, far: np.ndarray) -> float:
    """The chance that one of `near` is below one of `far`; equal ones count half."""
    far = np.sort(far)
    below, upto = (np.searchsorted(far, near, side=side) for side in ("left", "right"))
    return float(1 - (below + upto).mean() / 2 / len(far))


def _counts(call: str, counts: Any) -> np.ndarray:
    N = np.asarray(counts, dtype=np.float64)
    need(
        N.ndim == 2 and len(N) >= 2 and bool(np.isfinite(N).all() and (N >= 0).all()),
        lambda: (
            f"`{call}` needs counts (symbols, contexts) of at least 0; received shape {N.shape}."
        ),
    )
    unseen = np.flatnonzero(N.sum(axis=1) == 0)
    need(
        len(unseen) == 0,
        lambda: (
            f"`{call}` needs every symbol to occur; {len(unseen)} of {len(N)} do not, the first is "
            f"{unseen[0]}. Leave them out."
        ),
    )
    return N
