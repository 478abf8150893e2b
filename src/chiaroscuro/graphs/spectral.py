"""Spectral embedding and clustering: the bottom of a Laplacian's spectrum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.graphs.eigen import bottom
from chiaroscuro.graphs.graph import Floats, Graph, Integers, counted, unlike
from chiaroscuro.graphs.laplacian import LAPLACIANS, laplacian
from chiaroscuro.measures import kmeans

__all__ = ["Spectrum", "n_clusters", "spectral_clustering", "spectral_embedding", "spectral_gap"]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The smallest eigenvalues of a Laplacian and their vectors.

    Args:
        values: (k,), ascending.
        vectors: (n, k), unit columns; orthogonal but for "random walk". In each the largest entry
            by size is positive (the first of those equal to 1e-6).
        residuals: (k,), |L v - value v|.
        kind: which Laplacian.
        n_components: components of the graph.
    """

    values: Floats
    vectors: Floats
    residuals: Floats
    kind: str
    n_components: int


def spectral_embedding(
    graph: Graph, k: int, kind: str = "symmetric", tolerance: float = 1e-8
) -> Spectrum:
    """Return the k eigenvectors of a Laplacian with the smallest eigenvalues.

        L v_m = lambda_m v_m,   0 = lambda_1 <= ... <= lambda_k:   argmin tr(Z^T L Z), Z^T Z = I

    Eigenvalues of the symmetric and random-walk Laplacians lie in [0, 2]; 2 is reached by
    bipartite graphs only. With "generalised" this is the spectral clustering of [tan2024, Thm 4.2]
    for pair graphs and other asymmetric P.

    Components are solved one by one: for each there is an eigenvalue 0, whose vector lives on that
    component (D^1/2 1 or 1); if there are more than k, those of the k largest (by nodes, then by
    first node) are given. So disconnected graphs, and equal components, are no special case. Where
    an eigenvalue of one component is multiple its vectors are known up to a rotation; else up to
    the sign, which is fixed as `Spectrum` says.

    Relations: "random walk" has the values of "symmetric" and its vectors times D^-1/2. The sum of
    the values is the trace at its minimum.

    Args:
        graph: symmetric weights, except for "generalised".
        k: how many, the trivial ones included.
        kind: "symmetric" [ng2001], "unnormalised", "random walk" [shi2000] or "generalised".
        tolerance: tolerance of the residuals, relative to the largest eigenvalue; they are
            returned.

    Numerics: float64. Components of up to 512 nodes are solved densely, larger ones by implicitly
    restarted Lanczos on the largest eigenvalues of the mirrored operator, from a fixed start.

    References:
        tan2024, luxburg2007, ng2001, shi2000

    Example:
        >>> path = Graph(np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1))
        >>> spectral_embedding(path, 3, "unnormalised").values.round(6).tolist()
        [0.0, 1.0, 3.0]
    """
    call = "spectral_embedding(graph, k)"
    counted(call, "eigenvectors", k, 1, graph.n)
    need(
        kind in LAPLACIANS,
        lambda: f"`{call}` needs a kind of {', '.join(LAPLACIANS)}; received `{kind}`.",
    )
    need(
        kind == "generalised" or graph.symmetric,
        lambda: (
            f"`{call}` needs symmetric weights for the kind `{kind}`; those of {unlike(graph)} "
            f'pairs of {graph.n} nodes differ. Take kind="generalised", or `graph.symmetrised()`.'
        ),
    )
    need(
        0 < tolerance < 1,
        lambda: f"`{call}` needs a tolerance between 0 and 1; received {tolerance}.",
    )
    L = laplacian(graph, "symmetric" if kind == "random walk" else kind)
    scaled = kind in ("symmetric", "random walk")
    null = np.where(graph.degrees > 0, np.sqrt(graph.degrees), 1.0) if scaled else np.ones(graph.n)
    components = graph.components()
    values, vectors = bottom(L, null, components, k, tolerance)
    if kind == "random walk":
        L = laplacian(graph, kind)
        vectors = vectors / null[:, None]
        vectors /= np.linalg.norm(vectors, axis=0)
    vectors = _signed(vectors)
    residuals = np.linalg.norm(L @ vectors - vectors * values, axis=0)
    return Spectrum(values, vectors, residuals, kind, int(components.max()) + 1)


def spectral_clustering(
    graph: Graph, k: int, kind: str = "symmetric", seed: int = 0, n_starts: int = 10
) -> Integers:
    """Cluster the nodes by k-means of the spectral embedding.

    Rows of the k first eigenvectors; for "symmetric" divided by their norms [ng2001], else as they
    are. Clusters are numbered in the order of their first nodes.

    A graph of k components gives these; of more than k, the k - 1 largest apart from the rest at
    best, for the embedding holds no more. On a bipartite graph both sides are clustered together;
    for pair graphs take "generalised" [tan2024, Thm 4.2].

    Args:
        graph: as for `spectral_embedding`.
        k: how many clusters; `n_clusters(graph)` suggests one.
        kind: kind of Laplacian.
        seed, n_starts: of `kmeans`.

    References:
        ng2001, luxburg2007, tan2024

    Example:
        >>> from chiaroscuro.graphs.sources import from_labels
        >>> spectral_clustering(from_labels([0, 1, 0, 1, 1]), k=2).tolist()
        [0, 1, 0, 1, 1]
    """
    vectors = spectral_embedding(graph, k, kind).vectors
    if kind == "symmetric":
        sizes = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(sizes > 0, sizes, 1.0)
    return kmeans(vectors, k, seed, n_starts).labels


def spectral_gap(graph: Graph, k: int, kind: str = "symmetric") -> float:
    """lambda_{k+1} - lambda_k: how clearly the graph falls into k parts [luxburg2007, Sec. 8.3].

    At least 0; for k = 1 it is the algebraic connectivity, 0 if the graph is not connected.

    Args:
        graph, kind: as for `spectral_embedding`.
        k: 1 to n - 1.

    References:
        luxburg2007

    Example:
        >>> round(spectral_gap(Graph(np.ones((4, 4)) - np.eye(4)), 1), 6)  # complete: 4/3
        1.333333
    """
    counted("spectral_gap(graph, k)", "clusters", k, 1, graph.n - 1)
    values = spectral_embedding(graph, k + 1, kind).values
    return float(values[k] - values[k - 1])


def n_clusters(graph: Graph, most: int = 20, kind: str = "symmetric") -> int:
    """Return the number of clusters that the spectrum suggests: where its largest gap is.

        argmax_{1 <= k <= most} lambda_{k+1} - lambda_k      [luxburg2007, Sec. 8.3]

    A heuristic: clear for clusters that are clear, arbitrary where no gap stands out.

    Args:
        graph, kind: as for `spectral_embedding`.
        most: the largest number considered; equal gaps go to the smaller number.

    References:
        luxburg2007

    Example:
        >>> from chiaroscuro.graphs.sources import block_model
        >>> n_clusters(block_model([40, 40, 40], p=0.6, q=0.05))
        3
    """
    need(
        most >= 1 and graph.n >= 2,
        lambda: (
            f"`n_clusters(graph, most)` needs at least 1 cluster and 2 nodes; received {most} and "
            f"{graph.n}."
        ),
    )
    values = spectral_embedding(graph, min(most + 1, graph.n), kind).values
    gaps = np.diff(values)
    return int(np.argmax(gaps > gaps.max() - 1e-9)) + 1


def _signed(vectors: Floats) -> Floats:
    """Columns whose largest entry by size, the first of those equal to 1e-6, is positive."""
    size = np.abs(vectors)
    at = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)
    return vectors * np.where(vectors[at, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
