"""How small embeddings may be: fewer dimensions, coarser numbers, an approximate index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.measures.accuracy import voted
from chiaroscuro.measures.kmeans import kmeans
from chiaroscuro.measures.neighbours import METRICS, Neighbours, nearest
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.rows import rows_of, spaced, unit

__all__ = ["Economy", "economy"]

BANK, QUERIES = 2000, 250
"""Rows among which neighbours are sought, and rows of which they are sought."""
KEPT = 10
LOSS = 0.01
"""What may be lost: a hundredth."""
CELLS, PROBED = 64, 8
RESCORED = 4


@dataclass(frozen=True, eq=False)
class Economy(Record):
    """Recall of neighbours when embeddings are made smaller.

    Args:
        sizes: numbers of dimensions kept, rising; the last is all.
        recall: share of the ten nearest kept, by order of dimensions (`first`: as they come,
            `variance`: of largest variance, `principal`: rotated first) and size.
        accuracy: accuracy of 20 neighbours, the same; empty without labels.
        enough: the least size at which at most a hundredth is lost, by order: of accuracy with
            labels, else of recall.
        order: the dimensions by falling variance; those from `enough["variance"]` on may go.
        int8, binary, rescored, index: recall of ten neighbours with numbers of 8 bits; of 1 bit;
            of 1 bit, the best forty compared again as they are; of an index of cells.
    """

    sizes: np.ndarray
    recall: dict[str, np.ndarray]
    accuracy: dict[str, np.ndarray]
    enough: dict[str, int]
    order: np.ndarray
    int8: float
    binary: float
    rescored: float
    index: float
    n: int


def economy(h: Any, labels: np.ndarray | None = None, metric: str = "cosine") -> Economy:
    """Measure the recall of neighbours with fewer dimensions, fewer bits and an approximate index.

        recall = mean_i |the ten nearest of i, found so| and found exactly| / 10

    All of 250 evenly spaced rows among 2,000. `index` sorts the rows into 64 cells by k-means and
    looks into the 8 nearest, as an inverted file of faiss does (`IVF64`, `nprobe=8`): rows that
    have no structure make it miss most.

    Args:
        h: (n, d), n >= 20.
        labels: (n,), from 0; -1 does not vote and is not asked.
        metric: "cosine" or "euclidean".

    References:
        kusupati2022, jegou2011pq

    Example:
        >>> x = np.random.default_rng(0).normal(size=(300, 8)) * 2.0 ** -np.arange(8)
        >>> curves = economy(x)
        >>> curves.sizes.tolist(), bool(curves.recall["first"][0] < curves.recall["first"][-1])
        ([1, 2, 4, 8], True)
    """
    x = rows_of("economy(h)", h, 20)
    some = spaced(len(x), BANK)
    y = None if labels is None else np.asarray(labels)[some]
    x = unit(x[some]) if metric == METRICS[0] else x[some]
    n, d = x.shape
    asked = spaced(n, QUERIES)
    k = min(20, n - 2)
    ten = min(KEPT, k)
    exact = _others(x, asked, k, metric)
    sizes = np.array(sorted({2**i for i in range(d.bit_length()) if 2**i < d} | {d}))
    sizes = sizes[-7:]  # down to a 64th of them
    variance = x.var(axis=0)
    order = np.argsort(-variance, kind="stable")
    axes = np.linalg.eigh(np.cov(x.T).reshape(d, d))[1][:, ::-1]
    ways = {"first": x, "variance": x[:, order], "principal": x @ axes}
    recall: dict[str, Any] = {name: [] for name in ways}
    accuracy: dict[str, Any] = {name: [] for name in ways} if y is not None else {}
    whole = _accuracy(exact, y, asked)
    for name, rows in ways.items():
        for size in sizes[:-1]:
            neighbours = _others(rows[:, :size], asked, k, metric)
            recall[name].append(_recall(neighbours.ids[:, :ten], exact.ids[:, :ten]))
            if y is not None:
                accuracy[name].append(_accuracy(neighbours, y, asked))
        recall[name].append(1.0)
        if y is not None:
            accuracy[name].append(whole)
    score = accuracy or recall
    enough = {
        name: int(sizes[np.flatnonzero(np.array(values) >= values[-1] - LOSS)[0]])
        for name, values in score.items()
    }
    coarse = _coarse(x, asked, exact, ten, metric)
    return Economy(
        sizes=sizes,
        recall={name: np.array(values) for name, values in recall.items()},
        accuracy={name: np.array(values) for name, values in accuracy.items()},
        enough=enough,
        order=order,
        **coarse,
        index=_cells(x, asked, exact, ten, metric),
        n=n,
    )


def _others(x: np.ndarray, asked: np.ndarray, k: int, metric: str) -> Neighbours:
    """The k nearest others of the rows asked."""
    neighbours = nearest(x, k + 1, metric, queries=x[asked])
    other = neighbours.ids != asked[:, None]
    other[other.all(axis=1), -1] = False  # a twin of lower number took its place
    pick = lambda a: a[other].reshape(len(asked), k)
    return Neighbours(pick(neighbours.ids), pick(neighbours.distances))


def _recall(kept: np.ndarray, wanted: np.ndarray) -> float:
    return float((kept[:, :, None] == wanted[:, None, :]).any(axis=1).mean())


def _accuracy(neighbours: Neighbours, y: np.ndarray | None, asked: np.ndarray) -> float:
    if y is None:
        return 0.0
    known = y[asked] >= 0
    return float((voted(neighbours, y) == y[asked])[known].mean()) if known.any() else 0.0


def _coarse(
    x: np.ndarray, asked: np.ndarray, exact: Neighbours, ten: int, metric: str
) -> dict[str, float]:
    """Recall with 8 bits for each number, and with one."""
    reach = np.abs(x).max(axis=0)
    step = np.where(reach > 0, reach / 127, 1.0)
    bytes_ = np.round(x / step) * step
    recall8 = _recall(_others(bytes_, asked, ten, metric).ids, exact.ids[:, :ten])
    bits = np.where(x > x.mean(axis=0), 1.0, -1.0)
    k = min(RESCORED * ten, len(x) - 2)
    rough = _others(bits, asked, k, "euclidean")
    apart = ((x[rough.ids] - x[asked][:, None]) ** 2).sum(axis=2)
    again = np.take_along_axis(rough.ids, np.argsort(apart, axis=1, kind="stable"), axis=1)
    return {
        "int8": recall8,
        "binary": _recall(rough.ids[:, :ten], exact.ids[:, :ten]),
        "rescored": _recall(again[:, :ten], exact.ids[:, :ten]),
    }


def _cells(x: np.ndarray, asked: np.ndarray, exact: Neighbours, ten: int, metric: str) -> float:
    """Recall of an index of cells."""
    n_cells = min(CELLS, len(x) // 8)
    if n_cells < 2:
        return 1.0
    made = kmeans(x, n_cells, n_starts=1)
    n_cells = len(made.centres)
    probed = nearest(made.centres, min(PROBED, n_cells), metric, queries=x[asked]).ids
    looked = (made.labels[exact.ids[:, :ten]][:, :, None] == probed[:, None, :]).any(axis=2)
    return float(looked.mean())
