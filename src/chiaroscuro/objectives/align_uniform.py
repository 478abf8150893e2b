"""Alignment and uniformity on the sphere, as a loss."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from chiaroscuro.errors import number
from chiaroscuro.kernels import Gaussian
from chiaroscuro.numerics import paired_squared, power, readable, unit
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import Layout, by_blocks, log_sum_exp

__all__ = ["AlignUniform"]


class AlignUniform(Objective):
    """Weighted sum of alignment and uniformity [wang2020alignuniform, eqs. 5, 6].

        loss = align * mean_i |u1_i - u2_i|^alpha + uniform * (U(u1) + U(u2)) / 2
        U(u) = log mean_{i != j} exp(-t |u_i - u_j|^2)

    Relations: U is the mean log-sum-exp of `Gaussian(1/(2t))` over all pairs at once; a collapsed
    batch has U = 0, the most it can be.

    Args:
        align, uniform: weights of the two, 1 and 1 [wang2020alignuniform, Fig. 5].
        alpha: 2, and t: 2 [wang2020alignuniform, Sec. 4.2].

    References:
        wang2020alignuniform

    Example:
        >>> round(float(AlignUniform()(torch.eye(3), torch.eye(3))), 6)  # -t |e_i - e_j|^2
        -4.0
    """

    least = 2

    def __init__(
        self, align: float = 1.0, uniform: float = 1.0, alpha: float = 2.0, t: float = 2.0
    ):
        super().__init__()
        self.align = number("AlignUniform", "align", align)
        self.uniform = number("AlignUniform", "uniform", uniform)
        self.alpha = number("AlignUniform", "alpha", alpha, above=True)
        self.t = number("AlignUniform", "t", t, above=True)

    def loss(self, batch: Batch) -> Tensor:
        attract, repel = self.split(batch)
        return repel - attract

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        u = unit(torch.cat(batch.pair))
        u1, u2 = u.chunk(2)
        squared = paired_squared(u1, u2)
        align = (squared if self.alpha == 2 else power(squared, self.alpha / 2)).mean()
        if readable(u):
            return -self.align * align, self.uniform * (self._spread(u1) + self._spread(u2)) / 2
        return -self.align * align, self.uniform * self._spreads(u)

    def _spreads(self, u: Tensor) -> Tensor:
        """The mean of U over both views, stacked."""
        n = len(u) // 2
        sums = by_blocks(self._kernel, u, replace(Layout.within(n), views=2, both=True))[1]
        return torch.logsumexp(sums, dim=1).mean() - math.log(n * (n - 1))

    @property
    def _kernel(self) -> Gaussian:
        return Gaussian(tau=1 / (2 * self.t))

    def _spread(self, u: Tensor) -> Tensor:
        n = len(u)
        _, sums, _ = log_sum_exp(self._kernel, u, Layout.within(n))
        return torch.logsumexp(sums[0], dim=0) - math.log(n * (n - 1))
