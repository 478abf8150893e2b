"""The Laplacian kernel of Kernel-InfoNCE."""

from __future__ import annotations

from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau

__all__ = ["Laplace"]


class Laplace(Leaf):
    """Exponential of the negative Euclidean distance.

        log k(z, w) = - |(z - w) / tau|

    Relations: equals `Exponential(gamma=1, tau)`, also with one tau per dimension.

    Args:
        tau: a number, one per dimension, or `Learnable`; 0.5 as SimCLR's [chen2020simclr].

    Numerics: the distance has no derivative at 0; coincident points contribute gradient 0. Near
    points are compared by their differences, since a root of a cancelled square keeps no digit.

    References:
        tan2024

    Example:
        >>> import torch
        >>> Laplace(tau=0.5).log(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[-10.,  -0.]])
    """

    stationary = True
    positive_definite = True
    strictly = True
    statistic = "squared"
    factor = -1.0
    exponent = 0.5
    degree = 1.0

    def __init__(self, tau: Tau = 0.5):
        super().__init__(tau)
