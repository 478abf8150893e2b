"""VICReg: variance, invariance, covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.errors import number
from chiaroscuro.numerics import paired_squared, product
from chiaroscuro.objectives.objective import Batch, Objective

__all__ = ["VICReg"]


class VICReg(Objective):
    """Variance, invariance and covariance regularisation [bardes2022vicreg].

        loss = invariance * s(Z, Z') + variance * [v(Z) + v(Z')] + covariance * [c(Z) + c(Z')]
        s = mean_i |z_i - z'_i|^2
        v(Z) = (1/d) sum_k max(0, 1 - sqrt(Var(z_k) + eps))
        c(Z) = (1/d) sum_{k != l} Cov(z)_{kl}^2

    with variance and covariance over n-1. The formula is the one of [bardes2022vicreg, eqs. 1-6]
    and [calder2025, A.1]; widespread code divides s by d and halves the variance term:
    `VICReg(invariance=25/d, variance=12.5)` is that.

    Relations: of two identical views only v and c remain, functions of the latent law alone
    [calder2025, A.1].

    Args:
        invariance, variance, covariance: 25, 25, 1 [bardes2022vicreg, Sec. 4.2].
        eps: 1e-4 [bardes2022vicreg, Sec. 4.1].

    Numerics: a constant dimension has v = 1 - sqrt(eps) and a finite gradient thanks to eps.

    References:
        bardes2022vicreg, calder2025

    Example:
        >>> round(float(VICReg()(torch.zeros(4, 3), torch.zeros(4, 3))), 4)  # 2 * 25 * (1 - 0.01)
        49.5
    """

    least = 2

    def __init__(
        self,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        eps: float = 1e-4,
    ):
        super().__init__()
        self.invariance = number("VICReg", "invariance", invariance)
        self.variance = number("VICReg", "variance", variance)
        self.covariance = number("VICReg", "covariance", covariance)
        self.eps = number("VICReg", "eps", eps)

    def loss(self, batch: Batch) -> Tensor:
        attract, repel = self.split(batch)
        return repel - attract

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        z1, z2 = batch.pair
        s = paired_squared(z1, z2).mean()
        return -self.invariance * s, self._spread(torch.stack([z1, z2]))

    def _spread(self, z: Tensor) -> Tensor:
        """Of both views (2, n, d) at once, which halves the operations."""
        _, n, d = z.shape
        centred = z - z.mean(dim=1, keepdim=True)
        deviation = (centred.square().sum(dim=1) / (n - 1) + self.eps).sqrt()
        v = (1 - deviation).clamp(min=0).sum() / d
        c = product(centred.mT, centred.mT) / (n - 1)
        off_diagonal = c.square().sum() - c.diagonal(dim1=1, dim2=2).square().sum()
        return self.variance * v + self.covariance * off_diagonal / d
