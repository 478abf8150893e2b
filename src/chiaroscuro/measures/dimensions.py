"""Single dimensions of embeddings: which are dead, and which repeat another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import number
from chiaroscuro.measures.moments import Moments, moments
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import matrix_of

__all__ = ["Dimensions", "dimensions"]


@dataclass(frozen=True, eq=False)
class Dimensions(Record):
    """`spread` (d,) standard deviations; `dead` dimensions; `duplicates` (m, 2) pairs.

    `unevenness` is the variation of spread; `duplicate` lists the second of each pair once, which
    could be left out.
    """

    spread: np.ndarray
    dead: np.ndarray
    duplicates: np.ndarray
    duplicate: np.ndarray
    unevenness: float
    n: int
    d: int


def dimensions(
    h: Any, dead: float = 1e-3, duplicate: float = 0.999, known: Moments | None = None
) -> Dimensions:
    """Return the spread of each dimension, and list dead and duplicated ones.

        spread_k = sd of h_k;   dead: spread_k <= 1e-3 * sqrt(mean_j spread_j^2)
        duplicates: |corr(h_j, h_k)| > 0.999,  j < k, both alive
        unevenness = sd(spread) / mean(spread)

    Counts from 0 to d (dead) and to d - 1 (duplicate); where all rows are the same every
    dimension is dead. Unlike the spectrum this depends on the axes: a rotation can revive all
    dimensions without adding a direction.

    Relations: a factor on h changes neither dead nor duplicate ones.

    Args:
        h: (n, d), n >= 2. With n = 2 all live dimensions correlate fully: read n beside it.
        dead: share of the root mean square spread, as `numerical_rank` has it.
        duplicate: absolute correlation above which two dimensions are one.
        known: `moments(h)`, if they are there already.

    Numerics: float64; a spread below rounding of the numbers is 0. (d, d) correlations are held,
    and the listed pairs are at most the first 10,000.

    Example:
        >>> checked = dimensions([[1.0, 2.0, 5.0], [2.0, 4.0, 5.0], [0.0, 0.0, 5.0]])
        >>> checked.dead.tolist(), checked.duplicates.tolist()
        ([2], [[0, 1]])
    """
    low = number("dimensions", "dead", dead)
    high = number("dimensions", "duplicate", duplicate)
    seen = moments(matrix_of("dimensions(h)", h)) if known is None else known
    n, d = seen.n, len(seen.mean)
    spread = np.sqrt(np.diag(seen.scatter) / n)
    spread = np.where(spread > 8 * np.finfo(np.float64).eps * seen.largest, spread, 0.0)
    typical = float(np.sqrt((spread**2).mean()))
    gone = spread <= low * typical if typical else np.ones(d, dtype=bool)
    live = np.flatnonzero(~gone)
    correlation = seen.scatter[np.ix_(live, live)] / n / spread[live] / spread[live, None]
    twins = np.argwhere(np.triu(np.abs(correlation) > high, 1))
    mean = float(spread.mean())
    return Dimensions(
        spread=spread,
        dead=np.flatnonzero(gone),
        duplicates=live[twins[:10_000]],
        duplicate=live[np.unique(twins[:, 1])],
        unevenness=float(spread.std()) / mean if mean else 0.0,
        n=n,
        d=d,
    )
