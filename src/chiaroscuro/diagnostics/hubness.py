"""Neighbours within a set: hubs that are everyone's neighbour, and orphans that are no one's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.diagnostics.record import Record
from chiaroscuro.diagnostics.rows import rows_of, some_of
from chiaroscuro.errors import need
from chiaroscuro.numerics import unit

__all__ = ["Closest", "Hubness", "closest", "hubness"]

CHUNK = 1024
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


def closest(h: Any, n_neighbours: int = 10, rows: int | None = ROWS, seed: int = 0) -> Closest:
    """The nearest others of each row, by cosine.

        ids_i = the n_neighbours j != i with the largest u_i . u_j

    Relations: of rows drawn at random, so are their neighbours: a neighbour in the sample is
    farther than in the whole.

    Args:
        h: (n, d), n > n_neighbours.
        n_neighbours: 10, as `hubness`.
        rows: compare so many at most, drawn by the seed; None compares all, at a cost of n^2 d.

    Numerics: products in float32, so that cosines are known to about 1e-6; in chunks of 1,024
    rows. A zero row has cosine 0 with all others. Equal cosines: any of them.

    Example:
        >>> closest([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]], 1).ids.flatten().tolist()
        [1, 0, 1]
    """
    x = rows_of("closest(h)", h)
    kept = some_of("closest", len(x), rows, seed)
    u = unit(x[kept]).float()
    need(
        1 <= n_neighbours < len(u),
        lambda: (
            f"`closest(h, n_neighbours)` needs 1 to {len(u) - 1} neighbours, of {len(u)} rows; "
            f"received {n_neighbours}."
        ),
    )
    ids, cosines = [], []
    for start in range(0, len(u), CHUNK):
        s = u[start : start + CHUNK] @ u.T
        own = torch.arange(len(s))
        s[own, start + own] = -torch.inf
        best = s.topk(n_neighbours, dim=1)
        ids.append(kept[best.indices])
        cosines.append(best.values.double().clamp(-1, 1))
    return Closest(torch.cat(ids).numpy(), torch.cat(cosines).numpy(), kept.numpy(), len(x))


@dataclass(frozen=True, eq=False)
class Hubness(Record):
    """How unevenly rows are others' neighbours: `skewness`, `hubs` and `orphans` as shares.

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
    """How unevenly rows are neighbours of others [radovanovic2010hubs].

        N_j = #{i : j among the n_neighbours nearest of i},   skewness = E (N - mean)^3 / sd^3
        hubs: share of rows with N_j > mean + 2 sd;   orphans: share with N_j = 0

    The mean of N is n_neighbours. Skewness is 0 where each row is a neighbour as often as it has
    some (a ring), about 0 to 1 for even coverage of few dimensions, and large where a few rows are
    everyone's neighbour, up to about sqrt(n). Rows that are all the same have no nearest: whatever
    order breaks the ties decides.

    Args:
        h: (n, d), or what `closest` found.
        n_neighbours: 10, a common choice.
        rows: of a matrix compare so many at most, drawn by the seed.

    References:
        radovanovic2010hubs

    Example:
        >>> angle = torch.arange(12) * (2 * torch.pi / 12)
        >>> ring = torch.stack([angle.cos(), angle.sin()], 1)
        >>> found = hubness(ring, n_neighbours=2)
        >>> found.skewness, found.orphans, found.largest
        (0.0, 0.0, 2)
    """
    found = h if isinstance(h, Closest) else closest(h, n_neighbours, rows, seed)
    counts = torch.bincount(torch.from_numpy(found.ids).flatten(), minlength=found.n)
    counts = counts[torch.from_numpy(found.rows)]
    N = counts.double()
    mean, sd = float(N.mean()), float(N.std(correction=0))
    best = counts.argsort(descending=True)[:10]
    return Hubness(
        skewness=_third(N, sd),
        hubs=float((mean + 2 * sd < N).double().mean()),
        orphans=float((N == 0).double().mean()),
        largest=int(counts.max()),
        ids=found.rows[best.numpy()],
        counts=counts.numpy(),
        rows=found.rows,
        n_neighbours=found.ids.shape[1],
        n=found.n,
    )


def _third(N: Tensor, sd: float) -> float:
    return float(((N - N.mean()) / sd).pow(3).mean()) if sd > 0 else 0.0
