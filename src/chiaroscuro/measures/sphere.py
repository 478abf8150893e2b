"""Embeddings on the sphere: how evenly they cover it, and how close positives are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need, number
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import matrix_of, pairs_of, pieces, rows_of, some_of, unit

__all__ = ["Norms", "alignment", "lengths", "mean_cosine", "norms", "uniform_law", "uniformity"]

CHUNK = 1024
DOUBLE = 2048
"""Rows up to which all pairs are compared in float64."""
ROWS = 10_000
"""Rows of which all pairs are compared, if there are more."""


def uniformity(h: Any, t: float = 2.0, rows: int | None = ROWS, seed: int = 0) -> float:
    """Return the uniformity of unit rows on the sphere [wang2020alignuniform, Sec. 4.1.2].

        log mean_{i != j} exp(-t |u_i - u_j|^2),   u = h / |h|

    From 0 where all rows coincide down to about -2t in high dimension; n points cannot go below
    -4t. Lower is more even; what the uniform law has is `uniform_law(d, t)`.

    Relations: invariant to rotations and to a factor on any row. The mean over distinct pairs is
    an unbiased estimate of the law's, for any number of rows.

    Args:
        h: (n, d), n >= 2.
        t: 2 [wang2020alignuniform, Sec. 4.1.2].
        rows: compare so many at most, drawn by the seed; None compares all, at a cost of n^2 d.

    Numerics: in chunks of 1,024 rows; the mean is over distinct pairs. A zero row stays 0. float64;
    of more than 2,048 rows the products are in float32, of rows around their mean: then it is exact
    to 1e-7.

    References:
        wang2020alignuniform

    Example:
        >>> round(uniformity(np.array([[1.0, 0.0], [-3.0, 0.0]])), 6)  # opposite: -2 * 4
        -8.0
    """
    number("uniformity", "t", t, above=True)
    x = rows_of("uniformity(h)", h)
    u = unit(x[some_of("uniformity", len(x), rows, seed)])
    n = len(u)
    u = (u - u.mean(axis=0)).astype(np.float64 if n <= DOUBLE else np.float32)  # as far apart
    size = np.einsum("ij,ij->i", u, u)
    sums = []
    for start in range(0, n - 1, CHUNK):  # each pair once: this chunk with itself and what follows
        some = u[start : start + CHUNK]
        s = some @ u[start:].T
        s *= -2
        s += size[start : start + CHUNK, None]
        s += size[start:]
        np.maximum(s, 0, out=s)
        s *= -t
        s[:, : len(some)][np.tri(len(some), dtype=bool)] = -np.inf
        sums.append(_log_sum(s))
    return _log_sum(np.array(sums)) - math.log(n * (n - 1) / 2)


def _log_sum(log_k: np.ndarray) -> float:
    top = log_k.max()
    log_k = np.exp(np.subtract(log_k, top, out=log_k), out=log_k)
    return float(top) + math.log(float(log_k.sum(dtype=np.float64)))


def uniform_law(d: int, t: float = 2.0) -> float:
    """Return the exact uniformity of the uniform distribution on the sphere in d dimensions.

        log E exp(-t |u - v|^2) = -2t + log 0F1(; d/2; t^2)
                                = -2t + log( Gamma(d/2) I_{d/2-1}(2t) / t^{d/2-1} )

    for u.v has E exp(2t u.v) = 0F1(; d/2; t^2). From log((1 + exp(-4t)) / 2) for d = 1, two points,
    falling to -2t as d grows.

    Relations: `uniformity` of points drawn evenly has it as its expectation (of the mean inside
    the logarithm); for d = 2 it is -2t + log I_0(2t).

    Args:
        d: dimension of the embeddings, >= 1: the sphere has d - 1.
        t: 2, as `uniformity`.

    Numerics: the series of 0F1 has positive terms t^(2k) / (k! (d/2)_k), summed as logarithms up
    to twice where they peak: exact to rounding.

    References:
        wang2020alignuniform

    Example:
        >>> round(uniform_law(2), 6), round(uniform_law(512), 4)
        (-1.575027, -3.9844)
    """
    number("uniform_law", "t", t, above=True)
    need(
        isinstance(d, int) and d >= 1,
        lambda: f"`uniform_law(d)` needs a whole number of at least 1; received {d!r}.",
    )
    from scipy.special import gammaln

    k = np.arange(int(50 + 4 * t), dtype=np.float64)
    terms = 2 * k * math.log(t) - gammaln(k + 1) - gammaln(d / 2 + k) + gammaln(d / 2)
    return _log_sum(terms) - 2 * t


def mean_cosine(h: Any) -> float:
    """Return the mean cosine of distinct rows: 1 if all point the same way, about 0 if spread.

        mean_{i != j} u_i . u_j = (|sum_i u_i|^2 - sum_i |u_i|^2) / (n (n - 1))

    From -1 / (n - 1) to 1.

    Args:
        h: (n, d), n >= 2.

    Example:
        >>> mean_cosine(np.ones((3, 2))), mean_cosine(np.eye(3))
        (1.0, 0.0)
    """
    x = matrix_of("mean_cosine(h)", h)
    n, total, own = len(x), np.zeros(x.shape[1]), 0.0
    for _, some in pieces(x):
        u = unit(some)
        total += u.sum(axis=0)
        own += float(np.einsum("ij,ij->", u, u))
    return round((float((total**2).sum()) - own) / (n * (n - 1)), 14)


def alignment(h1: Any, h2: Any) -> float:
    """Return the mean distance of positives [wang2020alignuniform, Sec. 4.1.1].

        mean_i |u1_i - u2_i|^2,   u = h / |h|

    From 0 where the two views of every sample coincide to 4 where they are opposite; 2 where they
    have nothing to do with each other.

    Relations: it is 2 - 2 times the mean cosine of positives.

    Args:
        h1, h2: two views, (n, d), row i of both from sample i.

    References:
        wang2020alignuniform

    Example:
        >>> alignment(np.eye(2), np.eye(2)), alignment(np.eye(2), -np.eye(2))
        (0.0, 4.0)
    """
    x1, x2 = pairs_of("alignment(h1, h2)", h1, h2, 1)
    return float(((unit(x1) - unit(x2)) ** 2).sum(axis=1).mean())


@dataclass(frozen=True, eq=False)
class Norms(Record):
    """Lengths of rows: `quantiles` at 0, 5, 25, 50, 75, 95 and 100 %.

    `variation` is sd / mean, `stretch` largest / median, `zero` the number of zero rows, `far` the
    rows longer than `factor` medians, the longest first.
    """

    mean: float
    sd: float
    variation: float
    largest: float
    stretch: float
    quantiles: np.ndarray
    zero: int
    far: np.ndarray
    factor: float
    n: int


def norms(h: Any, factor: float = 10.0) -> Norms:
    """Return quantiles of the norms of rows, and list the largest.

        |h_i|;   far: |h_i| > factor * median_j |h_j|

    variation and stretch are 0 and 1 on a sphere, and grow without bound. A loss of cosines does
    not see norms, so that they drift; half precision and distances do. A zero row has no direction.

    Relations: a rotation changes nothing; a factor on h changes neither variation nor stretch.

    Args:
        h: (n, d), n >= 1.
        factor: 10; a plain value without a paper behind it.

    Numerics: float64.

    Example:
        >>> lengths = norms([[3.0, 4.0], [0.0, 0.0], [5.0, 0.0], [0.0, 500.0]])
        >>> lengths.zero, lengths.far.tolist(), lengths.stretch
        (1, [3], 100.0)
    """
    number("norms", "factor", factor, above=True)
    size = lengths(matrix_of("norms(h)", h, 1))
    quantiles = np.quantile(size, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    mean, sd, median = float(size.mean()), float(size.std()), float(quantiles[3])
    far = np.flatnonzero(size > factor * median)
    return Norms(
        mean=mean,
        sd=sd,
        variation=sd / mean if mean else 0.0,
        largest=float(size.max()),
        stretch=float(size.max()) / median if median else (math.inf if mean else 1.0),
        quantiles=quantiles,
        zero=int((size == 0).sum()),
        far=far[np.argsort(-size[far], kind="stable")],
        factor=float(factor),
        n=len(size),
    )


def lengths(x: np.ndarray) -> np.ndarray:
    """Return |x_i| in float64, of rows in any precision.

    Example:
        >>> lengths(np.array([[3.0, 4.0]], dtype=np.float16)).tolist()
        [5.0]
    """
    size = np.empty(len(x))
    for at, some in pieces(x):
        size[at] = np.sqrt(np.einsum("ij,ij->i", some, some))
    return size
