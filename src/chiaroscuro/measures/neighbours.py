"""Nearest neighbours, exactly: candidates in float32, the choice among them in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.rows import as_array, rows_of, unit

__all__ = ["METRICS", "Neighbours", "nearest"]

METRICS = ("cosine", "euclidean")

_BLOCK = 16  # columns of which one maximum is kept
_AT_ONCE = 1 << 22  # scores held at a time: the product is then as fast as it gets
_GATHERED = 1 << 17  # numbers of candidates compared at a time: what a cache holds
_ROUND32, _ROUND64 = 6e-8, 1.2e-16


class Neighbours(NamedTuple):
    """Nearest rows of each query, nearest first: `ids` and `distances`, both (n, k)."""

    ids: np.ndarray
    distances: np.ndarray

    @property
    def cosines(self) -> np.ndarray:
        """The cosines of the pairs, where the metric was the cosine: 1 - |u - v|^2 / 2."""
        return np.clip(1 - self.distances**2 / 2, -1, 1)


def nearest(
    x: Any,
    n_neighbours: int,
    metric: str = "cosine",
    queries: Any = None,
    among: Any = None,
) -> Neighbours:
    """Return the nearest rows of each row and their distances, in order.

        distances_ij = |u_i - u_j|, u = x / |x|  (cosine);   |x_i - x_j|  (euclidean)

    Equal distances are in the order of the row numbers. A row is never its own neighbour. A zero
    row has cosine 0 with all others, so that its distance is sqrt(2).

    Relations: for the cosine, distances^2 = 2 - 2 cos: the order is the same.

    Args:
        x: (n, d), tensor or array.
        n_neighbours: 1 to the number of other rows.
        metric: "cosine" or "euclidean".
        queries: (m, d), other rows whose neighbours in x are sought; x itself unless given.
        among: numbers of the rows of x that may be neighbours; all unless given.

    Numerics: candidates by blocks of float32 products of centred rows, with a margin for what
    rounding can exchange; distances that decide are float64, from differences. Never holds n x n
    numbers. Where thousands of rows are level to rounding, those of lower number are compared.

    Example:
        >>> near = nearest(np.array([[0.0], [1.0], [1.0], [3.0]]), 2, "euclidean")
        >>> near.ids.tolist(), near.distances[3].tolist()
        ([[1, 2], [2, 0], [1, 0], [1, 2]], [2.0, 2.0])
    """
    call = "nearest(x, n_neighbours)"
    need(
        metric in METRICS,
        lambda: f"`{call}` needs a metric of {', '.join(METRICS)}; received `{metric}`.",
    )
    bank = rows_of(call, x, 2 if queries is None else 1)
    asked = bank if queries is None else rows_of(call, queries, 1)
    need(
        asked.shape[1] == bank.shape[1],
        lambda: f"`{call}` needs one dimension; received {bank.shape[1]} and {asked.shape[1]}.",
    )
    allowed = np.arange(len(bank)) if among is None else as_array(among).astype(np.int64)
    most = len(allowed) - (1 if queries is None else 0)
    need(
        isinstance(n_neighbours, int | np.integer) and 1 <= n_neighbours <= most,
        lambda: (
            f"`{call}` needs 1 to {most} neighbours of {len(allowed)} rows; received "
            f"{n_neighbours}."
        ),
    )
    if metric == "cosine":
        bank = unit(bank)
        asked = bank if queries is None else unit(asked)
    else:
        largest = max(float(np.abs(bank).max()), float(np.abs(asked).max()))
        need(
            largest < 1e150,
            lambda: (
                f"`{call}` needs rows whose squares are finite; received entries up to "
                f"{largest:.3g}. Divide all by a constant."
            ),
        )
    own = None
    if queries is None:
        own = np.full(len(bank), -1)
        own[allowed] = np.arange(len(allowed))
    kept = bank if among is None else bank[allowed]
    ids, squares = _search(asked, kept, int(n_neighbours), own, metric == "cosine")
    return Neighbours(allowed[ids] if among is not None else ids, np.sqrt(squares))


def _search(
    asked: np.ndarray, bank: np.ndarray, k: int, own: np.ndarray | None, cosine: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of the bank by squared distance; `own` is each query's place in the bank."""
    m, d = bank.shape
    middle = bank.mean(axis=0)
    zero_a, zero_b = _missing(asked, cosine), _missing(bank, cosine)
    width = -(-m // _BLOCK) * _BLOCK
    columns = np.zeros((d + 1, width), dtype=np.float32)
    centred = bank - middle
    sizes = np.einsum("ij,ij->i", centred, centred)
    far = float(np.sqrt(sizes.max(initial=0.0)))
    scale = far if far > 0 else 1.0  # so that float32 holds every square
    columns[:d, :m] = centred.T / scale
    columns[d, :m] = -(sizes / scale**2 + zero_b) / 2
    columns[d, m:] = -1e30
    del centred
    step = max(1, min(len(asked), _AT_ONCE // width))
    ids = np.empty((len(asked), k), dtype=np.int64)
    squares = np.empty((len(asked), k))
    scores = np.empty((step, width), dtype=np.float32)
    for start in range(0, len(asked), step):
        rows = np.arange(start, min(start + step, len(asked)))
        a = np.empty((len(rows), d + 1), dtype=np.float32)
        a[:, :d] = (asked[rows] - middle) / scale
        a[:, d] = 1
        s = np.matmul(a, columns, out=scores[: len(rows)])
        mine = None if own is None else own[rows]
        if mine is not None:
            has = mine >= 0
            s[np.flatnonzero(has), mine[has]] = -1e30
        reach = np.sqrt(np.einsum("ij,ij->i", a[:, :d], a[:, :d])) + 1
        slack = _ROUND32 * (4 + 2 * np.sqrt(d)) * reach
        i, j = _candidates(s, k, slack)
        counts = np.bincount(i, minlength=len(rows))
        crowded = counts > 64 + 8 * k
        if crowded.any():  # so many are level in float32 that float64 must choose
            keep = ~crowded[i]
            i, j = i[keep], j[keep]
            more = _crowded(asked, bank, middle, rows, np.flatnonzero(crowded), k, mine, zero_b)
            i, j = np.concatenate([i, more[0]]), np.concatenate([j, more[1]])
        exact = _squares(asked, bank, rows[i], j) + zero_a[rows[i]] + zero_b[j]
        order = np.lexsort((j, exact, i))
        first = np.searchsorted(i[order], np.arange(len(rows)))
        picked = order[first[:, None] + np.arange(k)]
        ids[rows], squares[rows] = j[picked], exact[picked]
    return ids, squares


def _missing(u: np.ndarray, cosine: bool) -> np.ndarray:
    """What a zero row lacks of the unit length: with it, distances^2 are 2 - 2 cos throughout."""
    if not cosine:
        return np.zeros(len(u))
    return np.where(u.any(axis=1), 0.0, 1.0)


def _candidates(s: np.ndarray, k: int, slack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every (row, column) whose score may be among the k largest of its row.

    The k-th largest of the maxima of blocks bounds the k-th largest score from below, so that one
    pass over the scores finds the blocks that matter.
    """
    n, width = s.shape
    blocks = width // _BLOCK
    if blocks < 2 * k:
        limit = np.partition(s, width - k, axis=1)[:, width - k]
        i, j = np.nonzero(s >= (limit - 2 * slack)[:, None])
        return i, j
    top = s.reshape(n, _BLOCK, blocks).max(axis=1)
    limit = np.partition(top, blocks - k, axis=1)[:, blocks - k] - 2 * slack
    i, block = np.nonzero(top >= limit[:, None])
    j = block[:, None] + blocks * np.arange(_BLOCK)
    keep = s[i[:, None], j] >= limit[i, None]
    return np.broadcast_to(i[:, None], keep.shape)[keep], j[keep]


def _crowded(
    asked: np.ndarray,
    bank: np.ndarray,
    middle: np.ndarray,
    rows: np.ndarray,
    at: np.ndarray,
    k: int,
    mine: np.ndarray | None,
    zero_b: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Candidates of rows that float32 cannot judge: the best by float64, level ones by number."""
    centred = bank - middle
    sizes = np.einsum("ij,ij->i", centred, centred) + zero_b
    most = min(len(bank), 64 + 8 * k)
    step = max(1, _AT_ONCE // len(bank))
    out_i, out_j = [], []
    for part in np.array_split(at, -(-len(at) // step)):
        a = asked[rows[part]] - middle
        far = np.einsum("ij,ij->i", a, a)[:, None] + sizes - 2 * a @ centred.T
        if mine is not None:
            has = mine[part] >= 0
            far[np.flatnonzero(has), mine[part][has]] = np.inf
        grain = 64 * _ROUND64 * np.sqrt(bank.shape[1]) * (1 + sizes.max())
        order = np.argsort(np.round(far / grain), axis=1, kind="stable")[:, :most]
        real = np.take_along_axis(far, order, axis=1) < np.inf
        out_i.append(np.broadcast_to(part[:, None], order.shape)[real])
        out_j.append(order[real])
    return np.concatenate(out_i), np.concatenate(out_j)


def _squares(a: np.ndarray, b: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """|a_i - b_j|^2 from differences, some at a time."""
    out = np.empty(len(i))
    step = max(1, _GATHERED // a.shape[1])
    for start in range(0, len(i), step):
        some = slice(start, start + step)
        apart = a[i[some]] - b[j[some]]
        out[some] = np.einsum("ij,ij->i", apart, apart)
    return out
