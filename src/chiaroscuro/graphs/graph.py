"""What a similarity graph is: sparse weights, where they came from, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from chiaroscuro.errors import need

__all__ = ["MOST_EDGES", "Floats", "Graph", "Integers", "from_edges", "whole"]

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
    nodes on one side (pictures) and the others on the other (texts), with no edge inside a side.

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
        given: Any = self.weights
        w = sparse.csr_array(given, dtype=np.float64, copy=True)
        need(
            w.ndim == 2 and w.shape[0] == w.shape[1],
            lambda: f"`Graph(weights)` needs a square matrix; received shape {w.shape}.",
        )
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
        need(
            0 <= split <= self.n,
            lambda: f"`Graph(split)` needs 0 to {self.n}, the number of nodes; received {split}.",
        )
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
        """The component of each node, edges taken both ways, numbered by their first node.

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
    """The undirected graph of edges (i, j): each counts both ways, equal ones add up.

    Example:
        >>> from_edges(3, [0, 0], [1, 1], [1.0, 0.5], "two edges").weights.toarray().tolist()
        [[0.0, 1.5, 0.0], [1.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    i, j = np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
    need(
        2 * len(i) <= MOST_EDGES,
        lambda: (
            f"A graph of {n} nodes from {source} needs at most {MOST_EDGES} weights; it would have "
            f"{2 * len(i)}. Take fewer nodes."
        ),
    )
    half = sparse.coo_array((np.asarray(weights, dtype=np.float64), (i, j)), shape=(n, n)).tocsr()
    return Graph(half + half.T, source, split)


def whole(call: str, name: str, values: Any) -> Integers:
    """A row of whole numbers of at least 0, as int64; else a sentence."""
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
