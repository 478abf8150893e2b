"""Near-duplicates: rows that point where another row points already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import number
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import matrix_of, pieces, spaced, unit

__all__ = ["Duplicates", "near_duplicates"]

DIRECTIONS = 12
"""Principal directions in which rows are sorted before they are compared."""
SPREAD = 4096
"""Rows, evenly spaced, of which the principal directions are taken."""
AT_ONCE = 1 << 14
TRIED = 200
"""Rows on which the cost of the search is tried."""


@dataclass(frozen=True, eq=False)
class Duplicates(Record):
    """Rows that have a twin: `count` of them, their `ids`, a twin of each in `twins`, `share`.

    `exact` counts those whose direction is equal bit for bit. `complete` is False where the search
    was cut short: then `count` is a lower bound.
    """

    count: int
    share: float
    exact: int
    ids: np.ndarray
    twins: np.ndarray
    distance: float
    complete: bool
    n: int


def near_duplicates(h: Any, distance: float = 0.01, budget: int = 1_000_000) -> Duplicates:
    """List rows that have nearly the same direction as another row.

        #{i : |u_i - u_j| <= distance for some j != i},   u = h / |h|

    share is from 0 (all different) to 1 (collapsed: every row has a twin). Zero rows are twins of
    each other.

    Relations: exact, not a sample: rows are sorted in a tree by their first principal coordinates,
    which never enlarge a distance, so that only rows near there need comparing.

    Args:
        h: (n, d), n >= 2.
        distance: 0.01, a hundredth of the radius: a cosine of 0.99995.
        budget: comparisons to make before the search is cut short, which only happens in a dense
            heap without twins.

    Numerics: float64, from differences, in pieces. Cost about n log n where rows are spread.

    Example:
        >>> pairs = near_duplicates([[1.0, 0.0], [0.0, 1.0], [2.0, 0.001], [1.0, 1.0]])
        >>> pairs.count, pairs.ids.tolist(), pairs.twins.tolist()
        (2, [0, 2], [2, 0])
    """
    from scipy.spatial import cKDTree

    r = number("near_duplicates", "distance", distance, above=True)
    x = matrix_of("near_duplicates(h)", h)
    n = len(x)
    bits, coordinates = _seen(x)
    same = _groups(bits, np.arange(n))
    exact, twin = len(same[0]), np.full(n, -1)
    _note(x, *same, r, twin)
    width = r / (2 * np.sqrt(coordinates.shape[1]))
    for shift in (0.0, 0.5):  # rows of one small cell are twins, nearly always
        cells = np.floor(coordinates / width + shift).astype(np.int64)
        _note(x, *_groups(_sums(cells), coordinates[:, -1]), r, twin)
    left = np.flatnonzero(twin < 0)
    complete = True
    if len(left):
        tree, near = cKDTree(coordinates, balanced_tree=False), r * (1 + 1e-9)
        tried = left[:: max(1, len(left) // TRIED)]
        each = tree.query_ball_point(coordinates[tried], near, return_length=True).mean()
        complete = each * len(left) <= budget
        left = left if complete else left[: int(budget / each)]
        for some in np.array_split(left, 1 + int(each * len(left) / AT_ONCE)):
            balls = tree.query_ball_point(coordinates[some], near)
            i = np.repeat(some, [len(ball) for ball in balls])
            _note(x, i, np.concatenate(balls).astype(np.int64), r, twin)
    ids = np.flatnonzero(twin >= 0)
    return Duplicates(
        count=len(ids),
        share=len(ids) / n,
        exact=exact,
        ids=ids,
        twins=twin[ids],
        distance=r,
        complete=complete,
        n=n,
    )


def _seen(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In one pass a sum of the bits of each unit row, and its first principal coordinates."""
    some = unit(x[spaced(len(x), SPREAD)])
    middle = some.mean(axis=0)
    V = np.eye(x.shape[1])
    if x.shape[1] > DIRECTIONS:  # those of some rows: any orthonormal ones would do
        V = np.linalg.eigh((some - middle).T @ (some - middle))[1][:, -DIRECTIONS:]
    bits, coordinates = np.empty(len(x), dtype=np.int64), np.empty((len(x), V.shape[1]))
    for at, rows in pieces(x):
        u = unit(rows)
        bits[at] = _sums(u.view(np.int64))
        coordinates[at] = (u - middle) @ V
    return bits, coordinates


def _sums(keys: np.ndarray) -> np.ndarray:
    """Sums of rows of integers with random multipliers, in which 64 bits wrap.

    Upper halves are summed once more on their own: a sign is the highest bit, which any odd
    multiplier leaves where it is, so that two changed signs would cancel.
    """
    draw = np.random.default_rng(0)
    whole, upper = (draw.integers(1, 1 << 62, size=keys.shape[1]) * 2 + 1 for _ in range(2))
    return keys @ whole + (keys >> 32) @ upper


def _groups(name: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row whose name another row has too, and the next such row in order, in a circle."""
    rows = np.lexsort((order, name))
    starts = np.flatnonzero(np.r_[True, name[rows][1:] != name[rows][:-1]])
    ends = np.r_[starts[1:], len(rows)] - 1
    following = np.roll(rows, -1)
    following[ends] = rows[starts]
    shared = following != rows
    return rows[shared], following[shared]


def _note(x: np.ndarray, i: np.ndarray, j: np.ndarray, r: float, twin: np.ndarray) -> None:
    """Note as twins those candidate pairs (i, j) that are near in all dimensions."""
    a, b = i[i != j], j[i != j]
    for start in range(0, len(a), AT_ONCE):
        k, m = a[start : start + AT_ONCE], b[start : start + AT_ONCE]
        near = ((unit(x[k]) - unit(x[m])) ** 2).sum(axis=1) <= r * r
        twin[k[near]] = m[near]
        twin[m[near]] = k[near]
