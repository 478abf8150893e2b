"""The spectrum of embeddings: how many dimensions they use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chiaroscuro.diagnostics.rows import rows_of

__all__ = ["effective_rank", "numerical_rank", "participation_ratio", "singular_values"]

THRESHOLD = 1e-3


def singular_values(h: Any) -> Tensor:
    """The singular values s of the centred matrix, in falling order; min(n, d) of them.

    Rows that are all alike have none above rounding: they give zeros.

    Args:
        h: (n, d), n >= 2.

    Numerics: float64; what is below rounding of the uncentred numbers is 0.

    Example:
        >>> singular_values(torch.tensor([[1.0, 5.0], [-1.0, 5.0]])).tolist()
        [1.4142135623730951, 0.0]
    """
    x = rows_of("singular_values(h)", h)
    s = torch.linalg.svdvals(x - x.mean(dim=0))
    rounding = torch.finfo(x.dtype).eps * float(x.norm()) * 4
    return torch.where(s > rounding, s, 0.0)


def effective_rank(h: Any) -> float:
    """The exponential of the entropy of the normalised singular values [roy2007rank].

        exp(-sum_k p_k log p_k),   p_k = s_k / sum_j s_j

    From 1 (one direction) to min(n - 1, d) (all alike); 0 where all rows are the same.

    Relations: at most `numerical_rank` where the values below its threshold are 0; equal to it and
    to `participation_ratio` where all values that are not 0 are the same.

    Args:
        h: (n, d), n >= 2.

    References:
        roy2007rank

    Example:
        >>> round(effective_rank(torch.cat([torch.eye(4), -torch.eye(4)])), 6)
        4.0
    """
    s = singular_values(h)
    total = s.sum()
    if total == 0:
        return 0.0
    p = s / total
    return float(torch.special.entr(p).sum().exp())


def participation_ratio(h: Any) -> float:
    """How many directions carry the variance.

        (sum_k s_k^2)^2 / sum_k s_k^4

    From 1 to min(n - 1, d), as `effective_rank`, and less generous to small values; 0 where all
    rows are the same.

    Relations: it is (trace C)^2 / trace(C^2) of the covariance C.

    Args:
        h: (n, d), n >= 2.

    Example:
        >>> round(participation_ratio(torch.cat([torch.eye(4), -torch.eye(4)])), 6)
        4.0
    """
    s = singular_values(h)
    if s[0] == 0:
        return 0.0
    square = (s / s[0]).square()
    return float(square.sum().square() / square.square().sum())


def numerical_rank(h: Any) -> int:
    """The number of singular values above a thousandth of the largest.

        #{k : s_k > 1e-3 s_1}

    From 1 to min(n - 1, d); 0 where all rows are the same.

    Args:
        h: (n, d), n >= 2.

    Example:
        >>> numerical_rank(torch.tensor([[0.0, 0.0], [1.0, 1e-4], [2.0, 0.0]]))
        1
    """
    s = singular_values(h)
    return int((s > THRESHOLD * s[0]).sum())
