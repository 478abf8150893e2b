"""Two sets of embeddings: are they of one law, of one encoder, and which rows moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.agreement import linear_agreement
from chiaroscuro.measures.listed import Listed
from chiaroscuro.measures.neighbours import nearest
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import rows_of, spaced

__all__ = ["Drift", "TwoSample", "drift", "two_sample"]

ROWS = 400
PERMUTATIONS = 500
DRAWS = 20
SHIFTS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shifts of the mean whose detection is tried, in root mean squared distances from the mean."""
POWER = 0.8
LEVEL = 0.05
FENCE = 3.0
SAME, TURNED = 0.05, 0.1
"""Median movement of a row, as a share of the spread, of one encoder; and of one that is turned."""
STILL = 1e-4
"""Movement, as a share of the spread, below which a row counts as where it was."""
CORRELATED = 1.5
"""Squares of covariances over what chance gives, above which axes can be compared."""
COMPARED = 10_000


@dataclass(frozen=True, eq=False)
class TwoSample(Record):
    """A test whether two sets are drawn from one law, with its power.

    Args:
        statistic: squared maximum mean discrepancy; `expected` is its mean where the law is one.
        p_value: share of permutations with a statistic at least as large.
        power: by shift of the mean (in root mean squared distances from the mean): the share of
            such shifts that a test of this size finds at level 0.05.
        detectable: the least of these shifts that is found in 80 % of the draws; None beyond 1.
        n, m: rows compared.
    """

    statistic: float
    expected: float
    p_value: float
    power: dict[str, float]
    detectable: float | None
    n: int
    m: int


def two_sample(a: Any, b: Any, seed: int = 0) -> TwoSample:
    """Test whether two sets of rows have the same distribution, by a kernel test, with its power.

        MMD^2 = mean k(a, a') + mean k(b, b') - 2 mean k(a, b),   k = exp(-|x - y|^2 / median)

    The p-value is that of 500 permutations of the rows, so that it is right for any law. Power is
    measured: two disjoint parts of `a`, one of them shifted in a random direction, 20 times each.

    Args:
        a, b: (n, d) and (m, d), n >= 8 and m >= 8; 400 rows of each are drawn.
        seed: seed of draws, permutations and directions.

    References:
        gretton2012mmd

    Example:
        >>> rng = np.random.default_rng(0)
        >>> a, b = rng.normal(size=(300, 4)), rng.normal(size=(300, 4))
        >>> two_sample(a, b).p_value > 0.05, two_sample(a, b + 1).p_value < 0.01
        (True, True)
    """
    x, y = rows_of("two_sample(a, b)", a, 8), rows_of("two_sample(a, b)", b, 8)
    need(
        x.shape[1] == y.shape[1],
        lambda: f"`two_sample` needs one dimension; received {x.shape[1]} and {y.shape[1]}.",
    )
    draw = np.random.default_rng(seed)
    some = lambda rows, most: rows[draw.permutation(len(rows))[:most]]
    x1, y1 = some(x, ROWS), some(y, ROWS)
    n, m = len(x1), len(y1)
    squares = _squares(np.vstack([x1, y1]))
    scale = _median(squares)
    weights = np.r_[np.full(n, 1 / n), np.full(m, -1 / m)]
    values = _permuted(np.exp(-squares / scale), weights, draw)
    value = values[0]
    power, detectable = _power(x, n, m, draw)
    return TwoSample(
        statistic=float(value),
        expected=float(values[1:].mean()),
        p_value=float((values >= value).mean()),
        power=power,
        detectable=detectable,
        n=n,
        m=m,
    )


def _power(
    x: np.ndarray, n: int, m: int, draw: np.random.Generator
) -> tuple[dict[str, float], float | None]:
    size = min(n, m, len(x) // 2)
    spread = float(np.sqrt(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean()))
    hits = np.zeros(len(SHIFTS))
    weights = np.r_[np.full(size, 1 / size), np.full(size, -1 / size)]
    limit: float | None = None
    for _ in range(DRAWS):
        rows = x[draw.permutation(len(x))[: 2 * size]]
        squares = _squares(rows)
        scale = _median(squares)
        if limit is None:
            values = _permuted(np.exp(-squares / scale), weights, draw)[1:]
            limit = float(np.quantile(values, 1 - LEVEL))
        way = draw.normal(size=(x.shape[1],))
        way *= spread / np.linalg.norm(way)
        along = rows @ way
        second = np.r_[np.zeros(size), np.ones(size)]
        signs = second[:, None] - second[None, :]  # which of the two is shifted
        for k, shift in enumerate(SHIFTS):
            moved = squares + signs**2 * (shift * spread) ** 2
            moved += 2 * shift * signs * (along[:, None] - along[None, :])
            hits[k] += weights @ np.exp(-moved / scale) @ weights > limit
    power = hits / DRAWS
    enough = np.flatnonzero(power >= POWER)
    return (
        {str(shift): float(p) for shift, p in zip(SHIFTS, power, strict=True)},
        SHIFTS[int(enough[0])] if len(enough) else None,
    )


def _squares(x: np.ndarray) -> np.ndarray:
    x = x - x.mean(axis=0)
    sizes = np.einsum("ij,ij->i", x, x)
    return np.maximum(sizes[:, None] + sizes[None, :] - 2 * x @ x.T, 0)


def _median(squares: np.ndarray) -> float:
    middle = float(np.median(squares[np.triu_indices(len(squares), 1)]))
    return middle if middle > 0 else float(squares.max()) or 1.0


def _permuted(K: np.ndarray, weights: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """The statistic, then those of permutations."""
    all_ = np.stack([weights, *(draw.permutation(weights) for _ in range(PERMUTATIONS))], axis=1)
    return np.einsum("ij,ij->j", all_, K @ all_)


@dataclass(frozen=True, eq=False)
class Drift(Record):
    """Differences between a set of embeddings and an earlier one.

    Args:
        encoder: "same" (up to one offset), "turned" (the same up to a rotation), "other", or
            "unknown".
        reason: the sentence behind it.
        paired: whether row i is the same sample in both.
        test: whether both are of one law; None where the widths differ.
        mean_shift: distance of the means, in root mean squared distances from the mean.
        movement: median movement of a row, as a share of the spread; of paired rows.
        movement_turned: the same after the best rotation.
        same_axes: cosine of the two covariances beside their diagonals, corrected for chance: 1
            where dimensions go together in both as they do in one, about 0 where dimensions are
            others; None where dimensions are hardly correlated.
        agreement: linear CKA of paired rows, of any widths.
        moved: rows that moved more than others (paired), or are unlike all earlier ones.
    """

    encoder: str
    reason: str
    paired: bool
    test: TwoSample | None
    mean_shift: float | None
    movement: float | None
    movement_turned: float | None
    same_axes: float | None
    agreement: float | None
    moved: Listed


def drift(now: Any, before: Any, paired: bool, seed: int = 0) -> Drift:
    """Compare embeddings with earlier ones: distribution, encoder, and the rows that moved.

    Args:
        now, before: (n, d) and (m, e).
        paired: whether row i is the same sample in both; n = m then.
        seed: seed of all random choices.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 6))
        >>> y = x + 1e-3
        >>> y[17] = -x[17]
        >>> report = drift(y, x, paired=True)
        >>> report.encoder, report.moved.table()["row"]
        ('same', [17])
    """
    y, x = rows_of("drift(now)", now, 8), rows_of("drift(before)", before, 8)
    need(
        not paired or len(x) == len(y),
        lambda: f"`drift(paired=True)` needs as many rows in both; received {len(y)} and {len(x)}.",
    )
    agreement = linear_agreement(x, y) if paired else None
    if x.shape[1] != y.shape[1]:
        none = Listed("moved", np.empty(0, dtype=np.int64), {"score": np.empty(0)})
        reason = f"{y.shape[1]} dimensions now, {x.shape[1]} before"
        return Drift("other", reason, paired, None, None, None, None, None, agreement, none)
    spread = float(np.sqrt(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean())) or 1.0
    shift = float(np.linalg.norm(y.mean(axis=0) - x.mean(axis=0))) / spread
    axes = _axes(x, y)
    test = two_sample(y, x, seed)
    if not paired:
        encoder, reason = _unpaired(axes, (len(y), len(x)), x.shape[1])
        return Drift(encoder, reason, False, test, shift, None, None, axes, None, _unlike(y, x))
    apart = np.linalg.norm(y - x, axis=1)
    movement = float(np.median(apart)) / spread
    centred = np.linalg.norm((y - y.mean(axis=0)) - (x - x.mean(axis=0)), axis=1)
    turned = _turned(x, y)
    rest = np.linalg.norm(y - turned, axis=1)
    movement_turned = float(np.median(rest)) / spread
    if movement <= SAME:
        encoder, residual = "same", apart
        reason = f"a row moved by {movement:.2g} of the spread, in the median"
    elif float(np.median(centred)) <= SAME * spread:
        encoder, residual = "same", centred
        reason = f"all rows moved by one offset of {shift:.2g} of the spread"
    elif movement_turned <= TURNED:
        encoder, residual = "turned", rest
        reason = (
            f"a row moved by {movement:.2g} of the spread, and by {movement_turned:.2g} after a "
            "rotation"
        )
    else:
        encoder, residual = "other", rest
        reason = (
            f"a row moved by {movement:.2g} of the spread, {movement_turned:.2g} after the best "
            "rotation"
        )
    moved = _moved(residual, apart, spread)
    return Drift(
        encoder, reason, True, test, shift, movement, movement_turned, axes, agreement, moved
    )


def _turned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x after the rotation that fits it to y best."""
    a, b = x - x.mean(axis=0), y - y.mean(axis=0)
    u, _, vt = np.linalg.svd(a.T @ b)
    return a @ (u @ vt) + y.mean(axis=0)


def _axes(x: np.ndarray, y: np.ndarray) -> float | None:
    """The cosine of the covariances beside their diagonals, corrected for what chance adds.

    Of n rows whose dimensions are independent, the squares of these entries sum to
    sum_{i != j} C_ii C_jj / n: None where there is hardly more than that.
    """
    d = x.shape[1]
    if d < 3:
        return None
    off = ~np.eye(d, dtype=bool)
    entries, sizes = [], []
    for rows in (_inner(x), _inner(y)):
        C = np.cov(rows.T)
        variances = np.diag(C)
        chance = float(variances.sum() ** 2 - (variances**2).sum()) / (len(rows) - 1)
        squares = float((C[off] ** 2).sum())
        if squares <= CORRELATED * chance:
            return None
        entries.append(C[off])
        sizes.append(squares - chance)
    return float(np.clip(entries[0] @ entries[1] / np.sqrt(sizes[0] * sizes[1]), -1, 1))


def _inner(x: np.ndarray) -> np.ndarray:
    """The rows without the hundredth that is farthest from the middle."""
    far = np.linalg.norm(x - np.median(x, axis=0), axis=1)
    return x[far <= np.quantile(far, 0.99)]


def _unpaired(axes: float | None, sizes: tuple[int, int], d: int) -> tuple[str, str]:
    if d < 3:
        return "unknown", f"{d} dimensions are too few to tell encoders apart"
    if axes is None:
        return "unknown", (
            f"the {d} dimensions are hardly more correlated than those of {sizes[0]} and "
            f"{sizes[1]} rows are by chance, and rows are not paired; give both files `ids`"
        )
    word = "the same dimensions go together in both" if axes > 0.5 else "other dimensions do"
    encoder = "same" if axes > 0.5 else "other" if axes < 0.2 else "unknown"
    return encoder, f"cosine of the two covariances beside their diagonals {axes:.2f}: {word}"


def _moved(residual: np.ndarray, apart: np.ndarray, spread: float) -> Listed:
    logs = np.log(np.maximum(residual, STILL * spread))  # below it a row has not moved
    low, high = np.quantile(logs, [0.25, 0.75])
    listed = np.flatnonzero(logs > high + FENCE * max(high - low, 0.1))
    listed = listed[np.lexsort((listed, -residual[listed]))]
    return Listed(
        "moved more than the others did",
        listed,
        {"score": residual[listed] / spread, "moved": apart[listed] / spread},
    )


def _unlike(y: np.ndarray, x: np.ndarray) -> Listed:
    """Rows of y that are farther from all of x than rows of x are from each other."""
    bank = x[spaced(len(x), COMPARED)]
    own = nearest(bank, 1, "euclidean").distances[:, 0]
    some = spaced(len(y), COMPARED)
    neighbours = nearest(bank, 1, "euclidean", queries=y[some])
    low, high = np.quantile(own, [0.25, 0.75])
    limit = max(float(own.max()), float(high + FENCE * (high - low)))
    far = neighbours.distances[:, 0]
    listed = np.flatnonzero(far > limit)
    listed = listed[np.lexsort((listed, -far[listed]))]
    return Listed(
        "are farther from all earlier rows than any of these is from the others",
        some[listed],
        {"score": far[listed] / (float(np.median(own)) or 1.0)},
    )
