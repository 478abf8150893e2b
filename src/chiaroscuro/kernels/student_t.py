"""The kernel of Student's t distribution, between Cauchy and Gaussian."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.errors import number
from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau

__all__ = ["StudentT"]

_FAST = (2, 3, 4, 6)
"""Twice the exponents for which torch has a fast power."""


class StudentT(Leaf):
    """Density of Student's t with nu degrees of freedom, up to its constant [maaten2009ptsne].

        log k(z, w) = - (nu + 1)/2 log(1 + sum_k (z_k - w_k)^2 / (nu tau_k))

    Relations: `StudentT(nu=1, tau)` is `Cauchy(tau)`; as nu grows it approaches `Gaussian(tau)`.

    Args:
        nu: degrees of freedom; 1 as in t-SNE [maaten2008tsne, eq. 4], d - 1 for a map of d
            dimensions [maaten2009ptsne, Sec. 2].
        tau: a number, one per dimension, or `Learnable`; 1 as in t-SNE.

    Numerics: as `Cauchy`. The factor nu multiplies tau, so nu tau must stay below 1e30.

    References:
        maaten2009ptsne, maaten2008tsne

    Example:
        >>> k = StudentT(nu=3.0, tau=1.0)
        >>> k.log(torch.zeros(1, 1), torch.tensor([[3.0]])).exp()  # (1 + 9/3)^-2
        tensor([[0.0625]])
    """

    stationary = True
    positive_definite = True
    strictly = True
    statistic = "squared"
    decreasing = True
    smooth = True

    def __init__(self, nu: float = 1.0, tau: Tau = 1.0):
        super().__init__(tau)
        self.nu = number("StudentT", "nu", nu, above=True)

    def profile(self, x: Tensor) -> Tensor:
        return torch.log1p(x / self.nu) * (-(self.nu + 1) / 2)

    def k(self, x: Tensor) -> Tensor:
        twice = self.nu + 1
        if twice not in _FAST:
            return self.profile(x).exp_()
        u = (x / self.nu).add_(1)
        return u.rsqrt_().pow_(3) if twice == 3 else u.reciprocal_().pow_(twice / 2)

    def slope(self, x: Tensor) -> Tensor:
        return (x + self.nu).reciprocal_().mul_(-(self.nu + 1) / 2)

    def k_and_slope(self, x: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
        twice = self.nu + 1
        if twice not in _FAST:
            return self.k(x), self.slope(x)
        u = x.div_(self.nu).add_(1)
        slope = torch.reciprocal(u, out=spare)
        k = u.rsqrt_().pow_(3) if twice == 3 else torch.pow(slope, twice / 2, out=x)
        return k, slope.mul_(-twice / (2 * self.nu))
