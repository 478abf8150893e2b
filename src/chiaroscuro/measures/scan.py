"""One pass over all rows of a file of any size: twins, zero rows, norms, mean and covariance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.listed import LISTED
from chiaroscuro.measures.record import Record

__all__ = ["Pass", "Scan", "scan"]

FACTOR = 10.0
"""A row of more than so many medians is long, as in `norms`."""
HASHED = 20_000_000
"""Hashes kept; of more rows only those of some hashes, with all their twins."""
WIDEST = 4096
"""Dimensions up to which a covariance is kept."""
DOUBLE = 3e10
"""Products of a covariance up to which they are in float64."""
_CHUNK = 4096
_GRAIN, _SHIFT = 32, 40_000  # of the histogram: parts of an octave, and where 1 is
_BAD = 1000
_CACHED = 1 << 14  # words mixed at a time


@dataclass(frozen=True, eq=False)
class Scan(Record):
    """Statistics of all n rows.

    Args:
        n, d: rows and dimensions.
        bad, n_bad: the first rows with NaN or infinity, and how many there are; nothing else
            counts them.
        zero, n_zero: rows of zeros, the first and how many.
        far, far_norms, n_far: rows longer than ten medians, the longest first, and how many.
        norm_mean, norm_sd, norm_median, norm_largest: of lengths; the median up to 2 %.
        exact: rows that another row equals, bit for bit.
        twins, groups: those rows, sorted by group, and the number of each one's group.
        share_hashed: the share of all rows among which twins were looked for: 1 unless there are
            more than 20 million; `exact` is then an estimate.
        mean, covariance: of all finite rows; None beyond 4,096 dimensions.
    """

    n: int
    d: int
    bad: np.ndarray
    n_bad: int
    zero: np.ndarray
    n_zero: int
    far: np.ndarray
    far_norms: np.ndarray
    n_far: int
    norm_mean: float
    norm_sd: float
    norm_median: float
    norm_largest: float
    exact: int
    twins: np.ndarray
    groups: np.ndarray
    share_hashed: float
    mean: np.ndarray | None
    covariance: np.ndarray | None

    @property
    def effective_rank(self) -> float | None:
        """The effective rank of all rows, from their covariance."""
        if self.covariance is None:
            return None
        eigenvalues = np.linalg.eigvalsh(self.covariance)
        s = np.sqrt(np.maximum(eigenvalues, 0))
        s = s[s > 1e-4 * s.max(initial=0.0)]
        p = s / s.sum() if len(s) else s
        return float(np.exp(-(p * np.log(p)).sum())) if len(p) else 0.0


class Pass:
    """Statistics of the rows read so far; two of them can be merged.

    Args:
        n: rows that will be seen in all, which decides how many hashes are kept.
        covariance: whether to keep one.
    """

    def __init__(self, n: int, covariance: bool = True):
        self.n, self.covariance = n, covariance
        self.seen = 0
        self.d: int | None = None
        self.bad: list[np.ndarray] = []
        self.n_bad = 0
        self.zero: list[np.ndarray] = []
        self.n_zero = 0
        self.histogram = np.zeros(2 * _SHIFT, dtype=np.int64)
        self.sums = np.zeros(3)  # of finite rows: count, norms, squares
        self.largest = (np.empty(0, dtype=np.int64), np.empty(0))
        self.hashes: list[np.ndarray] = []
        self.hashed: list[np.ndarray] = []
        self.every = max(1, -(-n // HASHED))
        self.moments: tuple[int, np.ndarray, np.ndarray] | None = None

    def add(self, start: int, rows: np.ndarray) -> None:
        """See some more rows.

        Args:
            start: number of the first.
            rows: (m, d).
        """
        need(
            rows.ndim == 2 and self.d in (None, rows.shape[1]),
            lambda: f"`Pass.add` needs rows of {self.d} numbers; received shape {rows.shape}.",
        )
        self.d = rows.shape[1]
        self.seen += len(rows)
        numbers = np.arange(start, start + len(rows))
        size = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        good = np.isfinite(size)
        if not good.all():  # squares may overflow where the numbers do not
            good = np.isfinite(rows).all(axis=1)
            self.n_bad += int((~good).sum())
            self.bad.append(numbers[~good][:_BAD])
            rows, size, numbers = rows[good], size[good], numbers[good]
        none = size == 0
        if none.any():
            none &= ~rows.any(axis=1)
        self.n_zero += int(none.sum())
        if sum(map(len, self.zero)) < LISTED:
            self.zero.append(numbers[none])
        self.sums += [len(size), size.sum(), (size**2).sum()]
        with np.errstate(divide="ignore"):
            at = np.floor(_GRAIN * np.log2(size[~none]))
        bins = np.clip(at + _SHIFT, 0, 2 * _SHIFT - 1).astype(np.int64)
        self.histogram += np.bincount(bins, minlength=2 * _SHIFT)
        self._keep_largest(numbers, size)
        name = _hash(rows)
        kept = slice(None) if self.every == 1 else (name >> np.uint64(33)) % self.every == 0
        self.hashes.append(name[kept])
        self.hashed.append(numbers[kept])
        if self.covariance and self.d <= WIDEST and len(rows):
            self.moments = _merged(self.moments, self._moments(rows))

    def merge(self, other: Pass) -> Pass:
        """Return what both have seen together; the rows of the other follow in number."""
        out = Pass(max(self.n, other.n), self.covariance and other.covariance)
        need(
            self.d == other.d and self.every == other.every,
            lambda: f"`Pass.merge` needs rows of {self.d} numbers; received {other.d}.",
        )
        out.d, out.every, out.seen = self.d, self.every, self.seen + other.seen
        out.n_bad, out.n_zero = self.n_bad + other.n_bad, self.n_zero + other.n_zero
        out.bad, out.zero = self.bad + other.bad, self.zero + other.zero
        out.histogram = self.histogram + other.histogram
        out.sums = self.sums + other.sums
        out.largest = self.largest
        out._keep_largest(*other.largest)
        out.hashes, out.hashed = self.hashes + other.hashes, self.hashed + other.hashed
        if out.covariance and other.moments is not None:
            out.moments = _merged(self.moments, other.moments)
        else:
            out.moments = self.moments
        return out

    def result(self) -> Scan:
        """Return what all rows seen are like."""
        need(self.seen > 0 and self.d is not None, "`scan` needs at least 1 row; received 0.")
        count, total, squares = self.sums
        mean = total / max(1, count)
        nonzero = np.cumsum(self.histogram)
        at = int(np.searchsorted(nonzero, (count + 1) / 2 - self.n_zero)) if count else 0
        middle = 0.0 if self.n_zero >= count / 2 else 2 ** ((at + 0.5 - _SHIFT) / _GRAIN)
        numbers, sizes = self.largest
        far = sizes > FACTOR * middle if middle > 0 else sizes > 0
        above = np.floor(_GRAIN * np.log2(FACTOR * middle)) + 1 + _SHIFT if middle > 0 else 0
        twins, groups = _groups(np.concatenate(self.hashes), np.concatenate(self.hashed))
        return Scan(
            n=self.seen,
            d=int(self.d or 0),
            bad=_joined(self.bad)[:_BAD],
            n_bad=self.n_bad,
            zero=_joined(self.zero)[:LISTED],
            n_zero=self.n_zero,
            far=numbers[far],
            far_norms=sizes[far],
            n_far=max(int(far.sum()), int(self.histogram[int(above) :].sum()))
            if far.all() and len(far) == LISTED
            else int(far.sum()),
            norm_mean=float(mean),
            norm_sd=float(np.sqrt(max(0.0, squares / max(1, count) - mean**2))),
            norm_median=float(middle),
            norm_largest=float(sizes.max(initial=0.0)),
            exact=len(twins) * self.every,
            twins=twins,
            groups=groups,
            share_hashed=1 / self.every,
            mean=None if self.moments is None else self.moments[1],
            covariance=None if self.moments is None else self.moments[2] / self.moments[0],
        )

    def _keep_largest(self, numbers: np.ndarray, sizes: np.ndarray) -> None:
        numbers = np.concatenate([self.largest[0], numbers])
        sizes = np.concatenate([self.largest[1], sizes])
        if len(sizes) > LISTED:
            best = np.argpartition(-sizes, LISTED)[:LISTED]
            numbers, sizes = numbers[best], sizes[best]
        order = np.lexsort((numbers, -sizes))
        self.largest = numbers[order], sizes[order]

    def _moments(self, rows: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        n, d = rows.shape
        mean = rows.mean(axis=0, dtype=np.float64)
        double = self.n * float(d) ** 2 <= DOUBLE or rows.dtype == np.float64
        kind = np.float64 if double else np.float32
        total = np.zeros((d, d))
        for start in range(0, n, _CHUNK):
            apart = (rows[start : start + _CHUNK] - mean).astype(kind)
            total += apart.T @ apart
        return n, mean, total


def scan(blocks: Iterable[tuple[int, np.ndarray]], n: int, covariance: bool = True) -> Scan:
    """Read every row once, in blocks, and return statistics.

    Relations: twins of `near_duplicates` at distance 0 that also have one length; `norms` of all
    rows; the covariance is that of all rows, in any order of merging up to rounding.

    Args:
        blocks: first row's number and rows, in order.
        n: rows in all.
        covariance: whether to keep one; costs n d^2.

    Numerics: squares in float64; a covariance of more than 3e10 products in blocks of float32
    around their mean, added in float64. Equal rows are known by 64 bits of each. 0 and -0 are
    equal.

    References:
        chan1983variance

    Example:
        >>> rows = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
        >>> scanned = scan([(0, rows[:2]), (2, rows[2:])], 4)
        >>> scanned.exact, scanned.twins.tolist(), scanned.zero.tolist(), scanned.norm_largest
        (2, [0, 2], [1], 5.0)
    """
    seen = Pass(n, covariance)
    for start, rows in blocks:
        seen.add(start, rows)
    return seen.result()


def _merged(a: Any, b: tuple[int, np.ndarray, np.ndarray]) -> tuple[int, np.ndarray, np.ndarray]:
    """Count, mean and sum of squares around it, of two parts together [chan1983variance]."""
    if a is None:
        return b
    n, m = a[0], b[0]
    apart = b[1] - a[1]
    spread = a[2] + b[2] + np.outer(apart, apart) * (n * m / (n + m))
    return n + m, a[1] + apart * (m / (n + m)), spread


def _hash(rows: np.ndarray) -> np.ndarray:
    """64 bits that equal rows share and others do not, but for one pair in 10^19."""
    rows = np.ascontiguousarray(rows + rows.dtype.type(0))  # -0 becomes 0
    n = len(rows)
    data = rows.view(np.uint8).reshape(n, -1)
    if data.shape[1] % 8:
        data = np.pad(data, ((0, 0), (0, 8 - data.shape[1] % 8)))
    words = np.ascontiguousarray(data).view(np.uint64)
    draw = np.random.default_rng(0)
    drawn = draw.integers(1, 1 << 62, size=(1, words.shape[1]), dtype=np.uint64)
    odd = np.asarray(2 * drawn + 1).reshape(-1)
    out = np.empty(n, dtype=np.uint64)
    step = max(1, _CACHED // max(1, words.shape[1]))
    mixed, shifted = np.empty((2, min(n, step), words.shape[1]), dtype=np.uint64)
    for start in range(0, n, step):
        w = words[start : start + step]
        t, q = mixed[: len(w)], shifted[: len(w)]
        np.right_shift(w, np.uint64(32), out=t)
        np.bitwise_xor(w, t, out=t)
        np.multiply(t, odd, out=t)
        np.right_shift(t, np.uint64(29), out=q)
        np.bitwise_xor(t, q, out=t)
        np.multiply(t, odd[::-1], out=t)
        np.sum(t, axis=1, dtype=np.uint64, out=out[start : start + step])
    return out


def _groups(names: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose name another row has too, group by group, and the number of each one's group."""
    order = np.lexsort((numbers, names))
    names, numbers = names[order], numbers[order]
    again = np.r_[False, names[1:] == names[:-1]]
    shared = again | np.r_[again[1:], False]
    return numbers[shared], np.cumsum(~again[shared]) - 1


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
