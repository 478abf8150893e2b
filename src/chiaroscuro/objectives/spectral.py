"""The spectral contrastive loss."""

from __future__ import annotations

from torch import Tensor

from chiaroscuro.numerics import product
from chiaroscuro.objectives.objective import Batch, Objective

__all__ = ["SpectralContrastive"]


class SpectralContrastive(Objective):
    """Low-rank factorisation of the augmentation graph [haochen2021spectral, eq. 6].

        loss = -2 mean_i z1_i . z2_i + mean_{i != j} (z1_i . z2_j)^2

    Relations: repulsion is that of the matrices' second moments,
    sum_ij (z1_i . z2_j)^2 = tr(Z1'Z1 Z2'Z2), so no (n, n) matrix is needed.

    References:
        haochen2021spectral

    Example:
        >>> import torch
        >>> float(SpectralContrastive()(torch.eye(3), torch.eye(3)))
        -2.0
    """

    least = 2

    def __init__(self) -> None:
        super().__init__()

    def loss(self, batch: Batch) -> Tensor:
        attract, repel = self.split(batch)
        return repel - attract

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        (z1, z2), n = batch.pair, batch.n
        paired = (z1 * z2).sum(dim=1)
        everyone = (product(z1.T, z1.T) * product(z2.T, z2.T)).sum()
        return 2 * paired.mean(), (everyone - paired.square().sum()) / (n * (n - 1))
