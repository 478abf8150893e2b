"""Barlow Twins: the cross-correlation of two views should be the identity."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.errors import number
from chiaroscuro.numerics import product, unit
from chiaroscuro.objectives.objective import Batch, Objective

__all__ = ["BarlowTwins"]


class BarlowTwins(Objective):
    """Redundancy reduction between two views [zbontar2021barlow, eq. 1].

        loss = sum_k (1 - C_kk)^2 + redundancy * sum_{k != l} C_kl^2

    C is the (d, d) correlation of the centred dimensions of one view with those of the other.

    Relations: zero exactly when both views are equal and their dimensions uncorrelated.

    Args:
        redundancy: 5e-3 [zbontar2021barlow, Sec. 3].

    Numerics: a constant dimension has correlation 0 with everything and gradient 0, where code
    that divides by the deviation, or by it plus an epsilon, gives NaN or a number of its own.

    References:
        zbontar2021barlow

    Example:
        >>> float(BarlowTwins()(torch.zeros(4, 3), torch.zeros(4, 3)))
        3.0
    """

    least = 2

    def __init__(self, redundancy: float = 5e-3):
        super().__init__()
        self.redundancy = number("BarlowTwins", "redundancy", redundancy)

    def loss(self, batch: Batch) -> Tensor:
        attract, repel = self.split(batch)
        return repel - attract

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        a, b = (unit(_centred(z).T) for z in batch.pair)
        c = product(a, b)
        diagonal = c.diagonal()
        on, off = (1 - diagonal).square().sum(), c.square().sum() - diagonal.square().sum()
        return -on, self.redundancy * off


def _centred(z: Tensor) -> Tensor:
    """Dimensions less their means; exactly zero where what is left is the mean's rounding."""
    centred = z - z.mean(dim=0)
    noise = 4 * torch.finfo(z.dtype).eps * z.detach().abs().amax(dim=0)
    return centred.masked_fill(centred.detach().abs().amax(dim=0) <= noise, 0.0)
