"""Neighbours within a set: hubs that are everyone's neighbour, and orphans that are no one's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.neighbours import nearest
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import rows_of, some_of

__all__ = ["Closest", "Hubness", "closest", "hubness"]

ROWS = 10_000


@dataclass(frozen=True, eq=False)
class Closest(Record):
    """Of each used row its nearest others: `ids` (m, k) and `cosines` (m, k), nearest first.

    `rows` (m,) are the rows used; ids are row numbers of the whole matrix.
    """

    ids: np.ndarray
    cosines: np.ndarray
    rows: np.ndarray
    n: int


def closest(
    h: Any,
    n_neighbours: int = 10,
    rows: int | None = ROWS,
    seed: int = 0,
    metric: str = "cosine",
) -> Closest:
    """Return the nearest neighbours of each row, by cosine.

        ids_i = the n_neighbours j != i with the largest u_i . u_j

    Relations: of rows drawn at random, so are their neighbours: a neighbour in the sample is
    farther than in the whole.

    Args:
        h: (n, d), n > n_neighbours.
        n_neighbours: 10, as `hubness`.
        rows: compare so many at most, drawn by the seed; None compares all, at a cost of n^2 d.
        metric: "cosine", or "euclidean": then `cosines` are 1 - distance^2 / 2.

    Numerics: those of `nearest`. A zero row has cosine 0 with all others. Equal ones: by number.

    Example:
        >>> closest([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]], 1).ids.flatten().tolist()
        [1, 0, 1]
    """
    x = rows_of("closest(h)", h)
    kept = some_of("closest", len(x), rows, seed)
    need(
        1 <= n_neighbours < len(kept),
        lambda: (
            f"`closest(h, n_neighbours)` needs 1 to {len(kept) - 1} neighbours, of {len(kept)} "
            f"rows; received {n_neighbours}."
        ),
    )
    neighbours = nearest(x[kept], n_neighbours, metric)
    return Closest(kept[neighbours.ids], neighbours.cosines, kept, len(x))


@dataclass(frozen=True, eq=False)
class Hubness(Record):
    """Hubness: `skewness` of the neighbour counts, and shares of `hubs` and `orphans`.

    `largest` is the largest count, `ids` the ten rows of the largest counts, `counts` (m,) all of
    them for the rows `rows`.
    """

    skewness: float
    hubs: float
    orphans: float
    largest: int
    ids: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    n_neighbours: int
    n: int


def hubness(h: Any | Closest, n_neighbours: int = 10, rows: int = ROWS, seed: int = 0) -> Hubness:
    """Return the skewness of how often each row is a neighbour [radovanovic2010hubs].

        N_j = #{i : j among the n_neighbours nearest of i},   skewness = E (N - mean)^3 / sd^3
        hubs: share of rows with N_j > mean + 2 sd;   orphans: share with N_j = 0

    The mean of N is n_neighbours. Skewness is 0 where each row is a neighbour as often as it has
    some (a ring), about 0 to 1 for even coverage of few dimensions, and large where a few rows are
    everyone's neighbour, up to about sqrt(n). Rows that are all the same have no nearest: whatever
    order breaks the ties decides.

    Args:
        h: (n, d), or what `closest` returned.
        n_neighbours: 10, a common choice.
        rows: of a matrix compare so many at most, drawn by the seed.

    References:
        radovanovic2010hubs

    Example:
        >>> angle = np.arange(12) * (2 * np.pi / 12)
        >>> ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> hubs = hubness(ring, n_neighbours=2)
        >>> hubs.skewness, hubs.orphans, hubs.largest
        (0.0, 0.0, 2)
    """
    neighbours = h if isinstance(h, Closest) else closest(h, n_neighbours, rows, seed)
    counts = np.bincount(neighbours.ids.ravel(), minlength=neighbours.n)[neighbours.rows]
    mean, sd = float(counts.mean()), float(counts.std())
    best = np.argsort(-counts, kind="stable")[:10]
    return Hubness(
        skewness=float((((counts - mean) / sd) ** 3).mean()) if sd > 0 else 0.0,
        hubs=float((mean + 2 * sd < counts).mean()),
        orphans=float((counts == 0).mean()),
        largest=int(counts.max()),
        ids=neighbours.rows[best],
        counts=counts,
        rows=neighbours.rows,
        n_neighbours=neighbours.ids.shape[1],
        n=neighbours.n,
    )
