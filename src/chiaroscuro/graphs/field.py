"""The cross-entropy of two Markov random fields on subgraphs: InfoNCE on a similarity graph."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.graphs.graph import Graph
from chiaroscuro.graphs.sampling import subgraphs
from chiaroscuro.kernels import Kernel
from chiaroscuro.pairwise import Layout, log_sum_exp

__all__ = ["CrossEntropy", "cross_entropy", "cross_entropy_by_enumeration"]

_EDGES_AT_ONCE = 1 << 20
_MOST_SUBGRAPHS = 1 << 20


@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """H = sum over nodes of `repel` - `attract` [tan2024, Lemmas 2.3 to 2.5].

    Args:
        attract: (n,), sum_j P_ij log k(z_i, z_j).
        repel: (n,), log sum_j k(z_i, z_j) over the candidates of i.
    """

    attract: Tensor
    repel: Tensor

    @property
    def per_node(self) -> Tensor:
        """H_i, the expected InfoNCE of anchor i [Lemma 2.4]: they add up to H."""
        return self.repel - self.attract

    @property
    def total(self) -> Tensor:
        """H, eq. (3)."""
        return self.per_node.sum()

    @property
    def log_R(self) -> Tensor:
        """log R(Z), the repulsion of eq. (4): the log of a sum over all subgraphs."""
        return self.repel.sum()


def cross_entropy(graph: Graph, z: Tensor, kernel: Kernel) -> CrossEntropy:
    """Return the cross-entropy between the graph and the embeddings.

        H(Z) = -E_{W ~ P(.; pi)} log P(W; K_Z)                                [tan2024, eq. 3]
             = -sum_ij P_ij log k(z_i, z_j) + log R(Z),   log R = sum_i log sum_j k(z_i, z_j)

    P = D^-1 W, and j runs over the candidates of i: all others, or, on a bipartite graph, all of
    the other side [Thm 4.2]. Both laws factor into rows (Lemma 2.3), so the sum over subgraphs is a
    sum over nodes, and each term is the InfoNCE of an anchor, averaged over its positives.

    Relations:
        H = (1/tau) tr(Z^T L Z) + log R for `Gaussian(tau)`, L the generalised Laplacian: spectral
        clustering with a repulsion [Thm 3.1]. For weights 0 and 1 the operator is L(D^-1 A).
        On `from_views(n)` it is 2n InfoNCE(kernel, AllButSelf()); on one-to-one `from_pairs`,
        2n InfoNCE(kernel, OtherView()).
        Drawing edges instead of nodes, as CLIP does, weighs `per_node` by the degrees.

    Args:
        graph: every node needs an edge; at least two nodes (one on each side).
        z: (n, d) embeddings of the nodes; gradients flow.
        kernel: kernel of the embeddings. tan2024's tau at gamma = 2 is twice that of `Gaussian`.

    Numerics: log R in tiles, never the n x n matrix; the attraction over edges from differences.

    References:
        tan2024, vanassel2022

    Example:
        >>> from chiaroscuro.kernels import Gaussian
        >>> graph = Graph(np.ones((3, 3)) - np.eye(3))
        >>> H = cross_entropy(graph, torch.zeros(3, 2), Gaussian(tau=0.5))
        >>> round(float(H.total), 4)  # collapsed: 3 log 2
        2.0794
    """
    _check("cross_entropy(graph, z)", graph, z)
    p = graph.row_normalised().weights
    rows = torch.from_numpy(np.repeat(np.arange(graph.n), np.diff(p.indptr)))
    columns = torch.from_numpy(p.indices.astype(np.int64))
    log_k = torch.cat(
        [
            kernel.log_paired(z[i], z[j])
            for i, j in zip(rows.split(_EDGES_AT_ONCE), columns.split(_EDGES_AT_ONCE), strict=True)
        ]
    )
    weights = torch.from_numpy(p.data).to(log_k)
    attract = log_k.new_zeros(graph.n).index_add(0, rows, weights * log_k)
    if graph.split is None:
        repel = _sums(kernel, z, Layout.within(graph.n))
    else:
        a, b = z[: graph.split], z[graph.split :]
        repel = torch.cat([_across(kernel, a, b), _across(kernel, b, a)])
    return CrossEntropy(attract, repel)


def cross_entropy_by_enumeration(graph: Graph, z: Tensor, kernel: Kernel) -> Tensor:
    """H as eq. (3) of [tan2024] says it, by going through all subgraphs: an oracle for small n.

    Both laws come from Def. 2.2, products over edges divided by their sum over *all* subgraphs of
    out-degree one; nothing about rows is used. (n-1)^n subgraphs: n up to about 7.

    Relations: it equals `cross_entropy(graph, z, kernel).total`.

    References:
        tan2024

    Example:
        >>> from chiaroscuro.kernels import Gaussian
        >>> pair = Graph(np.array([[0, 1], [1, 0]]))
        >>> float(cross_entropy_by_enumeration(pair, torch.tensor([[0.0], [1.0]]), Gaussian(1.0)))
        0.0
    """
    _check("cross_entropy_by_enumeration(graph, z)", graph, z)
    n, split = graph.n, graph.split
    others = [
        [j for j in range(n) if j != i and (split is None or (i < split) != (j < split))]
        for i in range(n)
    ]
    count = float(np.prod([float(len(x)) for x in others]))
    need(
        count <= _MOST_SUBGRAPHS,
        lambda: (
            f"`cross_entropy_by_enumeration` needs at most {_MOST_SUBGRAPHS} subgraphs; {n} nodes "
            f"have {count:.3g}."
        ),
    )
    log_k = kernel.log(z, z)
    every = torch.tensor(list(itertools.product(*others)))
    node = torch.arange(n)
    log_R = torch.logsumexp(log_k[node, every].sum(dim=1), dim=0)
    return sum(
        (
            -probability * (log_k[node, torch.from_numpy(partners)].sum() - log_R)
            for partners, probability in subgraphs(graph)
        ),
        start=log_k.new_zeros(()),
    )


def _across(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """log sum_j k(a_i, b_j) for each i: one view, whose only candidates are a queue."""
    layout = Layout(
        n=len(a),
        views=1,
        queue=len(b),
        own_view=False,
        other_view=False,
        positive=False,
        both=False,
        window=(0, len(a)),
    )
    return _sums(kernel, torch.cat([a, b]), layout)


def _sums(kernel: Kernel, z: Tensor, layout: Layout) -> Tensor:
    return log_sum_exp(kernel, z, layout)[1][0]


def _check(call: str, graph: Graph, z: Tensor) -> None:
    need(
        isinstance(z, Tensor) and z.is_floating_point() and z.ndim == 2 and len(z) == graph.n,
        lambda: (
            f"`{call}` needs a tensor of floating-point rows (n, d), one for each of {graph.n} "
            f"nodes; received {type(z).__name__} of {getattr(z, 'dtype', 'no dtype')} and shape "
            f"{tuple(getattr(z, 'shape', ()))}."
        ),
    )
    lonely = graph.isolated
    need(
        graph.n >= 2 and len(lonely) == 0,
        lambda: (
            f"`{call}` needs an edge from every node, its positives; {len(lonely)} of {graph.n} "
            "have none. Leave them out."
        ),
    )
