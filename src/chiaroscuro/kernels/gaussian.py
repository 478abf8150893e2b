"""The Gaussian kernel, under which InfoNCE is spectral clustering."""

from __future__ import annotations

from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau

__all__ = ["Gaussian"]


class Gaussian(Leaf):
    """Gaussian kernel with variance tau, or one variance per dimension.

        log k(z, w) = - sum_k (z_k - w_k)^2 / (2 tau_k)

    Relations: equals `Exponential(gamma=2, tau=2*tau)` and `Lp(p=2, tau=2*tau)`; on unit vectors
    it is `Cosine(tau)` times exp(-1/tau) for one tau.

    Args:
        tau: a number, one per dimension, or `Learnable`; 0.5 as SimCLR's [chen2020simclr], to which
            it is equal on unit vectors. [tan2024, proof of Thm 3.1] writes variance tau; the
            experiments there write exp(-|z-w|^2/tau), which is `Gaussian(tau/2)`.

    Numerics: near points are compared by their differences. Coincident points have gradient 0.

    References:
        tan2024, calder2025, rusak2022

    Example:
        >>> import torch
        >>> Gaussian(tau=[1.0, 0.5]).log(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 2.0]]))
        tensor([[-4.5000]])
    """

    stationary = True
    positive_definite = True
    strictly = True
    statistic = "squared"
    factor = -0.5
    exponent = 1.0
    degree = 2.0

    def __init__(self, tau: Tau = 0.5):
        super().__init__(tau)
