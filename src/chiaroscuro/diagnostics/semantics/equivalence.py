"""Semantic equivalence of symbols, from a table of contexts, symbols and labels [semantic2025]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from chiaroscuro.diagnostics.rows import rows_of
from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record

__all__ = ["Equivalence", "SemanticRatio", "equivalence", "semantic_ratio", "tabulate"]


def tabulate(symbols: Any, contexts: Any, labels: Any = None) -> np.ndarray:
    """Count how often each symbol occurs with each context (and label): (S, C) or (S, C, Y).

    Args:
        symbols: (n,) whole numbers from 0: row s is symbol s, whether it occurs or not.
        contexts: (n,) whole numbers, or (n, k) of them: equal rows are one context. Contexts are
            numbered in sorted order.
        labels: (n,) whole numbers from 0, for a downstream task.

    Example:
        >>> tabulate([0, 0, 1], [[7, 1], [7, 1], [9, 2]]).tolist()
        [[2, 0], [0, 1]]
    """
    call = "tabulate(symbols, contexts)"
    s, c = np.asarray(symbols), np.asarray(contexts)
    need(
        s.ndim == 1 and len(s) > 0 and len(c) == len(s) and s.dtype.kind in "iu" and s.min() >= 0,
        lambda: (
            f"`{call}` needs symbols as whole numbers from 0 and a context for each; received "
            f"{s.dtype} of {s.shape} and contexts of {c.shape}."
        ),
    )
    which = np.unique(c.reshape(len(c), -1), axis=0, return_inverse=True)[1].reshape(-1)
    shape: tuple[int, ...] = (int(s.max()) + 1, int(which.max()) + 1)
    index = [s, which]
    if labels is not None:
        y = np.asarray(labels)
        need(
            y.shape == s.shape and y.dtype.kind in "iu" and y.min() >= 0,
            lambda: (
                f"`{call}` needs a label from 0 for each of {len(s)} samples; received {y.dtype} "
                f"of {y.shape}."
            ),
        )
        index.append(y)
        shape = (*shape, int(y.max()) + 1)
    flat = np.ravel_multi_index(tuple(index), shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


@dataclass(frozen=True, eq=False)
class Equivalence(Record):
    """Which symbols mean the same, all (S, S): `distance`, `squared`, `p_value`, `same`, `shared`.

    `shared` counts the contexts in which both symbols occur; without any, distance and p_value are
    NaN and `same` is False. `classes` (S,) numbers groups of symbols that are all the same to each
    other, `n_classes` of them.
    """

    distance: np.ndarray
    squared: np.ndarray
    p_value: np.ndarray
    same: np.ndarray
    shared: np.ndarray
    classes: np.ndarray
    n_classes: int


def equivalence(table: Any, level: float = 0.05, exact: bool = False) -> Equivalence:
    """Test which symbols are interchangeable: the same label distribution in every context.

        u = v  iff  p(y | u, c) = p(y | v, c) for all contexts c and labels y   [semantic2025, 2.1]

        distance(u, v) = sum_c w_c TV(p(.|u,c), p(.|v,c)) / sum_c w_c
        w_c = N_uc N_vc / (N_uc + N_vc)

    over contexts that both occur in: 0 if and only if the two are equivalent there, 1 where they
    never agree. A context in which one is never seen says nothing.

    Bias: TV of samples is too large, by about sqrt(labels / (pi N)) for equal laws. `squared` is
    the same weighted mean of sum_y (p - q)^2 with each square from pairs of different samples,
    a (a - 1) / (N (N - 1)): without bias, so it may be below 0; NaN without contexts in which both
    occur twice.

    Test: Pearson's statistic of homogeneity in each context where both occur at least twice, times
    (N - 1) / N, summed; chi-square with as many degrees of freedom as labels seen there less one.
    It is asymptotic: reliable from about five of a sort. `same` is p_value > level: not told apart,
    which is no proof. `exact` takes the table for the law itself, as where all combinations are
    listed once: then same is distance = 0 and p_value 1 or 0.

    Args:
        table: (S, C, Y) counts, as `tabulate` gives, or probabilities with `exact`.
        level: 0.05, for each pair; divide it by the number of pairs to be wrong at most so often
            about any.

    References:
        semantic2025

    Example:
        >>> a, b = np.divmod(np.arange(64), 8)
        >>> semantics = equivalence(tabulate(a, b, (a + b) % 4), exact=True)
        >>> semantics.classes.tolist()
        [0, 1, 2, 3, 0, 1, 2, 3]
    """
    N = np.asarray(table, dtype=np.float64)
    need(
        N.ndim == 3 and bool(np.isfinite(N).all() and (N >= 0).all()) and N.sum() > 0,
        lambda: (
            "`equivalence(table)` needs counts (symbols, contexts, labels) of at least 0; received "
            f"shape {N.shape}."
        ),
    )
    need(0 < level < 1, lambda: f"`equivalence(level)` needs 0 to 1; received {level}.")
    need(
        exact or bool((np.floor(N) == N).all()),
        lambda: "`equivalence(table)` needs whole counts; give probabilities with `exact=True`.",
    )
    S = len(N)
    total = N.sum(axis=2)
    p = np.divide(N, total[:, :, None], out=np.zeros_like(N), where=total[:, :, None] > 0)
    pairs = total * (total - 1)
    own = np.divide((N * (N - 1)).sum(axis=2), pairs, out=np.zeros_like(total), where=pairs > 0)
    distance, squared, p_value = (np.full((S, S), np.nan) for _ in range(3))
    shared = np.zeros((S, S), dtype=np.int64)
    for u in range(S):
        both = (total[u] > 0) & (total > 0)
        weight = np.where(both, total[u] * total / np.maximum(total[u] + total, 1e-300), 0.0)
        shared[u] = both.sum(axis=1)
        there = weight.sum(axis=1) > 0
        variation = np.abs(p[u] - p).sum(axis=2) / 2
        distance[u, there] = (weight * variation).sum(axis=1)[there] / weight.sum(axis=1)[there]
        twice = (total[u] >= 2) & (total >= 2)
        fair = np.where(twice, weight, 0.0)
        some = fair.sum(axis=1) > 0
        square = own[u] + own - 2 * (p[u] * p).sum(axis=2)
        squared[u, some] = (fair * square).sum(axis=1)[some] / fair.sum(axis=1)[some]
        p_value[u, some] = _homogeneity(N[u], N, total[u], total, twice)[some]
    if exact:
        p_value = np.where(np.isnan(distance), np.nan, (distance <= 1e-9).astype(np.float64))
    same = np.nan_to_num(p_value) > level
    np.fill_diagonal(same, True)
    classes = _cliques(same)
    return Equivalence(distance, squared, p_value, same, shared, classes, int(classes.max()) + 1)


def _homogeneity(
    a: np.ndarray, b: np.ndarray, n_a: np.ndarray, n_b: np.ndarray, counted: np.ndarray
) -> np.ndarray:
    """p-values of one symbol's counts (C, Y) against all the others' (S, C, Y)."""
    both = a + b
    A, B = np.where(counted, n_a, 1.0)[:, :, None], np.where(counted, n_b, 1.0)[:, :, None]
    apart = (np.sqrt(B / A) * a - np.sqrt(A / B) * b) ** 2
    chi = np.divide(apart, both, out=np.zeros_like(both), where=both > 0).sum(axis=2)
    n = n_a + n_b
    chi = np.where(counted, chi * (n - 1) / np.maximum(n, 1), 0.0).sum(axis=1)
    freedom = np.where(counted, (both > 0).sum(axis=2) - 1, 0).sum(axis=1)
    half = torch.from_numpy(np.maximum(freedom, 1) / 2)
    tail = torch.special.gammaincc(half, torch.from_numpy(chi / 2)).numpy()
    return np.where(freedom > 0, tail, 1.0)


def _cliques(same: np.ndarray) -> np.ndarray:
    """Each symbol into the first class all of whose members it is the same as."""
    groups: list[list[int]] = []
    classes = np.empty(len(same), dtype=np.int64)
    for s in range(len(same)):
        fits = (g for g, members in enumerate(groups) if same[s, members].all())
        g = next(fits, len(groups))
        if g == len(groups):
            groups.append([])
        groups[g].append(s)
        classes[s] = g
    return classes


@dataclass(frozen=True, eq=False)
class SemanticRatio(Record):
    """Distances in an embedding: mean of equivalent pairs over mean of others, and neighbours.

    `equivalent` and `other` are the means, `ratio` the first over the second, `nearest` the share
    of symbols (that have an equivalent) whose nearest symbol is one, `by_chance` what symbols at
    random would have; `size` is the root mean square norm.
    """

    ratio: float
    equivalent: float
    other: float
    nearest: float
    by_chance: float
    size: float
    n: int


def semantic_ratio(h: Any, classes: Any) -> SemanticRatio:
    """Measure whether equivalent symbols are closer than others [semantic2025, Fig. 2a].

        ratio = mean |h_u - h_v| of equivalent pairs / mean |h_u - h_v| of other pairs

    0 where equivalent symbols share a vector [Thm 4.2], about 1 where the embedding knows nothing
    of meaning. A collapse shrinks both distances alike: the ratio stays 1 (and is 1 by definition
    where all is one point); look at `size` and `nearest` as well.

    Relations: a factor on h, or a rotation, changes nothing.

    Args:
        h: (S, d), a vector for each symbol.
        classes: (S,), as `equivalence` gives; at least one pair inside a class and one across.

    References:
        semantic2025

    Example:
        >>> spread = semantic_ratio([[0.0, 1.0], [0.0, 1.1], [5.0, 0.0]], [0, 0, 1])
        >>> round(spread.ratio, 3), spread.nearest
        (0.02, 1.0)
    """
    call = "semantic_ratio(h, classes)"
    x = rows_of(call, h)
    y = np.asarray(classes)
    need(
        y.shape == (len(x),),
        lambda: f"`{call}` needs a class for each of {len(x)} symbols; received {y.shape}.",
    )
    same = y[:, None] == y
    np.fill_diagonal(same, False)
    off = ~np.eye(len(x), dtype=bool)
    need(
        bool(same.any() and (~same & off).any()),
        lambda: (
            f"`{call}` needs a pair inside a class and one across; received "
            f"{len(np.unique(y))} classes of {len(y)} symbols."
        ),
    )
    t = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").numpy()
    equivalent, other = float(t[same].mean()), float(t[~same & off].mean())
    twinned = same.any(axis=1)
    t[~off] = np.inf
    tied = t <= t.min(axis=1, keepdims=True)
    hit = (tied & same).sum(axis=1) / tied.sum(axis=1)  # equally near ones share the vote
    return SemanticRatio(
        ratio=equivalent / other if other else 1.0,
        equivalent=equivalent,
        other=other,
        nearest=float(hit[twinned].mean()),
        by_chance=float(same[twinned].sum(axis=1).mean() / (len(x) - 1)),
        size=float(x.square().sum(dim=1).mean().sqrt()),
        n=len(x),
    )
