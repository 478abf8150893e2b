"""Where points go on the page: principal and spectral axes, aligned from epoch to epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chiaroscuro.errors import InputError, install_command, need
from chiaroscuro.measures import nearest, spaced, unit

__all__ = [
    "MAPS",
    "Graph",
    "aligned",
    "principal_axes",
    "similarity_graph",
    "umap_of",
    "unit_rows",
]

MAPS = ("tsne", "umap")
"""Maps that may be asked for beside the principal and spectral axes."""

LANDMARKS = 1000
"""The spectral axes are those of a graph of at most so many points; the others follow them."""

N_NEIGHBOURS = 10
"""Of the similarity graph [luxburg2007, Sec. 8.2: of the order of log n]."""

_TELEPORT = 0.02  # joins the parts of a graph, as a share of the mean degree


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Return u = x / |x| in float32; a row that is not finite becomes zero, as a zero row is.

    Example:
        >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]])).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0], [0.0, 0.0]]
    """
    x = np.asarray(x, dtype=np.float64)
    return unit(np.where(np.isfinite(x).all(axis=1, keepdims=True), x, 0.0)).astype(np.float32)


def principal_axes(x: np.ndarray, d: int = 2) -> np.ndarray:
    """Return the rows of x in the d directions of largest variance, (n, d).

    The sign of an axis is the one in which its largest loading is positive.

    Args:
        x: (n, p).
        d: axes; those beyond p are zero.

    Example:
        >>> principal_axes(np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 5.0]])).tolist()
        [[-2.0, 0.0], [0.0, 0.0], [2.0, 0.0]]
    """
    x = np.asarray(x, dtype=np.float64)
    x = x - x.mean(axis=0)
    _, vectors = np.linalg.eigh(x.T @ x)
    vectors = vectors[:, ::-1][:, :d]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    out = x @ (vectors * np.where(signs == 0, 1, signs))
    return np.pad(out, ((0, 0), (0, d - out.shape[1])))


def aligned(frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return each frame turned to fit the one after it, so that all stand as the last one does.

        R = argmin over R'R = I of |x R - y|_F = U V',   x'y = U S V'

    Orthogonal Procrustes: distances inside a frame do not change, and what moves on the page is
    what training moved.

    Args:
        frames: (n, d) each, the same rows in all.

    Example:
        >>> last = np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> aligned([last @ [[0.0, 1.0], [-1.0, 0.0]], last])[0].round(12).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    out = [np.asarray(frames[-1], dtype=np.float64)] if frames else []
    for x in reversed(frames[:-1]):
        u, _, vt = np.linalg.svd(x.T @ out[-1])
        out.append(x @ (u @ vt))
    return out[::-1]


@dataclass(frozen=True, eq=False)
class Graph:
    """The similarity graph of embeddings, and what its Laplacian sees.

    Args:
        rows: the landmarks, as rows of the embeddings.
        edges: (m, 2) rows that are each other's neighbour, one way or both.
        eigenvalues: of the normalised Laplacian, the smallest first; the first is 0.
        vectors: (n, k) of every row, the constant one left out.
    """

    rows: np.ndarray
    edges: np.ndarray
    eigenvalues: np.ndarray
    vectors: np.ndarray


def similarity_graph(u: np.ndarray, d: int = 2) -> Graph:
    """Return the graph of the nearest neighbours, and d eigenvectors of its normalised Laplacian.

        L = I - D^(-1/2) W D^(-1/2),   W_ij = 1/2 (one way) or 1 (both), plus a small constant

    which joins parts that no edge joins. The vectors are D^(-1/2) v, harmonic on the graph; a row
    that is no landmark gets the mean of its nearest landmarks (Nystroem).

    Args:
        u: (n, d) unit rows, at least 3.
        d: vectors beside the constant one.

    References:
        tan2024

    Example:
        >>> two = np.repeat(np.eye(2), 8, axis=0) + 0.01 * np.arange(16)[:, None] * [1, -1]
        >>> graph = similarity_graph(unit_rows(two), 1)
        >>> side = graph.vectors[:, 0] > 0
        >>> bool((side[:8] == side[0]).all() and (side[8:] != side[0]).all())
        True
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import LinearOperator, eigsh

    n = len(u)
    need(n >= 3, lambda: f"A similarity graph needs at least 3 rows; received {n}.")
    rows = spaced(n, LANDMARKS)
    m, marks = len(rows), u[rows]
    k = min(N_NEIGHBOURS, m - 1)
    near = nearest(marks, k).ids
    ends = (np.repeat(np.arange(m), k), near.ravel())
    one_way = coo_matrix((np.full(m * k, 0.5), ends), shape=(m, m)).tocsr()
    weights = one_way + one_way.T
    join = _TELEPORT * weights.sum() / m / m
    degree = np.asarray(weights.sum(axis=1)).ravel() + join * m
    root = 1 / np.sqrt(degree)

    def apply(v: np.ndarray) -> np.ndarray:
        scaled = root * v.ravel()
        return root * (weights @ scaled + join * scaled.sum())

    wanted = min(d + 1, m - 1)
    start = np.random.default_rng(0).standard_normal(m)  # a fixed start: the same page each time
    operator = LinearOperator((m, m), matvec=apply, dtype=np.float64)
    values, vectors = eigsh(operator, k=wanted, which="LA", v0=start)
    order = np.argsort(-values)
    vectors = (root[:, None] * vectors[:, order])[:, 1:]
    largest = np.abs(vectors).max(axis=0, initial=0, keepdims=True)
    vectors = vectors / np.where(largest > 0, largest, 1)
    vectors *= np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(wanted - 1)] < 0, -1, 1)
    out = np.zeros((n, d))
    out[rows, : wanted - 1] = vectors
    others = np.setdiff1d(np.arange(n), rows)
    if len(others):
        out[others, : wanted - 1] = vectors[nearest(marks, k, queries=u[others]).ids].mean(axis=1)
    pairs = np.stack([rows[ends[0]], rows[ends[1]]], axis=1)
    edges = np.unique(np.sort(pairs, axis=1), axis=0)
    return Graph(rows, edges, np.clip(1 - values[order], 0, 2), out)


def umap_of(u: np.ndarray) -> np.ndarray:
    """Return the map of unit rows by umap-learn, (n, 2).

    Args:
        u: (n, d) unit rows, at least 3.
    """
    try:
        from umap import UMAP
    except ImportError:
        raise InputError(
            f"The map `umap` needs the package umap-learn: `{install_command('umap')}`."
        ) from None
    return UMAP(n_components=2, random_state=0).fit_transform(u)
