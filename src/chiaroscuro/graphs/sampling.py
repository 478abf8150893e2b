"""Subgraphs in which one edge leaves every node, and the batches that InfoNCE makes of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.graphs.graph import Floats, Graph, Integers, counted, random

__all__ = ["Pair", "Pairs", "Subgraph", "sample_subgraph", "subgraphs"]

_MOST_SUBGRAPHS = 1 << 20


class Subgraph(NamedTuple):
    """A subgraph W with one edge from every node, and its probability."""

    partners: Integers
    probability: float


class Pair(NamedTuple):
    """Anchors and their partners, as node indices."""

    anchors: Integers
    partners: Integers


def sample_subgraph(graph: Graph, seed: int = 0, step: int = 0) -> Integers:
    """Return the partner of every node: W ~ P(. ; pi), whose every node has out-degree one.

        P(W; pi) ~ prod_i 1[sum_j W_ij = 1] prod_ij pi_ij^W_ij    [tan2024, Def. 2.2]
        so that W_i ~ Multinomial(1, pi_i / sum_j pi_ij), independently    [Lemma 2.3]

    Args:
        graph: every node needs an edge that leaves it.
        seed, step: the subgraph is a function of both.

    Numerics: marginals are exact to rounding of float64, for row sums are taken row by row.

    References:
        tan2024

    Example:
        >>> sample_subgraph(Graph(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))).tolist()
        [1, 2, 0]
    """
    lonely = graph.isolated
    need(
        len(lonely) == 0,
        lambda: (
            f"`sample_subgraph(graph)` needs an edge from each of {graph.n} nodes; {len(lonely)} "
            f"have none, the first is node {lonely[0]}."
        ),
    )
    u = random("sample_subgraph(graph, seed, step)", seed, step).random(graph.n)
    return _partners(graph, row_sums(graph), np.arange(graph.n), u)


def subgraphs(graph: Graph) -> Iterator[Subgraph]:
    """Yield every subgraph of out-degree one that has a probability, with it [tan2024, Def. 2.2].

    The probabilities come from the definition: the product of weights over its sum over all
    subgraphs, not row by row. For small graphs: there are prod_i (edges of i) of them.

    Example:
        >>> W = np.array([[0, 1, 3], [1, 0, 0], [1, 0, 0]])
        >>> [(s.partners.tolist(), s.probability) for s in subgraphs(Graph(W))]
        [([1, 0, 0], 0.25), ([2, 0, 0], 0.75)]
    """
    w = graph.weights
    count = float(np.prod(np.diff(w.indptr).astype(np.float64)))
    need(
        1 <= count <= _MOST_SUBGRAPHS,
        lambda: (
            f"`subgraphs(graph)` needs 1 to {_MOST_SUBGRAPHS} subgraphs; this graph of {graph.n} "
            f"nodes has {count:.3g}."
        ),
    )
    rows = [range(w.indptr[i], w.indptr[i + 1]) for i in range(graph.n)]
    chosen = np.array(list(itertools.product(*rows)), dtype=np.int64)
    products = w.data[chosen].prod(axis=1)
    for edges, probability in zip(chosen, products / products.sum(), strict=True):
        yield Subgraph(w.indices[edges].astype(np.int64), float(probability))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Batches of positive pairs drawn from a graph, for InfoNCE.

        anchor i: uniform over nodes;   partner j: with probability P_ij

    The batch at a step is a function of (seed, step): the same whoever asks, in whatever order. On
    a bipartite graph the first of a pair is always on the first side (the anchor, or else the
    partner), so that z_a[anchors], z_b[partners - split] are two paired views.

    Relations: the anchors and partners of a batch are those rows of one `sample_subgraph`, in law.

    Args:
        graph: nodes without edges are never drawn.
        batch: pairs of a step; 50 in [tan2024, App. C].
        seed: seed of the draws.
        by: "nodes": distinct nodes, each as likely [tan2024, Thm 4.2]; "edges": distinct stored
            weights (on a bipartite graph, edges from its first side), each drawn as likely as it
            weighs, as CLIP samples its pairs.

    Numerics: by "edges" with unequal weights, distinct edges are drawn one after the other, each
    in proportion among those that are left.

    References:
        tan2024, radford2021clip

    Example:
        >>> pairs = Pairs(Graph(np.ones((4, 4)) - np.eye(4)), batch=3, seed=1)
        >>> first, again = pairs.at(0), pairs.at(0)
        >>> bool((first.partners == again.partners).all()), len(first.anchors)
        (True, 3)
        >>> bool((first.anchors != first.partners).all())
        True
    """

    graph: Graph
    batch: int
    seed: int = 0
    by: str = "nodes"

    def __post_init__(self) -> None:
        need(
            self.by in ("nodes", "edges"),
            lambda: f'`Pairs(by)` needs "nodes" or "edges"; received {self.by!r}.',
        )
        most = len(self._nodes) if self.by == "nodes" else len(self._edges)
        need(most >= 1, lambda: f"`Pairs(graph)` needs at least 1 edge; received {self.graph}.")
        counted("Pairs(batch)", f"of the {self.by} that can be drawn", self.batch, 1, most)

    @cached_property
    def _nodes(self) -> Integers:
        return np.flatnonzero(np.diff(self.graph.weights.indptr) > 0)

    @cached_property
    def _edges(self) -> Integers:
        w, split = self.graph.weights, self.graph.split
        return np.arange(w.nnz if split is None else w.indptr[split])

    @cached_property
    def _sums(self) -> Floats:
        return row_sums(self.graph)

    @cached_property
    def _shares(self) -> Floats | None:
        data = self.graph.weights.data[self._edges]
        return None if (data == data[0]).all() else data / data.sum()

    def at(self, step: int) -> Pair:
        """Return the pairs of a step."""
        rng, w = random("Pairs.at(step)", self.seed, step), self.graph.weights
        if self.by == "edges":
            edges = rng.choice(self._edges, self.batch, replace=False, p=self._shares)
            anchors = np.searchsorted(w.indptr, edges, side="right") - 1
            return Pair(anchors.astype(np.int64), w.indices[edges].astype(np.int64))
        anchors = rng.choice(self._nodes, self.batch, replace=False)
        partners = _partners(self.graph, self._sums, anchors, rng.random(self.batch))
        if self.graph.split is not None:
            first = anchors < self.graph.split
            anchors, partners = (
                np.where(first, anchors, partners),
                np.where(first, partners, anchors),
            )
        return Pair(anchors, partners)

    def steps(self, start: int = 0) -> Iterator[Pair]:
        """Step after step without end."""
        return (self.at(step) for step in itertools.count(start))


def row_sums(graph: Graph) -> Floats:
    """Running sums of each row's probabilities, the last of a row exactly 1.

    Summed inside each row by doubling, so that rounding does not grow with the number of rows.
    """
    p = graph.row_normalised().weights
    sizes = np.diff(p.indptr)
    place = np.arange(p.nnz) - np.repeat(p.indptr[:-1], sizes)
    sums = p.data.copy()
    reach = 1
    while reach < (sizes.max() if len(sizes) else 0):
        sums[reach:] += np.where(place[reach:] >= reach, sums[:-reach], 0.0)
        reach *= 2
    last = p.indptr[1:][sizes > 0] - 1
    sums[last] = 1.0
    return sums


def _partners(graph: Graph, sums: Floats, rows: Integers, u: Floats) -> Integers:
    """For each row the first neighbour whose running sum exceeds u, by bisection of all rows."""
    indptr = graph.weights.indptr
    low, high = indptr[rows].astype(np.int64), indptr[rows + 1].astype(np.int64) - 1
    while (low < high).any():
        middle = (low + high) // 2
        above = sums[middle] > u
        low, high = np.where(above, low, middle + 1), np.where(above, middle, high)
    return graph.weights.indices[low].astype(np.int64)
