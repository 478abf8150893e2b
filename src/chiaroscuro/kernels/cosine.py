"""The cosine kernel of SimCLR, MoCo and CLIP."""

from __future__ import annotations

from torch import Tensor

from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau
from chiaroscuro.numerics import unit

__all__ = ["Cosine"]


class Cosine(Leaf):
    """Exponential of the cosine similarity; the only kernel that normalises its inputs.

        log k(z, w) = sum_k z_k w_k / (|z| |w| tau_k)

    Relations: with one tau, `Cosine(tau)` of z is `Dot(tau)` of z/|z|, and on unit vectors it is
    `Gaussian(tau)` up to the constant factor exp(1/tau).

    Args:
        tau: a number, one per dimension, or `Learnable`; 0.5 is SimCLR's choice for CIFAR-10
            [chen2020simclr, Appendix B.9] and beta = 2 of [cosentino2022, Sec. 2].

    Numerics: a zero row has cosine 0 with everything and gradient 0; norms from 1e-18 to 1e18 are
    handled in float32.

    References:
        chen2020simclr, oord2018cpc

    Example:
        >>> import torch
        >>> Cosine(tau=0.5).log(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
        tensor([[2., 0.]])
    """

    stationary = False
    positive_definite = True
    strictly = True
    statistic = "inner"
    factor = 1.0
    exponent = 1.0
    degree = 2.0
    unit_rows = True

    def __init__(self, tau: Tau = 0.5):
        super().__init__(tau)

    def base(self, z: Tensor) -> Tensor:
        return unit(z)
