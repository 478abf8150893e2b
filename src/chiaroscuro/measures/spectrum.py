"""The spectrum of embeddings: how many dimensions they use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need, number
from chiaroscuro.measures.moments import Moments, moments, scatter_of
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import matrix_of

__all__ = [
    "Decay",
    "Spectrum",
    "absolute_rank",
    "decay",
    "effective_rank",
    "numerical_rank",
    "participation_ratio",
    "singular_values",
    "spectrum",
]

THRESHOLD = 1e-3


def singular_values(h: Any, centred: bool = True) -> np.ndarray:
    """Return the min(n, d) singular values of the centred matrix, in decreasing order.

        s_k = sqrt(eigenvalue_k of X'X),   X = h - mean(h)  (or h itself)

    Rows that are all alike have none above rounding: they give zeros. Of n <= d rows at most n - 1
    are above 0, as the mean takes one direction.

    Relations: sum_k s_k^2 is n times the total variance.

    Args:
        h: (n, d), n >= 2.
        centred: without it, h as it comes: then a mean far from 0 is the first direction.

    Numerics: float64; a tall matrix through its scatter matrix, which loses what is below 1e-8 of
    the largest: where values below 1e-3 of the largest show, through that of the rows rotated to
    its axes, which loses nothing. What is below rounding of the uncentred numbers is 0.

    Example:
        >>> singular_values(np.array([[1.0, 5.0], [-1.0, 5.0]])).tolist()
        [1.4142135623730951, 0.0]
    """
    return _values(matrix_of("singular_values(h)", h), centred)[0]


def _values(x: np.ndarray, *centred: bool, known: Moments | None = None) -> list[np.ndarray]:
    """Singular values of x, centred and as it comes as asked, from one factor R of R'R = X'X."""
    n, d = x.shape
    if n > 2 * d:
        seen = moments(x) if known is None else known
        mean, size, R = seen.mean, math.sqrt(seen.squares), _factor(x, seen)
    else:
        x = x.astype(np.float64, copy=False)
        mean, size = x.mean(axis=0), float(np.linalg.norm(x))
        R = x - mean
    rounding = 4 * float(np.finfo(np.float64).eps) * size
    values = []
    for each in centred:
        # X'X = R'R + n mean mean': the mean is one more row
        whole = R if each else np.vstack([R, math.sqrt(n) * mean])
        s = np.linalg.svd(whole, compute_uv=False)
        values.append(np.where(s > rounding, s, 0.0)[: min(n, d)])
    return values


def _factor(x: np.ndarray, seen: Moments) -> np.ndarray:
    """R with R'R = X'X of the centred rows X.

    X'X = V w V' knows s^2 up to rounding of the largest, so that s is exact to 1e-10 down to a
    thousandth of it. If smaller ones show, the same of X V, whose columns fall as s does: rounding
    in a product of two columns is then of their own size, and not of the largest.
    """
    w, V = np.linalg.eigh(seen.scatter)
    if w[0] >= THRESHOLD**2 * w[-1]:
        return np.sqrt(np.maximum(w, 0.0))[:, None] * V.T
    G = scatter_of(x, seen.mean, V)
    size = np.sqrt(np.diag(G))
    scale = np.where(size > 0, size, 1.0)
    e, U = np.linalg.eigh(G / scale / scale[:, None])
    return (np.sqrt(np.maximum(e, 0.0))[:, None] * U.T * size) @ V.T


def effective_rank(h: Any, centred: bool = True) -> float:
    """Return the exponential of the entropy of the normalised singular values [roy2007rank].

        exp(-sum_k p_k log p_k),   p_k = s_k / sum_j s_j

    From 1 (one direction) to min(n - 1, d) (all alike); 0 where all rows are the same.

    Relations: at most `numerical_rank` where the values below its threshold are 0; equal to it and
    to `participation_ratio` where all values that are not 0 are the same.

    Args:
        h: (n, d), n >= 2.
        centred: as for `singular_values`; off for the weights of a linear map.

    References:
        roy2007rank

    Example:
        >>> round(effective_rank(np.vstack([np.eye(4), -np.eye(4)])), 6)
        4.0
    """
    return _entropy_rank(singular_values(h, centred))


def _entropy_rank(s: np.ndarray) -> float:
    p = s[s > 0] / s.sum() if s.any() else s[:0]
    return float(np.exp(-(p * np.log(p)).sum())) if len(p) else 0.0


def participation_ratio(h: Any) -> float:
    """Return how many directions carry the variance.

        (sum_k s_k^2)^2 / sum_k s_k^4

    From 1 to min(n - 1, d), as `effective_rank`, and less generous to small values; 0 where all
    rows are the same.

    Relations: it is (trace C)^2 / trace(C^2) of the covariance C.

    Args:
        h: (n, d), n >= 2.

    Example:
        >>> round(participation_ratio(np.vstack([np.eye(4), -np.eye(4)])), 6)
        4.0
    """
    return _participation(singular_values(h))


def _participation(s: np.ndarray) -> float:
    if s[0] == 0:
        return 0.0
    square = (s / s[0]) ** 2
    return float(square.sum() ** 2 / (square**2).sum())


def numerical_rank(h: Any, threshold: float = THRESHOLD, centred: bool = True) -> int:
    """Return the number of singular values above a thousandth of the largest.

        #{k : s_k > 1e-3 s_1}

    From 1 to min(n - 1, d); 0 where all rows are the same.

    Relations: a factor on h changes nothing, unlike `absolute_rank`.

    Args:
        h: (n, d), n >= 2.
        threshold: share of the largest; 1e-3.
        centred: as for `singular_values`; off for the weights of a linear map.

    Example:
        >>> numerical_rank(np.array([[0.0, 0.0], [1.0, 1e-4], [2.0, 0.0]]))
        1
    """
    s = singular_values(h, centred)
    return int((s > number("numerical_rank", "threshold", threshold) * s[0]).sum())


def absolute_rank(h: Any, threshold: float, centred: bool = False) -> int:
    """Return the number of singular values at or above a threshold [cosentino2022, eq. 2].

        #{k : s_k >= threshold}

    From 0 to min(n, d). It grows with the number of rows and with any factor on h, and a loss of
    cosines fixes neither: compare it only between matrices of one scale, and beside
    `numerical_rank`. The paper states no threshold, so there is no default.

    Args:
        h: (n, d): rows of embeddings, or the weights of a linear projector.
        threshold: above 0.
        centred: off, as in the paper, where it is applied to weights.

    References:
        cosentino2022

    Example:
        >>> W = np.diag(np.array([2.0, 0.5, 0.0]))
        >>> absolute_rank(W, 1e-2), absolute_rank(W / 100, 1e-2)
        (2, 1)
    """
    number("absolute_rank", "threshold", threshold, above=True)
    return int((singular_values(h, centred) >= threshold).sum())


@dataclass(frozen=True, eq=False)
class Decay(Record):
    """A power law through eigenvalues: `exponent`, `r2` of the fit, and ranks `first` to `last`."""

    exponent: float
    r2: float
    first: int
    last: int


def decay(h: Any, first: int | None = None, last: int | None = None) -> Decay:
    """Fit a power law to the variances by rank, and return its exponent.

        s_k^2 ~ k^(-alpha),   least squares of log s_k^2 on log k,  first <= k <= last

    From 0 (all directions alike) upwards; about 1 in representations that generalise
    [agrawal2022alpha]; large where few directions carry all. It says how the spectrum
    falls, not how far it reaches: read `r2`, which is low where no power law holds (0 for a flat
    spectrum, which has no fall to explain).

    Relations: a factor on h changes nothing; s_k = k^(-a) has alpha = 2a.

    Args:
        h: (n, d), n >= 2.
        first: rank from which on; a tenth of `numerical_rank`, for the head belongs to a few
            classes. It is 1 for fewer than 20 directions.
        last: rank up to which; half of `numerical_rank` (all of fewer than 20), for the tail of a
            sample's spectrum falls off whatever the law. n < d moves that tail to n - 1.

    Numerics: exponent and r2 are NaN where fewer than 3 directions are left to fit.

    References:
        agrawal2022alpha, stringer2019

    Example:
        >>> h = np.diag(np.arange(1.0, 9.0) ** -0.5)
        >>> round(decay(np.vstack([h, -h])).exponent, 6)
        1.0
    """
    return _power_law(singular_values(h), first, last)


def _power_law(s: np.ndarray, first: int | None = None, last: int | None = None) -> Decay:
    rank = int((s > THRESHOLD * s[0]).sum())
    few = rank < 20
    low = (1 if few else math.ceil(rank / 10)) if first is None else first
    high = (rank if few else rank // 2) if last is None else min(last, rank)
    need(
        low >= 1 and (last is None or last >= low),
        lambda: f"`decay` needs ranks 1 <= first <= last; received {first} and {last}.",
    )
    if high - low + 1 < 3:
        return Decay(math.nan, math.nan, low, high)
    y = 2 * np.log(s[low - 1 : high])
    x = np.log(np.arange(low, high + 1))
    slope, level = np.polyfit(x, y, 1)
    total = float(((y - y.mean()) ** 2).sum())
    left = float(((y - slope * x - level) ** 2).sum())
    flat = total < 1e-20
    return Decay(0.0 if flat else -float(slope), 0.0 if flat else 1 - left / total, low, high)


@dataclass(frozen=True, eq=False)
class Spectrum(Record):
    """Spectrum of one matrix, from one decomposition.

    `values` are the singular values of the centred matrix, `raw` of the matrix as it comes;
    `mean_share` is the share of the raw sum of squares that the mean has; `most` the largest rank
    that n rows of d dimensions allow, min(n - 1, d).
    """

    values: np.ndarray
    raw: np.ndarray
    effective_rank: float
    participation_ratio: float
    numerical_rank: int
    decay: Decay
    mean_share: float
    most: int
    n: int
    d: int


def spectrum(h: Any, known: Moments | None = None) -> Spectrum:
    """Return ranks and decay of embeddings, h or z, from one decomposition.

    Relations: its numbers are `effective_rank(h)`, `participation_ratio(h)`, `numerical_rank(h)`
    and `decay(h)`. A collapsed h has ranks 0 and `mean_share` 1 (0 where it is 0 altogether).

    Args:
        h: (n, d), n >= 2.
        known: `moments(h)`, if they are there already.

    References:
        roy2007rank, cosentino2022

    Example:
        >>> values = spectrum(np.ones((5, 3)))
        >>> values.effective_rank, values.numerical_rank, round(values.mean_share, 6)
        (0.0, 0, 1.0)
    """
    x = matrix_of("spectrum(h)", h)
    n, d = x.shape
    s, raw = _values(x, True, False, known=known)
    mean = x.mean(axis=0, dtype=np.float64) if known is None else known.mean
    size = float((raw**2).sum())
    return Spectrum(
        values=s,
        raw=raw,
        effective_rank=_entropy_rank(s),
        participation_ratio=_participation(s),
        numerical_rank=int((s > THRESHOLD * s[0]).sum()),
        decay=_power_law(s),
        mean_share=n * float((mean**2).sum()) / size if size else 0.0,
        most=min(n - 1, d),
        n=n,
        d=d,
    )
