"""Cures tried on the arrays themselves: what each would gain, which is what the ill costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.diagnostics.advice.finding import Cost
from chiaroscuro.measures import METRICS, nearest, unit, voted
from chiaroscuro.measures.neighbours import Neighbours

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = ["Pairs", "Rows", "different", "note", "paired"]

TRIED = 2_000
"""Rows on which a cure is tried."""
NEIGHBOURS = 20
OVERLAP = 10
Z95 = 1.96


def paired(of: str, before: np.ndarray, after: np.ndarray) -> Cost:
    """The mean difference of two hits for each row, with the interval of a paired comparison."""
    apart = after.astype(np.float64) - before
    n = len(apart)
    gain = float(apart.mean()) if n else 0.0
    # at least one discordant pair more than was seen: an interval of width 0 would be a lie
    error = math.sqrt(max(float(apart.var()), 1 / max(n, 1)) / max(n, 1))
    low, high = gain - Z95 * error, gain + Z95 * error
    means = (float(before.mean()), float(after.mean())) if n else (0.0, 0.0)
    return Cost(of, *means, gain, low, high, n)


def _accuracy_of(metric: str) -> str:
    return "knn_accuracy" if metric == METRICS[0] else "knn_accuracy_euclidean"


def note(out: Measured, cure: str, cost: Cost) -> Cost:
    """Add what a cure changes to the measures."""
    out.numbers |= cost.numbers(cure)
    return cost


def different(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of the rows that are equal, bit for bit, and for every row which it equals.

    As `np.unique(x, axis=0)` in another order; bytes are compared, not numbers one by one.

    Example:
        >>> first, which = different(np.array([[2.0, 0.0], [1.0, 3.0], [2.0, -0.0]]))
        >>> first[which].tolist()
        [0, 1, 0]
    """
    x = np.ascontiguousarray(x) + 0.0  # -0 is 0
    rows = x.view(np.dtype((np.void, x.itemsize * x.shape[1]))).ravel()
    return np.unique(rows, return_index=True, return_inverse=True)[1:]


class Rows:
    """Rows of one space, at most 2,000 of them, on which cures are tried.

    Args:
        x: (n, d), float64.
        labels: (n,), negative is unlabelled, or None.
        split: (n,), 0 train and 1 test, or None.
        seed: seed of the rows that are drawn.
        metric: of neighbours, unless a cure asks for another.
    """

    def __init__(
        self,
        x: np.ndarray,
        labels: np.ndarray | None = None,
        split: np.ndarray | None = None,
        seed: int = 0,
        metric: str = METRICS[0],
    ) -> None:
        n = len(x)
        self.metric = metric
        draw = np.random.default_rng(seed)
        self.ids = np.arange(n) if n <= TRIED else np.sort(draw.choice(n, TRIED, replace=False))
        self.x = np.asarray(x[self.ids], dtype=np.float64)
        self.y: Any = None if labels is None else np.asarray(labels, dtype=np.int64)[self.ids]
        if self.y is not None and ((self.y >= 0).sum() <= NEIGHBOURS or len(set(self.y)) < 2):
            self.y = None
        self.split: Any = None if split is None else np.asarray(split)[self.ids]
        if self.split is not None and min((self.split == s).sum() for s in (0, 1)) <= NEIGHBOURS:
            self.split = None

    @property
    def of(self) -> str:
        """What is measured: the accuracy of neighbours by the metric."""
        return _accuracy_of(self.metric)

    def search(self, x: np.ndarray, metric: str | None = None) -> tuple[Neighbours, np.ndarray]:
        """Neighbours of the rows that are asked, and which those are."""
        metric = self.metric if metric is None else metric
        k = min(NEIGHBOURS, len(x) - 1)
        if self.split is None:
            return nearest(x, k, metric), np.arange(len(x))
        bank, asked = np.flatnonzero(self.split == 0), np.flatnonzero(self.split == 1)
        near = nearest(x[bank], min(NEIGHBOURS, len(bank)), metric, queries=x[asked])
        return near._replace(ids=bank[near.ids]), asked

    def hits(
        self, x: np.ndarray, metric: str | None = None, y: np.ndarray | None = None
    ) -> np.ndarray:
        """Which rows their neighbours name; NaN where a row is not asked or has no label."""
        labels = self.y if y is None else y
        near, asked = self.search(x, metric)
        shares = np.full(len(x), np.nan)
        shares[asked] = voted(near, labels) == labels[asked]
        shares[labels < 0] = np.nan
        return shares

    @cached_property
    def near(self) -> tuple[Neighbours, np.ndarray]:
        """Neighbours of the rows as they are, and which rows are asked."""
        return self.search(self.x)

    @cached_property
    def base(self) -> np.ndarray:
        """Which rows are named by their neighbours as things are."""
        near, asked = self.near
        shares = np.full(len(self.x), np.nan)
        shares[asked] = voted(near, self.y) == self.y[asked]
        shares[self.y < 0] = np.nan
        return shares

    @cached_property
    def euclidean(self) -> np.ndarray:
        return self.base if self.metric == METRICS[1] else self.hits(self.x, METRICS[1])

    def gain(
        self,
        cured: np.ndarray | Callable[[np.ndarray], np.ndarray],
        keep: np.ndarray | None = None,
        metric: str | None = None,
    ) -> Cost:
        """What a cure gains.

        Args:
            cured: the rows after it, or a function of rows.
            keep: mask of the rows that it keeps; those that it drops count as lost before it,
                as they are, and are left out after it.
            metric: of the neighbours, if another than that of the rows.
        """
        after = cured(self.x) if callable(cured) else cured
        metric = self.metric if metric is None else metric
        if self.y is None:
            return self._moved(after, keep, metric)
        before = self.base if metric == self.metric else self.hits(self.x, metric)
        name = _accuracy_of(metric)
        if keep is None:
            hits = self.hits(after, metric)
            asked = ~np.isnan(before)
            return paired(name, before[asked], hits[asked])
        return self._dropped(name, before, after, keep, metric)

    def _dropped(
        self, name: str, before: np.ndarray, after: np.ndarray, keep: np.ndarray, metric: str
    ) -> Cost:
        kept = self.only(keep, after)
        asked = ~np.isnan(before)
        if len(kept.x) <= NEIGHBOURS or kept.y is None:
            return paired(name, before[asked], before[asked])
        hits = kept.hits(kept.x, metric)
        known = ~np.isnan(hits)
        full = float(before[asked].mean())
        left = float(hits[known].mean())
        n = int(known.sum())
        error = math.sqrt(max(left * (1 - left), 1 / n) / n)
        dropped = float((~keep & asked).sum()) / max(1, int(asked.sum()))
        error *= min(1.0, math.sqrt(dropped) + 0.1)  # most rows are in both
        gain = left - full
        return Cost(name, full, left, gain, gain - Z95 * error, gain + Z95 * error, n)

    def only(self, keep: np.ndarray, x: np.ndarray | None = None) -> Rows:
        """Return the rows of a mask, as they are or as given."""
        return Rows(
            (self.x if x is None else x)[keep],
            None if self.y is None else self.y[keep],
            None if self.split is None else self.split[keep],
            metric=self.metric,
        )

    def _moved(self, after: np.ndarray, keep: np.ndarray | None, metric: str) -> Cost:
        """Without labels: which share of ten neighbours are others."""
        before = self.near[0] if metric == self.metric else self.search(self.x, metric)[0]
        k = min(OVERLAP, before.ids.shape[1])
        if keep is None:
            near = self.search(after, metric)[0]
            a, b = before.ids[:, :k], near.ids[:, :k]
        else:
            own = np.flatnonzero(keep)
            if len(own) <= k + 1:
                return Cost("neighbours", 1.0, 1.0, 0.0, 0.0, 0.0, len(own))
            if self.split is not None:  # of all rows, not of the test side alone
                before = nearest(self.x, k, metric)
            a, b = before.ids[own][:, :k], own[nearest(after[own], k, metric).ids]
        same = (a[:, :, None] == b[:, None, :]).any(axis=2).mean(axis=1)
        moved = 1 - same
        error = float(moved.std()) / math.sqrt(len(moved))
        mean = float(moved.mean())
        low, high = mean - Z95 * error, mean + Z95 * error
        return Cost("neighbours", 1.0, float(same.mean()), mean, low, high, len(moved))


class Pairs:
    """Two sides, row i of both from sample i, on which cures are tried: recall of the partner.

    Args:
        x1, x2: (n, d), float64.
    """

    def __init__(self, x1: np.ndarray, x2: np.ndarray) -> None:
        self.x1 = np.asarray(x1, dtype=np.float64)
        self.x2 = np.asarray(x2, dtype=np.float64)
        self.n = len(self.x1)

    @cached_property
    def scores(self) -> np.ndarray:
        return unit(self.x1) @ unit(self.x2).T

    def recalled(self, x1: np.ndarray, x2: np.ndarray, metric: str = "cosine") -> np.ndarray:
        """Which partners are nearest, both ways."""
        if metric == "cosine":
            scores = unit(x1) @ unit(x2).T
        else:
            squares = (x2**2).sum(axis=1)
            scores = 2 * x1 @ x2.T - squares - (x1**2).sum(axis=1)[:, None]
        own = np.diag(scores)
        n = len(scores)
        grain = 1e-9 * (np.abs(own) + np.abs(scores).max(initial=0.0) * 1e-6) + 1e-12
        ahead = (scores > (own + grain)[:, None]).sum(axis=1)
        behind = (scores > (own + grain)[None, :]).sum(axis=0)
        level = (np.abs(scores - own[:, None]) <= grain[:, None]).sum(axis=1)
        first = np.where(ahead == 0, 1 / np.maximum(level, 1), 0.0)
        second = (behind == 0).astype(np.float64) * np.where(level > n / 2, 1 / n, 1.0)
        return (first + second) / 2

    @cached_property
    def base(self) -> np.ndarray:
        return self.recalled(self.x1, self.x2)

    def gain(self, x1: np.ndarray, x2: np.ndarray, metric: str = "cosine") -> Cost:
        """What other sides gain in recall."""
        before = self.base if metric == "cosine" else self.recalled(self.x1, self.x2, metric)
        name = "recall_1" if metric == "cosine" else "recall_1_euclidean"
        return paired(name, before, self.recalled(x1, x2, metric))
