"""The Cauchy kernel of t-SNE, UMAP and t-SimCNE."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.kernels.kernel import Leaf
from chiaroscuro.kernels.temperature import Tau

__all__ = ["Cauchy"]


class Cauchy(Leaf):
    """Heavy-tailed inverse quadratic kernel, which separates clusters in two-dimensional maps.

        log k(z, w) = - log(1 + sum_k (z_k - w_k)^2 / tau_k)

    Under InfoNCE it is the loss of t-SimCNE [boehm2023tsimcne, Sec. 3], which trains
    two-dimensional maps of images; t-SNE compares points of the plane by the same kernel
    [maaten2008tsne]. Embeddings are not normalised: their length has a meaning here.

    Relations: `Cauchy(tau)` is `StudentT(nu=1, tau)`.

    Args:
        tau: a number, one per dimension, or `Learnable`; 1 as in [boehm2023tsimcne, Sec. 3].

    Numerics: log k falls like the logarithm of the distance, so nothing underflows; equal points
    have log k = 0 and gradient 0.

    References:
        boehm2023tsimcne, maaten2008tsne

    Example:
        >>> Cauchy(tau=2.0).log(torch.zeros(1, 2), torch.tensor([[2.0, 0.0], [0.0, 0.0]])).exp()
        tensor([[0.3333, 1.0000]])
    """

    stationary = True
    positive_definite = True
    strictly = True
    statistic = "squared"
    decreasing = True
    smooth = True

    def __init__(self, tau: Tau = 1.0):
        super().__init__(tau)

    def profile(self, x: Tensor) -> Tensor:
        return -torch.log1p(x)

    def k(self, x: Tensor) -> Tensor:
        return (1 + x).reciprocal_()

    def slope(self, x: Tensor) -> Tensor:
        return (1 + x).reciprocal_().neg_()

    def k_and_slope(self, x: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
        k = x.add_(1).reciprocal_()
        return k, torch.neg(k, out=spare)
