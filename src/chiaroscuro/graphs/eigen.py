"""The smallest eigenvalues of a sparse Laplacian, component by component."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from chiaroscuro.graphs.graph import Floats, Integers

__all__ = ["bottom"]

_DENSE = 512
"""Up to this many nodes a component is solved densely."""


def bottom(
    L: sparse.csr_array, null: Floats, components: Integers, k: int, tolerance: float
) -> tuple[Floats, Floats]:
    """Return the k smallest eigenvalues, ascending, and orthonormal vectors (n, k).

    Args:
        L: symmetric, positive semi-definite, block diagonal over the components.
        null: on each component, the vector of its eigenvalue 0.
        components: of each node, 0 to c - 1.
        k: 1 to n.
        tolerance: relative, of the eigenvalues.
    """
    n = len(null)
    count = int(components.max()) + 1
    order = np.argsort(components, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(components))[:-1])
    largest = sorted(range(count), key=lambda c: (-len(members[c]), members[c][0]))
    zeros = [(0.0, members[c], null[members[c]]) for c in largest[:k]]
    pairs = []
    if count < k:
        for c in largest:
            at = members[c]
            wanted = min(k - count, len(at) - 1)
            if wanted > 0:
                block = L if count == 1 else L[at][:, at].tocsr()
                values, vectors = _connected(block, null[at], wanted, tolerance)
                pairs += [(float(x), at, v) for x, v in zip(values, vectors.T, strict=True)]
    pairs.sort(key=lambda pair: (pair[0], pair[1][0]))
    values, vectors = np.zeros(k), np.zeros((n, k))
    for m, (value, at, vector) in enumerate((zeros + pairs)[:k]):
        values[m], vectors[at, m] = value, vector / np.linalg.norm(vector)
    return values, vectors


def _connected(
    L: sparse.csr_array, null: Floats, wanted: int, tolerance: float
) -> tuple[Floats, Floats]:
    """Return the smallest eigenvalues above 0 of a connected Laplacian, ascending, and their
    vectors.
    """
    n = len(null)
    null = null / np.linalg.norm(null)
    if n <= _DENSE or 2 * wanted >= n:
        values, vectors = np.linalg.eigh(L.toarray() + 3 * _top(L) * np.outer(null, null))
        return values[:wanted], vectors[:, :wanted]
    values, vectors = _lanczos(L, null[:, None], np.zeros(1), wanted, tolerance)
    # a single Krylov space can miss copies of a multiple eigenvalue: look for more, with what was
    # found moved out of the way, until nothing below the largest kept is left
    while True:
        known = np.column_stack([null, vectors])
        missed = _below(L, known, np.concatenate([[0.0], values]), values[wanted - 1], tolerance)
        if missed is None:
            return values[:wanted], vectors[:, :wanted]
        values, vectors = np.append(values, missed[0]), np.column_stack([vectors, missed[1]])
        order = np.argsort(values, kind="stable")
        values, vectors = values[order], vectors[:, order]


def _below(
    L: sparse.csr_array, known: Floats, values: Floats, limit: float, tolerance: float
) -> tuple[Floats, Floats] | None:
    """Return an eigenpair beside the known ones and below the limit, or None.

    Coarse first: an estimate that lies above the limit by more than its residual decides.
    """
    for coarse in (1e-2, 1e-4):
        value, _ = _lanczos(L, known, values, 1, coarse, seed=1)
        if value[0] - coarse * (_top(L) - value[0]) > limit:
            return None
    value, vector = _lanczos(L, known, values, 1, tolerance, seed=1)
    return (value, vector) if value[0] < limit * (1 - 1e-6) else None


def _lanczos(
    L: sparse.csr_array,
    known: Floats,
    values: Floats,
    wanted: int,
    tolerance: float,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """Return the smallest eigenvalues of L beside the known ones, which are moved to the top.

    On top - L, whose largest eigenvalues these are: no factorisation, one product a step.
    """
    n, top = len(known), _top(L)
    away = top - values

    def mirrored(x: Floats) -> Floats:
        x = x.ravel()
        return top * x - L @ x - known @ (away * (known.T @ x))

    start = np.random.Generator(np.random.Philox(seed)).standard_normal(n)
    start -= known @ (known.T @ start)
    eigenvalues, vectors = eigsh(
        LinearOperator((n, n), matvec=mirrored, dtype=np.float64),
        wanted,
        which="LA",
        v0=start,
        ncv=min(n - 1, max(2 * wanted + 3, 20)),
        tol=tolerance,
        maxiter=100 * n,
    )
    order = np.argsort(-eigenvalues, kind="stable")
    return top - eigenvalues[order], vectors[:, order]


def _top(L: sparse.csr_array) -> float:
    """No eigenvalue of a Laplacian is larger: twice its largest diagonal entry.

    By Gershgorin for D - W; and L_sym, whose diagonal is 1, lies in [0, 2].
    """
    return 2 * float(L.diagonal().max())
