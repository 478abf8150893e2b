"""The separable kernel exp(-sum |z_k - w_k|^p / tau_k) of box-shaped latent spaces."""

from __future__ import annotations

from chiaroscuro.errors import number
from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau

__all__ = ["Lp"]


class Lp(Leaf):
    """Exponential of the p-th power of the l_p distance [rusak2022, Sec. 4.1; zimmermann2021clica].

        log k(z, w) = - sum_k |z_k - w_k|^p / tau_k

    Positive definite for p <= 2 only: a product over dimensions of exp(-|x|^p / tau_k).

    Relations: `Lp(2, 2*tau)` is `Gaussian(tau)`; in one dimension `Lp(p, tau)` is
    `Exponential(p, tau)`.

    Args:
        p: the power.
        tau: a number, one per dimension, or `Learnable`; 1 as in [rusak2022, Table 1].

    Numerics: each coordinate that coincides contributes gradient 0. For p other than 2 there is
    no matrix product to use: the cost is n m d powers.

    References:
        rusak2022, zimmermann2021clica

    Example:
        >>> import torch
        >>> Lp(p=3, tau=[1.0, 2.0]).log(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 2.0]]))
        tensor([[-5.]])
    """

    stationary = True
    factor = -1.0
    exponent = 1.0

    def __init__(self, p: float, tau: Tau = 1.0):
        super().__init__(tau)
        self.p = number("Lp", "p", p, above=True)
        self.positive_definite = self.strictly = self.p <= 2

    @property
    def statistic(self) -> str:
        """p = 2 has a matrix product; the other powers need every difference."""
        return "squared" if self.p == 2 else "power"
