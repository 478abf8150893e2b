"""A projector that ends in scores of prototypes, for methods that cluster while they learn."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chiaroscuro.models.mlp import ACTIVATIONS, perceptron, rows
from chiaroscuro.models.model import Model, one_of, positive
from chiaroscuro.numerics import unit

__all__ = ["Prototypes"]


class Prototypes(Model):
    """A perceptron to unit vectors, and their cosine with each of n prototypes.

        u = perceptron(h) / |perceptron(h)|,   z_k = u . c_k / |c_k|,   k = 1, ..., n

    The head of SwAV, whose prototypes are normalised after each step [caron2020swav, App. A], and
    of DINO, whose last layer has rows of norm 1 [caron2021dino, App. C]: here the norm is divided
    by in the forward pass. What the objective sees is z; `DINO` and `SwAV` divide by a temperature.

    Relations: |z_k| <= 1; the rows of `prototypes` may be scaled without a change of z.

    Args:
        d_in: dimension of h, the encoder's `d`.
        d: number of prototypes, the dimension of z. 3,000 [caron2020swav], 65,536 [caron2021dino]
            for ImageNet; 300 is ten times fewer than SwAV has, for small data.
        bottleneck: dimension of u: 128 [caron2020swav], 256 [caron2021dino].
        depth: linear layers of the perceptron: 2 [caron2020swav], 3 [caron2021dino].
        width: width of its hidden layers, 2048 in both; None is that of h.
        activation: "relu" [caron2020swav] or "gelu" [caron2021dino].
        batch_norm: before each activation: as in [caron2020swav], not as in [caron2021dino].

    Numerics: a BatchNorm needs at least two samples in a training batch; a zero row stays zero.

    References:
        caron2020swav, caron2021dino

    Example:
        >>> z = Prototypes(d_in=8, d=30)(torch.randn(100, 8))
        >>> z.shape, bool(z.abs().max() <= 1)
        (torch.Size([100, 30]), True)
    """

    def __init__(
        self,
        d_in: int,
        d: int = 300,
        bottleneck: int = 128,
        depth: int = 2,
        width: int | None = None,
        activation: str = "relu",
        batch_norm: bool = True,
    ):
        super().__init__()
        positive(self, d_in=d_in, d=d, bottleneck=bottleneck, depth=depth)
        positive(self, **{"width": width} if width is not None else {})
        one_of(self, "activation", activation, ACTIVATIONS)
        self.d_in, self.d, self.bottleneck, self.depth = d_in, d, bottleneck, depth
        self.width, self.activation, self.batch_norm = width, activation, batch_norm
        sizes = [d_in, *[width or d_in] * (depth - 1), bottleneck]
        self.layers = perceptron(sizes, activation, "batch" if batch_norm else "none", "he")
        self.prototypes = nn.Parameter(unit(torch.randn(d, bottleneck)))

    def forward(self, h: Tensor) -> Tensor:
        normalises = self.batch_norm and self.depth > 1
        u = unit(self.layers(rows(self, h, self.d_in, normalises)))
        return F.linear(u, unit(self.prototypes))

    def example(self, n: int = 2) -> Tensor:
        return torch.zeros(n, self.d_in)
