"""How far two partitions agree, or two embeddings of the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.rows import rows_of

__all__ = ["adjusted_rand", "linear_agreement", "mutual_information"]


def adjusted_rand(a: Any, b: Any) -> float:
    """Return the adjusted Rand index of two partitions [hubert1985ari].

        (S - E) / (M - E):  S = sum_ij C(n_ij, 2),  E = A B / C(n, 2),  M = (A + B) / 2

    with n_ij members shared by cluster i of a and j of b, A = sum_i C(n_i, 2), and B likewise. 1
    for equal partitions, however named; 0 in expectation for unrelated ones; at least -1/2.

    Relations: symmetric; `sklearn.metrics.adjusted_rand_score`.

    Args:
        a, b: (n,) labels, of any whole numbers or strings.

    References:
        hubert1985ari

    Example:
        >>> adjusted_rand([0, 0, 1, 1], [5, 5, 3, 3])
        1.0
        >>> round(adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]), 6)
        -0.5
    """
    table = _shared("adjusted_rand(a, b)", a, b)
    pairs = lambda x: float((x.astype(np.float64) * (x - 1) / 2).sum())
    S, A, B = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    total = pairs(table.sum())
    E = A * B / total if total else 0.0
    M = (A + B) / 2
    return (S - E) / (M - E) if M != E else 1.0


def mutual_information(a: Any, b: Any) -> float:
    """Return the normalised mutual information of two partitions [strehl2002nmi].

        I(a; b) / ((H(a) + H(b)) / 2)

    From 0 (independent) to 1 (equal, however named). Not corrected for chance: many small clusters
    score above 0 by themselves; `adjusted_rand` does not. 1 where both are one cluster.

    Relations: symmetric; `sklearn.metrics.normalized_mutual_info_score` with the arithmetic mean.

    Args:
        a, b: (n,) labels.

    References:
        strehl2002nmi

    Example:
        >>> round(mutual_information([0, 0, 1, 1], [5, 5, 3, 3]), 6)
        1.0
    """
    p = _shared("mutual_information(a, b)", a, b) / len(a)
    entropy = lambda q: -float((q[q > 0] * np.log(q[q > 0])).sum())
    joint, one, two = entropy(p), entropy(p.sum(axis=1)), entropy(p.sum(axis=0))
    if one == 0 and two == 0:
        return 1.0
    return max(0.0, (one + two - joint) / ((one + two) / 2))


def _shared(call: str, a: Any, b: Any) -> np.ndarray:
    """How many members each cluster of a shares with each of b."""
    x, y = np.asarray(a), np.asarray(b)
    need(
        x.ndim == 1 and x.shape == y.shape and len(x) > 0,
        lambda: f"`{call}` needs two rows of as many labels; received {x.shape} and {y.shape}.",
    )
    i, j = (np.unique(z, return_inverse=True)[1] for z in (x, y))
    wide = int(j.max()) + 1
    return np.bincount(i * wide + j, minlength=(int(i.max()) + 1) * wide).reshape(-1, wide)


def linear_agreement(h: Any, w: Any) -> float:
    """Return the linear CKA of two embeddings of the same rows.

        |X'Y|_F^2 / (|X'X|_F |Y'Y|_F),   X, Y centred

    From 0 to 1, where one is a rotation and a factor of the other; 0 where one is constant.

    Args:
        h, w: (n, d) and (n, e).

    References:
        cortes2012alignment

    Example:
        >>> round(linear_agreement(np.eye(3), 2 * np.eye(3)[:, [1, 0, 2]]), 6)
        1.0
    """
    x, y = rows_of("linear_agreement", h), rows_of("linear_agreement", w)
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    own = float(np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    return float(((x.T @ y) ** 2).sum() / own) if own > 0 else 0.0
