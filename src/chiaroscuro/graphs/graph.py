"""What a similarity graph is: sparse weights, where they came from, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from chiaroscuro.errors import need

__all__ = [
    "MOST_EDGES",
    "Floats",
    "Graph",
    "Integers",
    "counted",
    "from_edges",
    "random",
    "unlike",
    "whole",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_EDGES = 1 << 28
"""Stored weights that a graph may have: about 3 GB."""

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Graph:
    """The similarity graph pi of n objects [tan2024, Sec. 2.4 and 3].

        weights_ij >= 0: how readily j is taken as the positive of i;  weights_ii = 0

    Without self-loops, for no object is its own positive. A bipartite graph has its first `split`
    nodes on one side (images) and the others on the other (texts), with no edge inside a side.

    Relations: `row_normalised` gives P, whose row i is the law of the positive of i; doing so twice
    changes nothing.

    Args:
        weights: a square sparse or dense matrix.
        source: what it came from, in words.
        split: nodes on the first side of a bipartite graph.
        normalised: rows sum to 1 (to 0 for a node without edges); checked.

    Numerics: float64, in canonical CSR form: columns ascend in each row, no stored zeros.

    References:
        tan2024

    Example:
        >>> graph = Graph(np.array([[0, 2, 2], [2, 0, 0], [2, 0, 0]]))
        >>> graph
        Graph(3 nodes, 4 weights, from 'weights')
        >>> graph.row_normalised().weights.toarray().tolist()
        [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """

    weights: sparse.csr_array
    source: str = "weights"
    split: int | None = None
    normalised: bool = False

    def __post_init__(self) -> None:
        given: Any = self.weights if sparse.issparse(self.weights) else np.asarray(self.weights)
        need(
            given.ndim == 2 and given.shape[0] == given.shape[1] and given.dtype.kind in "biuf",
            lambda: (
                f"`Graph(weights)` needs a square matrix of real numbers; received {given.dtype} "
                f"of shape {given.shape}."
            ),
        )
        w = sparse.csr_array(given, dtype=np.float64, copy=True)
        need(
            bool(np.isfinite(w.data).all() and (w.data >= 0).all()),
            lambda: (
                f"`Graph(weights)` needs finite weights of at least 0; received {w.nnz} from "
                f"{w.data.min():.3g} to {w.data.max():.3g}."
            ),
        )
        w.sum_duplicates()
        w.eliminate_zeros()
        w.sort_indices()
        loops = int(np.count_nonzero(w.diagonal()))
        need(
            loops == 0,
            lambda: (
                f"`Graph(weights)` needs a zero diagonal, for no object is its own positive; "
                f"received {loops} self-loops. Set the diagonal to 0."
            ),
        )
        object.__setattr__(self, "weights", w)
        largest, most = float(w.data.max(initial=0.0)), int(np.diff(w.indptr).max(initial=0))
        need(
            np.isfinite(2.0 * most * largest),
            lambda: (
                f"`Graph(weights)` needs rows whose sums are finite; received {most} weights up "
                f"to {largest:.3g} in a row. Divide all by a constant."
            ),
        )
        if self.split is not None:
            self._check_sides(self.split)
        if self.normalised:
            sums = self.degrees[self.degrees > 0]
            off = float(np.abs(sums - 1).max()) if len(sums) else 0.0
            need(
                off <= _ROUNDING,
                lambda: (
                    f"`Graph(normalised=True)` needs rows that sum to 1; one is off by {off:.3g}. "
                    "Leave it out and call `row_normalised()`."
                ),
            )

    def _check_sides(self, split: int) -> None:
        counted("Graph(split)", "nodes on its first side", split, 0, self.n)
        inside = self.weights[:split, :split].nnz + self.weights[split:, split:].nnz
        need(
            inside == 0,
            lambda: (
                f"A bipartite graph needs edges between its sides of {split} and "
                f"{self.n - split} nodes only; received {inside} weights inside a side."
            ),
        )

    @property
    def n(self) -> int:
        """How many nodes."""
        return int(self.weights.shape[0])

    @property
    def bipartite(self) -> bool:
        """Whether it has two declared sides."""
        return self.split is not None

    @property
    def degrees(self) -> Floats:
        """The sum of each row."""
        return np.asarray(self.weights.sum(axis=1), dtype=np.float64)

    @property
    def isolated(self) -> Integers:
        """Nodes that no edge leaves."""
        return np.flatnonzero(np.diff(self.weights.indptr) == 0)

    @property
    def symmetric(self) -> bool:
        """Whether weights_ij = weights_ji, exactly."""
        return (self.weights != self.weights.T).nnz == 0

    def row_normalised(self) -> Graph:
        """P = D^-1 W: each row a probability law; a row without edges stays zero.

        Example:
            >>> Graph(np.array([[0, 3], [1, 0]])).row_normalised().weights.toarray().tolist()
            [[0.0, 1.0], [1.0, 0.0]]
        """
        if self.normalised:
            return self
        w = self.weights.copy()
        w.data /= np.repeat(self.degrees, np.diff(w.indptr))
        return replace(self, weights=w, normalised=True)

    def symmetrised(self) -> Graph:
        """(W + W^T) / 2, whose Laplacian is (L(W) + L(W^T)) / 2."""
        return replace(self, weights=(self.weights + self.weights.T) / 2, normalised=False)

    def components(self) -> Integers:
        """Return the component of each node, edges taken both ways, numbered by their first node.

        Example:
            >>> Graph(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]])).components().tolist()
            [0, 1, 0]
        """
        _, labels = csgraph.connected_components(self.weights, directed=True, connection="weak")
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse].astype(np.int64)

    def __repr__(self) -> str:
        sides = f" on sides of {self.split} and {self.n - self.split}" if self.split else ""
        rows = ", row-normalised" if self.normalised else ""
        return (
            f"Graph({self.n} nodes{sides}, {self.weights.nnz} weights{rows}, from {self.source!r})"
        )


def from_edges(
    n: int, i: Any, j: Any, weights: Any, source: str, split: int | None = None
) -> Graph:
    """Return the undirected graph of edges (i, j): each counts both ways, equal ones add up.

    Example:
        >>> from_edges(3, [0, 0], [1, 1], [1.0, 0.5], "two edges").weights.toarray().tolist()
        [[0.0, 1.5, 0.0], [1.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    call = "from_edges(n, i, j, weights)"
    i, j = whole(call, "i", i), whole(call, "j", j)
    w = np.asarray(weights, dtype=np.float64)
    need(
        w.shape == i.shape == j.shape,
        lambda: (
            f"`{call}` needs two nodes and a weight for each edge; received {len(i)}, {len(j)} "
            f"and {w.shape}."
        ),
    )
    last = int(max(i.max(initial=0), j.max(initial=0)))
    need(
        len(i) == 0 or last < n,
        lambda: f"`{call}` needs nodes below n = {n}; received up to {last}.",
    )
    need(
        2 * len(i) <= MOST_EDGES,
        lambda: (
            f"A graph of {n} nodes from {source} needs at most {MOST_EDGES} weights; it would have "
            f"{2 * len(i)}. Take fewer nodes."
        ),
    )
    half = sparse.coo_array((w, (i, j)), shape=(n, n)).tocsr()
    return Graph(half + half.T, source, split)


def whole(call: str, name: str, values: Any) -> Integers:
    """Return a row of whole numbers of at least 0, as int64; else a sentence."""
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.size == 0 and array.ndim == 1:
        array = array.astype(np.int64)
    need(
        array.ndim == 1 and array.dtype.kind in "iu" and (array.size == 0 or array.min() >= 0),
        lambda: (
            f"`{call}` needs `{name}` as one row of whole numbers from 0; received {array.dtype} "
            f"of shape {array.shape}"
            + (f", the least {array.min()}." if array.dtype.kind in "iu" and array.size else ".")
        ),
    )
    return array.astype(np.int64)


def counted(call: str, what: str, k: Any, least: int, most: int) -> int:
    """Return how many of something, a whole number between two ends, both included; else a
    sentence.

    Example:
        >>> counted("kmeans(x, k)", "clusters", 2, 1, 5)
        2
    """
    need(
        isinstance(k, int | np.integer) and not isinstance(k, bool) and bool(least <= k <= most),
        lambda: f"`{call}` needs {least} to {most} {what}; received {k!r}.",
    )
    return int(k)


def random(call: str, *key: Any) -> np.random.Generator:
    """Return random numbers that are a function of the key, whole numbers from 0: a seed, a step.

    Example:
        >>> bool(random("f(seed)", 3, 1).random() == random("f(seed)", 3, 1).random())
        True
    """
    need(
        all(isinstance(k, int | np.integer) and bool(k >= 0) for k in key),
        lambda: (
            f"`{call}` needs a seed (and a step) of whole numbers from 0; received "
            f"{', '.join(map(str, key))}."
        ),
    )
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([int(k) for k in key])))


def unlike(graph: Graph) -> int:
    """Return pairs of nodes whose two weights differ.

    Example:
        >>> unlike(Graph(np.array([[0, 1], [0, 0]])))
        1
    """
    return (graph.weights != graph.weights.T).nnz // 2
