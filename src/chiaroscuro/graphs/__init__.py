"""Similarity graphs: where positives come from, and what spectral clustering makes of them."""

from chiaroscuro.graphs.field import CrossEntropy, cross_entropy, cross_entropy_by_enumeration
from chiaroscuro.graphs.graph import Graph, from_edges
from chiaroscuro.graphs.laplacian import LAPLACIANS, laplacian, trace_form
from chiaroscuro.graphs.neighbours import from_augmentations, from_embeddings, nearest
from chiaroscuro.graphs.sampling import Pair, Pairs, Subgraph, sample_subgraph, subgraphs
from chiaroscuro.graphs.sources import (
    block_model,
    from_captions,
    from_labels,
    from_pairs,
    from_views,
)
from chiaroscuro.graphs.spectral import (
    Spectrum,
    n_clusters,
    spectral_clustering,
    spectral_embedding,
    spectral_gap,
)
from chiaroscuro.measures import Clusters, kmeans

__all__ = [
    "LAPLACIANS",
    "Clusters",
    "CrossEntropy",
    "Graph",
    "Pair",
    "Pairs",
    "Spectrum",
    "Subgraph",
    "block_model",
    "cross_entropy",
    "cross_entropy_by_enumeration",
    "from_augmentations",
    "from_captions",
    "from_edges",
    "from_embeddings",
    "from_labels",
    "from_pairs",
    "from_views",
    "kmeans",
    "laplacian",
    "n_clusters",
    "nearest",
    "sample_subgraph",
    "spectral_clustering",
    "spectral_embedding",
    "spectral_gap",
    "subgraphs",
    "trace_form",
]
