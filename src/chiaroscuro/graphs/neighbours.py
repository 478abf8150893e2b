"""Graphs found in data: nearest neighbours of embeddings, and how alike views are on average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.graphs.graph import Graph, counted
from chiaroscuro.kernels import Kernel
from chiaroscuro.measures import METRICS, nearest, rows_of

__all__ = ["JOINS", "METRICS", "from_augmentations", "from_embeddings", "nearest"]

JOINS = ("union", "mutual", "directed")
TILE = 1024


def from_embeddings(
    z: Any,
    n_neighbours: int = 15,
    metric: str = "cosine",
    join: str = "union",
    kernel: Kernel | None = None,
) -> Graph:
    """Return the exact nearest-neighbour graph of embeddings.

        weights_ij = k(z_i, z_j), or 1 without a kernel, if j is among the nearest of i (see `join`)

    Relations: a rotation of all rows changes nothing, nor does a factor on any row if the metric is
    the cosine; n_neighbours = n - 1 gives the complete graph.

    Args:
        z: (n, d) embeddings, tensor or array.
        n_neighbours: 15, a common choice; few keep the graph sparse, too few break it up.
        metric: "cosine" (a zero row is at cosine 0 from all) or "euclidean".
        join: "union": an edge if either is among the nearest of the other; "mutual": if both are;
            "directed": rows as they are, n_neighbours each.
        kernel: weighs the edges; without one they weigh 1.

    Numerics: float64. Distances that decide are recomputed from differences, and equal ones go to
    the lower index, so the graph does not depend on tiles or threads. Never holds n x n numbers.

    References:
        luxburg2007

    Example:
        >>> z = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> from_embeddings(z, n_neighbours=1).weights.toarray().astype(int).tolist()
        [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    """
    x = _rows("from_embeddings(z)", z)
    need(
        join in JOINS,
        lambda: f"`from_embeddings(join)` needs one of {', '.join(JOINS)}; received `{join}`.",
    )
    at, _ = nearest(x, n_neighbours, metric)
    n = len(x)
    i, j = np.repeat(np.arange(n), n_neighbours), at.ravel()
    w = sparse.coo_array((np.ones(len(i)), (i, j)), shape=(n, n)).tocsr()
    if join != "directed":
        w = w.maximum(w.T) if join == "union" else w.minimum(w.T)
    if kernel is not None:
        edges = w.tocoo()
        i, j = edges.coords
        k = [
            kernel.log_paired(x[i[s : s + TILE * 64]], x[j[s : s + TILE * 64]]).exp()
            for s in range(0, len(i), TILE * 64)
        ]
        w = sparse.csr_array((torch.cat(k).detach().numpy(), (i, j)), shape=(n, n))
        if join != "directed":
            w = (w + w.T) / 2  # k is symmetric up to rounding; now exactly
    weighed = "" if kernel is None else f", weighed by {kernel!r}"
    return Graph(w, f"{n_neighbours} nearest by {metric}, {join}{weighed}")


def from_augmentations(
    view: Callable[[int], Any], kernel: Kernel, n_draws: int, n_neighbours: int
) -> Graph:
    """Return the augmentation graph, by sampling: the mean similarity of views of two samples.

        weights_ij = (1/T) sum_t [k(v_2t(x_i), v_2t+1(x_j)) + k(v_2t(x_j), v_2t+1(x_i))] / 2

    for i != j: an unbiased estimate of E k(v(x_i), v'(x_j)) over two independent augmentations,
    from T = n_draws pairs of views of all samples. Of these, each row keeps its n_neighbours
    largest, and an edge stays if either end keeps it; what is dropped is the estimate's tail.

    Relations: views that leave everything as it is give k(x_i, x_j) itself; for x + s * noise and
    `Gaussian(tau)` the mean is (tau / (tau + 2 s^2))^(d/2) exp(-|x_i - x_j|^2 / (2 (tau + 2 s^2))).

    Args:
        view: `view(t)` is draw t of the views of all samples, row by row, (n, d): pixels,
            or what an encoder makes of them.
        kernel: how alike two views are.
        n_draws: pairs of views; the standard error of a weight falls with its root.
        n_neighbours: kept of each row.

    Numerics: float64, in tiles of rows; holds the 2 n_draws views. Equal weights: the lower index.

    References:
        haochen2021spectral, tan2024

    Example:
        >>> from chiaroscuro.kernels import Gaussian
        >>> x = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
        >>> graph = from_augmentations(lambda t: x, Gaussian(tau=1.0), n_draws=1, n_neighbours=2)
        >>> round(float(graph.weights[0, 1]), 6)  # exp(-1/2)
        0.606531
    """
    call = "from_augmentations(view)"
    need(n_draws >= 1, lambda: f"`{call}` needs at least 1 draw; received {n_draws}.")
    views = [_rows(call, view(t)) for t in range(2 * n_draws)]
    n, shapes = len(views[0]), {tuple(v.shape) for v in views}
    need(
        len(shapes) == 1,
        lambda: f"`{call}` needs views of one shape; received {sorted(shapes)}.",
    )
    counted(call, f"neighbours of {n} rows", n_neighbours, 1, n - 1)
    tiles = []
    for start in range(0, n, TILE):
        rows = slice(start, min(start + TILE, n))
        k = torch.zeros(rows.stop - rows.start, n, dtype=torch.float64)
        for one, two in zip(views[::2], views[1::2], strict=True):
            for a, b in ((one, two), (two, one)):
                k += kernel.log(a[rows], b).exp().detach()
        k /= 2 * n_draws
        k[torch.arange(len(k)), torch.arange(rows.start, rows.stop)] = -1.0  # never oneself
        kept = np.argsort(-k.numpy(), axis=1, kind="stable")[:, :n_neighbours]
        i = np.repeat(np.arange(len(k)), n_neighbours)
        part = (k.numpy()[i, kept.ravel()], (i, kept.ravel()))
        tiles.append(sparse.coo_array(part, shape=(len(k), n)).tocsr())
    w = sparse.vstack(tiles).tocsr()
    kept_by = f"{n_neighbours} kept of a row, {n_draws} pairs of views"
    return Graph(w.maximum(w.T), f"mean {kernel!r} of augmentations, {kept_by}")


def _rows(call: str, z: Any) -> Tensor:
    """Return the rows as a float64 tensor without gradient; a sentence if they are no finite
    matrix.
    """
    return torch.tensor(rows_of(call, z))
