"""Equal shares: samples spread over prototypes so that each prototype is used equally often."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["equal_shares"]


def equal_shares(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Return (n, K) probabilities of prototypes, by the Sinkhorn-Knopp algorithm [cuturi2013].

        Q = diag(a) exp(scores / epsilon) diag(b),   rows of Q sum to 1, columns nearly to n / K

    Each iteration normalises columns, then rows, so rows sum to 1 exactly and columns the better
    the more iterations there are [caron2020swav, eqs. 3-5].

    Args:
        scores: of n samples for K prototypes.
        epsilon: what divides the scores; small is nearly a hard assignment.
        iterations: how often columns and rows are normalised.

    Numerics: in the log domain, so that no epsilon over- or underflows.

    Example:
        >>> equal_shares(torch.tensor([[5.0, 0.0], [4.0, 0.0]]), 1.0, 50).round(decimals=2)
        tensor([[0.6200, 0.3800],
                [0.3800, 0.6200]])
    """
    log_q = scores / epsilon
    for _ in range(iterations):
        log_q = log_q - torch.logsumexp(log_q, dim=0)
        log_q = log_q - torch.logsumexp(log_q, dim=1, keepdim=True)
    return log_q.exp()
