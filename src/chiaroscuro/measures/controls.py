"""Controls: what a measure gives when there is nothing to find, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import as_array

__all__ = ["Control", "Interval", "interval", "shuffled"]


@dataclass(frozen=True, eq=False)
class Control(Record):
    """A measure's `value`, beside `mean`, `sd`, `least` and `most` of it under shuffled pairs.

    `beyond` is the number of sd by which the value is away from the mean; 0 where both agree.
    """

    value: float
    mean: float
    sd: float
    least: float
    most: float
    beyond: float
    repeats: int
    n: int


def shuffled(
    measure: Callable[..., float], *arrays: Any, repeats: int = 20, seed: int = 0
) -> Control:
    """Return a measure of paired rows, and its values when the rows of the last are shuffled.

        control = mean over permutations s without fixed point of measure(a_i, b_s(i))

    What a pairwise measure gives where rows have nothing to do with each other, all else equal: the
    marginal laws stay as they are.

    Args:
        measure: measure of the arrays, a number: `alignment`, or `lambda h, y:
            knn_leave_one_out(h, y, 5)`.
        arrays: two or more of n rows; only the order of the last one changes.
        repeats: 20 permutations, each one random cycle through all rows.
        seed: seed of the permutations.

    Example:
        >>> from chiaroscuro.measures.sphere import alignment
        >>> control = shuffled(alignment, np.eye(8), np.eye(8))
        >>> control.value, round(control.mean, 6)
        (0.0, 2.0)
    """
    n = _length("shuffled", arrays, 2)
    need(repeats >= 1, lambda: f"`shuffled` needs at least 1 permutation; received {repeats}.")
    rng = np.random.default_rng(seed)
    *others, last = arrays
    values = []
    for _ in range(repeats):
        cycle = rng.permutation(n)
        order = np.empty(n, dtype=np.int64)
        order[cycle] = np.roll(cycle, 1)  # one cycle: nobody keeps its partner
        values.append(float(measure(*others, _rows(last, order))))
    value, mean, sd = float(measure(*arrays)), float(np.mean(values)), float(np.std(values))
    apart = value - mean
    return Control(
        value=value,
        mean=mean,
        sd=sd,
        least=min(values),
        most=max(values),
        beyond=apart / sd if sd > 0 else float(np.sign(apart) * np.inf if apart else 0.0),
        repeats=repeats,
        n=n,
    )


@dataclass(frozen=True, eq=False)
class Interval(Record):
    """A `value` between `low` and `high` at the confidence `level`, with its standard error."""

    value: float
    low: float
    high: float
    error: float
    level: float
    repeats: int
    n: int


def interval(
    measure: Callable[..., float],
    *arrays: Any,
    repeats: int = 100,
    level: float = 0.95,
    replace: bool = False,
    seed: int = 0,
) -> Interval:
    """Return a confidence interval of a measure over rows, by resampling.

        error = sd of measure(half of the rows) over random halves
        low, high = value + quantiles of (measure(half) - mean of measure(half))

    A half without replacement has about the variance of the whole around the truth, for
    sigma^2 (1/(n/2) - 1/n) = sigma^2 / n [politis1999subsampling]. Drawing n rows with replacement
    (the bootstrap) would count a row as a neighbour of itself and pull every measure of pairs of
    rows towards collapse; `replace=True` does it all the same, right for means over rows.

    Args:
        measure: measure of the arrays, a number.
        arrays: one or more of n >= 4 rows; the same rows are drawn of all of them.
        repeats: 100 halves.
        level: 0.95.
        seed: seed of the halves.

    Numerics: the interval is centred on the value: a measure that grows with the number of rows,
    as a rank does where n < d, keeps its bias.

    References:
        politis1999subsampling

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(400, 1))
        >>> spread = interval(lambda h: float(h.mean()), rows)
        >>> bool(spread.low < 0 < spread.high), round(spread.error, 2)
        (True, 0.05)
    """
    n = _length("interval", arrays, 4)
    need(
        repeats >= 2 and 0 < level < 1,
        lambda: (
            "`interval` needs at least 2 repeats and a level between 0 and 1; received "
            f"{repeats} and {level}."
        ),
    )
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(repeats):
        some = rng.choice(n, n if replace else n // 2, replace=replace)
        values.append(float(measure(*(_rows(a, np.sort(some)) for a in arrays))))
    value, mean = float(measure(*arrays)), float(np.mean(values))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]) - mean
    return Interval(
        value, value + float(low), value + float(high), float(np.std(values)), level, repeats, n
    )


def _rows(a: Any, at: np.ndarray) -> Any:
    return as_array(a)[at]


def _length(call: str, arrays: tuple[Any, ...], least: int) -> int:
    sizes = [len(a) for a in arrays]
    need(
        len(sizes) >= (2 if call == "shuffled" else 1) and len(set(sizes)) == 1,
        lambda: f"`{call}` needs arrays of as many rows; received {sizes}.",
    )
    need(sizes[0] >= least, lambda: f"`{call}` needs at least {least} rows; received {sizes[0]}.")
    return sizes[0]
