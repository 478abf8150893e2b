"""The exponential of the scalar product, as symbol-context learning uses it."""

from __future__ import annotations

from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau

__all__ = ["Dot"]


class Dot(Leaf):
    """Exponential of the scalar product, without any normalisation.

        log k(z, w) = sum_k z_k w_k / tau_k

    Relations: with one tau, log Dot(z, w) = log Gaussian(z, w) + (|z|^2 + |w|^2) / (2 tau).

    Args:
        tau: a number, one per dimension, or `Learnable`; 1 as in [semantic2025, eq. 2], where the
            similarity is the bare scalar product.

    Numerics: unbounded in both directions; the log-sum-exp tracks its maximum.

    References:
        semantic2025, oord2018cpc

    Example:
        >>> import torch
        >>> Dot(tau=2.0).log(torch.tensor([[2.0, 1.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[5.]])
    """

    stationary = False
    positive_definite = True
    strictly = True
    statistic = "inner"
    factor = 1.0
    exponent = 1.0
    degree = 2.0

    def __init__(self, tau: Tau = 1.0):
        super().__init__(tau)
