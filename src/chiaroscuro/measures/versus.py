"""Two embeddings of the same rows: which is better for which rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.listed import Listed
from chiaroscuro.measures.neighbours import Neighbours, nearest
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import rows_of, spaced

__all__ = ["Versus", "versus"]

ROWS = 10_000
NEIGHBOURS = 20


@dataclass(frozen=True, eq=False)
class Versus(Record):
    """Row-by-row comparison of two embeddings of the same rows.

    Args:
        overlap: mean share of the ten nearest rows that are the same in both.
        accuracy: accuracy of 20 neighbours, of the first and the second; empty without labels.
        p_value: of the difference, by the rows that only one names rightly (McNemar's exact test).
        by_class: accuracy of both for each class, (classes, 2).
        first_better, second_better: rows that only one names rightly, the clearest first.
        changed: rows whose ten nearest differ most, where there are no labels.
        n: rows compared.
    """

    overlap: float
    accuracy: tuple[float, ...]
    p_value: float | None
    by_class: np.ndarray | None
    first_better: Listed
    second_better: Listed
    changed: Listed
    n: int


def versus(first: Any, second: Any, labels: Any = None, metric: str = "cosine") -> Versus:
    """Compare two embeddings of the same rows by the neighbours of each row.

    Args:
        first, second: (n, d) and (n, e), row i of both from one sample.
        labels: (n,), from 0; -1 is unlabelled.
        metric: "cosine" or "euclidean".

    Example:
        >>> y = np.arange(60) % 2
        >>> good = np.eye(2)[y] + 1e-3 * np.arange(60)[:, None]
        >>> bad = good.copy()
        >>> bad[5] = 1 - bad[5]
        >>> comparison = versus(good, bad, y)
        >>> comparison.accuracy, comparison.first_better.table()["row"]
        ((1.0, 0.9833333333333333), [5])
    """
    call = "versus(first, second)"
    x, w = rows_of(call, first, 12), rows_of(call, second, 12)
    need(
        len(x) == len(w),
        lambda: f"`{call}` needs the same rows in both; received {len(x)} and {len(w)}.",
    )
    some = spaced(len(x), ROWS)
    k = min(NEIGHBOURS, len(some) - 1)
    near = nearest(x[some], k, metric), nearest(w[some], k, metric)
    ten = min(10, k)
    same = (near[0].ids[:, :ten, None] == near[1].ids[:, None, :ten]).any(axis=2).mean(axis=1)
    empty = Listed("differ", np.empty(0, dtype=np.int64), {"score": np.empty(0)})
    if labels is None:
        order = np.argsort(same, kind="stable")
        least = order[same[order] < min(0.5, float(np.median(same)))]
        says = "have other neighbours in the second than in the first"
        changed = Listed(says, some[least], {"score": same[least]})
        return Versus(float(same.mean()), (), None, None, empty, empty, changed, len(some))
    y = np.asarray(labels)[some]
    known = y >= 0
    hits, sure = zip(*(_named(one, y) for one in near), strict=True)
    apart = sure[0] - sure[1]
    better = []
    for sign, word in ((1, "first"), (-1, "second")):
        only = hits[0] & ~hits[1] if sign > 0 else hits[1] & ~hits[0]
        rows = np.flatnonzero(only & known)
        rows = rows[np.lexsort((rows, -sign * apart[rows]))]
        columns = {"score": sign * apart[rows], "label": y[rows]}
        better.append(Listed(f"are named rightly by the {word} alone", some[rows], columns))
    n_classes = int(y.max(initial=0)) + 1
    sizes = np.maximum(np.bincount(y[known], minlength=n_classes), 1)
    shares = [np.bincount(y[known], hit[known], n_classes) / sizes for hit in hits]
    return Versus(
        overlap=float(same.mean()),
        accuracy=tuple(float(hit[known].mean()) for hit in hits),
        p_value=_exact(len(better[0]), len(better[1])),
        by_class=np.stack(shares, axis=1),
        first_better=better[0],
        second_better=better[1],
        changed=empty,
        n=len(some),
    )


def _named(near: Neighbours, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether the majority of neighbours names each row's label, and their share that does."""
    from chiaroscuro.measures.accuracy import voted

    return voted(near, y) == y, (y[near.ids] == y[:, None]).mean(axis=1)


def _exact(only_first: int, only_second: int) -> float:
    """The two-sided p-value of so many wins each, where either is as likely."""
    from scipy.stats import binomtest

    total = only_first + only_second
    return 1.0 if total == 0 else float(binomtest(only_first, total, 0.5).pvalue)
