"""Laplacians of a similarity graph, and the trace that spectral clustering makes small."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.graphs.graph import Graph, unlike

__all__ = ["LAPLACIANS", "laplacian", "trace_form"]

LAPLACIANS = ("unnormalised", "symmetric", "random walk", "generalised")


def laplacian(graph: Graph, kind: str = "symmetric") -> sparse.csr_array:
    """Return a Laplacian of the graph, with D the diagonal of row sums.

        unnormalised    L(W) = D - W                                    [tan2024, Def. 2.6]
        symmetric       I - D^-1/2 W D^-1/2
        random walk     I - D^-1 W = L(P),  P = D^-1 W
        generalised     (L(P) + L(P^T)) / 2

    "generalised" is what contrastive learning sees [tan2024, Thm 3.1 and 4.2]: the law of the
    positive of i is row i of P, which need not be symmetric even where W is, and the trace
    tr(Z^T L(P) Z) equals half the sum of P_ij |z_i - z_j|^2 only after this symmetrisation (or on
    the sphere). The symmetric one needs symmetric weights. All but L(W) and L(P) of asymmetric
    graphs are symmetric and positive semi-definite; then the multiplicity of the eigenvalue 0 is
    the number of components.

    Relations: for a d-regular symmetric graph all are L(W) / d. "generalised" is the unnormalised
    one of `graph.row_normalised().symmetrised()`.

    Args:
        graph: a similarity graph.
        kind: one of `LAPLACIANS`.

    Numerics: a node without edges has a row of zeros in each.

    References:
        tan2024, luxburg2007

    Example:
        >>> complete = Graph(np.ones((3, 3)) - np.eye(3))
        >>> laplacian(complete, "unnormalised").toarray().tolist()
        [[2.0, -1.0, -1.0], [-1.0, 2.0, -1.0], [-1.0, -1.0, 2.0]]
    """
    need(
        kind in LAPLACIANS,
        lambda: f"`laplacian(kind)` needs one of {', '.join(LAPLACIANS)}; received `{kind}`.",
    )
    if kind == "symmetric":
        need(
            graph.symmetric,
            lambda: (
                "`laplacian(kind='symmetric')` needs symmetric weights; those of "
                f"{unlike(graph)} pairs of {graph.n} nodes differ. Take "
                '"generalised", or `graph.symmetrised()`.'
            ),
        )
        has = graph.degrees > 0
        root = np.where(has, 1 / np.sqrt(np.where(has, graph.degrees, 1.0)), 0.0)
        scale = sparse.diags_array(root)
        return (sparse.diags_array(has * 1.0) - scale @ graph.weights @ scale).tocsr()
    if kind == "random walk":
        graph = graph.row_normalised()
    if kind == "generalised":
        graph = graph.row_normalised().symmetrised()
    return (sparse.diags_array(graph.degrees) - graph.weights).tocsr()


def trace_form(graph: Graph, z: Any) -> Tensor:
    """tr(Z^T L Z) = 1/2 sum_ij P_ij |z_i - z_j|^2, L the generalised Laplacian [tan2024, Thm 3.1].

    From 0, where joined nodes coincide.

    Relations: divided by tau it is the attraction of `cross_entropy` with `Gaussian(tau)`.

    Args:
        graph: a similarity graph, row-normalised or not.
        z: (n, d) embeddings; gradients flow.

    Numerics: summed over edges from differences.

    References:
        tan2024

    Example:
        >>> float(trace_form(Graph(np.array([[0, 1], [1, 0]])), torch.tensor([[0.0], [2.0]])))
        4.0
    """
    p = graph.row_normalised().weights.tocoo()
    i, j = (torch.from_numpy(x.astype(np.int64)) for x in p.coords)
    x = torch.as_tensor(z)
    need(
        x.ndim == 2 and len(x) == graph.n,
        lambda: (
            f"`trace_form(graph, z)` needs a row for each of {graph.n} nodes; received "
            f"{tuple(x.shape)}."
        ),
    )
    weights = torch.from_numpy(p.data).to(x)
    return (weights * (x[i] - x[j]).square().sum(dim=1)).sum() / 2
