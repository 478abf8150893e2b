"""The exponential family exp(-r^gamma / tau) of Kernel-InfoNCE."""

from __future__ import annotations

from chiaroscuro.errors import number
from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau

__all__ = ["Exponential"]


class Exponential(Leaf):
    """Exponential of a power of the distance [tan2024, eq. 7].

        log k(z, w) = - |(z - w) / tau^(1/gamma)|^gamma

    With one tau this is -|z - w|^gamma / tau. Positive definite for gamma <= 2 only.

    Relations: `Exponential(1, tau)` is `Laplace(tau)`; `Exponential(2, 2*tau)` is `Gaussian(tau)`.

    Args:
        gamma: the power; 0.5, 1 and 2 in [tan2024, Table 1].
        tau: a number, one per dimension, or `Learnable`; 0.5 as SimCLR's [chen2020simclr].

    Numerics: for gamma < 2 the derivative at coincident points does not exist, or is infinite for
    gamma < 1; they contribute gradient 0.

    References:
        tan2024

    Example:
        >>> import torch
        >>> Exponential(gamma=0.5, tau=2.0).log(torch.tensor([[0.0]]), torch.tensor([[16.0]]))
        tensor([[-2.]])
    """

    stationary = True
    statistic = "squared"
    factor = -1.0

    def __init__(self, gamma: float, tau: Tau = 0.5):
        super().__init__(tau)
        self.gamma = number("Exponential", "gamma", gamma, above=True)
        self.positive_definite = self.strictly = self.gamma <= 2

    @property
    def exponent(self) -> float:  # type: ignore[override]
        """Of the squared distance: gamma / 2."""
        return self.gamma / 2

    @property
    def degree(self) -> float:
        """Of the distance: gamma."""
        return self.gamma
