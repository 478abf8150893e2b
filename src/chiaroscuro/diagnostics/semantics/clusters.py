"""Does the embedding have the clusters that its similarity graph has? [tan2024]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.diagnostics.rows import labels_of, rows_of, some_of
from chiaroscuro.errors import need
from chiaroscuro.graphs import (
    Graph,
    from_embeddings,
    kmeans,
    spectral_clustering,
    spectral_embedding,
)
from chiaroscuro.measures.agreement import adjusted_rand, mutual_information
from chiaroscuro.measures.record import Record
from chiaroscuro.numerics import unit

__all__ = ["GraphClusters", "graph_clusters"]

ROWS = 2000
MOST = 20


@dataclass(frozen=True, eq=False)
class GraphClusters(Record):
    """Clusters of the graph, of the embedding, and of labels, and how far they agree.

    `n_clusters` were sought; `suggested` is the number at the largest gap of `eigenvalues`, and
    `gap` that gap. `ari` and `nmi` compare the graph's clusters with the embedding's; with labels,
    `ari_graph_labels`, `nmi_graph_labels`, `ari_labels` and `nmi_labels` compare graph and
    embedding with them, `homophily` is the share of edge weight within classes, and `by_chance`
    what weights without regard to classes would have. `components` and `isolated` count those of
    the graph; `graph` and `embedding` hold the clusters of the rows used.
    """

    n_clusters: int
    suggested: int
    gap: float
    eigenvalues: np.ndarray
    ari: float
    nmi: float
    ari_graph_labels: float | None
    nmi_graph_labels: float | None
    ari_labels: float | None
    nmi_labels: float | None
    homophily: float | None
    by_chance: float | None
    components: int
    isolated: int
    graph: np.ndarray
    embedding: np.ndarray
    rows: np.ndarray
    n: int


def graph_clusters(
    h: Any,
    graph: Any = None,
    labels: Any = None,
    n_clusters: int | None = None,
    rows: int | None = ROWS,
    seed: int = 0,
) -> GraphClusters:
    """Compare spectral clusters of a similarity graph with k-means clusters of the embedding.

        graph: k-means of the first k eigenvectors of its Laplacian;  embedding: k-means of h / |h|

    Contrastive learning is spectral clustering of the graph that says who is whose positive
    [tan2024, Thm 3.1]: the two should agree. ari is 1 for the same clusters and 0 by chance.

    Args:
        h: (n, d) embeddings.
        graph: a `cs.graphs.Graph` on the same n samples (from pairs, captions, labels or
            augmentations), or a matrix (n, d') such as the raw input, whose 15 nearest neighbours
            make one. Without it the neighbours in h itself: then agreement says how clearly h is
            clustered, no more.
        labels: (n,), to compare both with.
        n_clusters: how many; the number of classes, or else what the graph suggests.
        rows: so many at most, drawn by the seed; of a graph the part between them. Thinning a
            sparse graph cuts it up: give None to keep it whole.

    Numerics: the graph is symmetrised. A collapsed h has no clusters: all in one, ari 0.

    References:
        tan2024, luxburg2007

    Example:
        >>> noise = np.random.default_rng(0).normal(size=(60, 3))
        >>> h = np.repeat(np.eye(3), 20, axis=0) + 0.01 * noise
        >>> clusters = graph_clusters(h, labels=np.repeat([0, 1, 2], 20))
        >>> clusters.suggested, clusters.ari, clusters.ari_labels
        (3, 1.0, 1.0)
    """
    call = "graph_clusters(h, graph)"
    x = rows_of(call, h, 4)
    y = None if labels is None else labels_of(call, labels, len(x)).numpy()
    kept = some_of(call, len(x), rows, seed).numpy()
    u = unit(x[kept]).numpy()
    similarity = _graph(call, u if graph is None else graph, kept, len(x))
    m = len(kept)
    most = min(MOST, m - 1)
    spectrum = spectral_embedding(similarity, most + 1).values
    gaps = np.diff(spectrum)
    suggested = int(np.argmax(gaps > gaps.max() - 1e-9)) + 1
    truth = None if y is None else y[kept]
    k = n_clusters or (suggested if truth is None else len(np.unique(truth)))
    need(1 <= k <= m, lambda: f"`{call}` needs 1 to {m} clusters; received {k}.")
    of_graph = spectral_clustering(similarity, k, seed=seed)
    collapsed = bool(np.ptp(u, axis=0).max() < 1e-9)
    of_rows = np.zeros(m, dtype=np.int64) if collapsed else kmeans(u, k, seed).labels
    names = ("ari_graph_labels", "nmi_graph_labels", "ari_labels", "nmi_labels")
    compared: dict[str, float | None] = dict.fromkeys((*names, "homophily", "by_chance"))
    if truth is not None:
        edges = similarity.weights.tocoo()
        same = truth[edges.coords[0]] == truth[edges.coords[1]]
        total = float(edges.data.sum())
        mass = np.bincount(truth, weights=similarity.degrees)
        compared = {
            "ari_graph_labels": adjusted_rand(of_graph, truth),
            "nmi_graph_labels": mutual_information(of_graph, truth),
            "ari_labels": adjusted_rand(of_rows, truth),
            "nmi_labels": mutual_information(of_rows, truth),
            "homophily": float(edges.data[same].sum()) / total if total else None,
            "by_chance": float((mass**2).sum()) / total**2 if total else None,
        }
    return GraphClusters(
        n_clusters=k,
        suggested=suggested,
        gap=float(gaps[suggested - 1]),
        eigenvalues=spectrum,
        ari=adjusted_rand(of_graph, of_rows),
        nmi=mutual_information(of_graph, of_rows),
        **compared,
        components=int(similarity.components().max()) + 1,
        isolated=len(similarity.isolated),
        graph=of_graph,
        embedding=of_rows,
        rows=kept,
        n=len(x),
    )


def _graph(call: str, source: Any, kept: np.ndarray, n: int) -> Graph:
    """A symmetric graph on the rows that are kept."""
    if isinstance(source, Graph):
        need(
            source.n == n,
            lambda: f"`{call}` needs a graph on the {n} rows of h; received one of {source.n}.",
        )
        part = Graph(source.weights[kept][:, kept], source.source)
        return part if part.symmetric else part.symmetrised()
    x = rows_of(call, source, 4)
    need(
        len(x) in (n, len(kept)),
        lambda: f"`{call}` needs {n} rows to make a graph of; received {len(x)}.",
    )
    x = x[kept] if len(x) == n and n != len(kept) else x
    need(
        bool((unit(x) - unit(x)[0]).abs().max() > 1e-9),
        lambda: f"`{call}` needs rows that differ to find neighbours; all {len(x)} are the same.",
    )
    return from_embeddings(x, min(15, len(x) - 1))
